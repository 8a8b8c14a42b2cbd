"""Evaluate a student on labelled rows: figures with 95 % intervals. Pure; each call is one evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from optimizers.dataset import Row
from service.routing.student import OUT_OF_SCOPE, Reading

BINS = 15  # of equal width, as in Guo et al. 2017


@dataclass(frozen=True, slots=True)
class Figure:
    """A share with its 95 % Wilson interval and the number of rows behind it."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def share(cls, hits: int, n: int) -> "Figure":
        """Return the share of `hits` in `n`; (0, 0, 1) when there are none."""
        if n == 0:
            return cls(0.0, 0.0, 1.0, 0)
        interval = binomtest(hits, n).proportion_ci(method="wilson")
        return cls(hits / n, float(interval.low), float(interval.high), n)


@dataclass(frozen=True, slots=True)
class Report:
    """What one evaluation found.

    Attributes:
        accuracy: in-scope rows whose best label is right.
        accepted: in-scope rows that the policy's threshold does not refuse.
        refused: out-of-scope rows that it refuses.
        refused_at_95: out-of-scope rows refused at the threshold that accepts 95 % of these in-scope rows.
        confusions: (true label, label read, text) of each in-scope error.
    """

    accuracy: Figure
    accepted: Figure
    refused: Figure
    refused_at_95: Figure
    confusions: tuple[tuple[str, str, str], ...]

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name."""
        return {name: getattr(self, name) for name in ("accuracy", "accepted", "refused", "refused_at_95")}


def evaluate(rows: Sequence[Row], read: Callable[[str], Reading], refuse_above: float) -> Report:
    """Read every row once and count."""
    readings = [(row, read(row.text)) for row in rows]
    inside = [(row, r) for row, r in readings if row.label != OUT_OF_SCOPE]
    outside = [r.oos_score for row, r in readings if row.label == OUT_OF_SCOPE]
    best = [(row, next(iter(r.probabilities))) for row, r in inside]
    scores = [r.oos_score for _, r in inside]
    at_95 = float(np.quantile(scores, 0.95, method="higher")) if scores else 1.0
    return Report(
        accuracy=Figure.share(sum(row.label == label for row, label in best), len(best)),
        accepted=Figure.share(sum(s <= refuse_above for s in scores), len(scores)),
        refused=Figure.share(sum(s > refuse_above for s in outside), len(outside)),
        refused_at_95=Figure.share(sum(s > at_95 for s in outside), len(outside)),
        confusions=tuple((row.label, label, row.text) for row, label in best if row.label != label),
    )
