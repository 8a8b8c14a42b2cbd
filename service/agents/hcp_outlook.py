"""An HCP's outlook: its calibrated chance of a conversion within 4 weeks, what moves it, and how far such numbers can be trusted."""

import numpy as np
import pandas as pd

from service.agents.chart import Row, bar_chart, interval_chart, table
from service.agents.conversion import HORIZON_WEEKS, ConversionModel, fit_conversion_model
from service.agents.finding import Finding
from service.agents.sample_data import PROGRAMMES, Snapshot


def predict_hcp(data: Snapshot, row: int, *, others_named: bool) -> Finding:
    """Return the outlook of the HCP in one row of the data.

    Confidence is 1 less what the HCP's tenth of the held-out HCPs leaves open: half its Wilson interval, plus its calibration
    gap; and half of that where the model is no better than the average rate.
    """
    before = fit_conversion_model.cache_info().hits
    model = fit_conversion_model(data)
    cached = fit_conversion_model.cache_info().hits > before
    probability = float(model.probability[row])
    bins = model.reliability()
    mean, share, size = min(bins, key=lambda one: abs(one[0] - probability))
    low, high = wilson(share, size)
    hcp = data.hcps.iloc[row]
    drivers = _drivers(model, row)
    skill = 1.0 - model.brier / max(model.base_rate_brier, 1e-9)
    caveats = ["The probability is for any converted patient of this HCP; it does not say which patient, nor what would raise it."]
    if others_named:
        caveats.append(f"Several HCPs were named; the answer is for the first, {hcp['hcp_id']}.")
    if skill <= 0:
        caveats.append("On the held-out weeks the model was no better than the average rate.")
    return Finding(
        primary_output={
            "target": "conversion_within_4_weeks",
            "hcp_id": str(hcp["hcp_id"]),
            "probability": probability,
            "interval": [low, high],
            "rank": int((model.probability > probability).sum()) + 1,
            "of": len(data.hcps),
            "auc": model.auc,
            "brier": model.brier,
            "brier_of_average": model.base_rate_brier,
            "calibration_error": model.calibration_error,
            "drivers": drivers,
        },
        confidence=max(0.0, 1.0 - (high - low) / 2.0 - abs(mean - share)) * (1.0 if skill > 0 else 0.5),
        evidence=_evidence(model, hcp, probability, (mean, share, size), drivers),
        caveats=caveats,
        visualizations=(
            bar_chart("drivers", f"What moves {hcp['hcp_id']} from the average (log odds)", drivers, value="log_odds", label="feature"),
            interval_chart(
                "reliability",
                "Observed share by predicted probability, held-out HCPs",
                _reliability_rows(bins),
                label="predicted",
                value="observed",
            ),
        ),
        tables=(table("Reliability on held-out weeks", _reliability_rows(bins)),),
        model_used="scikit-learn logistic regression, sigmoid-calibrated",
        cache_hit=cached,
    )


def _evidence(
    model: ConversionModel, hcp: pd.Series, probability: float, like: tuple[float, float, int], drivers: list[dict[str, object]]
) -> list[str]:
    mean, share, size = like
    low, high = wilson(share, size)
    return [
        f"{hcp['hcp_id']} ({hcp['specialty']}, {hcp['region']}, decile {hcp['decile']}, {hcp['brand']}) has a probability of "
        f"{100 * probability:.0f} % of at least one converted patient in the next {HORIZON_WEEKS} weeks.",
        f"Of the {size} held-out HCPs with a like prediction (mean {100 * mean:.0f} %), {100 * share:.0f} % had one (95 % interval "
        f"{100 * low:.0f} to {100 * high:.0f} %).",
        f"On the last {HORIZON_WEEKS} weeks, which the model had not seen, its AUC is {model.auc:.2f}, its Brier score "
        f"{model.brier:.3f} ({model.base_rate_brier:.3f} for the average rate), and its mean calibration error "
        f"{100 * model.calibration_error:.1f} percentage points.",
        f"Strongest drivers: {drivers[0]['feature']} ({drivers[0]['log_odds']:+.2f} log odds) and {drivers[1]['feature']} "
        f"({drivers[1]['log_odds']:+.2f}).",
    ]


def _drivers(model: ConversionModel, row: int) -> list[dict[str, object]]:
    contribution = model.values[row] * model.coefficients
    order = np.argsort(-np.abs(contribution))[:6]
    return [{"feature": _written(model.features[at], model.values[row, at]), "log_odds": round(float(contribution[at]), 3)} for at in order]


def _written(feature: str, standardised: float) -> str:
    words = feature.replace("_", " ")
    if feature not in PROGRAMMES and feature != "is_academic":
        return words
    return f"{words}: {'yes' if standardised > 0 else 'no'}"


def _reliability_rows(bins: list[tuple[float, float, int]]) -> list[Row]:
    rows: list[Row] = []
    for mean, share, size in bins:
        low, high = wilson(share, size)
        rows.append(
            {"predicted": f"{100 * mean:.0f} %", "observed": round(share, 3), "low": round(low, 3), "high": round(high, 3), "hcps": size}
        )
    return rows


def wilson(share: float, size: int) -> tuple[float, float]:
    """Return the 95 % interval of an observed share (Wilson, JASA 1927)."""
    square = 1.96**2 / size
    centre = (share + square / 2.0) / (1.0 + square)
    half = 1.96 / (1.0 + square) * float(np.sqrt(share * (1.0 - share) / size + square / (4.0 * size)))
    return centre - half, centre + half
