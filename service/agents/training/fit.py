"""Fitting the selected model and judging it on the later test weeks. It knows no registry and no dispatch."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from service.agents.resampling import draw_weights, interval, share_true
from service.agents.sample_data import Reals, Snapshot
from service.agents.training.families import Parameters, make_estimator
from service.agents.training.metrics import METRICS, all_metrics
from service.agents.training.scope import Family, TrainingScope
from service.agents.training.search import predict
from service.agents.training.table import Table
from service.agents.training.target import BASELINE_WEEKS

REPLICATES = 200
_PERSISTENT = {"trx_demand": "trx", "nrx_demand": "nrx", "sample_demand": "samples"}


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A fitted model with its predictions for the test rows."""

    estimator: BaseEstimator
    truth: Reals
    predicted: Reals


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a model did on the test weeks.

    `low` and `high` bound the scope's metric (95 %, bootstrap over HCPs); `beats_baseline` is the share of replicates in which it
    is better than the training mean. `persistence` is the RMSE of the HCP's own mean of the 13 weeks before, for a demand.
    """

    metrics: dict[str, float]
    score: float
    low: float
    high: float
    baseline: float
    beats_baseline: float
    persistence: float | None


def fit_model(table: Table, scope: TrainingScope, family: Family, parameters: Parameters) -> Fitted:
    """Fit on the training and validation weeks, and predict the test weeks.

    With calibration the model is fitted on the training weeks and its probabilities are adjusted on the validation weeks.

    Raises:
        AgentFailure: The parameters are not those of the family (`invalid_input`).
    """
    estimator = make_estimator(family, scope, parameters)
    test = table.rows("test")
    learn = table.rows("train") if scope.calibration else table.rows("train", "validation")
    estimator = estimator.fit(table.values[learn], table.target[learn])
    if scope.calibration:
        later = table.rows("validation")
        estimator = CalibratedClassifierCV(FrozenEstimator(estimator), method=scope.calibration).fit(
            table.values[later], table.target[later]
        )
    return Fitted(estimator, table.target[test], predict(estimator, table.values[test]))


def evaluate(fitted: Fitted, table: Table, scope: TrainingScope, data: Snapshot) -> Evaluation:
    """Judge a fitted model on the test rows."""
    metric = METRICS[scope.metric]
    test = table.rows("test")
    flat = np.full(len(fitted.truth), table.target[table.rows("train", "validation")].mean())
    hcps, group = np.unique(table.hcp[test], return_inverse=True)
    weights = draw_weights(len(hcps), REPLICATES)[:, group]
    usable = [weight for weight in weights if np.unique(fitted.truth[weight > 0]).size > 1]
    scores = np.array([metric.measure(fitted.truth, fitted.predicted, weight) for weight in usable])
    flat_scores = np.array([metric.measure(fitted.truth, flat, weight) for weight in usable])
    low, high = interval(scores)
    return Evaluation(
        metrics=all_metrics(scope.task, fitted.truth, fitted.predicted),
        score=metric.measure(fitted.truth, fitted.predicted, None),
        low=low,
        high=high,
        baseline=metric.measure(fitted.truth, flat, None),
        beats_baseline=share_true(scores > flat_scores if metric.higher_is_better else scores < flat_scores),
        persistence=_persistence(table, scope, data),
    )


def _persistence(table: Table, scope: TrainingScope, data: Snapshot) -> float | None:
    measure = _PERSISTENT.get(scope.target)
    if measure is None:
        return None
    test = np.flatnonzero(table.rows("test"))
    before = [
        np.maximum(data.weekly[measure][table.origin[row] - BASELINE_WEEKS : table.origin[row], table.hcp[row]], 0).mean() for row in test
    ]
    expected = np.array(before) * scope.horizon_weeks
    return float(np.sqrt(np.mean((expected - table.target[test]) ** 2)))
