"""What champion and challenger are compared on: whose truth counts, and for how many."""

import numpy as np
import pyarrow as pa
import pytest

from optimizers.dataset import Row
from optimizers.label_model import FAILED, NONE, SUCCEEDED
from optimizers.observations import SCHEMA
from optimizers.paired import compare
from optimizers.routing_job import _without_own
from optimizers.trial import MOST_WEIGHT, golden_trial, hold, logged_trial

SERVES = {"gap_analysis": "gap_analyzer", "drift_check": "drift_monitor"}
PLAIN = {"session": 1, "at": 0, "asked": "gap_analyzer", "outcome": SUCCEEDED, "rating": NONE, "again": NONE, "router_version": "1"}


def observed(*rows: dict[str, object]) -> pa.Table:
    """Return observations, each of a text of its own unless said otherwise."""
    return pa.Table.from_pylist([{**PLAIN, "text": f"text {i}", **row} for i, row in enumerate(rows)], schema=SCHEMA)


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({}, ("gap_analyzer",)),
        ({"outcome": FAILED}, ()),
        ({"outcome": NONE}, ()),
        ({"outcome": FAILED, "corrected": "drift_monitor"}, ("drift_monitor",)),
        ({"corrected": "drift_monitor"}, ("drift_monitor",)),
        ({"outcome": NONE, "chosen": "drift_check"}, ("drift_monitor",)),
        ({"again": 1}, ()),
        ({"rating": 0}, ()),
        ({"rating": 4}, ("gap_analyzer",)),
    ],
    ids=["succeeded", "failed", "nothing known", "failed, corrected", "corrected", "chosen", "asked elsewhere", "disliked", "liked"],
)
def test_the_right_agent_is_what_somebody_said_or_the_one_that_succeeded(row: dict[str, object], right: tuple[str, ...]) -> None:
    """Of a failure nobody knows."""
    assert logged_trial(observed(row), SERVES).right == right


def test_who_reaches_the_right_agent_at_once_is_counted_apart() -> None:
    """A right choice that the user is asked about first is right, and not at once."""
    trial = golden_trial([Row(f"text {i}", "gap_analysis") for i in range(4)], SERVES)
    right = ["gap_analyzer"] * 3 + ["drift_monitor"]

    made = hold(trial, right, right, ([True, True, False, True], [True, False, False, True]))

    assert made.reached is not None
    assert (made.paired.champion, made.reached.champion, made.reached.challenger) == (0.75, 0.5, 0.25)
    assert hold(trial, right, right).reached is None


def test_a_corrected_failure_stands_for_those_that_nobody_corrected() -> None:
    """Two of eight failures are corrected: each counts four times; successes count once."""
    rows = [{}] * 10 + [{"outcome": FAILED}] * 6 + [{"outcome": FAILED, "corrected": "drift_monitor"}] * 2

    made = logged_trial(observed(*rows), SERVES)

    assert sorted(made.weight.tolist()) == [1.0] * 10 + [4.0] * 2


def test_what_was_refused_does_not_thin_the_failures_out() -> None:
    """A refused request that somebody corrected stands for as many as a failure does, and is none; a correction of a success is itself."""
    rows = [{"outcome": FAILED}] * 3 + [{"outcome": FAILED, "corrected": "drift_monitor"}]
    refused = {"asked": None, "outcome": NONE, "corrected": "drift_monitor"}

    made = logged_trial(observed(*rows, refused, refused, {"corrected": "drift_monitor"}), SERVES)

    assert made.weight.tolist() == [4.0, 4.0, 4.0, 1.0]


def test_what_a_router_was_fitted_on_is_no_trial_for_it() -> None:
    """By what makes texts equal."""
    made = golden_trial([Row("a gap", "gap_analysis"), Row("A drift", "drift_check")], SERVES)

    assert made.without({"a drift"}).texts == ("a gap",)


def test_no_request_stands_for_too_many() -> None:
    """One correction among hundreds of failures does not decide a trial."""
    rows = [{"outcome": FAILED}] * 300 + [{"outcome": FAILED, "corrected": "drift_monitor"}]

    assert logged_trial(observed(*rows), SERVES).weight.tolist() == [MOST_WEIGHT]


def test_of_equal_texts_the_one_that_somebody_spoke_of_counts() -> None:
    """Whichever came first."""
    said, granted = {"text": "Where ARE gaps", "corrected": "drift_monitor"}, {"text": "where are gaps"}

    for rows in ([said, granted], [granted, said]):
        assert logged_trial(observed(*rows), SERVES).right == ("drift_monitor",)


def test_golden_requests_count_once_each() -> None:
    """Out of scope is right with nobody."""
    made = golden_trial([Row("a gap", "gap_analysis"), Row("A  gap", "gap_analysis"), Row("hello", "oos")], SERVES)

    assert (made.texts, made.right, made.weight.tolist()) == (("a gap", "hello"), ("gap_analyzer", ""), [1.0, 1.0])


def test_weighted_tests_err_on_the_champions_side() -> None:
    """2,000 trials of two routers that are equally good: a tenth of the failures is known, each weighs ten; at most 2.5 % find a gain."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(2_000):
        kind = rng.choice(3, 600, p=[0.05, 0.05, 0.9])
        known = (kind != 0) | (rng.random(600) < 0.1)
        champion, challenger = kind[known] != 0, kind[known] != 1
        found += compare(champion, challenger, np.where(kind[known] == 0, 10.0, 1.0)).p_better <= 0.025

    assert found <= 0.025 * 2_000


def test_a_text_that_was_fitted_on_in_another_spelling_is_read_without_it() -> None:
    """Or the fit would judge what it was told."""
    held_out = {Row("Restart the mail server", "").key: "restart"}

    read = [_without_own({"restart": "operator"}, held_out, text, "fitted") for text in ("restart the  MAIL server", "restart it")]

    assert read == ["operator", "fitted"]
