"""Is one router better than another on the same requests? Exact tests on the requests where they differ, over all and by slice. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, norm, t

CONFIDENCE = 0.95
FEWEST_IN_SLICE = 20  # rows of a slice that is judged by itself

Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Paired:
    """How a challenger did against the champion on n requests.

    Attributes:
        n: requests that both answered.
        champion: share that the champion answers rightly.
        challenger: the same of the challenger.
        gained: requests that only the challenger answers rightly.
        lost: requests that only the champion does.
        low, high: 95 % interval of the difference of the shares (Agresti and Min 2005, the adjusted Wald interval for matched pairs).
        p_better: chance of so many gained among gained and lost, or more, if neither were better (McNemar's exact test, one-sided).
        p_worse: the same of lost.
    """

    n: int
    champion: float
    challenger: float
    gained: int
    lost: int
    low: float
    high: float
    p_better: float
    p_worse: float

    @property
    def difference(self) -> float:
        """The challenger's share less the champion's."""
        return self.challenger - self.champion


def compare(champion: Flags, challenger: Flags, weight: Array | None = None) -> Paired:
    """Compare which requests each answers rightly, both of shape (n,).

    With weights, requests stand for others whose right answer is not known, as many as their weight. The tests are then one-sided t-tests
    of the weighted difference, which for gains that are few and heavy find a challenger better too seldom rather than too often.
    """
    n, gained, lost = len(champion), int((challenger & ~champion).sum()), int((champion & ~challenger).sum())
    if weight is not None and n and not (weight == weight[0]).all():
        return _compare_weighted(champion, challenger, weight, gained, lost)
    size = n + 2
    middle = (gained - lost) / size
    spread = np.sqrt(max(0.0, (gained + lost + 1) - (gained - lost) ** 2 / size)) / size * norm.ppf(0.5 + CONFIDENCE / 2)
    return Paired(
        n=n,
        champion=float(champion.mean()) if n else 0.0,
        challenger=float(challenger.mean()) if n else 0.0,
        gained=gained,
        lost=lost,
        low=float(max(-1.0, middle - spread)),
        high=float(min(1.0, middle + spread)),
        p_better=_chance(gained, lost),
        p_worse=_chance(lost, gained),
    )


def _compare_weighted(champion: Flags, challenger: Flags, weight: Array, gained: int, lost: int) -> Paired:
    """Compare by the ratio estimator of the weighted mean difference and its linearised variance (Särndal et al. 1992, ch. 5.6)."""
    n, total = len(champion), float(weight.sum())
    change = challenger.astype(float) - champion.astype(float)
    difference = float((weight * change).sum() / total)
    error = float(np.sqrt(n / (n - 1) * ((weight * (change - difference)) ** 2).sum()) / total) if n > 1 else 1.0
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, max(1, n - 1))) * error
    chance = float(t.sf(difference / error, max(1, n - 1))) if error > 0.0 else None  # all gained, or all lost: the exact test says it
    return Paired(
        n=n,
        champion=float((weight * champion).sum() / total),
        challenger=float((weight * challenger).sum() / total),
        gained=gained,
        lost=lost,
        low=max(-1.0, difference - reach),
        high=min(1.0, difference + reach),
        p_better=_chance(gained, lost) if chance is None else chance,
        p_worse=_chance(lost, gained) if chance is None else 1.0 - chance,
    )


def compare_slices(champion: Flags, challenger: Flags, slices: Sequence[str], weight: Array | None = None) -> Mapping[str, Paired]:
    """Compare within each slice that has `FEWEST_IN_SLICE` requests; `slices` names the slice of each request."""
    names = np.array(slices, object)
    found = {}
    for name in sorted(set(slices)):
        rows = names == name
        if rows.sum() >= FEWEST_IN_SLICE:
            found[name] = compare(champion[rows], challenger[rows], None if weight is None else weight[rows])
    return found


def worse_slices(slices: Mapping[str, Paired], chance: float) -> list[str]:
    """Return the slices in which the challenger is worse, at most `chance` of naming any where it is worse in none (Holm 1979)."""
    ordered = sorted(slices.items(), key=lambda item: item[1].p_worse)
    found = []
    for at, (name, paired) in enumerate(ordered):
        if paired.p_worse > chance / (len(ordered) - at):
            break
        found.append(name)
    return found


def _chance(hits: int, others: int) -> float:
    if hits + others == 0:
        return 1.0
    return float(binomtest(hits, hits + others, 0.5, alternative="greater").pvalue)
