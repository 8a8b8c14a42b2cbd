"""Cross-validation of the model families of a scope and the choice among them. It knows no dispatch and no text."""

from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GroupKFold

from service.agents.sample_data import Reals
from service.agents.training.families import Parameters, complexity, draw, grid, make_estimator
from service.agents.training.metrics import METRICS, Metric
from service.agents.training.scope import Family, TrainingScope
from service.agents.training.table import Table

MOST_ROWS = 4_000
"""Cross-validation draws whole HCPs until about so many rows are reached."""
FOLD_SEED = 29
BUDGET_SHARE = 0.5
MS_PER_THOUSAND_ROWS: MappingProxyType[Family, float] = MappingProxyType(
    {
        "linear": 25.0,
        "decision_tree": 40.0,
        "k_nearest": 60.0,
        "random_forest": 150.0,
        "hist_gradient_boosting": 90.0,
        "neural_network": 400.0,
    }
)
"""A cautious estimate of one fit and prediction on one busy core; the number of candidates follows from it, so it is the same each time."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One family with its settings: the scores of the folds, and the score on the validation weeks."""

    family: Family
    parameters: Parameters
    scores: tuple[float, ...]
    validation: float

    @property
    def mean(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.scores))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean over the folds."""
        return float(np.std(self.scores, ddof=1) / np.sqrt(len(self.scores)))


@dataclass(frozen=True, slots=True)
class Search:
    """All candidates, the best, and the one that the rule selects; `rows` were used, and `skipped` candidates had no time."""

    candidates: tuple[Candidate, ...]
    best: Candidate
    selected: Candidate
    metric: Metric
    rows: int
    folds: int
    skipped: int


def search(table: Table, scope: TrainingScope, budget_ms: int) -> Search:
    """Cross-validate the scope's families on the training weeks and select one.

    Folds keep an HCP's rows together. Selected is the simplest candidate whose mean lies within one standard error of the best
    (Breiman et al. 1984; Hastie et al. 2009, 7.10).
    """
    rows = _drawn_rows(table)
    values, target, group = table.values[rows], table.target[rows], table.hcp[rows]
    folds = list(GroupKFold(scope.folds, shuffle=True, random_state=FOLD_SEED).split(values, target, group))
    planned = plan(scope)
    afforded = _afford(planned, len(rows), scope.folds, budget_ms)
    metric = METRICS[scope.metric]
    later = np.flatnonzero(table.rows("validation"))
    candidates = []
    for family, parameters in afforded:
        estimator = make_estimator(family, scope, parameters)
        scores = []
        for learn, judge in folds:
            fitted = clone(estimator).fit(values[learn], target[learn])
            scores.append(metric.measure(target[judge], predict(fitted, values[judge]), None))
        whole = clone(estimator).fit(values, target)
        validation = metric.measure(table.target[later], predict(whole, table.values[later]), None)
        candidates.append(Candidate(family, parameters, tuple(scores), validation))
    best = select_best(candidates, metric)
    selected = select_simplest(candidates, best, metric, scope)
    return Search(tuple(candidates), best, selected, metric, len(rows), scope.folds, len(planned) - len(afforded))


def plan(scope: TrainingScope) -> list[tuple[Family, Parameters]]:
    """Return the candidates: the standard settings of each family, or as many random ones as trials; the families take turns."""
    share = -(-scope.trials // len(scope.families))
    lists = [draw(family, scope, share) if scope.trials else grid(family, scope) for family in scope.families]
    turns = [(family, parameters) for turn in zip_longest(*lists) for family, parameters in zip(scope.families, turn, strict=True)]
    unique: list[tuple[Family, Parameters]] = []
    for family, parameters in turns:
        if parameters is not None and (family, parameters) not in unique:
            unique.append((family, parameters))
    return unique[: scope.trials] if scope.trials else unique


def predict(fitted: BaseEstimator, values: Reals) -> Reals:
    """Return the chance of the positive class, or the predicted number."""
    if hasattr(fitted, "predict_proba"):
        return np.asarray(fitted.predict_proba(values)[:, 1], dtype=np.float64)
    return np.asarray(fitted.predict(values), dtype=np.float64)


def select_best(candidates: list[Candidate], metric: Metric) -> Candidate:
    """Return the candidate with the best mean; the first of equal ones."""
    return max(candidates, key=lambda one: one.mean if metric.higher_is_better else -one.mean)


def select_simplest(candidates: list[Candidate], best: Candidate, metric: Metric, scope: TrainingScope) -> Candidate:
    """Return the simplest candidate within one standard error of the best."""
    limit = best.mean - best.standard_error if metric.higher_is_better else best.mean + best.standard_error
    near = [one for one in candidates if one is best or not metric.better(limit, one.mean)]
    return min(near, key=lambda one: complexity(one.family, scope.task, one.parameters))


def _drawn_rows(table: Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rows = np.flatnonzero(table.rows("train"))
    if len(rows) <= MOST_ROWS:
        return rows
    hcps = np.random.default_rng(FOLD_SEED).permutation(np.unique(table.hcp[rows]))
    kept = hcps[: max(1, int(len(hcps) * MOST_ROWS / len(rows)))]
    return rows[np.isin(table.hcp[rows], kept)]


def _afford(planned: list[tuple[Family, Parameters]], rows: int, folds: int, budget_ms: int) -> list[tuple[Family, Parameters]]:
    """Return the candidates that the time allows by the estimate, the first one always."""
    left = BUDGET_SHARE * budget_ms
    kept: list[tuple[Family, Parameters]] = []
    for family, parameters in planned:
        left -= MS_PER_THOUSAND_ROWS[family] * rows / 1_000 * (folds + 1)
        if kept and left < 0.0:
            break
        kept.append((family, parameters))
    return kept
