"""causal_impact (tier 2): what a programme changed, adjusted for who was chosen for it, with an interval and two refutations."""

from dataclasses import dataclass

import numpy as np

from service.agents.causal_model import Effect, Refutation, Study, study_frame
from service.agents.chart import Row, bar_chart, interval_chart, table
from service.agents.finding import AgentFailure, Finding
from service.agents.kpi import Kpi
from service.agents.programme import Programme, resolve_outcome, resolve_treatment
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, entity_values, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

MOST_SIMULATIONS = 20
FEWEST_SIMULATIONS = 4
MS_PER_SIMULATION = 60
"""A cautious estimate of what one run of both refuters costs on one busy core."""
SMALLEST_GROUP = 30
MATERIAL_CHANGE = 0.10
"""An effect of this part of the mean outcome counts as material; the precision is judged against it."""
SETTINGS = ("academic", "community")


@dataclass(frozen=True, slots=True)
class _Analysis:
    programme: Programme
    kpi: Kpi
    scope: Scope
    effect: Effect
    refutation: Refutation
    settings: dict[str, Effect]
    overlap: float
    mean_outcome: float


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Estimate the effect of the named programme on the named outcome.

    Confidence is the product of three parts: precision (1 less the standard error over the larger of the effect and a
    material change), overlap (the share of HCPs that could have been in either group) and the refutations (1 if both
    pass, else 0.4).

    Raises:
        AgentFailure: Treatment, outcome, brand or region are not in the data, or too few HCPs are left.
    """
    scope = resolve_scope(dispatch, data)
    programme, treatment_name, treatment_caveat = resolve_treatment(dispatch)
    kpi, outcome_name, outcome_caveat = resolve_outcome(dispatch)
    analysis = _analyse(dispatch, data, scope, programme, kpi)
    caveats = [*scope.caveats, *(caveat for caveat in (treatment_caveat, outcome_caveat) if caveat), *_caveats(dispatch, analysis)]
    effect = analysis.effect
    return Finding(
        primary_output={
            "treatment": treatment_name,
            "outcome": outcome_name,
            "ate": effect.value,
            "confidence_interval": [effect.low, effect.high],
            "p_value": effect.p_value,
            "refutation_passed": analysis.refutation.passed,
            "naive_difference": effect.naive,
            "n": effect.size,
            "n_treated": effect.treated,
            "measured_treatment": programme.name,
            "measured_outcome": kpi.name,
            "scope": scope.label,
            "effect_by_setting": {
                name: {"ate": one.value, "confidence_interval": [one.low, one.high]} for name, one in analysis.settings.items()
            },
        },
        confidence=_confidence(analysis),
        evidence=_evidence(analysis),
        caveats=caveats,
        visualizations=_charts(analysis, data),
        tables=(table("Effect by group", _effect_rows(analysis)),),
        model_used="dowhy backdoor.linear_regression",
    )


def _analyse(dispatch: AgentDispatch, data: Snapshot, scope: Scope, programme: Programme, kpi: Kpi) -> _Analysis:
    frame = study_frame(data, scope.mask, programme.name, kpi)
    treated = int(frame["treatment"].sum())
    if min(treated, len(frame) - treated) < SMALLEST_GROUP:
        sizes = f"{treated} in the {programme.label} and {len(frame) - treated} outside it"
        raise AgentFailure(
            "insufficient_data", f"{scope.label} has too few HCPs for an estimate: {sizes}; {SMALLEST_GROUP} are needed in each."
        )
    study = Study(frame)
    effect = study.effect()
    budget = dispatch.payload.constraints.max_latency_ms
    simulations = int(np.clip(budget // (2 * MS_PER_SIMULATION), FEWEST_SIMULATIONS, MOST_SIMULATIONS))
    settings = {}
    for name, code in zip(SETTINGS, (1.0, 0.0), strict=True):
        part = frame[frame["is_academic"] == code].drop(columns="is_academic").reset_index(drop=True)
        if min(part["treatment"].sum(), (1 - part["treatment"]).sum()) >= SMALLEST_GROUP:
            settings[name] = Study(part).effect()
    return _Analysis(
        programme, kpi, scope, effect, study.refute(effect, simulations), settings, study.overlap(), float(frame["outcome"].mean())
    )


def _confidence(analysis: _Analysis) -> float:
    effect = analysis.effect
    yardstick = max(abs(effect.value), MATERIAL_CHANGE * analysis.mean_outcome)
    precision = max(0.0, 1.0 - effect.standard_error / yardstick)
    return precision * analysis.overlap * (1.0 if analysis.refutation.passed else 0.4)


def _evidence(analysis: _Analysis) -> list[str]:
    kpi, effect, refutation = analysis.kpi, analysis.effect, analysis.refutation
    unit = "" if kpi.denominator else " per HCP and week"
    interval = f"95 % interval {_write_range(kpi, effect)}"
    p_value = "p < 0.001" if effect.p_value < 0.001 else f"p = {effect.p_value:.3f}"
    clear = effect.low > 0 or effect.high < 0
    verdict = "changed" if clear else "did not measurably change"
    relative = effect.value / (analysis.mean_outcome or 1.0)
    sentences = [
        f"The {analysis.programme.label} {verdict} {kpi.label} ({analysis.scope.label}): {_write(kpi, effect.value)}{unit} ({interval}, "
        f"{p_value}), {100 * relative:+.0f} % of the mean of {kpi.write(analysis.mean_outcome, digits=2 if not kpi.denominator else 1)}.",
        f"The plain difference between the {effect.treated} HCPs in the programme and the {effect.size - effect.treated} outside it is "
        f"{_write(kpi, effect.naive)}; {_write(kpi, effect.naive - effect.value)} of it comes from who was chosen, not from the programme.",
        f"Placebo test: with the treatment shuffled {refutation.simulations} times the mean effect is "
        f"{_write(kpi, refutation.placebo_effect)} (p = {refutation.placebo_p_value:.2f} for no effect).",
        f"Random common cause: adding one moves the estimate from {_write(kpi, effect.value)} to "
        f"{_write(kpi, refutation.common_cause_effect)}.",
    ]
    if len(analysis.settings) == len(SETTINGS):
        academic, community = (analysis.settings[name] for name in SETTINGS)
        gap = academic.value - community.value
        spread = float(np.hypot(academic.half_width, community.half_width))
        sentences.append(
            f"Academic practices: {_write(kpi, academic.value)} ({_write_range(kpi, academic)}); community practices: "
            f"{_write(kpi, community.value)} ({_write_range(kpi, community)}). "
            + ("The difference is larger than chance would give." if abs(gap) > spread else "The difference is within what chance gives.")
        )
    return sentences


def _caveats(dispatch: AgentDispatch, analysis: _Analysis) -> list[str]:
    caveats = [
        "HCPs were not assigned at random: the estimate adjusts for decile, potential, digital affinity, setting, region and the outcome "
        "in the 52 weeks before, and a cause that is in none of these would bias it."
    ]
    if analysis.overlap < 0.9:
        outside = 100 * (1 - analysis.overlap)
        caveats.append(
            f"{outside:.0f} % of the HCPs were almost sure to be in, or out of, the programme; for them the estimate extrapolates."
        )
    if not analysis.refutation.passed:
        caveats.append("A refutation failed: treat the estimate as unproven.")
    if analysis.refutation.simulations < MOST_SIMULATIONS:
        caveats.append(f"Time was short: {analysis.refutation.simulations} instead of {MOST_SIMULATIONS} runs of each refutation.")
    if entity_values(dispatch, EntityType.TIME_PERIOD):
        caveats.append("The named period was not used: the effect is over the 26 weeks in which the programme ran.")
    return caveats


def _effect_rows(analysis: _Analysis) -> list[Row]:
    effect, refutation = analysis.effect, analysis.refutation
    rows: list[Row] = [
        {"estimate": "plain difference", "effect": effect.naive, "low": effect.naive_low, "high": effect.naive_high},
        {"estimate": "adjusted effect", "effect": effect.value, "low": effect.low, "high": effect.high},
        *(
            {"estimate": f"adjusted, {name}", "effect": one.value, "low": one.low, "high": one.high}
            for name, one in analysis.settings.items()
        ),
        {"estimate": "placebo treatment", "effect": refutation.placebo_effect, "low": None, "high": None},
        {"estimate": "with random common cause", "effect": refutation.common_cause_effect, "low": None, "high": None},
    ]
    return rows


def _charts(analysis: _Analysis, data: Snapshot) -> tuple[dict[str, object], ...]:
    decile, treated = data.column("decile"), data.column(analysis.programme.name)
    shares: list[Row] = [
        {"decile": str(level), "share_in_programme": float(treated[group].mean())}
        for level in range(1, 11)
        if (group := analysis.scope.mask & (decile == level)).any()
    ]
    title = f"Effect of the {analysis.programme.label} on {analysis.kpi.label}, {analysis.scope.label}"
    return (
        interval_chart("effect_distribution", title, _effect_rows(analysis), label="estimate", value="effect"),
        bar_chart("confounding", "Who was chosen: share in the programme by decile", shares, value="share_in_programme", label="decile"),
    )


def _write(kpi: Kpi, value: float) -> str:
    return kpi.write(value, digits=None if kpi.denominator else 2, signed=True)


def _write_range(kpi: Kpi, effect: Effect) -> str:
    return kpi.write_range(effect.low, effect.high, digits=None if kpi.denominator else 2, signed=True)
