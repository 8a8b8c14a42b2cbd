"""How much a fitted model relies on its inputs: permutation on held-out rows, dropping and refitting, exact linear contributions."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from service.agents.features.model import Reference, linear_model
from service.agents.sample_data import Counts, Reals
from service.agents.training.inputs import MEASURES, base_input
from service.agents.training.search import predict

MOST_REPEATS = 20
FEWEST_REPEATS = 4
COLUMN_REPEATS = 5
SEED = 23


@dataclass(frozen=True, slots=True, eq=False)
class Importance:
    """How much worse the metric gets when something is shuffled among the test rows: one value a repeat."""

    name: str
    columns: tuple[str, ...]
    losses: Reals

    @property
    def mean(self) -> float:
        """The mean loss."""
        return float(self.losses.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation over the repeats."""
        return float(self.losses.std(ddof=1))


@dataclass(frozen=True, slots=True)
class Contribution:
    """The mean absolute contribution of a column to the linear score, and the sign of its coefficient."""

    column: str
    mean_absolute: float
    sign: int


def input_groups(columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the columns by what they measure: the sums of one measure over several windows, or the columns of one label, together.

    Nested windows stand in for each other, so shuffling one alone understates what the measure is worth.
    """
    groups: dict[str, list[str]] = {}
    for column in columns:
        name = base_input(column)
        stem = name.rsplit("_", 1)[0]
        groups.setdefault(stem if stem in MEASURES else name, []).append(column)
    return {name: tuple(members) for name, members in groups.items()}


def shuffle_groups(reference: Reference, groups: dict[str, tuple[str, ...]], repeats: int) -> list[Importance]:
    """Return the importance of each group, its columns shuffled together between test rows (Breiman 2001), largest first.

    All repeats go through the model at once: of many small predictions the greatest part is scikit-learn's validation.
    """
    values = reference.table.values[reference.test]
    rng = np.random.default_rng(SEED)
    orders = np.array([rng.permutation(len(values)) for _ in range(repeats)])
    found = []
    for name, columns in groups.items():
        at = _places(reference, columns)
        shuffled = np.repeat(values[None], repeats, axis=0)
        shuffled[:, :, at] = values[orders][:, :, at]
        found.append(Importance(name, columns, reference.losses(shuffled)))
    return sorted(found, key=lambda one: -one.mean)


def shuffle_columns(reference: Reference) -> list[Importance]:
    """Return the importance of each column by itself, largest first."""
    return shuffle_groups(reference, {name: (name,) for name in reference.table.columns}, COLUMN_REPEATS)


def loss_without(reference: Reference, columns: tuple[str, ...]) -> float:
    """Return how much worse the metric is on the test rows when the model is fitted again without the columns."""
    kept = np.setdiff1d(np.arange(len(reference.table.columns)), _places(reference, columns))
    return refit_loss(reference, kept)


def refit_loss(reference: Reference, kept: Counts) -> float:
    """Return how much worse the metric is on the test rows when the model is fitted again on the kept columns only."""
    table = reference.table
    if not len(kept):
        flat = np.full(len(reference.test), table.target[reference.learn].mean())
        change = reference.metric.measure(table.target[reference.test], flat, None) - reference.score
    else:
        fitted = clone(reference.recipe).fit(table.values[np.ix_(reference.learn, kept)], table.target[reference.learn])
        change = (
            reference.metric.measure(table.target[reference.test], predict(fitted, table.values[np.ix_(reference.test, kept)]), None)
            - reference.score
        )
    return -change if reference.metric.higher_is_better else change


def contributions(reference: Reference) -> list[Contribution]:
    """Return the exact contributions of a linear model, largest first: coefficient times distance from the mean of the learning rows.

    This is the closed form of the Shapley values of a linear model with independent inputs (Lundberg and Lee 2017, corollary 1);
    for a class they are log odds.
    """
    scaler, linear = (step for _, step in linear_model(reference).steps)
    coefficients = np.ravel(linear.coef_)
    spread = np.asarray(scaler.transform(reference.table.values[reference.test]))
    sizes = np.abs(spread * coefficients).mean(axis=0)
    ones = [Contribution(name, float(sizes[at]), int(np.sign(coefficients[at]))) for at, name in enumerate(reference.table.columns)]
    return sorted(ones, key=lambda one: -one.mean_absolute)


def _places(reference: Reference, columns: tuple[str, ...]) -> Counts:
    return np.array([reference.table.columns.index(name) for name in columns], dtype=np.int64)
