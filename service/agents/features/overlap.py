"""Which inputs say the same thing, and which say too much: correlation, clusters, variance inflation, each input's AUC alone."""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from service.agents.features.model import Reference
from service.agents.sample_data import Reals
from service.agents.training.checks import MOST_SINGLE_AUC, MOST_SINGLE_CORRELATION, single_auc

ALIKE = 0.7
HIGH_INFLATION = 10.0
EXACT = 1e-8
"""Below this share of unexplained variance a column is an exact combination of others."""


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """Correlations on the learning rows: `pairs` with |r| of 0.7 or more, `clusters` of several columns, inflation a column.

    `agreement` is the share of such pairs that the test rows have too, of those that either have.
    """

    columns: tuple[str, ...]
    correlation: Reals
    pairs: tuple[tuple[str, str, float], ...]
    clusters: tuple[tuple[str, ...], ...]
    inflation: dict[str, float]
    constant: tuple[str, ...]
    agreement: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What one column says of the target by itself, in the learning and in the test rows: an AUC, or |r| for a number."""

    column: str
    value: float
    later: float
    suspicious: bool


def measure_overlap(reference: Reference, wanted: tuple[str, ...]) -> Overlap:
    """Return how far the wanted columns overlap; variance inflation is within them too (Belsley, Kuh and Welsch 1980)."""
    table = reference.table
    values = table.values[reference.learn]
    constant = tuple(name for name in wanted if values[:, table.columns.index(name)].std() < 1e-12)
    columns = tuple(name for name in wanted if name not in constant)
    at = np.array([table.columns.index(name) for name in columns], dtype=np.int64)
    correlation = _correlate(values[:, at])
    later = _correlate(table.values[np.ix_(reference.test, at)])
    now, then = _pairs(correlation), _pairs(later)
    pairs = sorted(((columns[one], columns[two], float(correlation[one, two])) for one, two in now), key=lambda pair: -abs(pair[2]))
    inflation = [_inflation(correlation, place) for place in range(len(columns))]
    return Overlap(
        columns=columns,
        correlation=correlation,
        pairs=tuple(pairs),
        clusters=_clusters(columns, correlation),
        inflation=dict(sorted(((name, float(inflation[place])) for place, name in enumerate(columns)), key=lambda item: -item[1])),
        constant=constant,
        agreement=(len(now & then) + 1.0) / (len(now | then) + 1.0),
    )


def measure_alone(reference: Reference) -> list[Alone]:
    """Return what each column says of the target by itself, strongest first; close to 1 it suggests a leak."""
    table, classify = reference.table, reference.scope.task == "classification"
    limit = MOST_SINGLE_AUC if classify else MOST_SINGLE_CORRELATION
    found = []
    for place, name in enumerate(table.columns):
        parts = [_strength(table.values[rows, place], table.target[rows], classify) for rows in (reference.learn, reference.test)]
        found.append(Alone(name, parts[0], parts[1], parts[0] > limit))
    return sorted(found, key=lambda one: -one.value)


def _strength(values: Reals, target: Reals, classify: bool) -> float:
    if classify:
        return single_auc(values, target)
    return abs(float(np.corrcoef(values, target)[0, 1])) if values.std() > 1e-12 and target.std() > 1e-12 else 0.0


def _inflation(correlation: Reals, place: int) -> float:
    """Return 1 / (1 − R²) of one column on the others; infinite where they determine it exactly."""
    others = np.delete(np.arange(len(correlation)), place)
    if not len(others):
        return 1.0
    with_others = correlation[others, place]
    unexplained = 1.0 - float(with_others @ np.linalg.pinv(correlation[np.ix_(others, others)], hermitian=True) @ with_others)
    return 1.0 / unexplained if unexplained > EXACT else float("inf")


def _correlate(values: Reals) -> Reals:
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    return np.asarray(standard.T @ standard / len(values))


def _pairs(correlation: Reals) -> set[tuple[int, int]]:
    rows, columns = np.triu_indices(len(correlation), 1)
    return {(int(one), int(two)) for one, two in zip(rows, columns, strict=True) if abs(correlation[one, two]) >= ALIKE}


def _clusters(columns: tuple[str, ...], correlation: Reals) -> tuple[tuple[str, ...], ...]:
    """Return groups by average linkage on 1 − |r|, cut where the mean |r| falls below 0.7."""
    if len(columns) < 2:
        return ()
    distance = np.clip(1.0 - np.abs(correlation), 0.0, 1.0)
    np.fill_diagonal(distance, 0.0)
    labels = fcluster(linkage(squareform(distance, checks=False), "average"), 1.0 - ALIKE, "distance")
    groups = [
        tuple(name for name, label in zip(columns, labels, strict=True) if label == wanted) for wanted in dict.fromkeys(labels.tolist())
    ]
    return tuple(sorted((group for group in groups if len(group) > 1), key=lambda group: -len(group)))
