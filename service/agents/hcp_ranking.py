"""HCPs ranked by their chance of a conversion within 4 weeks, or by the chance that they write nothing for some weeks.

The second is the negative binomial model of repeat buying (Ehrenberg, Repeat-Buying, 1988): an HCP's TRx of a week are Poisson, and the
rates of a brand's HCPs follow a gamma distribution, fitted by moments to the last 26 weeks.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

from service.agents.chart import Row, bar_chart, table
from service.agents.conversion import HORIZON_WEEKS, ConversionModel, fit_conversion_model
from service.agents.finding import AgentFailure, Finding
from service.agents.hcp_outlook import wilson
from service.agents.outlook_request import Ranking
from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.scope import Scope

HISTORY_WEEKS = 26
QUIET_WEEKS = 8
SMALLEST_GROUP = 30


def rank_hcps(data: Snapshot, scope: Scope, ranking: Ranking, asked_weeks: int | None) -> Finding:
    """Return the HCPs of the scope with the highest chances; `asked_weeks` is how far ahead the question looks, if it says so.

    Confidence: 1 less what the held-out HCPs with like chances leave open (half their Wilson interval and their calibration gap), and
    half of that where the model does no better than the average rate.

    Raises:
        AgentFailure: Too few HCPs are left.
    """
    inside = scope.mask & ranking.mask
    if inside.sum() < SMALLEST_GROUP:
        raise AgentFailure("insufficient_data", f"{scope.label} has {int(inside.sum())} such HCPs; {SMALLEST_GROUP} are needed.")
    chance, held_out, outcome, target = _quiet(data) if ranking.stops else _conversion(data)
    order = np.flatnonzero(inside)[np.argsort(-chance[inside], kind="stable")]
    listed = order[: ranking.size]
    like = _like(held_out, inside, len(listed))
    share = float(outcome[like].mean())
    low, high = wilson(share, len(like))
    auc = float(roc_auc_score(outcome[inside], held_out[inside])) if 0 < outcome[inside].sum() < inside.sum() else 0.5
    rows = _rows(data, listed, chance)
    group = " and ".join(ranking.specialties)
    label = f"{scope.label}, {group}" if group else scope.label
    return Finding(
        primary_output={
            "target": target,
            "scope": scope.label,
            "specialties": list(ranking.specialties),
            "hcps": int(inside.sum()),
            "ranked": rows,
            "mean_probability": float(chance[inside].mean()),
            "observed_share_of_like": share,
            "interval_of_like": [low, high],
            "like_hcps": len(like),
            "auc": auc,
        },
        confidence=max(0.0, 1.0 - (high - low) / 2.0 - abs(float(held_out[like].mean()) - share)) * (1.0 if auc > 0.5 else 0.5),
        evidence=_evidence(label, ranking, rows, chance[inside], (share, low, high, len(like)), auc),
        caveats=[*scope.caveats, *ranking.caveats, *_caveats(ranking, asked_weeks)],
        visualizations=(bar_chart("ranking", f"Highest chances, {label}", rows[:20], value="probability", label="hcp_id", color="region"),),
        tables=(table("Ranked HCPs", rows),),
        model_used="negative binomial repeat-buying model" if ranking.stops else "scikit-learn logistic regression, sigmoid-calibrated",
    )


def _conversion(data: Snapshot) -> tuple[Reals, Reals, Mask, str]:
    model: ConversionModel = fit_conversion_model(data)
    return model.probability, model.held_out_probability, model.held_out_outcome, "conversion_within_4_weeks"


def _quiet(data: Snapshot) -> tuple[Reals, Reals, Mask, str]:
    """Return each HCP's chance of no TRx in the next weeks, and the same chance 8 weeks ago with what then came."""
    then = data.weeks - QUIET_WEEKS
    quiet: Mask = data.weekly["trx"][then:].sum(axis=0) == 0
    return _chance_of_none(data, data.weeks), _chance_of_none(data, then), quiet, f"no_trx_within_{QUIET_WEEKS}_weeks"


def _chance_of_none(data: Snapshot, now: int) -> Reals:
    seen = data.weekly["trx"][now - HISTORY_WEEKS : now].sum(axis=0).astype(np.float64)
    chance = np.empty(len(seen))
    for brand in np.unique(data.labels("brand")):
        group = data.labels("brand") == brand
        mean = seen[group].mean()
        scale = max(seen[group].var() / mean - 1.0, 1e-6)
        shape = mean / scale
        rate = HISTORY_WEEKS / scale
        chance[group] = ((rate + HISTORY_WEEKS) / (rate + HISTORY_WEEKS + QUIET_WEEKS)) ** (shape + seen[group])
    return chance


def _like(held_out: Reals, inside: Mask, count: int) -> np.ndarray:
    """Return the held-out HCPs of the scope with the highest chances: as many as are listed, but enough to judge by."""
    candidates = np.flatnonzero(inside)
    return candidates[np.argsort(-held_out[candidates], kind="stable")][: max(count, min(len(candidates), 100))]


def _rows(data: Snapshot, listed: np.ndarray, chance: Reals) -> list[Row]:
    columns = ("hcp_id", "brand", "specialty", "region", "setting", "decile")
    return [
        {"rank": at + 1, **{name: data.hcps[name].iloc[row] for name in columns}, "probability": round(float(chance[row]), 4)}
        for at, row in enumerate(listed)
    ]


def _evidence(label: str, ranking: Ranking, rows: list[Row], chance: Reals, like: tuple[float, float, float, int], auc: float) -> list[str]:
    share, low, high, count = like
    first = ", ".join(f"{row['hcp_id']} ({100 * float(str(row['probability'])):.1f} %)" for row in rows[:5])
    event = f"no TRx in the next {QUIET_WEEKS} weeks" if ranking.stops else f"a converted patient in the next {HORIZON_WEEKS} weeks"
    past = f"wrote nothing in the {QUIET_WEEKS} weeks" if ranking.stops else f"had one in the {HORIZON_WEEKS} weeks"
    return [
        f"Of the {len(chance):,} HCPs ({label}) these have the highest chance of {event}: {first}; the mean is "
        f"{100 * chance.mean():.1f} %.",
        f"Judged on the last weeks, which the model had not seen: of the {count} HCPs with the highest chances {100 * share:.1f} % {past} "
        f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %).",
        f"The AUC on those weeks is {auc:.2f} (0.5 is chance).",
    ]


def _caveats(ranking: Ranking, asked_weeks: int | None) -> list[str]:
    weeks = QUIET_WEEKS if ranking.stops else HORIZON_WEEKS
    if asked_weeks is not None and asked_weeks != weeks:
        other = f"The chance is for {weeks} weeks, the question asks for {asked_weeks}; the order of the HCPs is much the same."
        return [other, *_caveats(ranking, None)]
    if ranking.stops:
        return [
            "The data do not say that an HCP has stopped, or why; writing nothing for some weeks stands in for it, and it is rare here."
        ]
    return ["The chance is for any converted patient of the HCP, with or without promotion; it does not say what would raise it."]
