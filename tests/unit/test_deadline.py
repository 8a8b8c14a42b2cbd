"""A deadline is a point in time that is handed down and never extended."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.deadline import Deadline

seconds = st.floats(-10.0, 1_000.0)


@given(whole=seconds, part=seconds)
def test_a_part_never_outlasts_the_whole(whole: float, part: float) -> None:
    """`within` takes the earlier of the two."""
    deadline = Deadline.after(whole)

    inner = deadline.within(part)

    assert inner.at <= deadline.at
    assert inner.left <= max(0.0, part)


@given(whole=seconds)
def test_what_is_left_is_never_negative(whole: float) -> None:
    """A deadline that has passed leaves nothing."""
    assert 0.0 <= Deadline.after(whole).left <= max(0.0, whole)


def test_time_runs() -> None:
    """What is left shrinks as time passes."""
    deadline = Deadline.after(1.0)
    before = deadline.left

    time.sleep(0.01)

    assert deadline.left == pytest.approx(before - 0.01, abs=0.05)
    assert deadline.left < before
