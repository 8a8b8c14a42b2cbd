"""What a split is expected to bring: returns with intervals, the gain over today's split, and what weeks not used for the fit say."""

from dataclasses import dataclass

import numpy as np

from service.agents.allocation.curves import Curves
from service.agents.allocation.plan import Setting, half_fits, in_play, solve
from service.agents.resampling import interval, share_true
from service.agents.sample_data import Mask, Reals

SAME_SPLIT = 0.005
"""Splits that differ by less than this part of the total count as the same."""
STEPS = (0.7, 0.85, 1.0, 1.15, 1.3)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The recommended spending (k$ a week) and the yardstick: today's split, scaled to the same total. Returns are a week's."""

    setting: Setting
    spend: Reals
    yardstick: Reals
    returns: float
    returns_interval: tuple[float, float]
    today_returns: float
    yardstick_returns: float
    gain: float
    gain_interval: tuple[float, float]
    share_better: float
    confirmed: float | None
    """The gain that curves fitted to the other half of the weeks give; None where there is no choice."""
    fit_quality: float
    precision: float

    @property
    def has_choice(self) -> bool:
        """Whether the recommended split differs from the yardstick."""
        return bool(np.abs(self.spend - self.yardstick).sum() > SAME_SPLIT * max(float(self.spend.sum()), 1e-9))

    @property
    def confidence(self) -> float:
        """Return the share of replicates in which the split beats the yardstick, or without a choice the precision, times the fit.

        A gain that the other half of the weeks confirms only in part counts in part.
        """
        if not self.has_choice or self.confirmed is None:
            return self.precision * self.fit_quality
        confirmed = float(np.clip(self.confirmed / max(self.gain, 1e-9), 0.0, 1.0))
        return self.share_better * self.fit_quality * (0.5 + 0.5 * confirmed)


def evaluate(setting: Setting, *, quick: bool = False) -> Outcome:
    """Find the best split and judge it; `quick` leaves out the check on the other half of the weeks.

    Raises:
        AgentFailure: The limits leave no split.
    """
    spend = solve(setting)
    lines, priced = setting.lines, setting.problem.priced
    today = lines.current
    is_size = priced and float(setting.problem.total) > 1.001 * today.sum()
    yardstick = today if is_size else today * float(spend.sum()) / max(float(today.sum()), 1e-9)
    gains = _worth(setting, lines.replicates, spend) - _worth(setting, lines.replicates, yardstick)
    returns = _returns(setting, lines.replicates, spend)
    low, high = interval(returns)
    estimate = _returns(setting, lines.curves, spend)
    used = np.maximum(spend, yardstick)
    return Outcome(
        setting=setting,
        spend=spend,
        yardstick=yardstick,
        returns=float(estimate),
        returns_interval=(low, high),
        today_returns=float(_returns(setting, lines.curves, today)),
        yardstick_returns=float(_returns(setting, lines.curves, yardstick)),
        gain=float(_worth(setting, lines.curves, spend) - _worth(setting, lines.curves, yardstick)),
        gain_interval=interval(gains),
        share_better=share_true(gains > 0.0),
        confirmed=None if quick else _confirm(setting, yardstick),
        fit_quality=float(np.average(lines.explained, weights=used + 1e-9)),
        precision=max(0.0, 1.0 - (high - low) / 2.0 / max(float(estimate), 1e-9)),
    )


def frontier(setting: Setting) -> list[tuple[float, float, float]]:
    """Return (part of the total, k$ a week, expected return a week) for totals from 70 to 130 %."""
    found = []
    floor = float(setting.problem.low.sum())
    for part in STEPS:
        total = max(part * setting.problem.total, floor)
        spend = solve(setting, total=total)
        found.append((part, float(spend.sum()), float(_returns(setting, setting.lines.curves, spend))))
    return found


def switch_point(setting: Setting, first: Mask, second: Mask) -> float | None:
    """Return the k$ a week on the first lines at which their next k$ returns what the second lines' does today.

    Spending inside each part is spread as today. None: the first never return as much.
    """
    lines = setting.lines
    shares = lines.current[first] / lines.current[first].sum()
    target = marginal_of(setting, second, lines.current)
    curves, weight = lines.curves.part(first), setting.problem.weight[first]

    def next_k(spend: float) -> float:
        return float(np.sum(shares * weight * curves.marginal(spend * shares)))

    low = float(np.max(curves.inflection() / np.maximum(shares, 1e-9), initial=0.0))
    high = 20.0 * float(lines.current[first].sum())
    if next_k(low) <= target:
        return None
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if next_k(middle) > target else (low, middle)
    return (low + high) / 2.0


def marginal_of(setting: Setting, chosen: Mask, spend: Reals) -> float:
    """Return what the next k$ a week adds when it is spread over the chosen lines as their spending is."""
    part = spend[chosen]
    if part.sum() <= 0:
        return float(np.max(setting.problem.weight[chosen] * setting.lines.curves.part(chosen).marginal(part)))
    marginal = setting.problem.weight[chosen] * setting.lines.curves.part(chosen).marginal(part)
    return float(np.sum(marginal * part) / part.sum())


def _returns(setting: Setting, curves: Curves, spend: Reals) -> Reals:
    return np.asarray((setting.problem.weight * curves.value(spend)).sum(axis=-1))


def _worth(setting: Setting, curves: Curves, spend: Reals) -> Reals:
    return np.asarray(_returns(setting, curves, spend) - (spend.sum() if setting.problem.priced else 0.0))


def _confirm(setting: Setting, yardstick: Reals) -> float:
    """Split with the curves of one half of the weeks, judge with those of the other half, both ways; return the mean gain."""
    even, odd = (fit.part(in_play(fit, setting.lines)).curves for fit in half_fits(setting.by))
    gains = []
    for fitted, judge in ((even, odd), (odd, even)):
        spend = solve(setting, curves=fitted)
        gains.append(float(_worth(setting, judge, spend) - _worth(setting, judge, yardstick)))
    return float(np.mean(gains))
