"""History: follow-ups take their topic from what was said before, new topics do not, and nothing in a history can break a reading."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.student import fit
from service.routing.encoder import SHORT_CHARACTERS, Encoder
from service.routing.history import EVIDENCE, UTTERANCES, WEIGHTS, History, Said, Turns, evidence
from service.routing.label_free import packaged
from service.routing.student import Reading, Student
from tests.small_data import ROWS

GAP, HEALTH = "which regions lag their target", "did the nightly job fail"


@pytest.fixture(scope="module")
def student(encoder: Encoder) -> Student:
    """A student of two labels and out of scope."""
    return fit(ROWS, encoder).student


@pytest.fixture(scope="module")
def history() -> History:
    """With the packaged numbers."""
    return History()


def read(history: History, student: Student, text: str, *earlier: str) -> Reading:
    """Read a text after utterances; those that start with > were said by the system."""
    said = [Said(u.removeprefix(">"), not u.startswith(">")) for u in earlier]
    return history.read(student, student.encoder.encode(text), said)


def best(reading: Reading) -> str:
    """Return the best label."""
    return next(iter(reading.probabilities))


@pytest.mark.parametrize("text", ["and for the Midwest?", "yes please", "what about the other one?", "and last week?"])
@pytest.mark.parametrize(("before", "label"), [(GAP, "gap_analysis"), (HEALTH, "health_check")])
def test_a_follow_up_takes_its_topic_from_the_turn_before(history: History, student: Student, text: str, before: str, label: str) -> None:
    """Whatever its own few words look like."""
    assert best(read(history, student, text, before)) == label


@pytest.mark.parametrize(("before", "text", "label"), [(GAP, HEALTH, "health_check"), (HEALTH, GAP, "gap_analysis")])
def test_a_new_topic_switches(history: History, student: Student, before: str, text: str, label: str) -> None:
    """With an answer in between or without one."""
    assert best(read(history, student, text, before)) == label
    assert best(read(history, student, text, before, ">Here is what I found.")) == label


def test_a_follow_up_is_in_scope_where_the_turn_before_was(history: History, student: Student) -> None:
    """Not more than its own words say where that was out of scope too, and never less than alone."""
    alone = read(history, student, "and for the Midwest?").oos_score

    assert read(history, student, "and for the Midwest?", GAP).oos_score < 0.5 < alone
    assert read(history, student, "and for the Midwest?", "book me a flight").oos_score == pytest.approx(alone)


@pytest.mark.parametrize("text", ["tell me more", "go on", "more detail please"])
def test_what_asks_for_more_names_no_topic_of_its_own(history: History, student: Student, text: str) -> None:
    """Its few words lean to some label or other; the conversation's topic stands."""
    belief, after = read(history, student, GAP), read(history, student, text, GAP, ">The South is furthest below target.")

    assert best(after) == best(belief) == "gap_analysis"


def test_a_strange_new_topic_stays_out_of_scope(history: History, student: Student) -> None:
    """A history in scope lets nothing in that stands alone."""
    assert read(history, student, "what is the capital of France", GAP, ">Two regions do.").oos_score > 0.5


def test_what_was_out_of_scope_says_nothing_about_the_topic(history: History, student: Student) -> None:
    """A follow-up of a chat about the weather has no label."""
    after = read(history, student, "and tomorrow?", "write a poem about cats").probabilities

    assert max(after.values()) < 0.9


def test_without_a_history_the_text_is_read_alone(history: History, student: Student) -> None:
    """To the last bit; a history of empty utterances is none."""
    alone = student.read(GAP)

    for earlier in ((), ("", "  \n")):
        reading = read(history, student, GAP, *earlier)
        assert (reading.probabilities, reading.oos_score) == (alone.probabilities, alone.oos_score)


def test_only_the_latest_utterances_count(history: History, student: Student) -> None:
    """What lies further back changes nothing."""
    latest = (GAP, ">Two do.", "why?", ">Two reps left.")

    assert len(latest) == UTTERANCES
    assert (
        read(history, student, "and in June?", HEALTH, *latest).probabilities
        == read(history, student, "and in June?", *latest).probabilities
    )


def test_readings_are_the_same_alone_and_together(history: History, student: Student) -> None:
    """Conversations of several lengths in one call are read as if each were alone."""
    conversations = [[], [Said(GAP, True)], [Said(HEALTH, True), Said("All up.", False), Said("why?", True)]]
    encodings = [student.encoder.encode(t) for t in (GAP, "and for the Midwest?", "since when?")]

    together = history.read_all(student, encodings, conversations)

    for reading, encoding, earlier in zip(together, encodings, conversations, strict=True):
        assert list(reading.probabilities.values()) == pytest.approx(
            list(history.read(student, encoding, earlier).probabilities.values()), abs=0.01
        )


def test_no_conversation_gives_no_reading(history: History, student: Student) -> None:
    """An empty list is an answer."""
    assert history.read_all(student, [], []) == []


utterances = st.builds(Said, st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.booleans())


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60), earlier=st.lists(utterances, max_size=7))
def test_any_conversation_gives_a_distribution(history: History, student: Student, text: str, earlier: list[Said]) -> None:
    """Emoji, other scripts, control characters, turns in any order."""
    reading = history.read(student, student.encoder.encode(text), earlier)

    assert sum(reading.probabilities.values()) == pytest.approx(1.0)
    assert 0.0 <= reading.oos_score <= 1.0


def test_a_long_history_costs_no_more_than_its_beginning(history: History, student: Student) -> None:
    """An utterance of 100,000 characters is read as its first thousand are."""
    long = GAP + " and so on" * 10_000

    assert read(history, student, "why?", long).probabilities == read(history, student, "why?", long[:SHORT_CHARACTERS]).probabilities


def test_the_numbers_fit_the_code_and_the_packaged_encoder(history: History, encoder: Encoder) -> None:
    """As many weights as features; another encoder's vectors would mean something else."""
    learned = packaged()

    assert learned.move.shape == (len(WEIGHTS), len(EVIDENCE))
    assert np.isfinite(learned.move).all()
    assert history.reads(encoder)
    assert not History(replace(learned, encoder="another")).reads(encoder)


def test_evidence_is_every_kind_times_every_weight() -> None:
    """One conversation, two labels, by hand."""
    text, belief = np.array([[0.75, 0.25]]), np.array([[0.5, 0.5]])
    turns = Turns(text, np.array([[0.9, 0.1]]), np.array([0.3]), np.array([0.6]))

    found = evidence(turns, belief).reshape(2, len(WEIGHTS), len(EVIDENCE))

    weights = [1.0, 0.75, 0.6, 0.3, 0.5, 0.5, 0.9]
    assert found[0] == pytest.approx(np.outer(weights, [np.log(0.75), np.log(0.9), np.log(0.5), 0.5]))
    assert found[1] == pytest.approx(np.outer(weights, [np.log(0.25), np.log(0.1), np.log(0.5), 0.5]))
