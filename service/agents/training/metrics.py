"""How a prediction is judged: one function a metric, with its direction and name. It knows no model."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from sklearn.metrics import average_precision_score

from service.agents.sample_data import Reals
from service.agents.training.target import Task

BINS = 10
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the truth and the prediction (a probability for a class), and of weights an observation."""

    name: str
    label: str
    task: Task
    higher_is_better: bool
    measure: Callable[[Reals, Reals, Reals | None], float]

    def better(self, first: float, second: float) -> bool:
        """Say whether the first value is better than the second."""
        return first > second if self.higher_is_better else first < second


def roc_auc(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    """Return the area under the ROC curve; NaN where all of the truth is of one class.

    Mann and Whitney's U (Hanley and McNeil 1982), weighted: scikit-learn's number in a fraction of its time, of which intervals and
    shuffled inputs ask for hundreds.
    """
    _, level = np.unique(predicted, return_inverse=True)
    positive, negative = (np.bincount(level, weights=one if weight is None else weight * one) for one in (truth > 0.5, truth <= 0.5))
    pairs = positive.sum() * negative.sum()
    return float(positive @ (negative.cumsum() - negative / 2) / pairs) if pairs else float("nan")


def _pr_auc(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    return float(average_precision_score(truth, predicted, sample_weight=weight))


def _brier(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    return float(np.average((predicted - truth) ** 2, weights=weight))


def _log_loss(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    inside = np.clip(predicted, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    return float(-np.average(truth * np.log(inside) + (1.0 - truth) * np.log(1.0 - inside), weights=weight))


def _rmse(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    return float(np.sqrt(np.average((predicted - truth) ** 2, weights=weight)))


def _mae(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    return float(np.average(np.abs(predicted - truth), weights=weight))


def _r2(truth: Reals, predicted: Reals, weight: Reals | None = None) -> float:
    spread = np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight)
    return float(1.0 - np.average((predicted - truth) ** 2, weights=weight) / max(spread, 1e-12))


METRICS = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("roc_auc", "ROC AUC", "classification", True, roc_auc),
            Metric("pr_auc", "PR AUC", "classification", True, _pr_auc),
            Metric("brier", "Brier score", "classification", False, _brier),
            Metric("log_loss", "log loss", "classification", False, _log_loss),
            Metric("rmse", "RMSE", "regression", False, _rmse),
            Metric("mae", "mean absolute error", "regression", False, _mae),
            Metric("r2", "R²", "regression", True, _r2),
        )
    }
)


def all_metrics(task: Task, truth: Reals, predicted: Reals) -> dict[str, float]:
    """Return every metric of a task by name; a classifier's calibration error too."""
    values = {metric.name: metric.measure(truth, predicted, None) for metric in METRICS.values() if metric.task == task}
    if task == "classification":
        values["calibration_error"] = calibration_error(truth, predicted)
    return values


def reliability(truth: Reals, predicted: Reals) -> list[tuple[float, float, int]]:
    """Return (mean prediction, observed share, rows) of each tenth of the rows, by prediction."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(BINS, len(truth)))
    return [(float(predicted[part].mean()), float(truth[part].mean()), len(part)) for part in parts]


def calibration_error(truth: Reals, predicted: Reals) -> float:
    """Return the mean distance of predicted and observed share over the tenths, weighted by rows (Naeini et al. 2015)."""
    return sum(size * abs(mean - share) for mean, share, size in reliability(truth, predicted)) / len(truth)
