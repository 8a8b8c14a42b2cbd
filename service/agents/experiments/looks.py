"""Stopping bounds for repeated looks: O'Brien-Fleming-like alpha spending (Lan and DeMets 1983). Numbers only."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from service.agents.sample_data import Reals

GRID = 301
REACH = 9.0
"""No bound of |z| is searched beyond."""


class _Score:
    """The density of the score process among the runs that have crossed no bound yet, on a grid (Armitage and others 1969)."""

    def __init__(self, drift: float) -> None:
        """Start at time 0 with all runs at 0; z at time 1 will have mean `drift` and variance 1."""
        self._drift, self._time = drift, 0.0
        self._points, self._density = np.zeros(1), np.ones(1)

    def crossing(self, time: float, bound: float) -> float:
        """Return the chance that |z| crosses `bound` at `time` and no earlier."""
        width, mean = float(np.sqrt(time - self._time)), self._points + self._drift * (time - self._time)
        limit = bound * float(np.sqrt(time))
        return float((self._density * (ndtr((mean - limit) / width) + ndtr((-limit - mean) / width))).sum())

    def advance(self, time: float, bound: float) -> None:
        """Move on to `time`, without the runs that cross `bound` there."""
        width, mean = float(np.sqrt(time - self._time)), self._points + self._drift * (time - self._time)
        limit = bound * float(np.sqrt(time))
        points = np.linspace(-limit, limit, GRID)
        weights = np.full(GRID, points[1] - points[0])
        weights[[0, -1]] /= 2.0
        kernel: Reals = np.exp(-0.5 * ((points[:, None] - mean) / width) ** 2) / (width * np.sqrt(2.0 * np.pi))
        self._points, self._density, self._time = points, weights * (kernel @ self._density), time


def spending_bounds(looks: int, alpha: float) -> list[float]:
    """Return the bound of |z| at each of `looks` equally spaced looks, two-sided, together with error `alpha`.

    After the share t of the data 4 - 4 Phi(z(1 - alpha / 4) / sqrt t) of the error is spent, half of it on either side.
    """
    times = [(look + 1) / looks for look in range(looks)]
    spent = [0.0, *(float(4.0 * norm.sf(norm.ppf(1.0 - alpha / 4.0) / np.sqrt(time))) for time in times)]
    score, bounds = _Score(0.0), list[float]()
    for look, time in enumerate(times):
        step = spent[look + 1] - spent[look]
        if score.crossing(time, REACH) >= step:
            bound = REACH
        else:
            bound = float(brentq(lambda one, at=time, wanted=step: score.crossing(at, one) - wanted, 0.1, REACH, xtol=1e-6))
        bounds.append(bound)
        score.advance(time, bound)
    return bounds


def looks_inflation(bounds: list[float], alpha: float, power: float) -> float:
    """Return by how much the largest sample must exceed that of a test without looks, for the same power."""

    def power_at(drift: float) -> float:
        score, crossed = _Score(drift), 0.0
        for look, bound in enumerate(bounds, start=1):
            crossed += score.crossing(look / len(bounds), bound)
            score.advance(look / len(bounds), bound)
        return crossed

    fixed = float(norm.ppf(1.0 - alpha / 2.0) + norm.ppf(power))
    drift = float(brentq(lambda one: power_at(one) - power, 0.8 * fixed, 2.0 * fixed, xtol=1e-3))
    return max(1.0, (drift / fixed) ** 2)
