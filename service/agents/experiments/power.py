"""Sample size, power and smallest effect of a comparison of two arms, of single units or clusters, and of a stepped wedge.

It knows numbers only. A comparison is standardised: `effect` is the difference in standard deviations of one unit (means), or
Cohen's h (rates, Cohen 1988). Clusters enter with their mean, whose variance is (1 + (size - 1) ICC) / size (Donner and Klar 2000).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm
from statsmodels.stats.power import NormalIndPower, TTestIndPower
from statsmodels.stats.proportion import proportion_effectsize

LARGEST = 5_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two arms are compared. `alpha` is already divided among comparisons; `ratio` is the second arm's size over the first's.

    `is_rate`: the test is the normal one of two proportions, else Student's. `inflation` is what looks or a design cost in size.
    """

    alpha: float
    power: float
    sides: int = 2
    ratio: float = 1.0
    is_rate: bool = False
    cluster_size: int = 1
    icc: float = 0.0
    inflation: float = 1.0

    @property
    def design_effect(self) -> float:
        """By how much clusters raise the number of people."""
        return 1.0 + (self.cluster_size - 1) * self.icc

    @property
    def _scale(self) -> float:
        """The effect on a cluster's mean over the effect on one person."""
        return float(np.sqrt(self.cluster_size / self.design_effect))

    def power_of(self, effect: float, units: float) -> float:
        """Return the power for an effect with `units` (clusters, or people) in the first arm."""
        count = max(2.0, units / self.inflation)
        alternative = "two-sided" if self.sides == 2 else "larger"
        size = abs(effect) * self._scale
        if self.is_rate and self.cluster_size == 1:
            return float(NormalIndPower().power(size, count, self.alpha, ratio=self.ratio, alternative=alternative))
        power = TTestIndPower().power(size, count, self.alpha, ratio=self.ratio, alternative=alternative)
        return float(power) if np.isfinite(power) else 1.0

    def units_for(self, effect: float) -> int | None:
        """Return the fewest units in the first arm that reach the power, or None where five million do not."""
        if abs(effect) < 1e-12 or self.power_of(effect, LARGEST) < self.power:
            return None
        low, high = 2, LARGEST
        while low < high:
            middle = (low + high) // 2
            if self.power_of(effect, middle) >= self.power:
                high = middle
            else:
                low = middle + 1
        return low

    def smallest_effect(self, units: float) -> float | None:
        """Return the smallest effect that `units` in the first arm detect with the power, or None for fewer than two."""
        if units < 2:
            return None
        return float(brentq(lambda effect: self.power_of(effect, units) - self.power, 1e-9, 100.0))


def rate_effect(baseline: float, change: float) -> float:
    """Return Cohen's h of a change of a rate; the changed rate is kept within 0.0001 and 0.9999."""
    return float(proportion_effectsize(float(np.clip(baseline + change, 1e-4, 1 - 1e-4)), baseline))


def rate_change(baseline: float, effect: float) -> float:
    """Return the rise of a rate that has this Cohen's h; as far as 1 where the baseline leaves no more."""
    angle = min(np.pi / 2.0, float(np.arcsin(np.sqrt(baseline))) + effect / 2.0)
    return float(np.sin(angle) ** 2) - baseline


def wedge_power(
    effect: float, *, clusters: int, steps: int, cluster_size: float, icc: float, alpha: float, people_variance: float = 1.0
) -> float:
    """Return the power of a stepped wedge of `steps` steps over `steps` + 1 periods (Hussey and Hughes 2007, equation 8).

    Args:
        effect: In the outcome's unit.
        clusters: Switched in equal batches; a rest goes to the first steps.
        steps: At most `clusters`.
        cluster_size: People of a cluster measured in each period.
        icc: Intra-cluster correlation.
        alpha: Two-sided.
        people_variance: The variance of one person in one period, without the clusters' part.
    """
    error = wedge_error(clusters=clusters, steps=steps, cluster_size=cluster_size, icc=icc, people_variance=people_variance)
    return float(norm.cdf(abs(effect) / error - norm.ppf(1.0 - alpha / 2.0)))


def wedge_error(*, clusters: int, steps: int, cluster_size: float, icc: float, people_variance: float = 1.0) -> float:
    """Return the standard error of the effect in a stepped wedge; units as in `wedge_power`."""
    between = icc / (1.0 - icc) * people_variance
    noise = people_variance / cluster_size
    treated = wedge_schedule(clusters, steps)
    count, periods = treated.shape
    total, by_period, by_cluster = treated.sum(), (treated.sum(axis=0) ** 2).sum(), (treated.sum(axis=1) ** 2).sum()
    top = count * noise * (noise + periods * between)
    bottom = (count * total - by_period) * noise + (total**2 + count * periods * total - periods * by_period - count * by_cluster) * between
    return float(np.sqrt(top / bottom))


def wedge_schedule(clusters: int, steps: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return clusters by periods: 1 from the period in which a cluster has the programme; nobody has it in the first period."""
    step = np.concatenate([np.full(len(part), at) for at, part in enumerate(np.array_split(np.arange(clusters), steps), start=1)])
    return (np.arange(steps + 1) >= step[:, None]).astype(np.float64)
