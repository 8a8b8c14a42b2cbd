"""From what a request asks to a problem with lines, limits and a total, and from there to a plan. It writes no sentences."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from service.agents.allocation.channel_data import CHANNELS, MARGIN, TIER_CHANNELS, UNIT_COST, UNIT_NAME, VISITS_PER_REP, load_channel_data
from service.agents.allocation.curves import Curves, FittedLines, fit_lines, fit_table
from service.agents.allocation.request import WORKDAYS, BudgetRequest
from service.agents.allocation.split import Bound, Problem, allocate
from service.agents.finding import AgentFailure
from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.scope import Scope

PERIOD_CHOICES = (52.0 / 12.0, 13.0, 26.0, 52.0)
LEAST_REPS_A_GROUP = 2
"""With fewer people than this a region, their time is split: whole people would be too coarse."""
MOST_WHOLE_UNITS = 600
"""Above this the split is computed in parts of a unit and rounded."""
NRX_WEEKS = 26
PART_OF_TODAY = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A request laid on the data: the lines in play, the problem, the horizon, and the unit in which the answer is told."""

    lines: FittedLines
    problem: Problem
    weeks: float
    weeks_assumed: bool
    unit_name: str
    unit_cost: float
    """k$ for one unit over the horizon: 1 for money."""
    whole: bool
    objective: str
    by: str
    notes: tuple[str, ...]

    @property
    def units_per_weekly_k(self) -> float:
        """How many units over the horizon 1 k$ a week buys."""
        return self.weeks / self.unit_cost

    def group_names(self, split: str) -> NDArray[np.str_]:
        """Return the name of each line's group in a split."""
        return {"channel": self.lines.channel, "brand": self.lines.brand}.get(split, self.lines.group)


def lay_out(request: BudgetRequest, scope: Scope, data: Snapshot) -> Setting:
    """Return the setting of a request.

    Raises:
        AgentFailure: A cut is larger than today's spending, or the limits leave no split.
    """
    by = "tier" if request.split == "tier" else "region"
    lines, notes = _lines_in_play(request, scope, by)
    today = float(lines.current.sum())
    weeks, assumed = _horizon(request, today)
    unit_cost, unit_name, unit_note = _unit(request, today, weeks)
    total, mode_note = _total(request, today, weeks, unit_cost)
    objective = "profit" if request.mode == "size" else request.objective or "trx"
    low, high = np.zeros(len(lines.current)), np.maximum(lines.largest_tried, lines.current)
    is_cut = request.unit == "money" and total < today - 1e-9 and request.mode in {"change", "ratio"}
    if is_cut:
        high = lines.current.copy()
    if request.mode == "change" and total > today:
        low = lines.current.copy()
    for channel in request.untouched:
        kept = lines.channel == channel
        low[kept] = high[kept] = lines.current[kept]
    bounds, bound_notes = _bounds(request, lines, total, weeks)
    whole = _is_whole(request, lines, total * weeks / unit_cost) and not bounds and not request.untouched
    problem = Problem(
        curves=lines.curves,
        weight=_weights(objective, lines, data, by),
        low=low,
        high=high,
        total=float(high.sum()) if request.mode == "size" else total,
        bounds=bounds,
        priced=objective == "profit",
        unit=unit_cost / weeks if whole else None,
        whole_over=lines.group if whole and request.unit == "reps" else None,
    )
    found = (*notes, *(note for note in (unit_note, mode_note) if note), *bound_notes)
    return Setting(lines, problem, weeks, assumed, unit_name, unit_cost, whole, objective, by, found)


def solve(setting: Setting, curves: Curves | None = None, total: float | None = None) -> Reals:
    """Return the best spending (k$ a week), with other curves or another total where given.

    Raises:
        AgentFailure: The limits leave no split.
    """
    old = setting.problem
    problem = Problem(
        curves=curves or old.curves,
        weight=old.weight,
        low=old.low,
        high=old.high,
        total=old.total if total is None else total,
        bounds=old.bounds,
        priced=old.priced,
        unit=old.unit,
        whole_over=old.whole_over,
    )
    try:
        return allocate(problem)
    except ValueError as problem_found:
        raise AgentFailure("infeasible_limits", f"The limits cannot all be kept: {problem_found}.") from problem_found


@lru_cache(maxsize=2)
def half_fits(by: str) -> tuple[FittedLines, FittedLines]:
    """Return the curves fitted to the even weeks alone and to the odd weeks alone."""
    frame = load_channel_data().by_tier if by == "tier" else load_channel_data().by_region
    even = frame["week"] % 2 == 0
    return fit_table(frame[even]), fit_table(frame[~even])


def in_play(lines: FittedLines, part: FittedLines) -> Mask:
    """Return which of all lines are in a part."""
    keys = set(zip(part.brand, part.group, part.channel, strict=True))
    return np.array([key in keys for key in zip(lines.brand, lines.group, lines.channel, strict=True)])


def _lines_in_play(request: BudgetRequest, scope: Scope, by: str) -> tuple[FittedLines, list[str]]:
    lines, notes = fit_lines(by), []
    channels = request.channels or CHANNELS
    if by == "tier":
        if "paid_search" in channels:
            notes.append("Paid search cannot be aimed at a tier of HCPs; it is left out.")
        channels = tuple(name for name in channels if name in TIER_CHANNELS) or TIER_CHANNELS
        if scope.region_named:
            notes.append("The experiment by tier is not split by region; the tiers are those of the whole country.")
    chosen = np.isin(lines.channel, channels) & np.isin(lines.brand, scope.brands)
    if by == "region":
        chosen &= np.isin(lines.group, scope.regions)
    return lines.part(chosen), notes


def _horizon(request: BudgetRequest, today: float) -> tuple[float, bool]:
    """Return the weeks, and whether they were assumed: then the period whose spending today is nearest to the amount."""
    if request.weeks is not None:
        return request.weeks, False
    if request.mode == "total" and request.unit != "reps":
        amount = request.amount * UNIT_COST.get(request.unit, 1.0)
        return min(PERIOD_CHOICES, key=lambda weeks: abs(math.log(max(amount, 1e-9) / (today * weeks)))), True
    return (52.0 if request.mode in {"change", "size"} else 13.0), True


def _unit(request: BudgetRequest, today: float, weeks: float) -> tuple[float, str, str | None]:
    """Return the cost of one unit over the horizon in k$, the unit's name, and what was assumed about it."""
    if request.unit == "money":
        return 1.0, "k$", None
    old = request.count / max(request.amount, 1e-9) if request.count else 0.0
    if request.unit != "reps":
        cost, name = UNIT_COST[request.unit], UNIT_NAME[request.unit]
        if old:
            note = f"The {old:,.0f} are taken as today's {today * weeks / cost:,.0f} {name} in {weeks:.0f} weeks, so one stands for "
            return today / old * weeks, name, f"{note}{today * weeks / cost / old:.1f} of them."
        return cost, name, f"Unit cost: {name} at ${1000 * cost:,.0f} each."
    own = request.amount if request.mode == "total" else old
    if own and not request.rate:
        note = (
            f"The data know no single reps. The {own:,.0f} are taken as the people behind today's {today / UNIT_COST['calls']:,.0f} visits "
            f"a week, so one stands for {today / own / UNIT_COST['calls']:.1f} of them."
        )
        return today / own * weeks, "reps", note
    a_week = VISITS_PER_REP
    if request.rate and request.rate.per in {"day", "rep"}:
        a_week = request.rate.value * WORKDAYS
    elif request.rate:
        a_week = request.rate.value / (52 / 12 if request.rate.per == "month" else 1.0)
    note = f"The data know no single reps: one rep is counted as {a_week:.0f} visits a week at ${1000 * UNIT_COST['calls']:,.0f} each."
    return a_week * UNIT_COST["calls"] * weeks, "reps", note


def _total(request: BudgetRequest, today: float, weeks: float, unit_cost: float) -> tuple[float, str | None]:
    """Return the total in k$ a week, and a note where it is far from today's."""
    if request.mode == "total":
        total = request.amount * unit_cost / weeks
        if request.unit not in {"money", "reps"} and total < PART_OF_TODAY * today:
            note = (
                f"The {request.amount:,.0f} {UNIT_NAME[request.unit]} are {100 * total / today:.0f} % of what the data hold for such a "
                "period; if they are only your part of these, follow the shares of the split of today's total instead."
            )
            return total, note
        return total, None
    if request.mode == "ratio":
        return today * request.amount, None
    if request.mode == "change":
        total = today + request.amount * unit_cost / weeks
        if total < 0:
            message = (
                f"A cut of {request.said} is more than the {today * weeks / unit_cost:,.0f} that these lines take in {weeks:.0f} weeks."
            )
            raise AgentFailure("infeasible_limits", message)
        return total, None
    return today, None


def _is_whole(request: BudgetRequest, lines: FittedLines, units: float) -> bool:
    """Whole units are given where the request counts them, there are not too many, and people are not too few to be told apart."""
    if request.unit == "money" or units > MOST_WHOLE_UNITS:
        return False
    if request.unit == "reps" and request.mode != "change":
        enough = units >= LEAST_REPS_A_GROUP * len(set(lines.group.tolist()))
        return enough and request.split not in {"brand", "channel"} and (request.mode == "total" or request.count > 0)
    return request.mode == "total" or request.count > 0 or (request.mode == "change" and request.amount > 0)


def _bounds(request: BudgetRequest, lines: FittedLines, total: float, weeks: float) -> tuple[tuple[Bound, ...], list[str]]:
    bounds: list[Bound] = []
    notes: list[str] = []
    for limit in request.limits:
        chosen = (lines.channel == limit.name) | (lines.group == limit.name) | (lines.brand == limit.name)
        amount = limit.amount
        value = amount.value / 100.0 * total if amount.kind == "percent" else amount.value * _cost_of(amount.unit) / weeks
        if not chosen.any() or any((bound.lines & chosen).any() for bound in bounds):
            notes.append(f"The limit of {amount.said} for {limit.name} was not used: it has no line of its own in this split.")
            continue
        word = "at least" if limit.least else "at most"
        notes.append(f"{limit.name.replace('_', ' ')} gets {word} {amount.said}.")
        bounds.append(Bound(chosen, value if limit.least else 0.0, np.inf if limit.least else value))
    return tuple(bounds), notes


def _cost_of(unit: str | None) -> float:
    return VISITS_PER_REP * UNIT_COST["calls"] if unit == "reps" else UNIT_COST.get(unit or "", 1.0)


def _weights(objective: str, lines: FittedLines, data: Snapshot, by: str) -> Reals:
    """Return what one TRx of each line counts: 1, its NRx, or its margin in k$."""
    if objective == "profit":
        return np.array([MARGIN[brand] for brand in lines.brand.tolist()])
    if objective == "nrx":
        shares = []
        for brand, group in zip(lines.brand, lines.group, strict=True):
            mask = data.labels("brand") == brand
            if by == "region":
                mask &= data.labels("region") == group
            trx, nrx = (data.weekly[name][-NRX_WEEKS:, mask].sum() for name in ("trx", "nrx"))
            shares.append(float(nrx) / max(float(trx), 1.0))
        return np.array(shares)
    return np.ones(len(lines.current))
