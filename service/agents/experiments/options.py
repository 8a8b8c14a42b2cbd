"""What else a plan could be: shares of a holdout, a stepped wedge, other cluster sizes and baselines, a crossover. Rows of numbers."""

from dataclasses import dataclass, replace
from math import ceil, comb, factorial, prod

import numpy as np
from scipy.stats import norm

from service.agents.chart import Row
from service.agents.experiments.measures import measure
from service.agents.experiments.plan import DEFAULT_CLUSTER_SIZE, DEFAULT_ICC, WEDGE_WEEKS, Plan, standardise
from service.agents.experiments.power import rate_change, rate_effect, wedge_error
from service.agents.sample_data import Snapshot

CURVE_POINTS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
WEDGE_STEP_WEEKS = 4
"""The shortest period that is proposed; a shorter wedge has fewer steps."""
MOST_STEPS, MOST_CLUSTERS = 6, 2_000
MOST_ENUMERATED, MOST_ORDERS = 60, 10**12
"""With more clusters the number of possible draws sets no limit that anybody would notice."""


@dataclass(frozen=True, slots=True)
class Wedge:
    """A stepped wedge beside a parallel comparison of the same clusters over the same weeks."""

    clusters: int
    steps: int
    batches: tuple[int, ...]
    weeks_a_period: int
    smallest: float
    power: float
    parallel_smallest: float | None
    orders: int

    @property
    def least_p_value(self) -> float:
        """The smallest p-value that a permutation test can give: 1 over the number of possible orders."""
        return 1.0 / self.orders


def holdout_options(plan: Plan) -> tuple[Row, ...]:
    """Return size, power and smallest effect for each share that is spoken of, else for 5, 10 and 20 %."""
    total = sum(plan.sizes)
    rows: list[Row] = []
    for share in plan.request.shares or (0.05, 0.10, 0.20):
        held = max(2, round(share * total))
        one = replace(plan.comparison, ratio=(total - held) / held)
        rows.append(
            {
                "share": share,
                "held_out": held,
                "power": one.power_of(plan.standardised, held),
                "smallest_effect": _size(plan, one.smallest_effect(held)),
            }
        )
    return tuple(rows)


def cluster_options(plan: Plan) -> tuple[Row, ...]:
    """Return the clusters an arm needs at other cluster sizes."""
    rows: list[Row] = []
    for size in sorted({5, 10, 20, 50, plan.comparison.cluster_size}):
        one = replace(plan.comparison, cluster_size=size)
        rows.append({"cluster_size": size, "design_effect": one.design_effect, "clusters_per_arm": one.units_for(plan.standardised)})
    return tuple(rows)


def baseline_options(plan: Plan) -> tuple[Row, ...]:
    """Return the units an arm needs at other baselines of a rate that nobody has given."""
    rows: list[Row] = []
    for baseline in (0.05, 0.10, 0.20, 0.30, 0.50):
        effect = rate_effect(baseline, plan.effect.value)
        rows.append({"baseline": baseline, "units_per_arm": plan.comparison.units_for(effect)})
    return tuple(rows)


def power_curve(plan: Plan) -> tuple[Row, ...]:
    """Return the power at a part to a multiple of the effect, with the units of the plan."""
    rows: list[Row] = []
    for part in CURVE_POINTS:
        effect = part * plan.effect.value
        standardised = standardise(plan.baseline.value, effect, plan.unit_spread, is_rate=plan.is_rate)
        rows.append({"effect": effect, "power": plan.comparison.power_of(standardised, plan.used)})
    return tuple(rows)


def without_pre_period(plan: Plan) -> int | None:
    """Return the units an arm would need in a plain comparison of means (no ANCOVA or CUPED), for a measured count or ratio."""
    if plan.measures is None:
        return None
    return plan.comparison.units_for(plan.effect.value / max(plan.measures.spread, 1e-12))


def crossover_total(plan: Plan) -> int | None:
    """Return the HCPs in all that a crossover needs: each is its own control, (1 - r) / 2 of a plain parallel test (Senn 2002)."""
    if plan.measures is None or plan.cluster_size is not None:
        return None
    plain = without_pre_period(plan)
    return None if plain is None else max(4, ceil(2 * plain * (1.0 - plan.measures.correlation) / 2.0))


def least_p_value(clusters: int) -> float:
    """Return the smallest two-sided p-value of a permutation test with half of the clusters in each arm."""
    if clusters > MOST_ENUMERATED:
        return 0.0
    return min(1.0, 2.0 / comb(clusters, clusters // 2)) if clusters >= 2 else 1.0


def plan_wedge(plan: Plan, data: Snapshot) -> Wedge:
    """Return the stepped wedge of the request's clusters, of the data's regions where it gives no number."""
    request = plan.request
    given = request.units.total or (2 * request.units.per_arm if request.units.per_arm else None)
    if given is None:
        given = len(request.scope.regions) if request.units.name == "region" else 2 * plan.used
    clusters = int(np.clip(given, 2, MOST_CLUSTERS))
    length = plan.weeks.value if plan.weeks else WEDGE_WEEKS
    steps = int(np.clip(length // WEDGE_STEP_WEEKS - 1, 2, min(clusters, MOST_STEPS)))
    weeks = max(1, int(length // (steps + 1)))
    kpi = request.metric.kpi
    measures = measure(data, request.scope.mask, kpi, weeks) if kpi else None
    spread = measures.residual if measures else plan.unit_spread
    size = plan.cluster_size.value if plan.cluster_size else DEFAULT_CLUSTER_SIZE
    icc = plan.icc.value if plan.icc else DEFAULT_ICC
    error = wedge_error(clusters=clusters, steps=steps, cluster_size=size, icc=icc, people_variance=spread**2)
    needed = float(norm.ppf(1.0 - plan.comparison.alpha / 2.0) + norm.ppf(plan.comparison.power))
    batches = tuple(len(part) for part in np.array_split(np.arange(clusters), steps))
    parallel = replace(plan.comparison, cluster_size=max(1, round(size)), icc=icc, ratio=1.0).smallest_effect(clusters // 2)
    long_spread = measure(data, request.scope.mask, kpi, weeks * (steps + 1)).residual if kpi else spread
    beside = None if parallel is None else rate_change(plan.baseline.value, parallel) if plan.is_rate else parallel * long_spread
    return Wedge(
        clusters=clusters,
        steps=steps,
        batches=batches,
        weeks_a_period=weeks,
        smallest=needed * error,
        power=float(norm.cdf(abs(plan.effect.value) / error - norm.ppf(1.0 - plan.comparison.alpha / 2.0))),
        parallel_smallest=beside,
        orders=min(MOST_ORDERS, factorial(clusters) // prod(factorial(one) for one in batches))
        if clusters <= MOST_ENUMERATED
        else MOST_ORDERS,
    )


def _size(plan: Plan, standardised: float | None) -> float | None:
    if standardised is None:
        return None
    return rate_change(plan.baseline.value, standardised) if plan.is_rate else standardised * plan.unit_spread
