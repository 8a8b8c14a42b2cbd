"""Triage repairs what the validation table repairs, warns of it, and recognizes what needs no model."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.routing.entities import Gazetteer
from service.routing.replies import ask
from service.stages.triage import MAX_ENTITIES, Triage
from tests.unit.turns import a_request

CATALOG = load_catalog()
TRIAGE = Triage(catalog=CATALOG, gazetteer=Gazetteer(CATALOG))

REPAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str | None]]]] = {
    "nothing to repair": ({"intent": "prediction", "confidence": 0.4}, {"caller_intent": "prediction", "caller_confidence": 0.4}, []),
    "no intent": ({}, {"caller_intent": None, "unknown_intent": False}, []),
    "intent unknown": (
        {"intent": "astrology"},
        {"caller_intent": "explanation", "unknown_intent": True},
        [("unknown_intent", "parsed_query.intent")],
    ),
    "intent in another case is unknown": (
        {"intent": "Prediction"},
        {"caller_intent": "explanation", "unknown_intent": True},
        [("unknown_intent", "parsed_query.intent")],
    ),
    "confidence above one": ({"confidence": 1.2}, {"caller_confidence": 1.0}, [("confidence_clamped", "parsed_query.confidence")]),
    "confidence below zero": ({"confidence": -3}, {"caller_confidence": 0.0}, [("confidence_clamped", "parsed_query.confidence")]),
    "confidence at the bounds": ({"confidence": 0}, {"caller_confidence": 0.0}, []),
    "entity's confidence": (
        {"entities": [{"type": "kpi", "value": "TRx"}, {"type": "kpi", "value": "NRx", "confidence": 7}]},
        {},
        [("confidence_clamped", "parsed_query.entities[1].confidence")],
    ),
    "twenty entities": ({"entities": [{"type": "kpi", "value": str(i)} for i in range(20)]}, {}, []),
    "too many entities": (
        {"entities": [{"type": "kpi", "value": str(i)} for i in range(21)]},
        {},
        [("entities_truncated", "parsed_query.entities")],
    ),
    "flagged ambiguous": ({"intent": "prediction", "ambiguity_flag": True}, {"caller_intent": "prediction", "ambiguous": True}, []),
}


@pytest.mark.parametrize(("parsed", "fields", "warnings"), REPAIRS.values(), ids=REPAIRS)
def test_what_breaks_the_validation_table_is_repaired_and_reported(
    parsed: dict[str, Any], fields: dict[str, Any], warnings: list[tuple[str, str | None]]
) -> None:
    """Each repair has one warning that names the field; what is in order has none."""
    admitted = TRIAGE(a_request(**parsed))

    assert {name: getattr(admitted, name) for name in fields} == fields
    assert [(w.code, w.field) for w in admitted.warnings] == warnings


def test_the_first_twenty_entities_are_kept_in_their_order() -> None:
    """Truncation drops the tail, and clamps what it keeps."""
    names = [f"brand {i}" for i in range(MAX_ENTITIES + 5)]

    admitted = TRIAGE(a_request(entities=[{"type": "brand", "value": n, "confidence": 2.0} for n in names]))

    assert [e.value for e in admitted.entities] == names[:MAX_ENTITIES]
    assert {e.confidence for e in admitted.entities} == {1.0}


def test_absent_entities_are_found_in_the_text() -> None:
    """A caller without a language layer gets the gazetteer's."""
    admitted = TRIAGE(a_request("Did the rep visits lift Kisqali TRx?"))

    assert [(e.type.value, e.value) for e in admitted.entities] == [("brand", "Kisqali"), ("kpi", "TRx")]


def test_an_empty_list_of_entities_is_taken_at_its_word() -> None:
    """The caller looked and found none; nothing is added."""
    admitted = TRIAGE(a_request("Did the rep visits lift Kisqali TRx?", entities=[]))

    assert admitted.entities == ()


@pytest.mark.parametrize(
    "text",
    [
        "hi",
        "Hello!",
        "  Good morning everyone  ",
        "good afternoon, team",
        "thanks",
        "Thank you so much!!",
        "thx again",
        "ok great, thanks a lot for the help",
        "bye",
        "Hi 👋",
        "GOODBYE ALL",
        "Ok.",
    ],
)
def test_greeting_thanks_and_farewell_are_social(text: str) -> None:
    """They need no agent."""
    assert TRIAGE(a_request(text)).social


@pytest.mark.parametrize(
    "text",
    [
        "ok so why did TRx drop",
        "thanks, now show the gap",
        "hi, who responds best to samples?",
        "good",
        "you",
        "thanks 3",
        "ok Q3",
        "hello hello hello hello hello hello hello hello hello",
        "thanksgiving",
        "hi-fi",
        "great, great effect",
        "привет",
        "你好",
        "",
        "???",
        "thanks " * 20,
    ],
)
def test_a_question_behind_a_greeting_is_not_social(text: str) -> None:
    """A look-alike is routed: swallowing a question costs more than routing a greeting."""
    assert not TRIAGE(a_request(text)).social


@pytest.mark.parametrize(
    ("text", "empty"),
    [(text, True) for text in ("", " \n\t ", "?!…", "🙂🙂", "\u200b\ufeff")] + [(text, False) for text in ("a", "7", "全部", "٣")],
)
def test_a_text_without_letter_or_digit_is_empty(text: str, empty: bool) -> None:
    """Letters and digits of every script count."""
    assert TRIAGE(a_request(text)).empty is empty


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("@explainer what is TRx?", "explainer"),
        ("  @explainer: what is TRx?", "explainer"),
        ("@explainer, what is TRx?", "explainer"),
        ("@Gap_Analyzer where?", "gap_analyzer"),
        ("@explainer", "explainer"),
        ("@explainer\nwhat is TRx?", "explainer"),
        ("ask @explainer what TRx is", None),
        ("explainer what is TRx?", None),
        ("@explainer.com is down", None),
        ("@@explainer hello there", None),
        ("@ explainer", None),
    ],
)
def test_a_leading_at_sign_names_the_agent(text: str, agent: str | None) -> None:
    """Only at the start, only as a whole word, in any case of letters."""
    admitted = TRIAGE(a_request(text))

    assert admitted.explicit_agent == agent
    assert admitted.warnings == ()


@pytest.mark.parametrize("text", ["@oracle what is TRx?", "@template hello", "@orchestrator hi"])
def test_an_unknown_agent_is_reported_and_the_text_routed(text: str) -> None:
    """A name is never guessed."""
    admitted = TRIAGE(a_request(text))

    assert admitted.explicit_agent is None
    assert [w.code for w in admitted.warnings] == ["unknown_agent"]


@pytest.mark.parametrize("unit", ["a", "hi ", "@", "@a", " ", "Q1 ", "🙂", "Kisqali ", "2025-", "kisqalli "])
def test_time_is_linear_in_the_longest_text_that_the_contract_admits(unit: str) -> None:
    """100,000 characters take well under the decision's two seconds."""
    request = a_request((unit * 100_000)[:100_000])

    started = time.perf_counter()
    TRIAGE(request)

    assert time.perf_counter() - started < 5.0


@given(
    text=st.text(max_size=200),
    intent=st.none() | st.sampled_from([*CATALOG.intent, "nonsense", ""]),
    confidence=st.floats(allow_nan=False, allow_infinity=False),
    ambiguous=st.booleans(),
)
def test_triage_is_total_and_deterministic(text: str, intent: str | None, confidence: float, ambiguous: bool) -> None:
    """Every valid request is admitted, twice alike, with a known intent and a confidence in [0, 1]."""
    request = a_request(text, intent=intent, confidence=confidence, ambiguity_flag=ambiguous)

    admitted = TRIAGE(request)

    assert admitted == TRIAGE(request)
    assert admitted.caller_intent in {None, *CATALOG.intent}
    assert 0.0 <= admitted.caller_confidence <= 1.0
    assert not (admitted.social and admitted.empty)


WISHES = [CATALOG.intent[name].wish for name in ("model_deploy", "prediction")]
ASKED = {"role": "assistant", "content": f"Do you want to {WISHES[0]}; or {WISHES[1]}?"}


def test_what_the_service_asked_about_can_be_chosen() -> None:
    """In the order of its question, as long as it is what was said last."""
    asked, later = TRIAGE(a_request("the second", history=[ASKED])), TRIAGE(a_request("the second", history=[ASKED, {"content": "hm"}]))

    assert (asked.offered, asked.chosen) == (("model_deploy", "prediction"), "prediction")
    assert (later.offered, later.chosen) == ((), None)


def test_what_an_answer_merely_mentions_was_not_asked_about() -> None:
    """A number after it chooses nothing."""
    mentioned = f"I can also {WISHES[0]}; or {WISHES[1]}."
    for content in (mentioned, f"Do you want to see the chart? {mentioned}", f"Do you want to {WISHES[0]}? I cannot do that."):
        said = {"role": "assistant", "content": content}

        assert TRIAGE(a_request("2", history=[said])).offered == ()


def test_an_ok_to_a_question_is_no_mere_courtesy() -> None:
    """It answers; without a question it is one."""
    assert TRIAGE(a_request("ok")).social
    assert not TRIAGE(a_request("ok", history=[{"role": "assistant", "content": "Shall I retrain it?"}])).social


def test_what_was_said_before_is_searched_for_entities() -> None:
    """The latest of each type, as inferred ones, unless the caller gives entities."""
    history = [{"content": "TRx of Kisqali in the Midwest"}, {"content": "and Fabhalta?"}]

    found = TRIAGE(a_request("why?", history=history)).earlier_entities

    assert {(e.type, e.value, e.source) for e in found} >= {("brand", "Fabhalta", "inferred"), ("kpi", "TRx", "inferred")}
    assert "Kisqali" not in {e.value for e in found}
    assert not TRIAGE(a_request("why?", history=history, entities=[])).earlier_entities


CARRIED = {
    "a period that is named": ("and in May?", {"TRx", "Kisqali", "Midwest"}),
    "nothing named": ("why?", {"TRx", "Kisqali", "Midwest", "Q3"}),
    "another brand": ("and for Fabhalta?", {"TRx", "Midwest", "Q3"}),
    "a name that is not known": ("and for Texas?", {"TRx", "Q3"}),
    "a place that is not known": ("and in texas?", {"TRx", "Kisqali", "Q3"}),
    "a segment": ("and for oncologists?", {"TRx", "Kisqali", "Midwest", "Q3"}),
    "a day": ("and on Mondays?", {"TRx", "Kisqali", "Midwest", "Q3"}),
    "another time": ("and since launch?", {"TRx", "Kisqali", "Midwest"}),
    "by region": ("split that by region", {"TRx", "Kisqali", "Q3"}),
    "without one": ("and outside the Midwest?", {"TRx", "Kisqali", "Q3"}),
    "the whole country": ("and nationwide?", {"TRx", "Kisqali", "Q3"}),
    "all brands": ("the same for all brands", {"TRx", "Midwest", "Q3"}),
    "everything": ("and overall?", {"TRx", "Q3"}),
    "one left out": ("everywhere except the Midwest", {"TRx", "Kisqali", "Q3"}),
    "one put right": ("not Kisqali, Fabhalta", {"TRx", "Midwest", "Q3"}),
}


@pytest.mark.parametrize(("text", "carried"), CARRIED.values(), ids=CARRIED)
def test_what_a_follow_up_names_leaves_out_or_takes_all_of_is_not_carried_over(text: str, carried: set[str]) -> None:
    """A forecast for the Midwest is no answer to "and for Texas?"."""
    history = [{"content": "TRx of Kisqali in the Midwest in Q3"}]

    found = TRIAGE(a_request(text, history=history)).earlier_entities

    assert {e.value for e in found} == carried


def test_an_intent_that_was_asked_about_is_chosen_by_its_name() -> None:
    """The question names wishes; people answer with the name."""
    wishes = [CATALOG.intent[name].wish for name in ("ml_training", "drift_check", "model_deploy")]
    asked = [{"role": "assistant", "content": ask(wishes)}]
    texts = ("drift", "the drift one", "deployment", "\uff12", "\u2462", "both")

    chosen = [TRIAGE(a_request(text, history=asked)).chosen for text in texts]

    assert chosen == ["drift_check", "drift_check", "model_deploy", "drift_check", "model_deploy", None]
