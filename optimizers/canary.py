"""Is what one router serves worse than what another serves? Looked at again and again while requests come in. Pure.

The bounds hold at every look at once (asymptotic confidence sequences, Waudby-Smith et al. 2021), so that a router which is no worse is
stopped with at most `CHANCE`, however often one looks. They judge a canary and, after a promotion, the new champion beside the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizers.ruling import Finding, Found, Rules, Step
from service.contracts.model import JsonObject

CHANCE = 0.05  # of ever stopping a router that is no worse, by all three rates together
TIGHTEST = 500.0  # requests at which the bounds are tightest


@dataclass(frozen=True, slots=True)
class Arm:
    """What came of the requests that one router served: how many there were, how many of each kind, and the rewards that are known."""

    requests: int
    errors: int
    fallbacks: int
    rewards: Sequence[float]


def judge_canary(champion: Arm, challenger: Arm, hours: float, rules: Rules) -> Finding:
    """Judge the challenger's share of the traffic, `hours` after it began."""
    worse, figures = compare_arms(champion, challenger, rules.canary_most_worse)
    figures |= {"hours": hours, "requests": challenger.requests}
    if worse:
        return Finding(step=Step.CANARY, found=Found.AGAINST, reason=worse, figures=figures)
    if challenger.requests < rules.canary_least:
        late = hours >= rules.canary_hours
        reason = f"{challenger.requests} of {rules.canary_least} requests served in {hours:.1f} h."
        return Finding(step=Step.CANARY, found=Found.NO_VERDICT if late else Found.PENDING, reason=reason, figures=figures)
    reason = f"It served {challenger.requests} requests and is not worse in errors, fallbacks or reward."
    return Finding(step=Step.CANARY, found=Found.FOR, reason=reason, figures=figures)


def compare_arms(champion: Arm, challenger: Arm, most_worse: float) -> tuple[str, JsonObject]:
    """Return why the challenger is worse, or an empty text, and the figures."""
    pairs = {
        "errors": (_flags(challenger.errors, challenger.requests), _flags(champion.errors, champion.requests)),
        "fallbacks": (_flags(challenger.fallbacks, challenger.requests), _flags(champion.fallbacks, champion.requests)),
        "reward lost": (1.0 - np.asarray(challenger.rewards, float), 1.0 - np.asarray(champion.rewards, float)),
    }
    figures: JsonObject = {}
    worse = []
    for name, (new, old) in pairs.items():
        (low, mean), (_, old_mean) = _bound(new, -1.0, len(pairs)), _bound(old, 1.0, len(pairs))
        high = _bound(old, 1.0, len(pairs))[0]
        figures[name] = {"challenger": mean, "champion": old_mean, "at_least_worse_by": low - high}
        if low - high > most_worse:
            worse.append(f"{name} {mean:.3f} against {old_mean:.3f}")
    return "; ".join(worse), figures


def _flags(hits: int, n: int) -> np.ndarray:
    return np.concatenate([np.ones(hits), np.zeros(max(0, n - hits))])


def _bound(values: np.ndarray, side: float, tests: int) -> tuple[float, float]:
    """Return a one-sided bound of the mean that holds at every n, and the mean.

    As if one more value had been 0 and one 1, so that a few equal values do not seem to be certain.
    """
    n = len(values) + 2
    mean = (float(values.sum()) + 1.0) / n
    variance = max(1e-12, (float((values**2).sum()) + 1.0) / n - mean**2)
    chance = CHANCE / tests / 2  # two bounds make a difference
    rho = (-2.0 * np.log(chance) + np.log(-2.0 * np.log(chance)) + 1.0) / TIGHTEST
    reach = np.sqrt(variance * 2.0 * (n * rho + 1.0) / (n**2 * rho) * np.log(np.sqrt(n * rho + 1.0) / chance))
    return mean + side * float(reach), mean
