"""The best split of a total over lines with response curves. It knows no dispatch and no text.

Two steps. On a grid of the total, dynamic programming (Bellman, Dynamic Programming, 1957) finds the best split exactly, whatever the
curves' form: S-shaped curves have false optima in which a search from one start gets stuck. Then, unless the units are whole,
water-filling moves the lines to where the next k$ returns the same in each (Boyd and Vandenberghe, Convex Optimization, 5.5.3).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.agents.allocation.curves import Curves
from service.agents.sample_data import Mask, Reals

GRID = 400
BISECTIONS = 40
PRICES, SECTIONS = 33, 8  # 33 prices at once, eight times over, are as fine as forty bisections
REVISIONS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The sum over some lines stays between low and high, in k$ a week. No line is in two bounds."""

    lines: Mask
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is to be split: curves, what a TRx of each line counts, each line's limits and the total (k$ a week).

    With `priced` each k$ spent counts as -1, so that not all of the total need be spent. With `unit` (k$ a week) only whole units
    above the lower limits are given: to each line, or where `whole_over` names a group for each line, to each group, whose lines
    share them at will; then there are no bounds.
    """

    curves: Curves
    weight: Reals
    low: Reals
    high: Reals
    total: float
    bounds: tuple[Bound, ...] = ()
    priced: bool = False
    unit: float | None = None
    whole_over: NDArray[np.str_] | None = None

    def worth(self, spend: Reals) -> float:
        """Return what a split is worth."""
        return float(np.sum(self.weight * self.curves.value(spend))) - (float(np.sum(spend)) if self.priced else 0.0)


def allocate(problem: Problem) -> Reals:
    """Return the best spending of each line (k$ a week). Where the limits leave no room for the total, it is not all given.

    Raises:
        ValueError: The lower limits alone take more than the total, or a bound cannot be kept.
    """
    room = min(problem.total, float(problem.high.sum())) - float(problem.low.sum())
    if room < -1e-6 * max(problem.total, 1.0):
        raise ValueError(f"the lower limits take {problem.low.sum():.1f} k$ a week, more than the total of {problem.total:.1f}")
    parts = 1
    if problem.unit is None:
        step = max(room, 1e-9) / GRID
    else:
        whole = max(1.0, np.floor(room / problem.unit + 1e-6))
        parts = 1 if problem.whole_over is None else max(1, math.ceil(GRID / whole))
        step = problem.unit / parts
    steps = int(np.floor(room / step + 1e-6))
    given = problem.low + step * _search(problem, step, steps // parts * parts, parts)
    if problem.unit is None:
        return _polish(problem, given, 1.5 * step)
    for group in _groups(problem) if problem.whole_over is not None else ():
        given[group] = _Water(problem, group, float(given[group].sum())).fill(given[group])
    return given


def _groups(problem: Problem) -> list[Mask]:
    """Return the lines of each part that has a condition of its own; the last one holds the lines without."""
    if problem.whole_over is not None:
        return [problem.whole_over == name for name in dict.fromkeys(problem.whole_over.tolist())]
    bound = np.any([np.zeros(len(problem.low), dtype=bool), *(one.lines for one in problem.bounds)], axis=0)
    return [*(one.lines for one in problem.bounds), ~bound]


def _search(problem: Problem, step: float, steps: int, parts: int) -> Reals:
    """Return the whole number of steps above its lower limit that each line gets; a group gets a multiple of `parts`."""
    best, trails = np.full(steps + 1, -np.inf), []
    best[0] = 0.0
    for at, group in enumerate(_groups(problem)):
        inner, choices = np.full(steps + 1, -np.inf), []
        inner[0] = 0.0
        lines = np.flatnonzero(group)
        for line in lines:
            inner, chosen = _join(inner, _line_values(problem, int(line), step, steps))
            choices.append(chosen)
        if at < len(problem.bounds):
            bound, base = problem.bounds[at], float(problem.low[group].sum())
            sums = base + step * np.arange(steps + 1)
            inner[(sums < bound.low - step / 2) | (sums > bound.high + step / 2)] = -np.inf
        inner[np.arange(steps + 1) % parts != 0] = -np.inf
        best, chosen = _join(best, inner)
        trails.append((lines, choices, chosen))
    if not np.isfinite(best).any():
        raise ValueError("no split keeps all limits")
    taken = int(np.argmax(best)) if problem.priced else int(np.flatnonzero(np.isfinite(best))[-1])
    given = np.zeros(len(problem.low))
    for lines, choices, chosen in reversed(trails):
        inside = int(chosen[taken])
        taken -= inside
        for line, picks in zip(reversed(lines), reversed(choices), strict=True):
            given[line] = picks[inside]
            inside -= int(picks[inside])
    return given


def _line_values(problem: Problem, line: int, step: float, steps: int) -> Reals:
    """Return what a line is worth at 0, 1, ... steps above its lower limit; minus infinity above the upper one."""
    spend = problem.low[line] + step * np.arange(steps + 1)
    one = np.zeros(len(problem.low), dtype=bool)
    one[line] = True
    values = problem.weight[line] * problem.curves.part(one).value(spend) - (spend if problem.priced else 0.0)
    values[1:][spend[1:] > problem.high[line] + 1e-9] = -np.inf
    return np.asarray(values)


def _join(left: Reals, right: Reals) -> tuple[Reals, NDArray[np.int64]]:
    """Return the best sum for each number of steps shared by two parts, and how many of them go to the right part."""
    size = len(left)
    padded = np.concatenate([np.full(size - 1, -np.inf), left])
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)[:, ::-1]
    used = np.flatnonzero(np.isfinite(right))
    if not len(used):
        raise ValueError("no split keeps all limits")
    sums = windows[:, used] + right[used]
    at = np.argmax(sums, axis=1)
    return np.asarray(sums[np.arange(size), at]), np.asarray(used[at])


def _polish(problem: Problem, given: Reals, near: float) -> Reals:
    """Water-fill what the search found; each bound that holds its lines back keeps its own total."""
    spend = given.copy()
    free = np.ones(len(given), dtype=bool)
    rest = problem.total
    for bound in problem.bounds:
        inside = float(given[bound.lines].sum())
        target = bound.high if abs(inside - bound.high) < near else bound.low if abs(inside - bound.low) < near else None
        if target is not None:
            spend[bound.lines] = _Water(problem, bound.lines, min(target, rest)).fill(given[bound.lines])
            free &= ~bound.lines
            rest -= float(spend[bound.lines].sum())
    if free.any():
        spend[free] = _Water(problem, free, rest).fill(given[free])
    return spend


class _Water:
    """Some lines of a problem and a total for them."""

    def __init__(self, problem: Problem, chosen: Mask, total: float) -> None:
        self.curves, self.weight, self.total = problem.curves.part(chosen), problem.weight[chosen], total
        self.low, self.high = problem.low[chosen], problem.high[chosen]
        self.cost = 1.0 if problem.priced else 0.0
        self.start = np.minimum(np.maximum(self.low, self.curves.inflection()), self.high)
        """From here up to the upper limit a line's curve bends down, so that there is one best answer to a price."""

    def fill(self, given: Reals) -> Reals:
        """Return the spending with equal worth of the next k$ in all lines that can move, starting from what the search gave.

        Which lines get anything at all is revised at the price that was found: a line is taken in when it is worth more than
        it costs, which the grid cannot see for lines smaller than a step.
        """
        dust = 1e-9 * max(self.total, 1.0)
        over = float(given.sum()) - self.total
        above = float((given - self.low).sum())
        best = given if over <= dust else given - (given - self.low) * min(1.0, over / max(above, 1e-12))
        moves = given > self.low + 1e-9
        for _ in range(REVISIONS):
            price, spend = self._level(moves)
            if spend.sum() <= self.total + dust and self._worth(spend).sum() >= self._worth(best).sum():
                best = spend
            answer = self._respond(price)
            pays = self._worth(answer) - self._worth(self.low) > (price - self.cost) * (answer - self.low) + dust
            if (pays == moves).all():
                break
            moves = pays
        return best

    def _level(self, moves: Mask) -> tuple[float, Reals]:
        """Return the price at which the lines that move take the total, and their spending; the others stay at the lower limit."""
        steepest = float(np.max(self.weight * self.curves.marginal(self.start), initial=0.0))
        cheap, dear = self.cost, 2.0 * steepest + 1.0
        if np.where(moves, self._respond(cheap), self.low).sum() <= self.total:
            return cheap, np.where(moves, self._respond(cheap), self.low)
        for _ in range(SECTIONS):
            prices = np.linspace(cheap, dear, PRICES)
            spent = np.where(moves, self._respond(prices[:, None]), self.low).sum(axis=1)
            enough = int(np.clip(np.count_nonzero(spent > self.total), 1, PRICES - 1))
            cheap, dear = float(prices[enough - 1]), float(prices[enough])
        return dear, np.where(moves, self._respond(dear), self.low)

    def _respond(self, price: float | Reals) -> Reals:
        """Return where the next k$ of each line is worth the price, by bisection between start and upper limit; a row for each price."""
        under, over = self.start, self.high
        for _ in range(BISECTIONS):
            middle = (under + over) / 2.0
            richer = self.weight * self.curves.marginal(middle) > price
            under, over = np.where(richer, middle, under), np.where(richer, over, middle)
        return np.asarray((under + over) / 2.0)

    def _worth(self, spend: Reals) -> Reals:
        return np.asarray(self.weight * self.curves.value(spend) - self.cost * spend)
