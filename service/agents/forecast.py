"""A weekly series a few weeks ahead, by a statsmodels regression chosen by BIC. It knows no dispatch."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from statsmodels.regression.linear_model import OLS, RegressionResults

from service.agents.sample_data import Reals

COVERAGE = 0.90
SEASON_WEEKS = 52
BACKTEST_ORIGINS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Mean and interval for each week ahead."""

    mean: Reals
    low: Reals
    high: Reals

    def clipped(self, least: float, most: float) -> "Forecast":
        """Return the forecast held within what the KPI can be."""
        return Forecast(*(np.clip(part, least, most) for part in (self.mean, self.low, self.high)))

    def widened(self, factor: float) -> "Forecast":
        """Return the forecast with its interval's half width multiplied."""
        return Forecast(self.mean, self.mean - factor * (self.mean - self.low), self.mean + factor * (self.high - self.mean))


@dataclass(frozen=True, slots=True)
class Backtest:
    """How the same model would have done at earlier origins: mean absolute errors, and the share inside the interval.

    `widening` is the factor (at least 1) by which the interval would have to grow to hold 90 % of the earlier weeks.
    """

    model_error: float
    naive_error: float
    seasonal_error: float
    relative_error: float
    inside: float
    widening: float
    points: int

    @property
    def skill(self) -> float:
        """One less the model's error over that of the better naive rule: 0 is no better, 1 is perfect."""
        return 1.0 - self.model_error / max(min(self.naive_error, self.seasonal_error), 1e-12)


def forecast(series: Reals, horizon: int, step_at: int) -> Forecast:
    """Forecast `horizon` weeks by least squares on a trend, a yearly cycle (whose height may grow) and a step from week `step_at` on.

    Of the models with and without trend, cycle and step, the one with the lowest BIC is taken. The interval is for a
    new week: it includes the noise of the week and the uncertainty of the coefficients.
    """
    weeks = len(series)
    models: list[tuple[float, int, RegressionResults, Reals]] = []
    for columns in _candidates(np.arange(weeks + horizon), weeks, step_at):
        fitted = OLS(series, columns[:weeks]).fit()
        models.append((fitted.bic, len(models), fitted, columns[weeks:]))
    _, _, best, ahead = min(models)
    frame = best.get_prediction(ahead).summary_frame(alpha=1.0 - COVERAGE)
    return Forecast(mean=frame["mean"].to_numpy(), low=frame["obs_ci_lower"].to_numpy(), high=frame["obs_ci_upper"].to_numpy())


def backtest(series: Reals, horizon: int, step_at: int, origins: int = BACKTEST_ORIGINS) -> Backtest:
    """Repeat the forecast from earlier origins and compare it with two naive rules: the last week, and the same week a year before."""
    actual, predicted, last, year_ago, half_width = [], [], [], [], []
    for back in range(origins):
        origin = len(series) - horizon - back * max(1, horizon // 2)
        past = forecast(series[:origin], horizon, step_at)
        future = series[origin : origin + horizon]
        actual.append(future)
        predicted.append(past.mean)
        last.append(np.full(horizon, series[origin - 1]))
        year_ago.append(series[origin - SEASON_WEEKS : origin - SEASON_WEEKS + horizon])
        half_width.append((past.high - past.low) / 2.0)
    truth = np.concatenate(actual)
    error = np.abs(np.concatenate(predicted) - truth)
    missed_by = error / np.maximum(np.concatenate(half_width), 1e-12)
    return Backtest(
        model_error=float(error.mean()),
        naive_error=float(np.abs(np.concatenate(last) - truth).mean()),
        seasonal_error=float(np.abs(np.concatenate(year_ago) - truth).mean()),
        relative_error=float(error.mean() / max(np.abs(truth).mean(), 1e-12)),
        inside=float((missed_by <= 1.0).mean()),
        widening=max(1.0, float(np.quantile(missed_by, COVERAGE))),
        points=len(truth),
    )


def _candidates(week: NDArray[np.int64], weeks: int, step_at: int) -> Iterator[Reals]:
    """Yield the regressors of each model. A step younger than 6 weeks cannot be told from noise and is left out."""
    one = np.ones((len(week), 1))
    trend = (week / 100.0)[:, None]
    angle = 2.0 * np.pi * week / SEASON_WEEKS
    wave = np.column_stack([np.sin(angle), np.cos(angle)])
    cycle = np.hstack([wave, wave * (trend - weeks / 100.0)])
    step = (week >= step_at).astype(np.float64)[:, None]
    parts = [trend, cycle, step] if weeks - step_at >= 6 else [trend, cycle]
    for chosen in product((False, True), repeat=len(parts)):
        yield np.hstack([one, *(part for part, taken in zip(parts, chosen, strict=True) if taken)])
