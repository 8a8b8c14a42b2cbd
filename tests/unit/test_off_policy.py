"""Off-policy estimates on simulated logs whose truth is known; the long run of 500 is `tests/bench/off_policy.py`."""

import numpy as np
import pytest

from optimizers.off_policy import Answer, Logged, estimate


def simulate(rng: np.random.Generator, n: int, *, explored: float, better: float) -> tuple[Logged, np.ndarray, float]:
    """Log a policy that takes the second choice with some probability among near ties; return log, usual and the other's true value.

    The other policy prefers the second choice for a third of the near ties; there it earns `better` more.
    """
    tie = rng.random(n) < 0.5
    differs = tie & (rng.random(n) < 1 / 3)
    first, second = np.full(n, 0.7), np.where(differs, 0.7 + better, 0.6)
    takes_second = tie & (rng.random(n) < explored)
    propensity = np.where(tie, np.where(takes_second, explored, 1.0 - explored), 1.0)
    reward = (rng.random(n) < np.where(takes_second, second, first)).astype(float)
    log = Logged(
        reward=reward,
        propensity=np.maximum(propensity, 1e-9),
        matches=differs == takes_second,
        possible=~differs | (explored > 0.0),
        expected_logged=np.where(takes_second, 0.4, 0.6),
        expected_other=np.where(differs, 0.4, 0.6),
    )
    return log, ~differs, float(np.where(differs, second, first).mean())


def test_a_log_without_exploration_gives_no_verdict() -> None:
    """However much better the other router seems to be by the model."""
    log, usual, _ = simulate(np.random.default_rng(1), 5_000, explored=0.0, better=0.3)

    found = estimate(log, usual)

    assert found.answer is Answer.NO_VERDICT
    assert "never tried" in found.reason


def test_a_few_explored_requests_give_no_verdict_either() -> None:
    """The normal approximation needs enough of them."""
    log, usual, _ = simulate(np.random.default_rng(1), 500, explored=0.05, better=0.3)

    assert estimate(log, usual).answer is Answer.NO_VERDICT


def test_routers_that_choose_alike_do_not_differ() -> None:
    """Also without any exploration."""
    log, _, _ = simulate(np.random.default_rng(1), 1_000, explored=0.0, better=0.3)
    same = Logged(log.reward, np.ones(1_000), np.ones(1_000, bool), np.ones(1_000, bool), log.expected_logged, log.expected_logged)

    assert estimate(same, np.ones(1_000, bool)).answer is Answer.NO_DIFFERENCE


@pytest.mark.parametrize(("better", "answer"), [(0.25, Answer.BETTER), (-0.4, Answer.WORSE)])
def test_a_clear_difference_is_found(better: float, answer: Answer) -> None:
    """With a tenth of the near ties explored."""
    log, usual, _ = simulate(np.random.default_rng(2), 20_000, explored=0.1, better=better)

    assert estimate(log, usual).answer is answer


@pytest.mark.parametrize("name", ["ips", "snips", "dr"])
def test_intervals_cover_the_truth(name: str) -> None:
    """100 logs here; at 95 % fewer than 89 would be a chance of one in a hundred."""
    rng, covered = np.random.default_rng(3), 0
    for _ in range(100):
        log, usual, truth = simulate(rng, 3_000, explored=0.1, better=0.1)
        found = getattr(estimate(log, usual), name)
        covered += found.low <= truth <= found.high

    assert covered >= 89


def test_doubly_robust_needs_fewer_rows_than_propensities_alone() -> None:
    """And so does self-normalisation; that of the gain leaves out what both routers have in common."""
    log, usual, _ = simulate(np.random.default_rng(4), 5_000, explored=0.1, better=0.1)

    found = estimate(log, usual)

    widths = {name: getattr(found, name).high - getattr(found, name).low for name in ("ips", "snips", "dr", "gain")}
    assert max(widths["dr"], widths["snips"]) < 0.9 * widths["ips"]
