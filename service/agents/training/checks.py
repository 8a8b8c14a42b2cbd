"""The quality checks of a training table: what is expected, what is observed, and whether that stops the pipeline. It knows no dispatch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.agents.sample_data import Reals
from service.agents.stability import bin_edges, psi
from service.agents.training.metrics import roc_auc
from service.agents.training.scope import TrainingScope
from service.agents.training.table import FEWEST_ORIGINS, Table

Severity = Literal["critical", "warning"]
FEWEST_ROWS = 300
FEWEST_HCPS = 50
FEWEST_IN_CLASS = 30
FEWEST_TEST_IN_CLASS = 10
MOST_MISSING = 0.05
MOST_OUTSIDE = 0.05
MOST_NEGATIVE = 0.001
MOST_SINGLE_AUC = 0.95
MOST_SINGLE_CORRELATION = 0.98
MOST_PSI = 0.25
MOST_TARGET_SHIFT = 0.10
LEAST_TARGET_KNOWN = 0.99
LEAST_SHARE_MET = 0.95


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. `observed` may stand above or below `limit`, as `rule` says."""

    name: str
    column: str | None
    observed: float
    rule: Literal[">=", "<="]
    limit: float
    severity: Severity

    @property
    def passed(self) -> bool:
        """Whether the observation keeps the limit."""
        return self.observed >= self.limit if self.rule == ">=" else self.observed <= self.limit

    def write(self) -> str:
        """Return the expectation as words."""
        subject = f"{self.name.replace('_', ' ')} of {self.column}" if self.column else self.name.replace("_", " ")
        return f"{subject} is {self.observed:.4g} (limit {self.rule} {self.limit:.4g})"


@dataclass(frozen=True, slots=True)
class QualityReport:
    """All expectations and the gate: no critical one may fail, and the share met must reach the minimum."""

    expectations: tuple[Expectation, ...]
    minimum: float

    @property
    def share_met(self) -> float:
        """The share of expectations that are met."""
        return sum(one.passed for one in self.expectations) / len(self.expectations)

    @property
    def failed(self) -> tuple[Expectation, ...]:
        """The expectations that are not met, critical ones first."""
        return tuple(sorted((one for one in self.expectations if not one.passed), key=lambda one: one.severity))

    @property
    def passed(self) -> bool:
        """Whether the gate opens."""
        return not any(one.severity == "critical" for one in self.failed) and self.share_met >= self.minimum

    @property
    def reason(self) -> str | None:
        """One sentence that says why the gate is shut, or None."""
        if self.passed:
            return None
        critical = [one for one in self.failed if one.severity == "critical"]
        if critical:
            further = f"; {len(critical) - 1} further critical expectations fail" if len(critical) > 1 else ""
            return f"The training data fail a critical expectation: {critical[0].write()}{further}."
        return f"Only {100 * self.share_met:.1f} % of the expectations are met; {100 * self.minimum:.1f} % are needed."


def check_table(table: Table, scope: TrainingScope, minimum: float = LEAST_SHARE_MET) -> QualityReport:
    """Check a table against every expectation; where there is too little data for a check, only the size is checked."""
    found = _size(table)
    if all(one.passed for one in found):
        found += _target(table, scope)
    if all(one.passed for one in found if one.severity == "critical"):
        found += _columns(table, scope)
    return QualityReport(tuple(found), minimum)


def single_auc(values: Reals, target: Reals) -> float:
    """Return the area under the ROC curve of one column alone, whichever its direction, .5 to 1; .5 with one class."""
    auc = roc_auc(target, values)
    return 0.5 if np.isnan(auc) else max(auc, 1.0 - auc)


def excess_psi(before: Reals, after: Reals) -> float:
    """Return the PSI less what chance gives at these sizes: (bins − 1)(1/n + 1/m) (Yurdakul and Naranjo 2020), at least 0."""
    by_chance = len(bin_edges(before)) * (1.0 / len(before) + 1.0 / len(after))
    return max(0.0, psi(before, after) - by_chance)


def _size(table: Table) -> list[Expectation]:
    train = table.rows("train")
    keys = table.hcp * 10_000 + table.origin
    return [
        Expectation("origins", None, float(len(table.origins)), ">=", FEWEST_ORIGINS, "critical"),
        Expectation("training_rows", None, float(train.sum()), ">=", FEWEST_ROWS, "critical"),
        Expectation("hcps", None, float(len(np.unique(table.hcp))), ">=", FEWEST_HCPS, "critical"),
        Expectation("duplicate_rows", None, float(len(keys) - len(np.unique(keys))), "<=", 0.0, "critical"),
    ]


def _target(table: Table, scope: TrainingScope) -> list[Expectation]:
    known = len(table.target) / (len(table.target) + table.unknown_targets)
    train, test = table.target[table.rows("train")], table.target[table.rows("test")]
    found = [Expectation("target_known", None, known, ">=", LEAST_TARGET_KNOWN, "critical")]
    if scope.task == "classification":
        rarer = [min(part.sum(), len(part) - part.sum()) for part in (train, test)]
        shift = abs(float(test.mean() - train.mean()))
        found += [
            Expectation("rarer_class_in_training", None, float(rarer[0]), ">=", FEWEST_IN_CLASS, "critical"),
            Expectation("rarer_class_in_test", None, float(rarer[1]), ">=", FEWEST_TEST_IN_CLASS, "critical"),
            Expectation("target_shift", None, shift, "<=", MOST_TARGET_SHIFT, "warning"),
        ]
    else:
        shift = abs(float(test.mean() - train.mean())) / max(float(train.std()), 1e-9)
        found += [
            Expectation("distinct_targets", None, float(len(np.unique(train))), ">=", 10.0, "critical"),
            Expectation("target_shift", None, shift, "<=", MOST_TARGET_SHIFT * 5, "warning"),
        ]
    return found


def _columns(table: Table, scope: TrainingScope) -> list[Expectation]:
    """Check column by column. A range is checked on the repaired values, the share of broken samples on the raw ones."""
    train, test = table.rows("train"), table.rows("test")
    target = table.target[train]
    found = [Expectation("negative_samples", None, table.negative_samples / max(table.sample_cells, 1), "<=", MOST_NEGATIVE, "warning")]
    for name in table.columns:
        values = table.column(name)
        found += [
            Expectation("missing_share", name, table.missing[name], "<=", MOST_MISSING, "warning"),
            Expectation("smallest_value", name, float(values.min()), ">=", 0.0, "critical"),
            Expectation("not_finite", name, float((~np.isfinite(values)).sum()), "<=", 0.0, "critical"),
            Expectation("outside_training_range", name, _outside(values[train], values[test]), "<=", MOST_OUTSIDE, "warning"),
            Expectation("distinct_values", name, float(len(np.unique(values[train]))), ">=", 2.0, "warning"),
        ]
        if scope.task == "classification":
            found.append(Expectation("auc_alone", name, single_auc(values[train], target), "<=", MOST_SINGLE_AUC, "critical"))
        else:
            found.append(
                Expectation("correlation_alone", name, _correlation(values[train], target), "<=", MOST_SINGLE_CORRELATION, "critical")
            )
        found.append(Expectation("psi", name, excess_psi(values[train], values[test]), "<=", MOST_PSI, "warning"))
    return found


def _outside(before: Reals, after: Reals) -> float:
    """Return the share of later rows below the smallest or above the largest training value: there a model extrapolates."""
    return float(((after < before.min()) | (after > before.max())).mean())


def _correlation(values: Reals, target: Reals) -> float:
    if values.std() < 1e-12 or target.std() < 1e-12:
        return 0.0
    return abs(float(np.corrcoef(values, target)[0, 1]))
