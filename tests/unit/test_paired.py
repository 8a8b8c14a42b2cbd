"""Paired comparisons: their errors are bounded, and a real difference is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.paired import Paired, compare, compare_slices, worse_slices


def pair(n: int, gained: int, lost: int, both: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return which of n requests champion and challenger answer rightly."""
    champion, challenger = np.zeros(n, bool), np.zeros(n, bool)
    challenger[:gained] = True
    champion[gained : gained + lost] = True
    champion[gained + lost : gained + lost + both] = challenger[gained + lost : gained + lost + both] = True
    return champion, challenger


@pytest.mark.parametrize(
    ("gained", "lost", "p_better"),
    [(0, 0, 1.0), (5, 0, 1 / 32), (0, 5, 1.0), (3, 1, 5 / 16), (10, 10, 0.5881)],
    ids=["alike", "only gained", "only lost", "few", "even"],
)
def test_the_exact_test_counts_only_where_they_differ(gained: int, lost: int, p_better: float) -> None:
    """McNemar's test by the binomial distribution."""
    found = compare(*pair(1_000, gained, lost, both=800))

    assert found.p_better == pytest.approx(p_better, abs=1e-4)
    assert found.difference == pytest.approx((gained - lost) / 1_000)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 200), st.integers(0, 60))
def test_the_interval_holds_the_difference(gained: int, lost: int, both: int, neither: int) -> None:
    """And turns its sign with the roles."""
    n = gained + lost + both + neither
    champion, challenger = pair(n, gained, lost, both)

    found, turned = compare(champion, challenger), compare(challenger, champion)

    assert -1.0 <= found.low <= found.high <= 1.0
    assert (found.low, found.high) == pytest.approx((-turned.high, -turned.low))
    if n:
        assert found.low <= (gained - lost) / (n + 2) <= found.high


def test_the_interval_covers_as_often_as_it_says() -> None:
    """400 simulated tests of 300 requests; 95 % less four standard errors."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(400):
        kind = rng.choice(4, 300, p=[0.07, 0.04, 0.8, 0.09])
        found = compare(kind == 1, kind == 0)
        covered += found.low <= 0.03 <= found.high

    assert covered >= 0.906 * 400


def test_a_slice_that_is_worse_is_found_and_a_small_one_is_not_judged() -> None:
    """A gain over all does not hide it."""
    champion, challenger = pair(400, 60, 0, both=300)
    slices = ["large"] * 340 + ["worse"] * 40 + ["small"] * 20
    champion[340:380], challenger[340:380] = True, False
    slices[-1] = "large"

    found = compare_slices(champion, challenger, slices)

    assert sorted(found) == ["large", "worse"]
    assert worse_slices(found, 0.05) == ["worse"]


def test_many_slices_are_not_many_chances_to_be_found_worse() -> None:
    """Holm's correction: of 300 challengers that differ from the champion by chance only, at most about 5 % have any slice named."""
    rng, named = np.random.default_rng(2), 0
    for _ in range(300):
        found: dict[str, Paired] = {}
        for at in range(20):
            kind = rng.choice(4, 50, p=[0.1, 0.1, 0.7, 0.1])
            found[str(at)] = compare(kind == 0, kind == 1)
        named += bool(worse_slices(found, 0.05))

    assert named <= 0.08 * 300


@pytest.mark.parametrize("weight", [3.0, None], ids=["equal weights", "different weights"])
@pytest.mark.parametrize("gains", [True, False], ids=["gains all", "loses all"])
def test_a_slice_that_changes_wholly_is_no_surprise(weight: float | None, gains: bool) -> None:
    """All wrong before and all right now: better and not worse, with a chance that is small and not zero; and the other way round."""
    wrong, right = np.zeros(30, bool), np.ones(30, bool)
    weights = np.full(30, weight) if weight is not None else np.linspace(1.0, 5.0, 30)
    found = compare(wrong, right, weights) if gains else compare(right, wrong, weights)
    better, worse = (found.p_better, found.p_worse) if gains else (found.p_worse, found.p_better)

    assert 0.0 < better < 1e-6
    assert worse > 0.5
    assert worse_slices({"new agent": found}, 0.05) == ([] if gains else ["new agent"])
