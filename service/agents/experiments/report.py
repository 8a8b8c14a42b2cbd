"""What a plan says in sentences: the decision that was asked for first, then the numbers behind it, then what to write down beforehand."""

from dataclasses import dataclass
from math import ceil

from service.agents.chart import Row
from service.agents.experiments.assignment import BALANCED, SEED, Assignment
from service.agents.experiments.options import Wedge, crossover_total, least_p_value, without_pre_period
from service.agents.experiments.plan import Plan, Sourced

_PLURALS = {"territory": "territories", "pharmacy": "pharmacies"}
_DESIGN_NAMES = {
    "parallel": "a parallel comparison",
    "cluster": "a cluster-randomised comparison",
    "matched": "a comparison of matched pairs",
    "holdout": "a random holdout",
    "ab_test": "an A/B test",
    "stepped_wedge": "a stepped wedge",
    "crossover": "a crossover",
    "factorial": "a 2 x 2 factorial",
}


@dataclass(frozen=True, slots=True)
class Context:
    """A plan with all that stands beside it. `build_up` is effect and error early, then late, in the call programme of the data."""

    plan: Plan
    assignment: Assignment | None
    wedge: Wedge | None
    holdout: tuple[Row, ...]
    region_order: tuple[str, ...]
    region_pairs: tuple[tuple[str, str], ...]
    build_up: tuple[float, float, float, float] | None
    season: float | None


def write_evidence(context: Context) -> list[str]:
    """Return the answer in one sentence, and the sentences that support it."""
    plan = context.plan
    sentences = [_headline(context), _numbers(plan)]
    sentences += [one for one in (_pre_period(plan), _clusters(plan), _wedge(context), _holdout(context), _design(plan)) if one]
    sentences += [one for one in (_looks(plan), _build_up(context), _season(context), _draw(context)) if one]
    sentences.append(f"Primary metric: {metric_label(plan)}. {stopping_rule(plan)}")
    return sentences


def metric_label(plan: Plan) -> str:
    """Return the primary metric in words."""
    metric = plan.request.metric
    if metric.kpi is None:
        return metric.name.replace("_", " ")
    return f"{metric.kpi.label}, {'per HCP' if metric.kpi.denominator else 'per HCP and week'}"


def stopping_rule(plan: Plan) -> str:
    """Return when the test ends."""
    if not plan.bounds:
        length = f"after {_weeks(plan)}" if plan.weeks else "when all units have been measured"
        return f"Stopping rule: one analysis, {length}; nobody looks at the difference before, but stop at once for harm."
    listed = ", ".join(f"{bound:.2f}" for bound in plan.bounds)
    return (
        f"Stopping rule: {len(plan.bounds)} looks at equal parts of the data; stop when |z| exceeds {listed} (O'Brien-Fleming by "
        "Lan-DeMets "
        f"spending, alpha {_alpha(plan)} in all)."
    )


def risks(plan: Plan) -> list[str]:
    """Return what can spoil the test, and the guard against it."""
    found = []
    if plan.request.design == "cluster" or plan.request.units.is_cluster:
        found.append(
            f"Contamination: everybody in a {plan.request.units.name} gets the same arm; log who was exposed and analyse by the arm drawn."
        )
    elif plan.request.units.name == "HCP":
        found.append("Contamination: HCPs of one rep or practice talk; if that is likely, assign whole practices, territories or reps.")
    found.append("Non-compliance: analyse everybody by the arm drawn (intention to treat), exposed or not.")
    if plan.request.metric.kpi and (plan.weeks is None or plan.weeks.value < 8):
        found.append("Novelty and delay: under 8 weeks prescribing may not have settled.")
    if plan.baseline.source in {"assumed", "stand-in"}:
        found.append(
            "Planning values that were not measured on these units: check baseline and spread after a third of the run, blind to arms."
        )
    return found


def write_effect(plan: Plan, value: float, *, signed: bool = True) -> str:
    """Write an effect in the metric's unit, with its part of the baseline."""
    kpi = plan.request.metric.kpi if plan.measures else None
    relative = (
        f" ({100 * value / plan.baseline.value:+.1f} % of the baseline)" if plan.request.spread is None and plan.baseline.value else ""
    )
    if plan.request.spread is not None:
        return f"{value:+.3g}" if signed else f"{value:.3g}"
    if kpi is not None:
        return kpi.write(value, digits=None if kpi.denominator else 2, signed=signed) + relative
    return f"{100 * value:+.1f} percentage points{relative}"


def plural(name: str) -> str:
    """Return a unit's name for several."""
    return _PLURALS.get(name, f"{name}s")


def units(plan: Plan, count: int, *, size: bool = True) -> str:
    """Write a number of units, with what each holds where it is a cluster."""
    name = plan.request.units.name
    holds = f" of {plan.comparison.cluster_size} {'HCPs' if plan.measures else 'people'}" if plan.cluster_size and size else ""
    return f"{count:,} {name if count == 1 else plural(name)}{holds}"


def _headline(context: Context) -> str:
    plan = context.plan
    decision = plan.request.decision
    target = f"{100 * plan.comparison.power:.0f} % power, alpha {_alpha(plan)}, {'two' if plan.comparison.sides == 2 else 'one'}-sided"
    effect = write_effect(plan, plan.effect.value)
    if context.wedge and decision in {"design", "assignment", "plan", "power", "duration"}:
        return _wedge_headline(context)
    if decision == "sample_size":
        if plan.needed is None:
            return f"No number of units reaches {target} for {effect}."
        short = "" if plan.is_enough else f"; there are {units(plan, plan.used)}, which gives {100 * plan.power:.0f} % power"
        if plan.comparison.ratio != 1.0:
            total = plan.needed + round(plan.needed * plan.comparison.ratio)
            return f"{units(plan, plan.needed)} of {total:,} must be held out to see {effect} in {metric_label(plan)} ({target}){short}."
        total = plan.needed * plan.arms
        return f"{units(plan, plan.needed)} an arm, {total:,} in all, are needed to see {effect} in {metric_label(plan)} ({target}){short}."
    if decision == "smallest_effect":
        size = "no effect at all" if plan.smallest is None else write_effect(plan, plan.smallest)
        return f"With {_arms(plan)}{_over(plan)} the smallest effect on {metric_label(plan)} that can be seen is {size} ({target})."
    if decision == "duration":
        return _duration_headline(plan, effect, target)
    if decision == "share":
        share = plan.used / max(1, sum(plan.sizes))
        verdict = f"{100 * plan.power:.0f} % power" + ("" if plan.is_enough else ", which is not enough")
        return (
            f"Hold out {100 * share:.1f} %, {units(plan, plan.used)} of {sum(plan.sizes):,}{_over(plan)}: {verdict} for {effect} "
            f"in {metric_label(plan)}."
        )
    if decision == "power":
        verdict = "enough" if plan.is_enough else "not enough"
        size = (
            ""
            if plan.smallest is None
            else f"; the smallest effect with {100 * plan.comparison.power:.0f} % power is {write_effect(plan, plan.smallest)}"
        )
        return (
            f"With {_arms(plan)}{_over(plan)} the power for {effect} in {metric_label(plan)} is {100 * plan.power:.0f} %, {verdict}{size}."
        )
    return _plan_headline(context, effect)


def _plan_headline(context: Context, effect: str) -> str:
    plan, drawn = context.plan, context.assignment
    name = plan.request.units.name
    start = f"Run {_DESIGN_NAMES[plan.request.design]} with {_arms(plan)}{_over(plan)}"
    if plan.request.decision == "assignment" or context.region_pairs:
        if context.region_pairs:
            pairs = "; ".join(f"{test} gets it, {control} waits" for control, test in context.region_pairs)
            start = f"Pair the regions that are most alike and draw one of each (seed {SEED}): {pairs}; {_arms(plan)}{_over(plan)}"
        elif drawn is None or name != "HCP":
            how = "Match in pairs by recent volume, decile mix and setting, and draw one of each pair"
            how = how if plan.request.design == "matched" else "Draw at random within strata of region and volume"
            start = f"{how} (seed {SEED}; the data have no {plural(name)} to draw from): {_arms(plan)}{_over(plan)}"
        else:
            how = f"{len(drawn.pairs)} matched pairs" if drawn.pairs else f"{len(drawn.strata)} strata of region and decile band"
            start = f"Draw the arms at random within {how} (seed {SEED}): {_arms(plan)}{_over(plan)}"
    return f"{start}; primary metric {metric_label(plan)}, {100 * plan.power:.0f} % power for {effect}."


def _duration_headline(plan: Plan, effect: str, target: str) -> str:
    have = f"with {_arms(plan)}"
    if plan.weeks is None:
        return f"The length follows from how fast units come in: {units(plan, plan.used)} an arm are needed ({target})."
    if plan.measures is None:
        return _rate_duration_headline(plan, effect, target)
    if plan.request.weeks is None:
        if not plan.is_enough:
            return f"No length up to {_weeks(plan)} is enough {have} for {effect} in {metric_label(plan)}: {100 * plan.power:.0f} % power."
        return f"Run it for {_weeks(plan)}: {have} that sees {effect} in {metric_label(plan)} ({target})."
    verdict = f"{'is' if plan.weeks.value == 1 else 'are'} {'enough' if plan.is_enough else 'too short'}"
    longer = (
        ""
        if plan.is_enough
        else "; no length in a year is enough"
        if plan.weeks_needed is None
        else f"; {plan.weeks_needed} weeks are needed"
    )
    return f"{_weeks(plan)} {verdict} {have}: {100 * plan.power:.0f} % power for {effect} in {metric_label(plan)}{longer}."


def _rate_duration_headline(plan: Plan, effect: str, target: str) -> str:
    """A rate gains by more units, not by more weeks: the length is what it takes for the units to come in."""
    needed = "no number of units is" if plan.needed is None else f"{units(plan, plan.needed)} an arm are"
    have = f"{_arms(plan)} give {100 * plan.power:.0f} % power for {effect} in {metric_label(plan)}, {needed} needed ({target})"
    if plan.request.units.per_week:
        weeks = plan.weeks_needed or 1
        given = (
            ""
            if plan.request.weeks is None
            else f", {'enough' if plan.request.weeks >= weeks else 'not enough'} in {plan.request.weeks:.3g}"
        )
        return (
            f"At {plan.request.units.per_week:,.0f} {plural(plan.request.units.name)} a week {weeks} weeks bring in what the test "
            f"needs{given}: {have}."
        )
    if plan.weeks_needed is not None and plan.weeks is not None:
        verdict = "" if plan.request.weeks is None or plan.request.weeks >= plan.weeks_needed else f"; {_weeks(plan)} are too short"
        return f"Split evenly and run {plan.weeks_needed} weeks, in which 95 % of the HCPs get at least one e-mail{verdict}: {have}."
    return f"More weeks help only as far as they bring in more {plural(plan.request.units.name)}: {have}."


def _wedge_headline(context: Context) -> str:
    plan, wedge = context.plan, context.wedge
    if wedge is None:
        return ""
    better = wedge.parallel_smallest is None or wedge.smallest < wedge.parallel_smallest
    order = f"; drawn order: {', '.join(context.region_order)}" if context.region_order else ""
    parallel = (
        "" if wedge.parallel_smallest is None else f", against {write_effect(plan, wedge.parallel_smallest)} for a parallel comparison"
    )
    doubt = f"; but a permutation test cannot go below p = {wedge.least_p_value:.3f}" if wedge.least_p_value > plan.comparison.alpha else ""
    weeks = f"{wedge.weeks_a_period} week{'' if wedge.weeks_a_period == 1 else 's'}"
    return (
        f"A stepped wedge of {units(plan, wedge.clusters)} in {wedge.steps} steps of {weeks} sees effects from "
        f"{write_effect(plan, wedge.smallest)}{parallel}: the {'wedge' if better else 'parallel comparison'} is the stronger "
        f"one{order}{doubt}."
    )


def _numbers(plan: Plan) -> str:
    kpi = plan.request.metric.kpi if plan.measures else None
    if plan.request.spread is not None:
        base = f"standard deviation {plan.request.spread:g} (given)"
    elif kpi is not None and plan.measures is not None:
        digits = None if kpi.denominator else 2
        base = (
            f"baseline {kpi.write(plan.baseline.value, digits=digits)} ({plan.baseline.source}, {plan.measures.size} HCPs over "
            f"{plan.measures.weeks} "
            f"weeks), standard deviation between HCPs {kpi.write_size(plan.measures.spread)}"
        )
    else:
        base = f"baseline {100 * plan.baseline.value:.1f} % ({plan.baseline.source})"
    arm = "in the control arm" if plan.comparison.ratio != 1.0 else "an arm"
    needed = "no number is enough" if plan.needed is None else f"{units(plan, plan.needed, size=False)} {arm} are needed"
    if plan.request.design == "stepped_wedge":
        needed = f"as a parallel comparison {needed}"
    smallest = "" if plan.smallest is None else f", smallest effect {write_effect(plan, plan.smallest)}"
    return (
        f"Planned with {base}, effect {write_effect(plan, plan.effect.value)} ({plan.effect.source}): {needed}; {plan.used:,} give "
        f"{100 * plan.power:.0f} % power{smallest}."
    )


def _pre_period(plan: Plan) -> str | None:
    if plan.measures is None:
        return None
    plain = without_pre_period(plan)
    compared = "" if plain is None or plan.needed is None else f": {plan.needed:,} instead of {units(plan, plain, size=False)} an arm"
    return (
        f"Adjusting for brand and the 26 weeks before (ANCOVA, as CUPED does) takes off {100 * plan.measures.explained:.0f} % of the "
        "variance "
        f"(correlation {plan.measures.correlation:.2f}){compared}."
    )


def _clusters(plan: Plan) -> str | None:
    if plan.cluster_size is None or plan.icc is None:
        return None
    count = 2 * plan.used
    limit = 0.0 if plan.request.design == "stepped_wedge" else least_p_value(count)
    doubt = f" With {count} clusters in two arms a permutation test cannot give less than p = {limit:.3f}." if limit > 0.01 else ""
    return (
        f"Clusters of {plan.comparison.cluster_size} ({plan.cluster_size.source}) with an ICC of {plan.icc.value:.3f} "
        f"({plan.icc.source}) raise the "
        f"number of people by the design effect {plan.comparison.design_effect:.2f}.{doubt}"
    )


def _wedge(context: Context) -> str | None:
    wedge = context.wedge
    if wedge is None:
        return None
    return (
        f"Stepped wedge (Hussey and Hughes 2007): batches of {', '.join(map(str, wedge.batches))}, {wedge.steps + 1} periods of "
        f"{wedge.weeks_a_period} "
        f"weeks, {(wedge.steps + 1) * wedge.weeks_a_period} in all, {100 * wedge.power:.0f} % power for "
        f"{write_effect(context.plan, context.plan.effect.value)}; "
        f"everybody gets the programme in the end, and calendar time must be in the model."
    )


def _holdout(context: Context) -> str | None:
    if not context.holdout:
        return None
    parts = [
        f"{100 * float(str(row['share'])):.0f} % ({row['held_out']:,} held out) sees from "
        f"{write_effect(context.plan, float(str(row['smallest_effect'])))}"
        for row in context.holdout
        if row["smallest_effect"] is not None
    ]
    return f"Shares compared: {'; '.join(parts)}." if parts else None


def _design(plan: Plan) -> str | None:
    if plan.request.design == "factorial":
        cell = ceil(plan.used / 2)
        return (
            f"Factorial: {cell:,} units in each of 4 cells serve both main effects; an interaction of the same size needs 4 times as many."
        )
    total = crossover_total(plan)
    if plan.request.design == "crossover" and total is not None:
        return f"A crossover would need {total:,} HCPs in all, each period as long as the plan; it assumes that nothing carries over."
    if plan.arms > 2:
        return f"{plan.arms - 1} comparisons with the control share the error: {plan.comparison.alpha:.4f} each (Bonferroni)."
    return None


def _looks(plan: Plan) -> str | None:
    if not plan.bounds:
        return None
    return f"The {len(plan.bounds)} looks cost {100 * (plan.comparison.inflation - 1):.1f} % more units, which is counted in."


def _build_up(context: Context) -> str | None:
    if context.build_up is None or context.plan.weeks is None:
        return None
    early, error, late, late_error = context.build_up
    weeks = min(25, max(1, round(context.plan.weeks.value)))
    gap, spread = late - early, (error**2 + late_error**2) ** 0.5
    verdict = "no build-up is seen" if abs(gap) < 1.96 * spread else "it grew later" if gap > 0 else "it faded later"
    return (
        f"How fast prescribing moved in the past: the call programme gave {early:+.2f} TRx in its first {weeks} weeks and {late:+.2f} "
        "after "
        f"(standard errors {error:.2f} and {late_error:.2f}): {verdict}."
    )


def _season(context: Context) -> str | None:
    if context.season is None:
        return None
    return (
        f"The market swings by ±{100 * context.season:.0f} % over the year; arms that run in the same weeks share that, so it does "
        "not bias the "
        "difference, while a comparison of before and after would take it for an effect."
    )


def _draw(context: Context) -> str | None:
    drawn = context.assignment
    if drawn is None or len(drawn.rows) == 0:
        return None
    worst = drawn.largest_difference
    verdict = "balanced" if worst <= BALANCED else "not balanced: adjust for it, or draw more"
    return (
        f"The draw on the data (seed {SEED}, {len(drawn.rows):,} HCPs, {len(drawn.strata)} strata) leaves a largest standardised mean "
        "difference of "
        f"{worst:.3f} over decile, potential, digital affinity, setting and recent TRx: {verdict}."
    )


def _arms(plan: Plan) -> str:
    sizes = plan.sizes
    if plan.request.design == "factorial":
        return f"{units(plan, ceil(sizes[0] / 2))} in each of 4 cells ({sizes[0]:,} on each level of a factor)"
    if plan.comparison.ratio != 1.0:
        return f"{units(plan, sizes[0])} held out and {sizes[1]:,} treated"
    return f"{units(plan, sizes[0])} in each of {plan.arms} arms"


def _over(plan: Plan) -> str:
    return f" over {_weeks(plan)}" if plan.weeks else ""


def _weeks(plan: Plan) -> str:
    weeks: Sourced | None = plan.weeks
    return "" if weeks is None else f"{weeks.value:.3g} week{'' if weeks.value == 1 else 's'}"


def _alpha(plan: Plan) -> str:
    return f"{plan.comparison.alpha * (plan.arms - 1):.3g}"
