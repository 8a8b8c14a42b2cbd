"""Is what one router serves worse than what another serves? Looked at again and again while requests come in. Pure.

Like is compared with like: what came of calling agents, intent by intent, so that a router is not blamed for asking an agent that fails
often, whoever asks it (direct standardization). And a router that answers more requests is not blamed for the errors among them: the other
one asked back, or refused, and failed nobody because it answered nobody.

The bounds hold at every look at once (asymptotic confidence sequences, Waudby-Smith et al. 2021), so that a router which is no worse is
stopped with at most `CHANCE`, however often one looks. They judge a canary and, after a promotion, the new champion beside the one before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from service.contracts.model import JsonObject

CHANCE = 0.05  # of ever stopping a router that is no worse, by all three rates together
TIGHTEST = 500.0  # requests at which the bounds are tightest


@dataclass(frozen=True, slots=True)
class Sums:
    """Values from 0 to 1: how many, their sum, the sum of their squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of_share(cls, some: int, count: int) -> "Sums":
        """Return the sums of a value that is 1 for some and else 0."""
        return cls(count, some, some)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.count + other.count, self.total + other.total, self.squares + other.squares)


@dataclass(frozen=True, slots=True)
class Called:
    """What came of the requests of one intent for which an agent was called that could be had.

    Attributes:
        requests: how many there were.
        errors: on which every agent failed.
        rewarded: whose reward is known, with the sum of the rewards and of their squares.
    """

    requests: int = 0
    errors: int = 0
    rewarded: int = 0
    rewards: float = 0.0
    squares: float = 0.0

    @property
    def failing(self) -> Sums:
        """The share of errors."""
        return Sums.of_share(self.errors, self.requests)

    @property
    def lost(self) -> Sums:
        """What is missing of a reward of 1."""
        return Sums(self.rewarded, self.rewarded - self.rewards, self.rewarded - 2.0 * self.rewards + self.squares)


@dataclass(frozen=True, slots=True)
class Arm:
    """What came of the requests that one router served: how many, how many the safe default answered, and the others' calls by intent."""

    requests: int = 0
    fallbacks: int = 0
    called: Mapping[str, Called] = field(default_factory=dict)

    @property
    def answered(self) -> Sums:
        """The share of the requests to which an agent had an answer."""
        return Sums.of_share(sum(one.requests - one.errors for one in self.called.values()), self.requests)


def compare_arms(champion: Arm, challenger: Arm, most_worse: float) -> tuple[str, JsonObject]:
    """Return why the challenger is worse by more than `most_worse`, or an empty text, and the figures."""
    chance = CHANCE / 3 / 2  # three rates, and two bounds make a difference
    fell_back = Sums.of_share(champion.fallbacks, champion.requests), Sums.of_share(challenger.fallbacks, challenger.requests)
    rates = {
        "errors": _by_intent(champion, challenger, lambda one: one.failing, chance),
        "fallbacks": (*bound(fell_back[1], side=-1.0, chance=chance), *bound(fell_back[0], side=1.0, chance=chance)),
        "reward lost": _by_intent(champion, challenger, lambda one: one.lost, chance),
    }
    answers_at_least, answered = bound(challenger.answered, side=-1.0, chance=chance)
    answered_at_most, had_answered = bound(champion.answered, side=1.0, chance=chance)
    figures: JsonObject = {"answered": {"challenger": answered, "champion": had_answered}}
    worse = []
    for name, (low, mean, high, old_mean) in rates.items():
        figures[name] = {"challenger": mean, "champion": old_mean, "at_least_worse_by": low - high}
        if low - high > most_worse and (name == "fallbacks" or answers_at_least <= answered_at_most):
            worse.append(f"{name} {mean:.3f} against {old_mean:.3f}")
    return "; ".join(worse), figures


def bound(sums: Sums, *, side: float, chance: float) -> tuple[float, float]:
    """Return a one-sided bound of a mean that holds at every count but for `chance`, and the mean, of values from 0 to 1 with these sums.

    As if one more value had been 0 and one 1, so that a few equal values do not seem to be certain.
    """
    n = sums.count + 2
    mean = (sums.total + 1.0) / n
    return mean + side * _reach((sums.squares + 1.0) / n - mean**2, n, chance), mean


def _by_intent(champion: Arm, challenger: Arm, of: Callable[[Called], Sums], chance: float) -> tuple[float, float, float, float]:
    """Return the challenger's lower bound and mean, and the champion's upper bound and mean had it been called for the same intents.

    An intent that the champion had little of is taken to be as all of its intents are, with the uncertainty of the few.
    """
    new = {intent: of(called) for intent, called in challenger.called.items()}
    old = {intent: of(called) for intent, called in champion.called.items()}
    low, mean = bound(sum(new.values(), Sums()), side=-1.0, chance=chance)
    whole = sum(old.values(), Sums())
    n, weights = whole.count + 2, max(1, sum(one.count for one in new.values()))
    usual, usual_square = (whole.total + 1.0) / n, (whole.squares + 1.0) / n
    old_mean = variance = 0.0
    for intent, one in new.items():
        before, weight = old.get(intent, Sums()), one.count / weights
        of_intent = (before.total + 2.0 * usual) / (before.count + 2)
        square = (before.squares + 2.0 * usual_square) / (before.count + 2)
        old_mean += weight * of_intent
        variance += weight**2 * max(0.0, square - of_intent**2) / (before.count + 2)
    return low, mean, old_mean + _reach(n * variance, n, chance), old_mean


def _reach(variance: float, n: int, chance: float) -> float:
    """Return how far the mean of n values of this variance may be from the truth, at every n but for `chance`."""
    rho = (-2.0 * np.log(chance) + np.log(-2.0 * np.log(chance)) + 1.0) / TIGHTEST
    return float(np.sqrt(max(1e-12, variance) * 2.0 * (n * rho + 1.0) / (n**2 * rho) * np.log(np.sqrt(n * rho + 1.0) / chance)))
