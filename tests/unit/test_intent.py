"""Reading the intent joins what the student reads with what the caller says, as evidence of the right weight."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.dataset import Row
from optimizers.student import fit
from service.catalog.loader import load_catalog
from service.contracts.query import ConversationTurn
from service.programs import Router
from service.routing.encoder import Encoder
from service.routing.entities import Gazetteer
from service.routing.history import History
from service.routing.label_free import packaged
from service.stages.intent import AMBIGUOUS_CALLER, EXAMPLES, TRUSTED_CALLER, ReadIntent, Understanding, weigh_caller, weigh_scope
from service.stages.triage import Triage
from tests.unit.turns import a_request, a_router, admitted

CATALOG = load_catalog()
TRIAGE = Triage(catalog=CATALOG, gazetteer=Gazetteer(CATALOG))
Read = Callable[..., Understanding]


@pytest.fixture(scope="module")
def quick(encoder: Encoder, some_rows: list[Row]) -> Router:
    """A router that is fitted in a second: what is tested here is not how well it reads."""
    return Router("quick", fit(some_rows[::4], encoder).student, a_router().policy)


@pytest.fixture
def read(quick: Router) -> Read:
    """What is understood of a request: by the fitted router, or the one given."""

    def _read(text: str = "Did the rep visits lift Kisqali TRx?", *, router: Router | None = quick, **fields: Any) -> Understanding:
        return ReadIntent(History())(TRIAGE(a_request(text, **fields)), router)

    return _read


@st.composite
def readings(draw: st.DrawFn) -> dict[str, float]:
    """Draw probabilities of 2 to 12 intents, summing to 1, best first."""
    weights = draw(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12))
    shares = sorted((w / sum(weights) for w in weights), reverse=True)
    return {f"intent_{i:02}": share for i, share in enumerate(shares)}


@given(reading=readings(), pick=st.integers(0, 11), confidence=st.floats(0.0, 1.0))
def test_weighing_keeps_the_intents_and_sums_to_one_best_first(reading: dict[str, float], pick: int, confidence: float) -> None:
    """Joining evidence yields a distribution over the same intents."""
    intent = list(reading)[pick % len(reading)]

    joined = weigh_caller(reading, intent, confidence)

    assert joined.keys() == reading.keys()
    assert sum(joined.values()) == pytest.approx(1.0)
    assert list(joined.values()) == sorted(joined.values(), reverse=True)


@given(reading=readings(), pick=st.integers(0, 11))
def test_a_caller_at_chance_level_says_nothing(reading: dict[str, float], pick: int) -> None:
    """Confidence 1 / n leaves the student's reading as it is."""
    intent = list(reading)[pick % len(reading)]

    assert weigh_caller(reading, intent, 1.0 / len(reading)) == pytest.approx(reading)


@given(reading=readings(), pick=st.integers(0, 11), low=st.floats(0.0, 1.0), high=st.floats(0.0, 1.0))
def test_a_surer_caller_never_lowers_its_intent(reading: dict[str, float], pick: int, low: float, high: float) -> None:
    """The intent's probability grows with the caller's confidence."""
    intent = list(reading)[pick % len(reading)]
    low, high = sorted((low, high))

    assert weigh_caller(reading, intent, low)[intent] <= weigh_caller(reading, intent, high)[intent] + 1e-12


@given(reading=readings(), pick=st.integers(0, 11), confidence=st.floats(0.0, 1.0))
def test_the_caller_changes_nothing_between_the_other_intents(reading: dict[str, float], pick: int, confidence: float) -> None:
    """The ratio of any two other intents stays what the student read."""
    intent = list(reading)[pick % len(reading)]
    others = [name for name in reading if name != intent]

    joined = weigh_caller(reading, intent, confidence)

    for a, b in pairwise(others):
        assert joined[a] * reading[b] == pytest.approx(joined[b] * reading[a])


@given(reading=readings(), confidence=st.floats(0.0, 1.0))
def test_an_intent_that_the_student_does_not_know_changes_nothing(reading: dict[str, float], confidence: float) -> None:
    """Evidence for something outside of the reading cannot tell its intents apart."""
    assert weigh_caller(reading, "unheard_of", confidence) == pytest.approx(reading)


def test_a_certain_caller_does_not_erase_what_the_student_reads() -> None:
    """Certainty is capped, so that one wrong caller cannot force an answer by claiming 1.0."""
    joined = weigh_caller({"a": 0.999, "b": 0.001}, "b", 1.0)

    assert 0.0 < joined["b"] < 0.5 < joined["a"]


def test_probabilities_of_zero_stay_as_they_are() -> None:
    """Nothing can be learned where the student excludes everything."""
    assert weigh_caller({"a": 0.0, "b": 0.0}, "a", 0.9) == {"a": 0.0, "b": 0.0}


CALLERS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "no intent": ({}, False, False),
    "trusted": ({"intent": "prediction", "confidence": 0.9}, True, False),
    "just trusted": ({"intent": "prediction", "confidence": TRUSTED_CALLER}, True, False),
    "not trusted": ({"intent": "prediction", "confidence": 0.69}, False, True),
    "flagged ambiguous": ({"intent": "prediction", "confidence": 0.99, "ambiguity_flag": True}, False, True),
    "unknown intent": ({"intent": "astrology", "confidence": 0.1}, True, False),
    "forced student": ({"intent": "prediction", "confidence": 0.99, "preferences": {"rung": "student"}}, False, False),
    "forced lm": ({"intent": "prediction", "confidence": 0.3, "preferences": {"rung": "lm"}}, False, False),
    "forced rung, unknown intent": ({"intent": "astrology", "preferences": {"rung": "student"}}, False, False),
}


@pytest.mark.parametrize(("fields", "decides", "weighs"), CALLERS.values(), ids=CALLERS)
def test_the_caller_decides_weighs_or_is_left_out(read: Read, fields: dict[str, Any], decides: bool, weighs: bool) -> None:
    """Confident and unflagged: taken. Unsure or ambiguous: weighed. A forced rung: left out."""
    alone = read()

    understood = read(**fields)

    assert understood.caller_decides is decides
    if decides:  # the text is in one piece, so no reading could add to it
        known = fields["intent"] if fields["intent"] in CATALOG.intent else CATALOG.fallback_intent
        assert [(c.intent, c.probability) for c in understood.candidates] == [(known, fields["confidence"])]
        return
    assert (understood.candidates != alone.candidates) is weighs
    if weighs:
        before, after = ({c.intent: c.probability for c in u.candidates} for u in (alone, understood))
        assert after["prediction"] > before["prediction"]


OVERLOOKED: dict[str, tuple[str, list[dict[str, str]]]] = {
    "several clauses": ("Check the model for drift and then forecast TRx for Kisqali", []),
    "a negation": ("Do not retrain the model, forecast TRx for Kisqali", []),
    "a follow-up": ("and for the Midwest?", [{"role": "user", "content": "Forecast TRx for Kisqali"}]),
}


@pytest.mark.parametrize(("text", "history"), OVERLOOKED.values(), ids=OVERLOOKED)
def test_what_a_trusted_caller_may_have_overlooked_is_read(read: Read, text: str, history: list[dict[str, str]]) -> None:
    """Several clauses can ask for several things, and a follow-up takes over entities; the caller's intent stands all the same."""
    understood = read(text, intent="prediction", confidence=0.9, history=history)

    assert understood.caller_decides
    assert len(understood.candidates) > 1


def test_an_ambiguous_intent_weighs_no_more_than_half_sure(read: Read) -> None:
    """However confident a caller is, its own doubt caps what its intent counts."""
    flagged = read(intent="prediction", confidence=0.99, ambiguity_flag=True)
    unsure = read(intent="prediction", confidence=AMBIGUOUS_CALLER)

    assert flagged.candidates == unsure.candidates


def test_an_ambiguous_intent_of_little_confidence_weighs_that_little(read: Read) -> None:
    """The cap is an upper bound, not a value."""
    flagged = read(intent="prediction", confidence=0.2, ambiguity_flag=True)
    unsure = read(intent="prediction", confidence=0.2)

    assert flagged.candidates == unsure.candidates


def test_the_reading_names_every_intent_and_the_nearest_examples(read: Read) -> None:
    """Candidates are the catalogue's intents, best first; examples are in scope."""
    understood = read()

    probabilities = [c.probability for c in understood.candidates]
    assert {c.intent for c in understood.candidates} == set(CATALOG.intent)
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1.0)
    assert len(understood.examples()) == EXAMPLES
    assert all(e.label in CATALOG.intent for e in understood.examples())
    assert [e.value for e in understood.entities] == ["Kisqali", "TRx"]


@pytest.mark.parametrize("text", ["hello", "?!"])
def test_what_the_rules_answer_is_not_read(read: Read, text: str) -> None:
    """No model runs for a greeting or an empty text."""
    understood = read(text)

    assert (understood.candidates, understood.examples(), understood.oos_score) == ((), (), 0.0)


def test_without_a_router_only_the_caller_speaks(read: Read) -> None:
    """The caller's intent is the one candidate, with the caller's confidence."""
    understood = read(router=None, intent="prediction", confidence=0.4)

    assert [(c.intent, c.probability) for c in understood.candidates] == [("prediction", 0.4)]
    assert not understood.caller_decides
    assert read(router=None).candidates == ()


@given(score=st.floats(0.0, 1.0), confidence=st.floats(0.0, 1.0))
def test_a_callers_intent_can_only_speak_for_being_in_scope(score: float, confidence: float) -> None:
    """Up to even confidence it says nothing; above, the score falls and stays a probability."""
    weighed = weigh_scope(score, confidence)

    assert 0.0 <= weighed <= score + 1e-12
    assert confidence > 0.5 or weighed == pytest.approx(score)


def test_a_follow_up_is_read_after_the_conversation(read: Read) -> None:
    """System messages are said to no one; an empty history is none."""
    gap, system = {"role": "user", "content": "where is the largest gap to target"}, {"role": "system", "content": "Be brief."}

    followed = read("and for the Midwest?", history=[gap, system])

    assert (followed.intents[:1], followed.in_context) == (("gap_analysis",), True)
    assert not read("and for the Midwest?", history=[system]).in_context
    assert not read("and for the Midwest?", history=[{"role": "user", "content": "  "}]).in_context


def test_a_history_of_another_encoder_is_not_read(quick: Router) -> None:
    """The numbers mean something for the vectors that they were learned on only."""
    other = History(replace(packaged(), encoder="another"))
    admitted = TRIAGE(a_request("and for the Midwest?", history=[{"role": "user", "content": "Where are the gaps?"}]))

    assert not ReadIntent(other)(admitted, quick).in_context


def test_an_intent_without_examples_is_read_but_marked(quick: Router, read: Read) -> None:
    """From its description."""
    words = {**CATALOG.words, "weather": ("Weather forecasts: rain, wind and temperature in a city",)}

    found = read("will it rain in Oslo tomorrow", router=replace(quick, student=quick.student.knowing(words)))

    assert (found.intents, found.described) == (("weather",), ("weather",))
    assert read("Where are we below our potential for Kisqali?").described == ()


BEFORE = (ConversationTurn(content="hi"), ConversationTurn(content="train a churn model without rep_id"))
ASKED = ConversationTurn(role="assistant", content="Do you want to train or retrain a model?")


def test_a_yes_to_the_services_own_question_carries_out_the_request_before_it() -> None:
    """What the agent is told is what the user asked for, with all its details, not "yes"."""
    understanding = ReadIntent(History())(admitted(text="yes", history=(*BEFORE, ASKED), chosen="ml_training"), None)

    assert (understanding.chosen, understanding.asked) == ("ml_training", "train a churn model without rep_id")


@pytest.mark.parametrize("history", [(), (ASKED,)], ids=["nothing said", "the assistant alone"])
def test_where_nothing_was_asked_before_there_is_nothing_else_to_carry_out(history: tuple[ConversationTurn, ...]) -> None:
    """The choice stands by itself."""
    assert ReadIntent(History())(admitted(text="yes", history=history, chosen="ml_training"), None).asked is None
