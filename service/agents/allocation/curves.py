"""Response curves: how many TRx a week a line adds at a weekly spending, fitted to an experiment. It knows no dispatch.

A Hill curve has a top (TRx a week), a half (k$ a week at which half of the top is reached) and a shape, which the lines of one
channel share. Fitted by weighted non-linear least squares; its uncertainty comes from the covariance of the logarithms of the
parameters (Seber and Wild, Nonlinear Regression, chapter 2).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from service.agents.allocation.channel_data import USUAL_WEEKS, load_channel_data
from service.agents.sample_data import Mask, Reals

REPLICATES = 400
SEED = 23
SMALLEST_SHAPE, LARGEST_SHAPE = 0.5, 3.0
SATURATED_SHARE = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Hill curves of several lines. Each array has a line in its last axis; a first axis, where there is one, holds replicates."""

    top: Reals
    half: Reals
    shape: Reals

    def value(self, spend: Reals) -> Reals:
        """Return the TRx a week at a spending in k$ a week."""
        return np.asarray(self.top * self._share(spend))

    def marginal(self, spend: Reals) -> Reals:
        """Return the TRx that the next k$ adds. At no spending it is taken at a thousandth of the half, where it is finite."""
        at = np.maximum(spend, 1e-3 * self.half)
        share = self._share(at)
        return np.asarray(self.top * self.shape * share * (1.0 - share) / at)

    def inflection(self) -> Reals:
        """Return the spending above which each further k$ returns less: 0 for shapes up to 1."""
        inside = np.maximum((self.shape - 1.0) / (self.shape + 1.0), 0.0)
        return np.asarray(self.half * inside ** (1.0 / self.shape))

    def saturation(self) -> Reals:
        """Return the spending at which 80 % of the top is reached."""
        return np.asarray(self.half * (SATURATED_SHARE / (1.0 - SATURATED_SHARE)) ** (1.0 / self.shape))

    def part(self, chosen: Mask) -> "Curves":
        """Return the curves of the chosen lines."""
        return Curves(self.top[..., chosen], self.half[..., chosen], self.shape[..., chosen])

    def _share(self, spend: Reals) -> Reals:
        ratio = (np.maximum(spend, 0.0) / self.half) ** self.shape
        return np.asarray(ratio / (1.0 + ratio))


@dataclass(frozen=True, slots=True, eq=False)
class FittedLines:
    """The lines of one table: names, today's spending, the largest spending tried (k$ a week), curves, replicates and fit."""

    brand: NDArray[np.str_]
    group: NDArray[np.str_]
    channel: NDArray[np.str_]
    current: Reals
    largest_tried: Reals
    curves: Curves
    replicates: Curves
    explained: Reals
    """The share of the variance of each line's measured effects that its curve explains (R squared, 0 to 1)."""

    def part(self, chosen: Mask) -> "FittedLines":
        """Return the chosen lines."""
        return FittedLines(
            self.brand[chosen],
            self.group[chosen],
            self.channel[chosen],
            self.current[chosen],
            self.largest_tried[chosen],
            self.curves.part(chosen),
            self.replicates.part(chosen),
            self.explained[chosen],
        )


@lru_cache(maxsize=2)
def fit_lines(by: str) -> FittedLines:
    """Fit the table `by` "region" or "tier", once a process."""
    data = load_channel_data()
    return fit_table(data.by_tier if by == "tier" else data.by_region)


def fit_table(frame: pd.DataFrame) -> FittedLines:
    """Fit every line of a table; the lines of one channel share its shape."""
    rng = np.random.default_rng(SEED)
    keys: list[tuple[str, str, str]] = []
    fits: list[_ChannelFit] = []
    current: list[float] = []
    largest: list[float] = []
    for channel, rows in frame.groupby("channel", sort=False):
        lines = [(str(brand), str(group), one) for (brand, group), one in rows.groupby(["brand", "group"], sort=False)]
        keys += [(brand, group, str(channel)) for brand, group, _ in lines]
        current += [float(one["spend"].to_numpy()[-USUAL_WEEKS:].mean()) for _, _, one in lines]
        largest += [float(one["spend"].max()) for _, _, one in lines]
        spend, effect, error = (
            np.stack([one[name].to_numpy(dtype=np.float64) for _, _, one in lines])
            for name in ("spend", "incremental_trx", "standard_error")
        )
        fits.append(_fit_channel(spend, effect, error, rng))
    brand, group, channel_names = (np.array(names) for names in zip(*keys, strict=True))
    return FittedLines(
        brand,
        group,
        channel_names,
        np.array(current),
        np.array(largest),
        _join([fit.curves for fit in fits]),
        _join([fit.replicates for fit in fits]),
        np.concatenate([fit.explained for fit in fits]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ChannelFit:
    curves: Curves
    replicates: Curves
    explained: Reals


def _fit_channel(spend: Reals, effect: Reals, error: Reals, rng: np.random.Generator) -> _ChannelFit:
    """Fit arrays of lines by weeks."""
    lines = len(spend)

    def residuals(logs: Reals) -> Reals:
        curves = _from_logs(logs, lines)
        fitted = np.stack([Curves(curves.top[at], curves.half[at], curves.shape[at]).value(spend[at]) for at in range(lines)])
        return np.asarray(((fitted - effect) / error).ravel())

    start = np.concatenate([np.log(np.maximum(1.2 * effect.max(axis=1), 0.1)), np.log(np.maximum(spend.mean(axis=1), 1e-3)), [0.0]])
    wide = np.full(lines, 5.0)
    span = np.concatenate([wide, wide, [np.inf]])
    low, high = start - span, start + span
    low[-1], high[-1] = np.log(SMALLEST_SHAPE), np.log(LARGEST_SHAPE)

    def slopes(logs: Reals) -> Reals:
        return _jacobian(logs, spend, error)

    found = least_squares(residuals, start, jac=slopes, bounds=(low, high), x_scale="jac")
    freedom = max(effect.size - len(start), 1)
    scale = max(1.0, 2.0 * float(found.cost) / freedom)
    steepness = slopes(np.asarray(found.x))
    covariance = scale * np.linalg.pinv(steepness.T @ steepness)
    drawn = np.clip(rng.multivariate_normal(found.x, covariance, size=REPLICATES, method="eigh"), low, high)
    left = (found.fun.reshape(effect.shape) * error) ** 2
    explained = 1.0 - left.sum(axis=1) / np.maximum(((effect - effect.mean(axis=1, keepdims=True)) ** 2).sum(axis=1), 1e-12)
    return _ChannelFit(_from_logs(found.x, lines), _from_logs(drawn, lines), np.clip(explained, 0.0, 1.0))


def _from_logs(logs: Reals, lines: int) -> Curves:
    values = np.exp(logs)
    shape = np.broadcast_to(values[..., -1:], values[..., :lines].shape)
    return Curves(values[..., :lines], values[..., lines:-1], shape)


def _jacobian(logs: Reals, spend: Reals, error: Reals) -> Reals:
    """Return the derivatives of the weighted residuals by the logarithms of tops, halves and the shape."""
    lines, weeks = spend.shape
    curves = _from_logs(logs, lines)
    top, half, shape = (one[:, None] for one in (curves.top, curves.half, curves.shape))
    ratio = (np.maximum(spend, 0.0) / half) ** shape
    share = ratio / (1.0 + ratio)
    slope = top * share * (1.0 - share)
    log_ratio = np.log(np.maximum(spend, 1e-12) / half)
    out = np.zeros((lines, weeks, 2 * lines + 1))
    at = np.arange(lines)
    out[at, :, at] = top * share / error
    out[at, :, lines + at] = -slope * shape / error
    out[:, :, -1] = slope * shape * log_ratio / error
    return out.reshape(lines * weeks, -1)


def _join(parts: list[Curves]) -> Curves:
    return Curves(*(np.concatenate([getattr(one, name) for one in parts], axis=-1) for name in ("top", "half", "shape")))
