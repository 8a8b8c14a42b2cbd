"""What would another router have earned? Estimates from logged choices, their probabilities and their rewards. Pure.

Inverse propensity scoring (IPS, Horvitz and Thompson 1952), self-normalised (SNIPS, Swaminathan and Joachims 2015), and doubly robust (DR,
Dudik et al. 2011) with a reward model that never saw the row which it speaks of. Where the log never tried what the other router would
have done, it cannot tell: then there is no estimate, whatever the formulas say.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

CONFIDENCE = 0.95
FOLDS = 5
LEAST_EFFECTIVE = 50.0  # effective rows where the routers differ, below which the normal approximation is not to be trusted
MOST_UNSEEN = 0.02  # share of requests whose other choice the log could not have made; beyond, what is not known outweighs what is

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Answer(StrEnum):
    """What a log says of a challenger."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference"
    NO_VERDICT = "no_verdict"


@dataclass(frozen=True, slots=True)
class Logged:
    """n logged choices of one policy and what another would have chosen; all of shape (n,).

    Attributes:
        reward: in [0, 1].
        propensity: probability with which the logged policy made its choice.
        matches: the other policy makes the logged choice.
        possible: the logged policy makes the other's choice with a probability above 0.
        expected_logged: what is believed of the reward of the logged choice beforehand, such as the classifier's probability.
        expected_other: the same of the other policy's choice.
    """

    reward: Array
    propensity: Array
    matches: Flags
    possible: Flags
    expected_logged: Array
    expected_other: Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """What the log says.

    Attributes:
        logged: the mean reward of the logged policy.
        ips, snips, dr: the other policy's mean reward.
        gain: DR less the logged policy's mean, row by row, which takes out what both have in common.
        effective: effective number of rows with a choice that only the other policy prefers (Kish 1965).
        differing: share of requests where the other policy does not make the logged policy's usual choice.
        unseen: share of requests whose other choice the log could not have made.
    """

    logged: Estimate
    ips: Estimate
    snips: Estimate
    dr: Estimate
    gain: Estimate
    effective: float
    differing: float
    unseen: float
    answer: Answer
    reason: str


def estimate(log: Logged, usual: Flags, *, seed: int = 1) -> OffPolicy:
    """Estimate the other policy's mean reward.

    Args:
        log: the logged choices.
        usual: the other policy makes the choice that the logged policy makes most often for this request, shape (n,).
        seed: of the folds of the reward model.
    """
    n = len(log.reward)
    weight = log.matches / log.propensity
    ips = _mean(weight * log.reward)
    ratio = float((weight * log.reward).sum() / weight.sum()) if weight.sum() > 0 else 0.0
    snips = _mean(weight * (log.reward - ratio) / max(float(weight.mean()), 1e-12), around=ratio)
    of_logged, of_other = _expect(log, seed)
    scores = of_other + weight * (log.reward - of_logged)
    gain = _mean(scores - log.reward)
    new = ~usual & log.matches
    effective = float(weight[new].sum() ** 2 / (weight[new] ** 2).sum()) if new.any() else 0.0
    unseen = float((~log.possible).mean()) if n else 1.0
    answer, reason = _answer(gain, effective, float((~usual).mean()) if n else 0.0, unseen)
    return OffPolicy(
        _mean(log.reward), ips, snips, _mean(scores), gain, effective, float((~usual).mean()) if n else 0.0, unseen, answer, reason
    )


def _answer(gain: Estimate, effective: float, differing: float, unseen: float) -> tuple[Answer, str]:
    if differing == 0.0:
        return Answer.NO_DIFFERENCE, "Both routers choose alike on every logged request."
    if unseen > MOST_UNSEEN:
        return Answer.NO_VERDICT, f"The log never tried what the other router would have done on {unseen:.1%} of the requests."
    if effective < LEAST_EFFECTIVE:
        return Answer.NO_VERDICT, f"Only {effective:.0f} effective logged choices are the other router's; {LEAST_EFFECTIVE:.0f} are needed."
    if gain.low > 0.0:
        return Answer.BETTER, f"The lower bound of the gain is {gain.low:+.4f}."
    if gain.high < 0.0:
        return Answer.WORSE, f"The upper bound of the gain is {gain.high:+.4f}."
    return Answer.NO_DIFFERENCE, f"The gain is within {gain.low:+.4f} to {gain.high:+.4f}."


def _expect(log: Logged, seed: int) -> tuple[Array, Array]:
    """Return the expected reward of the logged and of the other choice by a model of the other folds' rows (cross-fitting)."""
    n = len(log.reward)
    of_logged, of_other = np.zeros(n), np.zeros(n)
    parts = np.array_split(np.random.default_rng(seed).permutation(n), FOLDS)
    for part in parts:
        others = np.setdiff1d(np.arange(n), part)
        if len(others) and len(part):
            model = LinearRegression().fit(log.expected_logged[others, None], log.reward[others])
            of_logged[part] = np.clip(model.predict(log.expected_logged[part, None]), 0.0, 1.0)
            of_other[part] = np.clip(model.predict(log.expected_other[part, None]), 0.0, 1.0)
    return of_logged, of_other


def _mean(values: Array, around: float | None = None) -> Estimate:
    """Return the mean with its interval; `around` is the value itself where `values` are its influences."""
    if not len(values):
        return Estimate(0.0, -1.0, 1.0)
    value = float(values.mean()) if around is None else around
    error = float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else 1.0
    reach = float(norm.ppf(0.5 + CONFIDENCE / 2)) * error
    return Estimate(value, value - reach, value + reach)
