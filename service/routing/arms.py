"""Is what one router serves worse than what another serves? Looked at again and again while requests come in. Pure.

The bounds hold at every look at once (asymptotic confidence sequences, Waudby-Smith et al. 2021), so that a router which is no worse is
stopped with at most `CHANCE`, however often one looks. They judge a canary and, after a promotion, the new champion beside the one before.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.contracts.model import JsonObject

CHANCE = 0.05  # of ever stopping a router that is no worse, by all three rates together
TIGHTEST = 500.0  # requests at which the bounds are tightest

_Sums = tuple[float, float, int]  # of values from 0 to 1: their sum, the sum of their squares, how many


@dataclass(frozen=True, slots=True)
class Arm:
    """What came of the requests that one router served.

    Attributes:
        requests: how many there were.
        errors: on which every agent that was asked and could be had failed.
        fallbacks: that the safe default answered.
        rewarded: whose reward is known, with the sum of the rewards and of their squares.
    """

    requests: int = 0
    errors: int = 0
    fallbacks: int = 0
    rewarded: int = 0
    rewards: float = 0.0
    squares: float = 0.0


def compare_arms(champion: Arm, challenger: Arm, most_worse: float) -> tuple[str, JsonObject]:
    """Return why the challenger is worse by more than `most_worse`, or an empty text, and the figures."""
    sums: dict[str, Callable[[Arm], _Sums]] = {
        "errors": lambda arm: (arm.errors, arm.errors, arm.requests),
        "fallbacks": lambda arm: (arm.fallbacks, arm.fallbacks, arm.requests),
        "reward lost": lambda arm: (arm.rewarded - arm.rewards, arm.rewarded - 2.0 * arm.rewards + arm.squares, arm.rewarded),
    }
    figures: JsonObject = {}
    worse, chance = [], CHANCE / len(sums) / 2  # two bounds make a difference
    for name, of in sums.items():
        low, mean = bound(*of(challenger), side=-1.0, chance=chance)
        high, old_mean = bound(*of(champion), side=1.0, chance=chance)
        figures[name] = {"challenger": mean, "champion": old_mean, "at_least_worse_by": low - high}
        if low - high > most_worse:
            worse.append(f"{name} {mean:.3f} against {old_mean:.3f}")
    return "; ".join(worse), figures


def bound(total: float, squares: float, count: int, *, side: float, chance: float) -> tuple[float, float]:
    """Return a one-sided bound of a mean that holds at every count but for `chance`, and the mean, of values from 0 to 1 with these sums.

    As if one more value had been 0 and one 1, so that a few equal values do not seem to be certain.
    """
    n = count + 2
    mean = (total + 1.0) / n
    variance = max(1e-12, (squares + 1.0) / n - mean**2)
    rho = (-2.0 * np.log(chance) + np.log(-2.0 * np.log(chance)) + 1.0) / TIGHTEST
    reach = np.sqrt(variance * 2.0 * (n * rho + 1.0) / (n**2 * rho) * np.log(np.sqrt(n * rho + 1.0) / chance))
    return mean + side * float(reach), mean
