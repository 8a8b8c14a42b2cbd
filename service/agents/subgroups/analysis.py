"""The effect in each subgroup of each dimension, the tests, crossed dimensions, and the ranking of HCPs. It knows no dispatch."""

from dataclasses import dataclass

import numpy as np

from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.subgroups.dimensions import Dimension, Labels, group_order
from service.agents.subgroups.model import (
    GroupEffect,
    Heterogeneity,
    Signals,
    Study,
    chances_of_lead,
    check_heterogeneity,
    measure_group,
    shrink,
)

SMALLEST_GROUP = 20
"""Fewest HCPs on either side of the programme in a subgroup."""
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class DimensionResult:
    """One dimension's subgroups with their test; `p_adjusted` is Holm's over all dimensions tested for the question."""

    dimension: Dimension
    groups: tuple[GroupEffect, ...]
    shrunken: tuple[float, ...]
    chance_best: tuple[float, ...]
    chance_worst: tuple[float, ...]
    test: Heterogeneity
    p_adjusted: float
    too_small: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether one effect for all groups is refuted."""
        return self.p_adjusted < LEVEL

    @property
    def best(self) -> GroupEffect:
        """The group with the largest estimated effect."""
        return max(self.groups, key=lambda one: one.value)

    @property
    def worst(self) -> GroupEffect:
        """The group with the smallest estimated effect."""
        return min(self.groups, key=lambda one: one.value)

    @property
    def spread(self) -> float:
        """The effect in the best group less that in the worst one."""
        return self.best.value - self.worst.value

    @property
    def spread_error(self) -> float:
        """The standard error of the spread, had the two groups been named beforehand."""
        return float(np.hypot(self.best.standard_error, self.worst.standard_error))


def analyse_dimensions(
    data: Snapshot, study: Study, signals: Signals, dimensions: list[Dimension]
) -> tuple[list[DimensionResult], list[tuple[Dimension, tuple[str, ...]]]]:
    """Return a result for each dimension with two groups that are large enough, and the dimensions that have none, with their groups."""
    brand = data.labels("brand")[study.rows]
    measured, untested = [], []
    for dimension in dimensions:
        labels = dimension.cut(data)[study.rows]
        groups, too_small = _measure(study, signals, labels)
        strata = _by_brand(study, signals, labels, brand) if dimension.nested else [groups]
        if len(groups) < 2 or not any(len(one) > 1 for one in strata):
            untested.append((dimension, too_small))
            continue
        measured.append((dimension, groups, too_small, check_heterogeneity(strata)))
    if not measured:
        return [], untested
    adjusted = adjust_by_holm(np.array([one[3].p_value for one in measured]))
    results = [_result(*one, float(p_value)) for one, p_value in zip(measured, adjusted, strict=True)]
    return results, untested


def adjust_by_holm(p_values: Reals) -> Reals:
    """Return the p-values of tests that are made together, in their order (Holm 1979).

    statsmodels' function for it collects all garbage of the process at each call.
    """
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)))
    return adjusted


def smallest_arm(data: Snapshot, study: Study, dimension: Dimension) -> int:
    """Return the fewest HCPs that any of a dimension's groups has on either side of the programme."""
    labels = dimension.cut(data)[study.rows]
    return min(int((study.treated[labels == one] == arm).sum()) for one in set(labels.tolist()) - {""} for arm in (True, False))


def cross(
    data: Snapshot, study: Study, signals: Signals, first: Dimension, second: Dimension
) -> tuple[tuple[GroupEffect, ...], Heterogeneity]:
    """Return the effect in each cell of two dimensions that is large enough, and the test of one effect in all cells."""
    rows = first.cut(data)[study.rows], second.cut(data)[study.rows]
    cells = []
    for one in group_order(set(rows[0].tolist())):
        for other in group_order(set(rows[1].tolist())):
            member = (rows[0] == one) & (rows[1] == other)
            if _is_large(study, member):
                cells.append(measure_group(study, signals, member, f"{one}, {other}"))
    return tuple(cells), check_heterogeneity([cells]) if len(cells) > 1 else Heterogeneity(0.0, 0, 1.0, 0.0)


def _measure(study: Study, signals: Signals, labels: Labels) -> tuple[list[GroupEffect], tuple[str, ...]]:
    groups, too_small = [], []
    for name in group_order(set(labels.tolist())):
        member = labels == name
        if _is_large(study, member):
            groups.append(measure_group(study, signals, member, name))
        else:
            too_small.append(name)
    return groups, tuple(too_small)


def _by_brand(study: Study, signals: Signals, labels: Labels, brand: Labels) -> list[list[GroupEffect]]:
    strata = [_measure(study, signals, np.where(brand == one, labels, ""))[0] for one in sorted(set(brand.tolist()))]
    return [groups for groups in strata if groups]


def _is_large(study: Study, member: Mask) -> bool:
    treated = int(study.treated[member].sum())
    return min(treated, int(member.sum()) - treated) >= SMALLEST_GROUP


def _result(
    dimension: Dimension, groups: list[GroupEffect], too_small: tuple[str, ...], test: Heterogeneity, p_adjusted: float
) -> DimensionResult:
    best, worst = chances_of_lead(groups)
    return DimensionResult(dimension, tuple(groups), tuple(shrink(groups)), tuple(best), tuple(worst), test, p_adjusted, too_small)
