"""Is what one router serves worse than what another serves? Looked at again and again while requests come in. Pure.

Like is compared with like: what came of calling agents, intent by intent, so that a router is not blamed for asking an agent that fails
often, whoever asks it (direct standardization). And a router that answers more requests is not blamed for the errors among them: the other
one asked back, or refused, and failed nobody because it answered nobody. What nobody can tell apart is an agent that begins to fail just
when a new champion begins to serve.

The bounds hold at every look at once (asymptotic confidence sequences, Waudby-Smith et al. 2021), so that a router which is no worse is
stopped with at most `CHANCE`, however often one looks. They judge a canary and, after a promotion, the new champion beside the one before.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

import numpy as np

from service.contracts.model import JsonObject

CHANCE = 0.05  # of ever stopping a router that is no worse, by all rates together
FEW = 20  # requests of the champion below which an intent is put together with others that it had few of
MUCH_LESS = 0.25  # by how much more of the requests may be refused or asked back about: what is learned to be out of scope is no harm
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
    """What came of the requests that one router served.

    Attributes:
        requests: how many there were.
        fallbacks: that the safe default answered.
        unavailable: that were meant for agents of which none could be had.
        called: the others for which an agent was called, by intent.
    """

    requests: int = 0
    fallbacks: int = 0
    unavailable: int = 0
    called: Mapping[str, Called] = field(default_factory=dict)

    @property
    def answered(self) -> Sums:
        """The share of the requests to which an agent had an answer, where those that were asked could be had."""
        return Sums.of_share(sum(one.requests - one.errors for one in self.called.values()), self.requests - self.unavailable)

    @property
    def unanswered(self) -> Sums:
        """The rest."""
        return Sums.of_share(self.answered.count - int(self.answered.total), self.answered.count)


def compare_arms(champion: Arm, challenger: Arm, most_worse: float) -> tuple[str, JsonObject]:
    """Return why the challenger is worse, or an empty text, and the figures.

    Args:
        champion: what came of the champion's requests.
        challenger: the same of the challenger's.
        most_worse: by how much a rate, a share from 0 to 1, may be proven worse.
    """
    chance = CHANCE / 4 / 2  # four rates, and two bounds make a difference
    old_fallbacks, fallbacks = (Sums.of_share(arm.fallbacks, arm.requests) for arm in (champion, challenger))
    more_answered = bound(challenger.answered, side=-1.0, chance=chance)[0] > bound(champion.answered, side=1.0, chance=chance)[0]
    by_intent = np.inf if more_answered else most_worse
    rates = {
        "errors": (by_intent, _by_intent(champion, challenger, lambda one: one.failing, chance)),
        "fallbacks": (most_worse, _over_all(old_fallbacks, fallbacks, chance)),
        "reward lost": (by_intent, _by_intent(champion, challenger, lambda one: one.lost, chance)),
        "not answered": (most_worse + MUCH_LESS, _over_all(champion.unanswered, challenger.unanswered, chance)),
    }
    figures: JsonObject = {}
    worse = []
    for name, (allowed, (low, mean, high, old_mean)) in rates.items():
        figures[name] = {"challenger": mean, "champion": old_mean, "at_least_worse_by": low - high}
        if low - high > allowed:
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

    The intents that the champion had few of are one; where it had none of them it is taken to be as over all, with that uncertainty.
    """
    known = {intent for intent, called in champion.called.items() if called.requests >= FEW}
    old, new = (_sums(arm, known, of) for arm in (champion, challenger))
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


def _sums(arm: Arm, known: Container[str], of: Callable[[Called], Sums]) -> dict[str, Sums]:
    """Return an arm's sums by intent, those that are not known put together."""
    sums: dict[str, Sums] = {}
    for intent, called in arm.called.items():
        name = intent if intent in known else ""
        sums[name] = sums.get(name, Sums()) + of(called)
    return sums


def _over_all(champion: Sums, challenger: Sums, chance: float) -> tuple[float, float, float, float]:
    return *bound(challenger, side=-1.0, chance=chance), *bound(champion, side=1.0, chance=chance)


def _reach(variance: float, n: int, chance: float) -> float:
    """Return how far the mean of n values of this variance may be from the truth, at every n but for `chance`."""
    rho = (-2.0 * np.log(chance) + np.log(-2.0 * np.log(chance)) + 1.0) / TIGHTEST
    return float(np.sqrt(max(1e-12, variance) * 2.0 * (n * rho + 1.0) / (n**2 * rho) * np.log(np.sqrt(n * rho + 1.0) / chance)))
