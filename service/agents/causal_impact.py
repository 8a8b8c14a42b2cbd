"""causal_impact (tier 2): what a programme changed, adjusted for who was chosen for it, with an interval and two refutations."""

from dataclasses import dataclass

import numpy as np

from service.agents.asked_cause import Cause, resolve_cause
from service.agents.causal_model import Effect, Refutation, Study, study_frame
from service.agents.chart import Row, bar_chart, interval_chart, table
from service.agents.finding import AgentFailure, Finding
from service.agents.kpi import Kpi
from service.agents.programme import PROGRAMMES, Programme, resolve_outcome
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, context_text, entity_values, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

MOST_SIMULATIONS = 20
FEWEST_SIMULATIONS = 4
MS_PER_SIMULATION = 60
"""A cautious estimate of what one run of both refuters costs on one busy core."""
MS_FOR_OTHERS = 5_000
"""With less time the other programmes are not estimated."""
SMALLEST_GROUP = 30
MATERIAL_CHANGE = 0.10
"""An effect of this part of the mean outcome counts as material; the precision is judged against it."""
SETTINGS = ("academic", "community")


@dataclass(frozen=True, slots=True)
class _Analysis:
    programme: Programme
    cause: Cause
    kpi: Kpi
    scope: Scope
    effect: Effect
    refutation: Refutation
    settings: dict[str, Effect]
    overlap: float
    mean_outcome: float
    level: float
    level_before: float
    weeks: int
    others: dict[str, Effect]

    @property
    def total(self) -> tuple[float, float, float] | None:
        """What the programme added over all its HCPs and weeks, with the interval; None for a ratio."""
        if self.kpi.denominator is not None:
            return None
        times = self.effect.treated * self.weeks
        return times * self.effect.value, times * self.effect.low, times * self.effect.high


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Estimate the effect of the named programme on the named outcome.

    Confidence is the product of three parts: precision (1 less the standard error over the larger of the effect and a
    material change), overlap (the share of HCPs that could have been in either group) and the refutations (1 if both
    pass, else 0.4). It counts for as much as the measured programme is what was asked (`Cause.nearness`).

    Raises:
        AgentFailure: Treatment, outcome, brand or region are not in the data, or too few HCPs are left.
    """
    scope = resolve_scope(dispatch, data)
    cause = resolve_cause(dispatch)
    kpi, outcome_name, outcome_caveat = resolve_outcome(dispatch)
    analysis = _analyse(dispatch, data, scope, cause, kpi)
    caveats = [*scope.caveats, *(caveat for caveat in (cause.note, outcome_caveat) if caveat), *_caveats(dispatch, analysis)]
    effect, total = analysis.effect, analysis.total
    return Finding(
        primary_output={
            "treatment": cause.name,
            "outcome": outcome_name,
            "ate": effect.value,
            "confidence_interval": [effect.low, effect.high],
            "p_value": effect.p_value,
            "refutation_passed": analysis.refutation.passed,
            "naive_difference": effect.naive,
            "n": effect.size,
            "n_treated": effect.treated,
            "measured_treatment": cause.programme.name,
            "nearness": cause.nearness,
            "not_recorded": list(cause.asked),
            "measured_outcome": kpi.name,
            "scope": scope.label,
            "effect_by_setting": {
                name: {"ate": one.value, "confidence_interval": [one.low, one.high]} for name, one in analysis.settings.items()
            },
            "total_effect": None if total is None else {"weeks": analysis.weeks, "value": total[0], "confidence_interval": [*total[1:]]},
            "level": analysis.level,
            "level_before": analysis.level_before,
            "other_programmes": {
                name: {"ate": one.value, "confidence_interval": [one.low, one.high]} for name, one in analysis.others.items()
            },
        },
        confidence=_confidence(analysis) * cause.nearness,
        evidence=[*_lead(analysis), *_evidence(analysis)],
        caveats=caveats,
        visualizations=_charts(analysis, data),
        tables=(table("Effect by group", _effect_rows(analysis)),),
        model_used="dowhy backdoor.linear_regression",
    )


def _analyse(dispatch: AgentDispatch, data: Snapshot, scope: Scope, cause: Cause, kpi: Kpi) -> _Analysis:
    programme, weeks = cause.programme, data.weeks - data.programme_start
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
    series = kpi.series(data, scope.mask)
    return _Analysis(
        programme=programme,
        cause=cause,
        kpi=kpi,
        scope=scope,
        effect=effect,
        refutation=study.refute(effect, simulations),
        settings=settings,
        overlap=study.overlap(),
        mean_outcome=float(frame["outcome"].mean()),
        level=float(series[-weeks:].mean()),
        level_before=float(series[-2 * weeks : -weeks].mean()),
        weeks=weeks,
        others=_others(data, scope, cause, kpi) if _is_open(dispatch, cause) and budget >= MS_FOR_OTHERS else {},
    )


def _is_open(dispatch: AgentDispatch, cause: Cause) -> bool:
    """Whether the question leaves open which cause it is, or asks about one that cannot be measured."""
    return cause.nearness == 0.0 or (cause.note is not None and not cause.asked and not context_text(dispatch, "treatment"))


def _others(data: Snapshot, scope: Scope, cause: Cause, kpi: Kpi) -> dict[str, Effect]:
    """Return the effects of the data's other programmes, each adjusted in the same way; too small ones are left out."""
    found = {}
    for programme in PROGRAMMES:
        frame = study_frame(data, scope.mask, programme.name, kpi) if programme is not cause.programme else None
        if frame is not None and min(frame["treatment"].sum(), (1 - frame["treatment"]).sum()) >= SMALLEST_GROUP:
            found[programme.name] = Study(frame).effect()
    return found


def _lead(analysis: _Analysis) -> list[str]:
    """Return what must be said before any number: that the asked cause is not in the data, or that a near one stands in for it."""
    cause, kpi = analysis.cause, analysis.kpi
    if not cause.asked:
        return []
    lacks = f"The data do not record {' or '.join(cause.asked)}, so what that did to {kpi.label} cannot be told"
    unit = "" if kpi.denominator else " a week"
    moved = (
        f"{kpi.label[0].upper()}{kpi.label[1:]} itself ({analysis.scope.label}) went from {kpi.write(analysis.level_before)}{unit} to "
        f"{kpi.write(analysis.level)}{unit} between the {analysis.weeks} weeks before the programmes began and the {analysis.weeks} since."
    )
    nearest = "the nearest that they have is" if cause.nearness else "of what they do record, first"
    return [f"{lacks}; {nearest} the {analysis.programme.label}.", moved]


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
    if (total := analysis.total) is not None:
        sentences.insert(
            1,
            f"Over the {analysis.weeks} weeks and its {effect.treated} HCPs that adds up to {kpi.write(total[0])} (95 % interval "
            f"{kpi.write_range(*total[1:])}); without it the {kpi.write(analysis.level)} a week would have been about "
            f"{kpi.write(analysis.level - total[0] / analysis.weeks)}.",
        )
    if analysis.others:
        labels = {one.name: one.label for one in PROGRAMMES}
        parts = (f"{labels[name]} {_write(kpi, one.value)} ({_write_range(kpi, one)})" for name, one in analysis.others.items())
        sentences.append(f"The data's other programmes, each adjusted in the same way: {'; '.join(parts)}.")
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
        *(
            {"estimate": f"other: {name.replace('_', ' ')}", "effect": one.value, "low": one.low, "high": one.high}
            for name, one in analysis.others.items()
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
