"""Hearing: what a text means in its conversation."""

from dataclasses import replace

import pytest

from optimizers.student import fit
from service.routing.encoder import Encoder
from service.routing.hearing import Heard, hear
from service.routing.history import History, Said
from service.routing.label_free import packaged
from service.routing.policy import Policy
from service.routing.replies import Reply
from service.routing.student import Student
from tests.small_data import ROWS

POLICY = Policy(refuse_above=0.5, act_above=0.9, clarify_below=0.5, accepted_in_scope=0.95, risk_target=0.02, coverage=0.8)
GAP, HEALTH = "which regions lag their target", "did the nightly job fail"
OFFER = "All is well. Shall I find out which regions lag their target?"


@pytest.fixture(scope="module")
def student(encoder: Encoder) -> Student:
    """A student of two labels and out of scope."""
    return fit(ROWS, encoder).student


def heard(student: Student, text: str, *earlier: str, offered: tuple[str, ...] = (), history: History | None = None) -> Heard:
    """Hear a text after utterances; those that start with > were said by the assistant."""
    said = [Said(u.removeprefix(">"), not u.startswith(">")) for u in earlier]
    return hear(text, said, offered, student=student, history=history or History(), policy=POLICY)


@pytest.mark.parametrize(("text", "reply"), [("no, leave it", Reply.DISMISSES), ("thanks a lot", Reply.THANKS)])
@pytest.mark.parametrize("earlier", [(), (GAP, f">{OFFER}")], ids=["at first", "after an offer"])
def test_what_dismisses_or_thanks_takes_nothing_from_the_history(
    student: Student, text: str, reply: Reply, earlier: tuple[str, ...]
) -> None:
    """It is read as if nothing had been said before."""
    made = heard(student, text, *earlier)

    assert (made.reply, made.in_context, made.chosen) == (reply, False, None)
    assert made.reading == made.alone


def test_an_accepted_offer_is_read_in_place_of_the_yes(student: Student) -> None:
    """Though the turn before was about something else."""
    made = heard(student, "yes please do", HEALTH, f">{OFFER}")

    assert made.text == "find out which regions lag their target?"
    assert next(iter(made.reading.probabilities)) == "gap_analysis"
    assert not made.says("gap_analysis", POLICY), "the user's own words do not"
    assert (made.reply, made.in_context, made.leans) == (Reply.SAYS, True, True)


def test_one_intent_that_was_asked_about_is_chosen_by_a_yes(student: Student) -> None:
    """The service's own question."""
    assert heard(student, "yes please", GAP, ">Do you want to x?", offered=("gap_analysis",)).chosen == "gap_analysis"


@pytest.mark.parametrize(
    ("earlier", "offered"), [((), ()), ((GAP,), ()), ((GAP, ">Do you want to x; or y?"), ("gap_analysis", "health_check"))]
)
def test_a_yes_to_nothing_or_to_several_chooses_nothing(student: Student, earlier: tuple[str, ...], offered: tuple[str, ...]) -> None:
    """It is left to be asked about."""
    made = heard(student, "yes please", *earlier, offered=offered)

    assert (made.reply, made.chosen, made.in_context) == (Reply.ACCEPTS, None, False)


def test_a_number_is_no_yes(student: Student) -> None:
    """To a question without options."""
    assert heard(student, "1", HEALTH, f">{OFFER}").text == "1"


def test_a_follow_up_does_not_say_its_intent_itself(student: Student) -> None:
    """What was said before does; a request of its own does say it."""
    follow_up, request = heard(student, "and for the Midwest?", GAP), heard(student, HEALTH, GAP)

    assert follow_up.in_context
    assert follow_up.leans
    assert not follow_up.says("gap_analysis", POLICY)
    assert request.says("health_check", POLICY)


@pytest.mark.parametrize("text", ["tell me more", "more detail please"])
def test_what_asks_for_more_depends_on_what_was_said(student: Student, text: str) -> None:
    """So the entities of the turn before go with it."""
    assert heard(student, text, GAP, ">The South is furthest below.").leans


def test_with_numbers_of_another_encoder_each_text_is_read_alone(student: Student) -> None:
    """Neither history nor answers can be told from its vectors."""
    foreign = History(replace(packaged(), encoder="another"))

    made = heard(student, "no", GAP, f">{OFFER}", history=foreign)

    assert (made.reply, made.in_context) == (Reply.SAYS, False)
    assert made.reading == made.alone
