"""Which inputs a model could do without, and which carry more than noise: a nested refit and a shadow-feature test."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import binom
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.model_selection import GroupKFold

from service.agents.features.importance import Importance, refit_loss
from service.agents.features.model import Reference
from service.agents.resampling import draw_weights, share_true
from service.agents.sample_data import Counts, Reals
from service.agents.training.search import predict

SIZES = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30)
MATERIAL_LOSS = 0.01
FOLDS = 3
MOST_FOLD_ROWS = 4_000
PAIRED_REPLICATES = 40
ROUNDS = 24
TREES = 40
MOST_ROWS = 1_500
SIGNIFICANT = 0.05
SEED = 31


@dataclass(frozen=True, slots=True)
class Reduction:
    """The smallest set of columns within one standard error (of the paired loss) of the best set, in cross-validation.

    `loss` is the loss against all columns on the test weeks, which chose nothing, and `safe` the share of bootstrap replicates over
    HCPs in which it is below `margin`: 0.01 of AUC, or 1 % of RMSE.
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    loss: float
    safe: float
    margin: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How often a column beat the best shadow in the rounds, and what a binomial test makes of it (Kursa and Rudnicki 2010)."""

    column: str
    hits: int
    verdict: Literal["confirmed", "tentative", "rejected"]


def reduce_columns(reference: Reference, ranked: list[Importance]) -> Reduction:
    """Keep the most important columns, as few as do no harm. `ranked` must stem from rows other than the test rows."""
    table, metric = reference.table, reference.metric
    order = np.array([table.columns.index(one.name) for one in ranked], dtype=np.int64)
    sizes = (*(size for size in SIZES if size < len(order)), len(order))
    rows = _some_rows(reference)
    truth = table.target[rows]
    predicted = {size: _out_of_fold(reference, rows, order[:size]) for size in sizes}
    _, group = np.unique(table.hcp[rows], return_inverse=True)
    weights = (None, *draw_weights(int(group.max()) + 1, PAIRED_REPLICATES)[:, group])
    sign = 1.0 if metric.higher_is_better else -1.0
    scores = {size: [sign * metric.measure(truth, predicted[size], weight) for weight in weights] for size in sizes}
    best = scores[max(sizes, key=lambda size: scores[size][0])]
    losses = {size: np.array(best) - np.array(scores[size]) for size in sizes}
    enough = next(size for size in sizes if losses[size][0] <= np.std(losses[size][1:], ddof=1))
    margin = MATERIAL_LOSS if metric.higher_is_better else MATERIAL_LOSS * reference.score
    kept = np.sort(order[:enough])
    names = tuple(table.columns[place] for place in kept)
    dropped = tuple(name for name in table.columns if name not in names)
    return Reduction(names, dropped, refit_loss(reference, kept), _safe(reference, kept, margin), margin)


def _out_of_fold(reference: Reference, rows: Counts, kept: Counts) -> Reals:
    """Return predictions for rows, each from a model that has not seen its HCP."""
    table = reference.table
    values, target = table.values[np.ix_(rows, kept)], table.target[rows]
    found = np.zeros(len(rows))
    for learn, judge in GroupKFold(FOLDS, shuffle=True, random_state=SEED).split(values, target, table.hcp[rows]):
        found[judge] = predict(clone(reference.recipe).fit(values[learn], target[learn]), values[judge])
    return found


def _some_rows(reference: Reference) -> Counts:
    """Return the learning rows, or those of HCPs drawn at random until about 4,000 are reached."""
    hcps = reference.table.hcp[reference.learn]
    if len(hcps) <= MOST_FOLD_ROWS:
        return reference.learn
    drawn = np.random.default_rng(SEED).permutation(np.unique(hcps))
    return reference.learn[np.isin(hcps, drawn[: int(len(drawn) * MOST_FOLD_ROWS / len(hcps))])]


def run_shadow_test(reference: Reference) -> list[Verdict]:
    """Return which columns beat shuffled copies of themselves; the rounds are shortened to 24 with extremely random trees.

    In each round every column gets a shuffled copy, and a column scores a hit when its importance exceeds that of every copy. Hits are
    compared with Binomial(24, 1/2), Bonferroni-adjusted for the number of columns.
    """
    table = reference.table
    rng = np.random.default_rng(SEED)
    rows = rng.choice(reference.learn, min(MOST_ROWS, len(reference.learn)), replace=False)
    values, target = table.values[rows], table.target[rows]
    forest = ExtraTreesClassifier if reference.scope.task == "classification" else ExtraTreesRegressor
    hits = np.zeros(len(table.columns), dtype=np.int64)
    for turn in range(ROUNDS):
        shadows = rng.permuted(values, axis=0)
        trees = forest(n_estimators=TREES, max_depth=6, min_samples_leaf=5, max_features="sqrt", random_state=turn, n_jobs=1)
        importance = trees.fit(np.hstack([values, shadows]), target).feature_importances_
        hits += importance[: len(hits)] > importance[len(hits) :].max()
    found = [Verdict(name, int(hits[at]), _judge(int(hits[at]), len(hits))) for at, name in enumerate(table.columns)]
    return sorted(found, key=lambda one: -one.hits)


def _judge(hits: int, columns: int) -> Literal["confirmed", "tentative", "rejected"]:
    limit = SIGNIFICANT / columns
    if binom.sf(hits - 1, ROUNDS, 0.5) < limit:
        return "confirmed"
    return "rejected" if binom.cdf(hits, ROUNDS, 0.5) < limit else "tentative"


def _safe(reference: Reference, kept: Counts, margin: float) -> float:
    """Return the share of bootstrap replicates over HCPs in which the loss stays immaterial."""
    table, metric = reference.table, reference.metric
    truth = table.target[reference.test]
    full = predict(reference.estimator, table.values[reference.test])
    small = clone(reference.recipe).fit(table.values[np.ix_(reference.learn, kept)], table.target[reference.learn])
    fewer = predict(small, table.values[np.ix_(reference.test, kept)])
    _, group = np.unique(table.hcp[reference.test], return_inverse=True)
    weights = draw_weights(int(group.max()) + 1, 100)[:, group]
    sign = 1.0 if metric.higher_is_better else -1.0
    losses = [sign * (metric.measure(truth, full, weight) - metric.measure(truth, fewer, weight)) for weight in weights]
    return share_true(np.array(losses) < margin)
