"""What of the log can be replayed, and what came of it."""

from typing import Any

import pytest

from optimizers.label_model import FAILED, NONE, SUCCEEDED
from optimizers.replay_log import read_requests
from tests.unit.replayable import a_signal, batches, quiet

LEFT_OUT = {
    "no words": {"query": "??"},
    "a document": {"query": "word " * 1_000},
    "told by what was said before": {"from_history": True},
    "an offer that was accepted": {"asked": "check for drift"},
    "an answer to a question": {"asked": "check for drift", "rung": "rules"},
    "decided by a rule": {"rung": "rules"},
    "decided by the caller": {"rung": "caller"},
    "several wishes": {"further_intents": ["drift_check"]},
    "an answer that starts nothing": {"intent": "", "agents_selected": []},
}


@pytest.mark.parametrize(("reason", "fields"), LEFT_OUT.items(), ids=LEFT_OUT)
def test_what_no_text_decides_by_itself_is_left_out_and_counted(reason: str, fields: dict[str, Any]) -> None:
    """Also where somebody corrected it."""
    read = read_requests(batches(a_signal(**fields, corrected_agent="explainer"), a_signal()), 10, quiet)

    assert (len(read), read.left_out) == (1, {reason: 1})


OUTCOMES = {
    "it succeeded": ({}, SUCCEEDED),
    "it failed": ({"agents_succeeded": 0, "agents_failed": 1}, FAILED),
    "it was down": ({"agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1}, NONE),
    "it answered, and the user asked elsewhere": ({"was_rerouted": True}, FAILED),
    "it answered, and the user was unhappy": ({"user_satisfaction": 1.0}, FAILED),
    "it answered poorly, so the user was unhappy": ({"user_satisfaction": 1.0, "answer_quality": 0.1}, SUCCEEDED),
    "the user was happy": ({"user_satisfaction": 5.0}, SUCCEEDED),
}


@pytest.mark.parametrize(("fields", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_came_of_a_request(fields: dict[str, Any], outcome: int) -> None:
    """As the label model sees it."""
    read = read_requests(batches(a_signal(**fields)), 10, quiet)

    assert read.columns["outcome"].to_pylist() == [outcome]


def test_equal_texts_are_one_text_and_the_latest_requests_are_kept() -> None:
    """Of seven requests the last four, in two texts; the first ones' text is not held any more."""
    signals = [a_signal(text, user_id=f"u-{i}") for i, text in enumerate(["old", "old", "one", " two", "one", "two ", "one"])]

    read = read_requests(batches(*signals), 4, quiet)

    assert (read.found, len(read), read.texts.to_pylist(), read.text.tolist()) == (7, 4, ["two", "one"], [0, 1, 0, 1])
    assert read.writers(1) == {"u-4", "u-6", "s-1"}


def test_an_agents_latency_is_the_mean_of_what_it_did_alone() -> None:
    """Also for requests that cannot be replayed; not where it was down, or worked beside others."""
    read = read_requests(
        batches(
            a_signal(total_latency_ms=100.0),
            a_signal(total_latency_ms=300.0, rung="rules"),
            a_signal(total_latency_ms=9e9, agents_unavailable=1, agents_succeeded=0, agents_failed=1),
            a_signal(total_latency_ms=9e9, agents_selected=["gap_analyzer", "explainer"]),
        ),
        10,
        quiet,
    )

    assert read.latency_ms == {"gap_analyzer": 200.0}


def test_an_empty_log_is_read() -> None:
    """There is nothing in it."""
    read = read_requests(batches(), 10, quiet)

    assert (len(read), len(read.texts), read.found, read.left_out) == (0, 0, 0, {})
