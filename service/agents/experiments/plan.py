"""The numbers of a plan: what the request gives, what the data lend, what is assumed, and what follows for size, power and length."""

from dataclasses import dataclass, replace
from math import ceil, floor

import numpy as np

from service.agents.experiments.looks import looks_inflation, spending_bounds
from service.agents.experiments.measures import Measures, measure, weekly_reach
from service.agents.experiments.power import Comparison, rate_change, rate_effect
from service.agents.experiments.request import Request, weekly_looks
from service.agents.sample_data import Snapshot

ALPHA, POWER = 0.05, 0.80
DEFAULT_WEEKS = 12
WEEK_GRID = (2, 3, 4, 6, 8, 10, 12, 16, 20, 26, 39, 52)
SHORTEST_PROPOSED = 8
"""A length of fewer weeks is never proposed, only judged: one odd week would weigh too much."""
WEDGE_WEEKS = 20
DEFAULT_LIFT, DEFAULT_POINTS, DEFAULT_SPREADS = 0.05, 0.03, 0.5
DEFAULT_PART = 0.20
"""Of a small rate: three points of 2 % would more than double it."""
WORST_RATE = 0.5
"""Points are hardest to see at a rate of one half: a size planned for it is never too small."""
DEFAULT_CLUSTER_SIZE, DEFAULT_ICC, DEFAULT_LOOKS = 20, 0.05, 3
MOST_RECIPIENT_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Sourced:
    """A planning value and where it comes from: `given`, `measured`, `stand-in` or `assumed`."""

    value: float
    source: str

    @property
    def trust(self) -> float:
        """1 for what was given or measured on the HCPs in question, 0.5 for a stand-in, 0 for an assumption."""
        return {"given": 1.0, "measured": 1.0, "stand-in": 0.5}.get(self.source, 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A consistent plan. Sizes count units (clusters where there are any); `effect` and `smallest` are in the metric's unit.

    `needed` is None where no size reaches the power, `weeks_needed` where no length does, or length does not matter.
    """

    request: Request
    comparison: Comparison
    arms: int
    is_rate: bool
    baseline: Sourced
    effect: Sourced
    unit_spread: float
    measures: Measures | None
    weeks: Sourced | None
    weeks_needed: int | None
    cluster_size: Sourced | None
    icc: Sourced | None
    available: Sourced | None
    needed: int | None
    used: int
    power: float
    smallest: float | None
    bounds: tuple[float, ...]

    @property
    def sizes(self) -> list[int]:
        """Units in each arm, the control first."""
        return [self.used, *([round(self.used * self.comparison.ratio)] * (self.arms - 1))]

    @property
    def is_enough(self) -> bool:
        """Whether the plan reaches the power for the effect."""
        return self.power >= self.comparison.power - 0.005

    @property
    def standardised(self) -> float:
        """The effect as the power calculation takes it."""
        return standardise(self.baseline.value, self.effect.value, self.unit_spread, is_rate=self.is_rate)


def make_plan(request: Request, data: Snapshot) -> Plan:
    """Return the plan for a request; the same each time."""
    is_rate = request.metric.kpi is None and request.spread is None
    arms = 2 if request.design in {"holdout", "factorial", "stepped_wedge", "crossover", "matched"} else request.arms or 2
    comparison = _comparison(request, arms, is_rate=is_rate)
    bounds = _bounds(request, comparison)
    if bounds:
        comparison = replace(comparison, inflation=looks_inflation(list(bounds), comparison.alpha, comparison.power))
    if is_rate or request.spread is not None:
        plan = _plan_weeks(request, data, comparison, arms, bounds, None)
        return _with_rate_weeks(plan, data)
    if request.weeks is None and request.decision == "duration":
        lengths = [Sourced(float(one), "measured") for one in WEEK_GRID if one >= SHORTEST_PROPOSED]
        plans = [_plan_weeks(request, data, comparison, arms, bounds, one) for one in lengths]
        return next((one for one in plans if one.is_enough), plans[-1])
    usual = WEDGE_WEEKS if request.design == "stepped_wedge" else DEFAULT_WEEKS
    weeks = Sourced(usual, "assumed") if request.weeks is None else Sourced(request.weeks, "given")
    plan = _plan_weeks(request, data, comparison, arms, bounds, weeks)
    if plan.is_enough and plan.request.decision not in {"duration", "power", "share"}:
        return plan
    tries = (one for one in WEEK_GRID if _plan_weeks(request, data, comparison, arms, bounds, Sourced(float(one), "measured")).is_enough)
    return replace(plan, weeks_needed=next(tries, None))


def standardise(baseline: float, effect: float, spread: float, *, is_rate: bool) -> float:
    """Return an effect in standard deviations of one unit, or as Cohen's h for a rate."""
    return rate_effect(baseline, effect) if is_rate else effect / max(spread, 1e-12)


def _comparison(request: Request, arms: int, *, is_rate: bool) -> Comparison:
    sides = 1 if request.non_inferiority else 2
    alpha = request.alpha if request.alpha is not None else ALPHA / (2.0 if sides == 1 else 1.0)
    return Comparison(alpha=alpha / (arms - 1), power=request.power or POWER, sides=sides, is_rate=is_rate)


def _bounds(request: Request, comparison: Comparison) -> tuple[float, ...]:
    if not request.wants_looks:
        return ()
    weekly = int(min(20, request.weeks or DEFAULT_WEEKS)) if weekly_looks(request) else DEFAULT_LOOKS
    looks = request.looks or max(2, weekly)
    return tuple(spending_bounds(looks, comparison.alpha if comparison.sides == 2 else 2.0 * comparison.alpha))


def _plan_weeks(
    request: Request, data: Snapshot, comparison: Comparison, arms: int, bounds: tuple[float, ...], weeks: Sourced | None
) -> Plan:
    """Return the plan for one length."""
    kpi = request.metric.kpi if request.spread is None else None
    measures = None if kpi is None or weeks is None else measure(data, request.scope.mask, kpi, round(max(1.0, weeks.value)))
    stands_in = request.metric.named and request.metric.caveat is not None
    lent = "measured" if request.in_data and not stands_in else "stand-in"
    if measures:
        baseline, spread = Sourced(measures.mean, lent), measures.residual
    else:
        known = request.baseline is not None
        baseline = Sourced(request.baseline if request.baseline is not None else WORST_RATE, "given" if known else "assumed")
        spread = request.spread if request.spread is not None else float(np.sqrt(baseline.value * (1.0 - baseline.value)))
    effect = _effect(request, baseline.value, spread)
    size, icc = _clusters(request, data, measures)
    if size and icc:
        comparison = replace(comparison, cluster_size=max(1, round(size.value)), icc=icc.value)
    available = _available(request, data, arms, measures)
    is_rate = comparison.is_rate
    standardised = standardise(baseline.value, effect.value, spread, is_rate=is_rate)
    if request.design == "holdout" and available and not request.units.is_cluster:
        comparison = replace(comparison, ratio=_holdout_ratio(request, comparison, standardised, available.value))
        available = replace(available, value=float(max(2, floor(2.0 * available.value / (1.0 + comparison.ratio)))))
    needed = comparison.units_for(standardised)
    used = _used(request, needed, available)
    smallest = comparison.smallest_effect(used)
    return Plan(
        request=request,
        comparison=comparison,
        arms=arms,
        is_rate=is_rate,
        baseline=baseline,
        effect=effect,
        unit_spread=spread,
        measures=measures,
        weeks=weeks,
        weeks_needed=None,
        cluster_size=size,
        icc=icc,
        available=available,
        needed=needed,
        used=used,
        power=comparison.power_of(standardised, used),
        smallest=None if smallest is None else rate_change(baseline.value, smallest) if is_rate else smallest * spread,
        bounds=bounds,
    )


def _effect(request: Request, baseline: float, spread: float) -> Sourced:
    change, kpi = request.change, request.metric.kpi
    if change is not None and change.value > 0:
        return Sourced(change.value * baseline if change.relative else change.value, "given")
    if change is not None:
        return Sourced(change.value, "given")
    if request.spread is not None:
        return Sourced(DEFAULT_SPREADS * spread, "assumed")
    if kpi is None or kpi.denominator is not None:
        return Sourced(min(DEFAULT_POINTS, DEFAULT_PART * baseline), "assumed")
    return Sourced(DEFAULT_LIFT * baseline, "assumed")


def _clusters(request: Request, data: Snapshot, measures: Measures | None) -> tuple[Sourced | None, Sourced | None]:
    """Return the size of a cluster and the ICC, or nothing where single people are assigned."""
    units = request.units
    if not units.is_cluster:
        return None, None
    people = int(request.scope.mask.sum())
    count = len(request.scope.regions) if units.name == "region" and units.total is None and units.per_arm is None else _count(request)
    if request.cluster_size is not None:
        size = Sourced(request.cluster_size, "given")
    elif count and measures:
        size = Sourced(max(1.0, people / count), "measured" if units.name == "region" else "stand-in")
    else:
        size = Sourced(DEFAULT_CLUSTER_SIZE, "assumed")
    if request.icc is not None:
        return size, Sourced(request.icc, "given")
    if measures:
        return size, Sourced(measures.icc_high, "measured" if units.name == "region" else "stand-in")
    return size, Sourced(DEFAULT_ICC, "assumed")


def _count(request: Request) -> int | None:
    units = request.units
    return units.total if units.total is not None else None if units.per_arm is None else 2 * units.per_arm


def _available(request: Request, data: Snapshot, arms: int, measures: Measures | None) -> Sourced | None:
    """Return the units that each arm can have, or None where nobody knows."""
    units = request.units
    if units.per_arm is not None:
        return Sourced(units.per_arm, "given")
    if units.total is not None:
        return Sourced(units.total // arms, "given")
    if units.name == "region":
        return Sourced(len(request.scope.regions) // arms, "measured")
    if units.name == "HCP" and not units.named and request.baseline is not None:
        return None
    if units.name == "HCP" or request.design == "holdout":
        people = measures.size if measures else int(request.scope.mask.sum())
        return Sourced(people // arms, "measured" if request.in_data and units.name == "HCP" else "stand-in")
    return None


def _holdout_ratio(request: Request, comparison: Comparison, effect: float, half: float) -> float:
    """Return treated per held-out unit: at the first share that is spoken of, else at the smallest that reaches the power."""
    total = 2.0 * half
    shares = request.shares[:1] if len(request.shares) == 1 else request.shares or tuple(one / 100.0 for one in range(1, 51))
    for share in sorted(shares):
        ratio = (1.0 - share) / share
        if replace(comparison, ratio=ratio).power_of(effect, share * total) >= comparison.power:
            return ratio
    return (1.0 - max(shares)) / max(shares)


def _used(request: Request, needed: int | None, available: Sourced | None) -> int:
    """Return the units in the control arm: all that the request gives, else what is needed, as far as there are so many."""
    given = available is not None and available.source == "given"
    if available is None:
        return needed if needed is not None else 2
    if given or request.design == "holdout" or needed is None:
        return max(2, int(available.value))
    if request.decision in {"smallest_effect", "power"} or (request.decision == "duration" and request.weeks is not None):
        return max(2, int(available.value))
    return max(2, min(needed, int(available.value)))


def _with_rate_weeks(plan: Plan, data: Snapshot) -> Plan:
    """Return the plan of a rate with its length: given, or how long the units take to come in."""
    request, total = plan.request, sum(plan.sizes)
    if request.units.per_week:
        weeks = max(1, ceil(total / request.units.per_week))
        return replace(plan, weeks_needed=weeks, weeks=Sourced(request.weeks or float(weeks), "given"))
    if request.weeks is not None:
        return replace(plan, weeks=Sourced(request.weeks, "given"))
    if request.metric.name == "open rate":
        missed = 1.0 - weekly_reach(data, request.scope.mask)
        weeks = ceil(np.log(1.0 - MOST_RECIPIENT_SHARE) / np.log(missed)) if 0.0 < missed < 1.0 else 1
        return replace(plan, weeks=Sourced(float(weeks), "measured"), weeks_needed=weeks)
    return replace(plan, weeks=Sourced(DEFAULT_WEEKS, "assumed"))
