"""The label model: what outcomes, ratings and corrections say about the right label of each logged request, with each source's reliability.

A router that learns from its own log sees what came of the agent that it chose, seldom what would have been right. Here the right label is
hidden, the classifier's held-out probability is its prior, and everything that was observed is evidence of it; how reliable each kind of
evidence is, is estimated with it by expectation maximization (Dawid and Skene 1979; with a classifier as the prior, Raykar et al. 2010,
Learning From Crowds). So an agent that often fails though it is the right one is not held to be wrong for failing, a caller's or an LM's
word counts for as much as it proved to be worth, and who was down says nothing.

Pure arithmetic on columns: it knows no texts, no agents' names and no store.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Beliefs = npt.NDArray[np.float32]  # probability of each label, shape (rows, labels)
Indices = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]

NONE = -1  # nothing was observed
SUCCEEDED, FAILED = 0, 1
STARS = 5
# Pseudo-counts: what is assumed before any row is seen
RIGHT_OUTCOME, WRONG_OUTCOME = (9.0, 1.0), (2.0, 2.0)  # success and failure; a wrong agent may well answer something
AGENT_WEIGHT = 10.0  # rows that all agents' common rate of success counts for, beside an agent's own
RIGHT_RATING, WRONG_RATING = (0.5, 0.5, 1.0, 2.0, 3.0), (3.0, 2.0, 1.0, 0.5, 0.5)  # 1 to 5 stars
RIGHT_AGAIN, WRONG_AGAIN = (9.5, 0.5), (2.0, 3.0)  # answered for good, and asked elsewhere though it had answered
RIGHT_CLAIM, WRONG_CLAIM = 8.0, 2.0
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Claims:
    """What one source says of the right label: a person who corrects, a caller's language layer, an LM, a user who chooses.

    Attributes:
        rows: the rows that it speaks of.
        fits: the labels that each claim allows, shape (claims, labels); one that names an agent allows all labels of that agent.
        others: how many other things it could have named.
    """

    rows: Indices
    fits: npt.NDArray[np.bool_]
    others: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was observed of n requests, in m observations, as one request may be made often; -1 stands for what was not.

    Attributes:
        serves: the agent that serves each label, shape (labels,); -1 for none.
        size: n.
        row: the request that an observation is of, shape (m,) like all that follow.
        asked: the agent that was asked.
        outcome: `SUCCEEDED` or `FAILED`; -1 also where the agent could not be had.
        rating: stars less one; -1 also where the answer was judged to be poor in itself, which says nothing of the choice.
        again: 1 where the user had to ask elsewhere though the agent answered, 0 where they had not.
        claims: by source.
    """

    serves: Indices
    size: int
    row: Indices
    asked: Indices
    outcome: Indices
    rating: Indices
    again: Indices
    claims: Mapping[str, Claims] = field(default_factory=dict)

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether the asked agent would be the right one, by observation and label."""
        flags: npt.NDArray[np.bool_] = (self.asked[:, None] == self.serves) & (self.asked >= 0)[:, None]
        return flags

    @property
    def nothing(self) -> "Evidence":
        """The same kinds of evidence of no request at all."""
        claims = {source: replace(one, rows=one.rows[:0], fits=one.fits[:0]) for source, one in self.claims.items()}
        return Evidence(self.serves, 0, self.row[:0], self.asked[:0], self.outcome[:0], self.rating[:0], self.again[:0], claims)


@dataclass(frozen=True, slots=True)
class Reliability:
    """How each kind of evidence depends on whether the right agent was asked.

    Attributes:
        success: share of successes of each agent where it is the right one, shape (agents,).
        success_wrong: the same of all agents where they are not.
        rating: share of each number of stars for the right agent and the wrong one, each of shape (5,).
        again: share of answers after which the user had to ask elsewhere, for the right agent and the wrong one.
        claims: share of right claims by source.
    """

    success: Array
    success_wrong: float
    rating: tuple[Array, Array]
    again: tuple[float, float]
    claims: Mapping[str, float]


def estimate(beliefs: Beliefs, evidence: Evidence) -> Reliability:
    """Return the reliabilities that fit the beliefs best (the M step), a posteriori. Without rows it is what is assumed."""
    weight = (beliefs[evidence.row] * evidence.right).sum(axis=1, dtype=np.float64)  # of the asked agent being the right one

    def shares(symbols: Indices, size: int, right: tuple[float, ...], wrong: tuple[float, ...]) -> tuple[Array, Array]:
        seen = symbols >= 0
        counts = (np.bincount(symbols[seen], of[seen], size) for of in (weight, 1.0 - weight))
        first, second = (np.add(count, prior) for count, prior in zip(counts, (right, wrong), strict=True))
        return first / first.sum(), second / second.sum()

    common, wrong = shares(evidence.outcome, 2, RIGHT_OUTCOME, WRONG_OUTCOME)
    again, again_wrong = shares(evidence.again, 2, RIGHT_AGAIN, WRONG_AGAIN)
    agents = int(max(evidence.serves.max(initial=0), evidence.asked.max(initial=0))) + 1
    successes, all_of = (
        np.bincount(evidence.asked[rows], weight[rows], agents) for rows in (evidence.outcome == SUCCEEDED, evidence.outcome >= 0)
    )
    return Reliability(
        success=(successes + AGENT_WEIGHT * common[SUCCEEDED]) / (all_of + AGENT_WEIGHT),
        success_wrong=float(wrong[SUCCEEDED]),
        rating=shares(evidence.rating, STARS, RIGHT_RATING, WRONG_RATING),
        again=(float(again[1]), float(again_wrong[1])),
        claims={source: _share_right(beliefs, claims) for source, claims in evidence.claims.items()},
    )


def believe(prior: Beliefs, evidence: Evidence, reliability: Reliability) -> Beliefs:
    """Return the probability of every label given its prior and all that was observed (the E step), shape (n, labels)."""
    log = np.log(prior.astype(np.float64) + TINY) + log_likelihood(evidence, reliability)
    log -= log.max(axis=1, keepdims=True)
    powers = np.exp(log)
    beliefs: Beliefs = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return beliefs


def log_likelihood(evidence: Evidence, reliability: Reliability) -> Array:
    """Return the logarithm of how likely all that was observed of each request is under each label, shape (n, labels)."""
    right, log = evidence.right, np.zeros((evidence.size, len(evidence.serves)))
    for seen, if_right, if_wrong in _likelihoods(evidence, reliability):
        np.add.at(log, evidence.row[seen], np.where(right[seen], np.log(if_right)[:, None], np.log(if_wrong)[:, None]))
    for source, claims in evidence.claims.items():
        true = reliability.claims[source]
        np.add.at(log, claims.rows, np.where(claims.fits, np.log(true), np.log((1.0 - true) / max(1, claims.others))))
    return log


def _likelihoods(evidence: Evidence, reliability: Reliability) -> Iterator[tuple[Indices, Array, Array]]:
    """Yield for each kind of evidence the observations that have it, and how likely it is if the right agent was asked, and if not."""
    rows = np.flatnonzero((evidence.outcome >= 0) & (evidence.asked >= 0))
    succeeded = evidence.outcome[rows] == SUCCEEDED
    right, wrong = reliability.success[evidence.asked[rows]], np.full(len(rows), reliability.success_wrong)
    yield rows, np.where(succeeded, right, 1.0 - right), np.where(succeeded, wrong, 1.0 - wrong)
    rows = np.flatnonzero(evidence.rating >= 0)
    stars = evidence.rating[rows]
    yield rows, reliability.rating[0][stars], reliability.rating[1][stars]
    rows = np.flatnonzero(evidence.again >= 0)
    asked_again, (right_again, wrong_again) = evidence.again[rows] == 1, reliability.again
    yield rows, np.where(asked_again, right_again, 1.0 - right_again), np.where(asked_again, wrong_again, 1.0 - wrong_again)


def _share_right(beliefs: Beliefs, claims: Claims) -> float:
    hits = float((beliefs[claims.rows] * claims.fits).sum())
    return (hits + RIGHT_CLAIM) / (len(claims.rows) + RIGHT_CLAIM + WRONG_CLAIM)
