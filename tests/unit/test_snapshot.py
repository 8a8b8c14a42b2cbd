"""The dataset: what each signal teaches, and that nothing is learned from what it is tested on."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.dataset import Row
from optimizers.label_model import FAILED, NONE, SUCCEEDED
from optimizers.observations import observe, outcome_of, session_key, why_not
from optimizers.scrub import Scrubber
from optimizers.snapshot import SPLITS, TEST, TRAIN, VALIDATION, Snapshot, assign, build_snapshot, keys_of
from optimizers.trial import logged_trial
from service.adapters.signal_log import schema

START = datetime(2026, 3, 1, tzinfo=UTC)
A_SIGNAL: dict[str, Any] = {
    "created_at": START, "signal_id": "i", "decision_id": "d", "tenant": "acme", "user_id": "u-17", "session_id": "s-1",
    "query": "where are the gaps of Kisqali", "asked": None, "intent": "gap_analysis", "caller_intent": None, "corrected_agent": None,
    "rung": "student", "router_version": "1", "agents_selected": ["gap_analyzer"], "further_intents": [], "agents_succeeded": 1,
    "agents_failed": 0, "agents_unavailable": 0, "routing_confidence": 0.9, "propensity": 1.0, "total_latency_ms": 5.0,
    "latency_budget_ms": 100.0, "user_satisfaction": None, "answer_quality": None, "reward": 0.9, "was_rerouted": False,
    "from_history": False,
}  # fmt: skip


def a_batch(*signals: dict[str, Any]) -> pa.RecordBatch:
    """Return signals as the store yields them."""
    return pa.RecordBatch.from_pylist([{**A_SIGNAL, **signal} for signal in signals], schema=schema())


def build(*signals: dict[str, Any], labelled: tuple[Row, ...] = (), golden: frozenset[str] = frozenset()) -> Snapshot:
    """Build a dataset of signals."""
    scrub = Scrubber()
    return build_snapshot(observe([a_batch(*signals)], scrub), labelled, golden, scrub)


OUTCOMES: dict[str, tuple[dict[str, Any], int]] = {
    "answered": ({}, SUCCEEDED),
    "failed": ({"agents_succeeded": 0, "agents_failed": 1, "was_rerouted": True}, FAILED),
    "down": ({"agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1, "was_rerouted": None}, NONE),
    "never dispatched": ({"agents_selected": [], "agents_succeeded": 0, "was_rerouted": None}, NONE),
    "the first of two answered": ({"agents_selected": ["a", "b"], "agents_failed": 1}, SUCCEEDED),
    "the second of two answered": ({"agents_selected": ["a", "b"], "agents_failed": 1, "was_rerouted": True}, FAILED),
}


@pytest.mark.parametrize(("signal", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcome_is_that_of_the_chosen_agent(signal: dict[str, Any], outcome: int) -> None:
    """Who was down leaves none."""
    assert outcome_of({**A_SIGNAL, **signal}) == outcome


TEACHES_NOTHING: dict[str, dict[str, Any]] = {
    "no words": {"query": " ?! "},
    "a document": {"query": "word " * 500},
    "told by what was said before": {"from_history": True},
    "an offer that was accepted": {"asked": "Shall I check for drift?"},
    "several wishes": {"further_intents": ["drift_check"]},
    "decided by a rule": {"rung": "rules"},
    "nothing observed": {"agents_selected": [], "agents_succeeded": 0, "was_rerouted": None},
}


@pytest.mark.parametrize(("reason", "signal"), TEACHES_NOTHING.items(), ids=TEACHES_NOTHING)
def test_what_teaches_nothing_is_left_out_and_counted(reason: str, signal: dict[str, Any]) -> None:
    """Under its reason; and nothing else is."""
    made = build({}, signal)

    assert why_not({**A_SIGNAL, **signal}) == reason
    assert (made.observations.num_rows, made.left_out) == (1, {reason: 1})


def test_a_correction_teaches_even_where_a_rule_decided() -> None:
    """It says what would have been right, whoever chose."""
    made = build({"rung": "rules", "corrected_agent": "drift_monitor", "was_rerouted": True})

    assert made.observations["corrected"].to_pylist() == ["drift_monitor"]
    assert made.observations["again"].to_pylist() == [NONE]  # the correction says it already


def test_a_choice_of_several_teaches_the_request_before_it() -> None:
    """The text "2" says nothing by itself."""
    made = build({"query": "2", "asked": "what about Kisqali", "rung": "rules"})

    assert made.observations.select(["text", "chosen"]).to_pylist() == [{"text": "what about Kisqali", "chosen": "gap_analysis"}]


@pytest.mark.parametrize(("said", "rating"), [((5.0, None), 4), ((1.0, None), 0), ((1.0, 0.9), 0), ((1.0, 0.1), NONE), ((None, 0.1), NONE)])
def test_a_poor_answer_takes_the_blame_off_the_choice(said: tuple[float | None, float | None], rating: int) -> None:
    """A low rating counts against the choice only where the answer itself was not judged to be poor."""
    made = build({"user_satisfaction": said[0], "answer_quality": said[1]})

    assert made.observations["rating"].to_pylist() == [rating]


def test_only_what_a_person_says_of_rerouting_is_an_observation_of_its_own() -> None:
    """The service writes down by itself that a failed agent's request was rerouted."""
    failed = {"agents_succeeded": 0, "agents_failed": 1}

    made = build({}, {"was_rerouted": True}, {**failed, "was_rerouted": True}, {**failed, "was_rerouted": False})

    assert made.observations["again"].to_pylist() == [NONE, 1, NONE, 0]


def test_personal_data_and_the_writers_ids_do_not_get_in() -> None:
    """And the manifest says how many were taken out."""
    made = build({"query": "mail jane@acme.com the gaps of rep u-17"})

    assert made.observations["text"].to_pylist() == ["mail [EMAIL] the gaps of rep [ID]"]
    assert made.manifest()["personal_data_replaced"] == 2
    assert "s-1" not in str(made.observations.to_pylist())


def test_golden_requests_are_never_learned_from() -> None:
    """Whatever their case and spaces; and what is labelled already needs no observation."""
    golden, seed = Row("Where are the GAPS  of kisqali", "gap_analysis"), Row("is there drift", "drift_check")

    made = build({}, {"query": "Is there drift"}, {"query": "other"}, labelled=(seed,), golden=frozenset({golden.key}))

    assert made.observations["text"].to_pylist() == ["other"]
    assert made.left_out == {"a golden request": 1, "labelled already": 1}


observations = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=0, max_size=120)


@given(observations)
def test_no_text_and_no_session_sits_in_two_splits(pairs: list[tuple[int, int]]) -> None:
    """However texts and sessions are tangled."""
    text = np.array([t for t, _ in pairs], np.int64)
    session = np.array([session_key("acme", str(s)) for _, s in pairs], np.uint64)

    split, left_out = assign(text, session, np.arange(len(pairs)))

    for of in (text, session):
        places: dict[int, set[int]] = {}
        for name, place in zip(of[~left_out].tolist(), split[~left_out].tolist(), strict=True):
            places.setdefault(name, set()).add(place)
        assert all(len(found) == 1 for found in places.values())


@given(observations, observations)
def test_a_test_stays_a_test_when_more_comes(pairs: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    """And what was trained on never becomes a test."""

    def tests(upto: int) -> tuple[set[int], set[int]]:
        every = (pairs + more)[:upto]
        text = np.array([t for t, _ in every], np.int64)
        session = np.array([session_key("acme", str(s)) for _, s in every], np.uint64)
        split, left_out = assign(text, session, np.arange(upto))
        return set(text[~left_out & (split == TEST)].tolist()), set(text[~left_out & (split != TEST)].tolist())

    earlier, later = tests(len(pairs)), tests(len(pairs) + len(more))

    assert earlier[0] <= later[0]
    assert earlier[1] <= later[1]


def test_the_splits_have_the_sizes_that_they_should() -> None:
    """15 % test, and of the rest the newest tenth validation."""
    session = np.array([session_key("acme", f"s{i}") for i in range(4_000)], np.uint64)

    split, _ = assign(np.arange(4_000), session, np.arange(4_000))

    shares = Counter(split.tolist())
    assert shares[TEST] == pytest.approx(600, abs=80)
    assert shares[VALIDATION] == pytest.approx(340, abs=20)
    assert np.flatnonzero(split == VALIDATION).min() > np.median(np.flatnonzero(split == TRAIN))


def test_the_digest_is_of_the_content_and_not_of_its_order(tmp_path: Path) -> None:
    """Another text is another dataset; what is written can be read again."""
    signals = [{"query": f"question {i}", "session_id": f"s{i}", "created_at": START + timedelta(minutes=i)} for i in range(30)]
    made, shuffled, other = build(*signals), build(*signals[::-1]), build(*signals[1:])

    manifest = made.write(tmp_path / "data")

    assert made.digest == made.digest == manifest["sha256"]
    assert Counter(made.observations["text"].to_pylist()) == Counter(shuffled.observations["text"].to_pylist())
    assert made.digest != other.digest
    assert pq.read_table(tmp_path / "data/observations.parquet").equals(made.observations)
    assert sum(manifest["observations"][name] for name in SPLITS) == 30  # type: ignore[index, call-overload]


def test_a_log_that_teaches_nothing_is_a_dataset_without_observations() -> None:
    """A whole batch of such signals is no error: a log begins like that."""
    made = build({"rung": "rules"}, {"from_history": True})

    assert (made.observations.num_rows, sum(made.left_out.values())) == (0, 2)
    assert made.manifest()["sessions"] == 0


def test_an_empty_log_is_a_dataset_of_labelled_requests() -> None:
    """The first run has no signals yet."""
    made = build_snapshot([], (Row("is there drift", "drift_check"),), frozenset(), Scrubber())

    assert made.observations.num_rows == 0
    assert made.manifest()["labelled"] == 1


def test_what_was_received_is_learned_from_and_is_no_evidence() -> None:
    """Whoever brings signals of their own decides neither what a correction stands for nor what a challenger would earn."""
    scrub = Scrubber()
    own = [{"query": f"own {i}", "session_id": f"s-{i}", "agents_succeeded": 0, "agents_failed": 1} for i in range(4)]
    own[0]["corrected_agent"] = own[1]["corrected_agent"] = "drift_monitor"
    foreign = [{**one, "query": f"foreign {i}", "session_id": f"f-{i}", "propensity": 0.1} for i, one in enumerate([own[3]] * 90)]
    observed = [*observe([a_batch(*own)], scrub), *observe([a_batch(*foreign)], scrub, received=True)]

    made = build_snapshot(observed, (), frozenset(), scrub)
    trial = logged_trial(made.witnessed, {"gap_analysis": "gap_analyzer"})

    assert (made.observations.num_rows, made.witnessed.num_rows) == (94, 4)
    assert trial.weight.tolist() == [2.0, 2.0]
    assert set(made.witnessed["propensity"].to_pylist()) == {1.0}


def test_a_golden_request_with_personal_data_is_held_back_too() -> None:
    """The log shows it scrubbed, and so does the dataset; labelled requests likewise."""
    golden, told = "forward this to anna@example.com please", Row("Ask Dr. Bianchi about drift", "drift_check")

    made = build({"query": golden}, {"query": told.text, "session_id": "s-2"}, labelled=(told,), golden=keys_of([golden]))

    assert made.left_out == {"a golden request": 1, "labelled already": 1}
    assert made.observations.num_rows == 0
