"""drift_monitor (tier 3): which features moved between recent weeks and the weeks before, and whether a model still holds."""

from dataclasses import dataclass

import numpy as np

from service.agents.chart import Row, bar_chart, table
from service.agents.drift_request import DriftRequest, read_drift_request
from service.agents.finding import AgentFailure, Finding
from service.agents.model_decay import Decay, Window, measure_decay
from service.agents.resampling import draw_weights, share_true
from service.agents.sample_data import Reals, Snapshot
from service.agents.scope import Scope, question_of, resolve_period, resolve_scope
from service.agents.stability import adjust_p_values, bin_edges, ks, psi, psi_of_shares
from service.contracts.dispatch import AgentDispatch

DEFAULT_WEEKS = 8
LONGEST_WINDOW = 26
FIT_WEEKS = 10
MATERIAL_PSI = 0.10
LARGE_PSI = 0.25
SIGNIFICANT = 0.05
SMALLEST_GROUP = 50
FEATURES = ("trx", "nrx", "market_trx", "calls", "emails", "samples", "speaker_events", "candidates", "conversions")


@dataclass(frozen=True, slots=True, eq=False)
class _Feature:
    name: str
    psi: float
    psi_by_chance: float
    psi_replicates: Reals
    ks: float
    adjusted_p: float
    mean_before: float
    mean_recent: float

    @property
    def level(self) -> str:
        """Material and significant is drift; significant but immaterial is minor."""
        excess = self.psi - self.psi_by_chance
        if self.adjusted_p >= SIGNIFICANT:
            return "stable"
        return "large" if excess >= LARGE_PSI else "moderate" if excess >= MATERIAL_PSI else "minor"


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Compare the recent weeks with as many weeks before, feature by feature and HCP by HCP.

    A feature drifts when its Kolmogorov-Smirnov p-value, adjusted for the number of features (Benjamini-Hochberg), is below
    0.05 and its PSI exceeds by 0.1 what chance gives at this number of HCPs. Confidence is the share of bootstrap replicates
    in which the same features lie above that PSI, half of it where the question is about something that this only stands in for.

    Raises:
        AgentFailure: The named brand, region or period is not in the data, or leaves too few HCPs.
    """
    scope = resolve_scope(dispatch, data)
    if scope.mask.sum() < SMALLEST_GROUP:
        raise AgentFailure(
            "insufficient_data", f"{scope.label} has {int(scope.mask.sum())} HCPs; {SMALLEST_GROUP} are needed for a distribution."
        )
    before, recent, window_caveat = _windows(dispatch, data)
    features = _compare(data, scope, before, recent)
    fit = (max(0, before[0] - FIT_WEEKS), before[0])
    decay = measure_decay(data, scope.mask, fit, before, recent) if fit[1] - fit[0] >= FIT_WEEKS else None
    drifted = [feature for feature in features if feature.level in {"moderate", "large"}]
    request = read_drift_request(question_of(dispatch))
    rows = [_row(feature) for feature in features]
    return Finding(
        primary_output={
            "scope": scope.label,
            "status": "drift" if drifted or (decay and decay.decayed) else "stable",
            "drifted_features": [feature.name for feature in drifted],
            "minor_shifts": [feature.name for feature in features if feature.level == "minor"],
            "recent_weeks": [data.week_ends[recent[0]].isoformat(), data.week_ends[recent[1] - 1].isoformat()],
            "baseline_weeks": [data.week_ends[before[0]].isoformat(), data.week_ends[before[1] - 1].isoformat()],
            "features": rows,
            "model": _decay_output(decay),
            "asked_features": list(request.features),
            "not_in_data": list(request.absent),
            "nearness": request.nearness,
        },
        confidence=_confidence(features) * request.nearness,
        evidence=[*_lead(request, features, decay), *_evidence(data, scope, features, decay, recent)],
        caveats=[*request.notes, *_caveats(scope, window_caveat, decay, fit, data.programme_start)],
        visualizations=(bar_chart("drift", f"PSI by feature, {scope.label}", rows, value="psi", label="feature", color="level"),),
        tables=(table("Drift by feature", rows), *([table("Observed and expected conversions", _decay_rows(decay))] if decay else [])),
        model_used="PSI, Kolmogorov-Smirnov, logistic regression",
    )


def _windows(dispatch: AgentDispatch, data: Snapshot) -> tuple[Window, Window, str | None]:
    period, caveat = resolve_period(dispatch, data)
    default = (data.weeks - 2 * DEFAULT_WEEKS, data.weeks - DEFAULT_WEEKS), (data.weeks - DEFAULT_WEEKS, data.weeks)
    if period is None:
        return *default, caveat or f"No period was named; the last {DEFAULT_WEEKS} weeks are compared with the {DEFAULT_WEEKS} before."
    if period.ahead or not 4 <= period.length <= LONGEST_WINDOW or period.start < period.length:
        note = f"A window must be 4 to {LONGEST_WINDOW} past weeks with as many weeks before it; the last {DEFAULT_WEEKS} weeks were used."
        return *default, note
    return (period.start - period.length, period.start), (period.start, period.stop), None


def _compare(data: Snapshot, scope: Scope, before: Window, recent: Window) -> list[_Feature]:
    weights = draw_weights(int(scope.mask.sum()))
    values = {name: tuple(data.weekly[name][start:stop, scope.mask].mean(axis=0) for start, stop in (before, recent)) for name in FEATURES}
    tests = [ks(*values[name]) for name in FEATURES]
    adjusted = adjust_p_values(np.array([p_value for _, p_value in tests]))
    features = []
    for at, name in enumerate(FEATURES):
        old, new = values[name]
        edges = bin_edges(old)
        shares = [_bootstrap_shares(one, edges, weights) for one in (old, new)]
        features.append(
            _Feature(
                name=name,
                psi=psi(old, new),
                psi_by_chance=2.0 * len(edges) / len(old),
                psi_replicates=psi_of_shares(shares[0], shares[1]),
                ks=tests[at][0],
                adjusted_p=float(adjusted[at]),
                mean_before=float(old.mean()),
                mean_recent=float(new.mean()),
            )
        )
    return sorted(features, key=lambda feature: -feature.psi)


def _bootstrap_shares(values: Reals, edges: Reals, weights: Reals) -> Reals:
    codes = np.digitize(values, edges)
    spread = np.zeros((len(values), len(edges) + 1))
    spread[np.arange(len(values)), codes] = 1.0
    return np.asarray(weights @ spread / len(values))


def _confidence(features: list[_Feature]) -> float:
    """The replicates carry the chance part of the PSI twice, once from the HCPs and once from the drawing."""
    same = [
        (feature.psi_replicates - 2.0 * feature.psi_by_chance >= MATERIAL_PSI) == (feature.psi - feature.psi_by_chance >= MATERIAL_PSI)
        for feature in features
    ]
    return share_true(np.all(same, axis=0))


def _row(feature: _Feature) -> Row:
    return {
        "feature": feature.name,
        "level": feature.level,
        "psi": round(feature.psi, 4),
        "psi_by_chance": round(feature.psi_by_chance, 4),
        "ks": round(feature.ks, 4),
        "adjusted_p": float(f"{feature.adjusted_p:.3g}"),
        "mean_before": round(feature.mean_before, 3),
        "mean_recent": round(feature.mean_recent, 3),
    }


def _told(feature: _Feature, lead: str) -> str:
    p_value = "p < 0.001" if feature.adjusted_p < 0.001 else f"p = {feature.adjusted_p:.3f}"
    change = f"{100 * (feature.mean_recent / feature.mean_before - 1):+.0f} %" if feature.mean_before > 0 else "from none"
    return (
        f"{lead}: PSI {feature.psi:.2f} ({feature.psi_by_chance:.2f} expected by chance), Kolmogorov-Smirnov {feature.ks:.2f} "
        f"(adjusted {p_value}); the weekly mean per HCP went from {feature.mean_before:.2f} to {feature.mean_recent:.2f} ({change})."
    )


def _lead(request: DriftRequest, features: list[_Feature], decay: Decay | None) -> list[str]:
    """Return what answers the question's own words: what the data lack, the model's accuracy, the named features."""
    sentences = []
    if request.absent:
        sentences.append(
            f"The data do not have {' or '.join(request.absent)}; shown is how recent weeks differ from those before, and how a conversion "
            "model fitted on earlier weeks does."
        )
    if request.asks_accuracy and decay is not None:
        sentences.append(
            f"The conversion model's AUC over patients went from {decay.auc_before:.3f} to {decay.auc_recent:.3f}; of the patients of the "
            f"tenth of the HCPs with the highest chance {100 * decay.hit_rate_before:.1f} % converted before and "
            f"{100 * decay.hit_rate_recent:.1f} % now."
        )
    named = [feature for feature in features if feature.name in request.features and feature.level not in {"moderate", "large"}]
    return sentences + [_told(feature, f"{feature.name} ({feature.level})") for feature in named]


def _evidence(data: Snapshot, scope: Scope, features: list[_Feature], decay: Decay | None, recent: Window) -> list[str]:
    drifted = [feature for feature in features if feature.level in {"moderate", "large"}]
    weeks = recent[1] - recent[0]
    sentences = [
        f"{len(drifted)} of {len(features)} features drifted in the {weeks} weeks to {data.week_ends[recent[1] - 1].isoformat()} "
        f"({scope.label}, {int(scope.mask.sum()):,} HCPs)."
    ]
    for feature in drifted or features[:1]:
        sentences.append(_told(feature, feature.name if feature in drifted else f"The widest shift, {feature.name}, is not drift"))
    if decay is None:
        return sentences
    first = decay.groups[0]
    verdict = (
        f"The conversion model no longer holds for {first.group}"
        if decay.decayed
        else f"The conversion model still holds; the widest gap is {first.group}"
    )
    sentences.append(
        f"{verdict}: {first.observed:,} conversions against {first.expected:,.0f} expected (z = {first.z:+.1f}); the Brier score over all "
        f"patients, which also follows the rate itself, went from {decay.brier_before:.3f} to {decay.brier_recent:.3f}."
    )
    return sentences


def _caveats(scope: Scope, window_caveat: str | None, decay: Decay | None, fit: Window, programme_start: int) -> list[str]:
    caveats = [*scope.caveats, *([window_caveat] if window_caveat else [])]
    caveats.append("Both windows hold the same HCPs, so the p-values are cautious; a shift that comes with the season counts as a shift.")
    if decay is None:
        caveats.append(f"The model was not checked: it needs {FIT_WEEKS} weeks before the baseline, and there are {fit[1]}.")
    elif fit[0] < programme_start:
        caveats.append("The model was fitted on weeks before the programmes began; what they changed counts as decay.")
    return caveats


def _decay_output(decay: Decay | None) -> dict[str, object] | None:
    if decay is None:
        return None
    return {
        "decayed": bool(decay.decayed),
        "decayed_groups": [group.group for group in decay.decayed],
        "brier_before": decay.brier_before,
        "brier_recent": decay.brier_recent,
        "auc_before": decay.auc_before,
        "auc_recent": decay.auc_recent,
        "hit_rate_before": decay.hit_rate_before,
        "hit_rate_recent": decay.hit_rate_recent,
        "groups": _decay_rows(decay),
    }


def _decay_rows(decay: Decay) -> list[Row]:
    return [
        {
            "group": group.group,
            "observed": group.observed,
            "expected": round(group.expected, 1),
            "z": round(group.z, 2),
            "adjusted_p": float(f"{group.adjusted_p:.3g}"),
        }
        for group in decay.groups
    ]
