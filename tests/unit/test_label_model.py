"""The label model on worlds whose truth is known: who was right, and how far each kind of evidence can be trusted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.label_model import FAILED, NONE, SUCCEEDED, Claims, Evidence, Reliability, believe, estimate

SERVES = np.array([0, 1, 2, NONE])  # three intents with an agent each, and out of scope
EVERY = np.eye(4, dtype=bool)


def evidence(n: int, *, asked: np.ndarray | None = None, claims: dict[str, Claims] | None = None, **seen: np.ndarray) -> Evidence:
    """Return evidence of n requests in which only the given things were observed."""
    nothing = np.full(n, NONE)
    columns = {name: seen.get(name, nothing) for name in ("outcome", "rating", "again")}
    return Evidence(serves=SERVES, size=n, row=np.arange(n), asked=nothing if asked is None else asked, claims=claims or {}, **columns)


def even(n: int) -> np.ndarray:
    """Return beliefs that prefer no label."""
    return np.full((n, 4), 0.25, np.float32)


def honest(truth: np.ndarray, sure: float, rng: np.random.Generator) -> np.ndarray:
    """Return a calibrated prior: its first label is right as often as it says."""
    n = len(truth)
    first = np.where(rng.random(n) < sure, truth, (truth + rng.integers(1, 3, n)) % 3)
    prior = np.full((n, 4), (1.0 - sure) / 2, np.float32)
    prior[:, 3] = 0.0
    prior[np.arange(n), first] = sure
    return prior


def settle(prior: np.ndarray, observed: Evidence, turns: int = 20) -> tuple[np.ndarray, Reliability]:
    """Estimate beliefs and reliabilities by turns, the prior held."""
    beliefs = prior
    for _ in range(turns):
        reliability = estimate(beliefs, observed)
        beliefs = believe(prior, observed, reliability)
    return beliefs, estimate(beliefs, observed)


def test_what_was_not_observed_changes_nothing() -> None:
    """An agent that could not be had has no outcome, and then its request is believed as before."""
    prior = np.array([[0.7, 0.1, 0.1, 0.1]], np.float32)
    observed = evidence(1, asked=np.array([1]))

    np.testing.assert_allclose(believe(prior, observed, estimate(prior, observed)), prior, atol=1e-6)


def test_success_speaks_for_the_asked_agent_and_failure_against_it() -> None:
    """By default, before any row is seen."""
    observed = evidence(2, asked=np.array([1, 1]), outcome=np.array([SUCCEEDED, FAILED]))

    beliefs = believe(even(2), observed, estimate(even(0), observed.nothing))

    assert beliefs[0].argmax() == 1
    assert beliefs[1].argmin() == 1


def test_a_request_that_was_made_often_is_known_better() -> None:
    """Three successes of one text say more than one."""
    seen = {"outcome": np.full(4, SUCCEEDED), "rating": np.full(4, NONE), "again": np.full(4, NONE)}
    observed = Evidence(serves=SERVES, size=2, row=np.array([0, 0, 0, 1]), asked=np.full(4, 1), **seen)

    beliefs = believe(even(2), observed, estimate(even(0), observed.nothing))

    assert beliefs[0, 1] > beliefs[1, 1] > 0.25


def test_a_flaky_agent_is_not_held_to_be_the_wrong_one() -> None:
    """Agent 0 fails half the time though it is right, agent 1 hardly ever; a failure of agent 0 then says less than one of agent 1."""
    rng, n = np.random.default_rng(1), 2_000
    truth = rng.integers(0, 2, n)
    prior = honest(truth, 0.94, rng)
    asked = truth
    failed = rng.random(n) < np.where(truth == 0, 0.5, 0.03)
    observed = evidence(n, asked=asked, outcome=np.where(failed, FAILED, SUCCEEDED))

    beliefs, reliability = settle(prior, observed)

    assert reliability.success[0] == pytest.approx(0.5, abs=0.05)
    assert reliability.success[1] == pytest.approx(0.97, abs=0.02)
    flaky, steady = (beliefs[(asked == agent) & failed, agent].mean() for agent in (0, 1))
    assert flaky > 0.85 > steady


def test_agents_that_always_answer_teach_nothing_by_answering() -> None:
    """Where a wrong agent succeeds as often as the right one, success is no evidence."""
    rng, n = np.random.default_rng(2), 4_000
    truth, asked = rng.integers(0, 3, n), rng.integers(0, 3, n)
    prior = honest(truth, 0.7, rng)
    observed = evidence(n, asked=asked, outcome=np.full(n, SUCCEEDED))

    beliefs, reliability = settle(prior, observed)

    assert reliability.success_wrong > 0.95
    assert abs(beliefs[np.arange(n), asked] - prior[np.arange(n), asked]).max() < 0.05


def test_a_sources_reliability_is_found_out() -> None:
    """One person in ten corrects wrongly, a careless one in two: the first is believed, the second is not."""
    rng, n = np.random.default_rng(3), 3_000
    truth = rng.integers(0, 3, n)
    prior = honest(truth, 0.7, rng)

    def says(share_wrong: float) -> Claims:
        wrong = rng.random(n) < share_wrong
        said = np.where(wrong, (truth + rng.integers(1, 3, n)) % 3, truth)
        return Claims(np.arange(n), EVERY[said], others=2)

    observed = evidence(n, claims={"careful": says(0.1), "careless": says(0.5)})

    beliefs, reliability = settle(prior, observed)

    assert reliability.claims["careful"] == pytest.approx(0.9, abs=0.03)
    assert reliability.claims["careless"] == pytest.approx(0.5, abs=0.05)
    assert beliefs.max(axis=1).mean() == pytest.approx((beliefs.argmax(axis=1) == truth).mean(), abs=0.02)


def test_a_claim_of_an_agent_allows_all_its_labels() -> None:
    """Two intents of one agent keep their proportion when a correction names the agent."""
    both = np.array([[True, True, False, False]])
    observed = evidence(1, claims={"user": Claims(np.array([0]), both, others=1)})
    prior = np.array([[0.2, 0.1, 0.6, 0.1]], np.float32)

    beliefs = believe(prior, observed, estimate(even(0), observed.nothing))

    assert beliefs[0, 0] / beliefs[0, 1] == pytest.approx(2.0, rel=1e-3)
    assert beliefs[0, :2].sum() > 0.5


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 1), st.integers(-1, 4), st.integers(-1, 1)), min_size=1, max_size=20))
def test_beliefs_are_probabilities_whatever_was_observed(rows: list[tuple[int, int, int, int]]) -> None:
    """Also where everything speaks against everything."""
    asked, outcome, rating, again = np.array(rows).T
    outcome = np.where(asked >= 0, outcome, NONE)
    observed = evidence(len(rows), asked=asked, outcome=outcome, rating=rating, again=again)

    beliefs, reliability = settle(even(len(rows)), observed, turns=3)

    np.testing.assert_allclose(beliefs.sum(axis=1), 1.0, atol=1e-5)
    assert (beliefs >= 0.0).all()
    assert 0.0 < reliability.success_wrong < 1.0
    assert ((reliability.success > 0.0) & (reliability.success < 1.0)).all()
