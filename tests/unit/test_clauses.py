"""Cutting a request into clauses: what is one wish stays whole, order is kept or turned round, negation is seen."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.routing.clauses import Clauses, split, without_lead_in
from service.routing.wishes import texts

WHOLE = [
    "compare the Northeast and the Midwest",
    "sales dipped in May and I want to know why",
    "why did TRx not recover",
    "which HCPs don't respond to samples",
    "what is the difference between lift and uplift",
    "if the model drifts, then what happens to the scores",
    "don't you think we should forecast Q3?",
    "can't we just retrain it",
    "explain the score",
    "",
    "🙂",
]
CUT: dict[str, tuple[list[str], bool]] = {
    "check drift and then retrain the model": (["check drift", "retrain the model"], True),
    "before you retrain, check for drift": (["check for drift", "retrain"], True),
    "after checking drift, retrain the model": (["checking drift", "retrain the model"], True),
    "retrain the model after checking drift": (["checking drift", "retrain the model"], True),
    "Is the pipeline up? Also forecast TRx for June.": (["Is the pipeline up?", "forecast TRx for June."], False),
    "forecast TRx; explain the method": (["forecast TRx", "explain the method"], False),
}
NEGATED = {
    "don't train anything, just explain the score": (["explain the score"], ["train anything"]),
    "explain the drop without retraining the model": (["explain the drop"], ["retraining the model"]),
    "forecast June instead of explaining May": (["forecast June"], ["explaining May"]),
    "don't retrain the model": ([], ["retrain the model"]),
    "don't use 2020 data when you retrain the model": (["retrain the model"], ["use 2020 data"]),
}


def found(text: str) -> Clauses:
    """Return the clauses of a text that has some."""
    clauses = split(text)
    assert clauses is not None
    return clauses


@pytest.mark.parametrize("text", WHOLE)
def test_one_wish_stays_in_one_piece(text: str) -> None:
    """Coordinated nouns, background, conditions, and negation inside of what is asked."""
    assert split(text) is None


@pytest.mark.parametrize(("text", "wanted", "ordered"), [(t, *w) for t, w in CUT.items()], ids=CUT)
def test_several_wishes_come_in_the_order_of_carrying_out(text: str, wanted: list[str], ordered: bool) -> None:
    """Whatever order the text tells them in."""
    clauses = found(text)

    assert [c.text for c in clauses.wanted] == wanted
    assert clauses.ordered is ordered
    assert not clauses.negated


@pytest.mark.parametrize(
    "text",
    [
        "do  not deploy v7",
        "don`t deploy v7",
        "don\u02bct deploy v7",
        "don\u2019t deploy v7",
        "do n't deploy v7",
        "do\u00a0not\tdeploy v7",
        "\uff44\uff4f \uff4e\uff4f\uff54 deploy v7",
    ],
)
def test_no_typography_hides_a_negation(text: str) -> None:
    """Other apostrophes, doubled and odd blanks, a tokenized text."""
    clauses = split(text)

    assert clauses is not None
    assert [c.text for c in clauses.negated] == ["deploy v7"]


@pytest.mark.parametrize(("text", "wanted", "negated"), [(t, *w) for t, w in NEGATED.items()], ids=NEGATED)
def test_what_is_not_wanted_is_told_from_what_is(text: str, wanted: list[str], negated: list[str]) -> None:
    """Without its negator."""
    clauses = found(text)

    assert [c.text for c in clauses.wanted] == wanted
    assert [c.text for c in clauses.negated] == negated


FORBIDDEN = [
    "The model must not be deployed",
    "You mustn't deploy the churn model",
    "the model should not be retrained yet",
    "the model is not to be deployed",
    "under no circumstances deploy the new model",
    "nobody should deploy v3",
    "No one is allowed to retrain the model",
    "deploying v3 is forbidden",
    "refrain from retraining the model",
    "please avoid rolling back the model",
    "hold off on deploying v3",
    "postpone the deployment",
    "stop the rollout",
    "cancel the retraining",
    "call off the rollout",
    "retraining now would be a terrible idea",
    "deploy it? No!",
    "deploy it? absolutely not",
    "deploy it, or rather don't",
    "deploy it. On second thought, do not.",
    "retrain it... never mind",
    "roll out v4. Wait, no.",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_what_is_forbidden_called_off_or_taken_back_is_not_wanted(text: str) -> None:
    """Nothing is left to be carried out."""
    clauses = found(text)

    assert clauses.negated
    assert not clauses.wanted


@pytest.mark.parametrize(
    "text",
    [
        "why should the model not be deployed?",
        "Basically it's just past scripts, no?",
        "did the rebate help, or not.",
        "should we stop calling these accounts?",
        "what would be a bad idea here?",
        "no drift in the churn model?",
        "explain why the model should not be deployed",
        "the test must not be longer than 8 weeks, plan it",
        "the pipeline should not be failing, check it",
    ],
)
def test_a_question_forbids_nothing(text: str) -> None:
    """Whatever it asks about, and whatever is hung on it."""
    clauses = split(text)

    assert clauses is None or not clauses.negated


@pytest.mark.parametrize(
    ("text", "retracts"),
    [
        ("deploy it. Actually, do not deploy it.", True),
        ("deploy it. Do not deploy anything.", True),
        ("deploy A but do not deploy B", False),
    ],
)
def test_a_retraction_is_told_from_an_exception(text: str, retracts: bool) -> None:
    """It begins with a second thought, or speaks of everything."""
    assert any("retracts" in c.marks for c in found(text).negated) is retracts


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["and", "then", "don't", "not", ",", ".", ";", "before", "you", "retrain", "it", "first", "but", "no", "🙂"]))
)
def test_splitting_is_total(words: list[str]) -> None:
    """Any row of function words gives clauses with text, or none."""
    clauses = split(" ".join(words))

    assert clauses is None or all(texts(clauses))


@pytest.mark.parametrize(
    "unit", ["and ", "then ", "not ", "no ", "a", ", ", "don't ", "before you ", "is the a ", ". ", "between x and ", "\n"]
)
def test_a_long_text_is_cut_in_bounded_time(unit: str) -> None:
    """A hundred thousand characters of the worst kind."""
    started = time.perf_counter()

    clauses = split(unit * (100_000 // len(unit)))

    assert time.perf_counter() - started < 2.0
    assert clauses is None or len(texts(clauses)) <= 13


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Thanks! Now check for drift.", "check for drift."),
        ("no, I meant the forecast for Kisqali", "the forecast for Kisqali"),
        ("Never mind, forecast TRx", "forecast TRx"),
        ("Cancel that and check drift", "check drift"),
        ("sorry, typo: is the platform up", "is the platform up"),
        ("Nah, show me drift", "show me drift"),
        ("Thanks but I wanted a forecast", "I wanted a forecast"),
        ("cheers mate, now the forecast", "the forecast"),
        ("no", "no"),
        ("no, thanks", "no, thanks"),
        ("no drift in the model", "no drift in the model"),
        ("thanks to the rep visits TRx rose, by how much?", "thanks to the rep visits TRx rose, by how much?"),
        ("stop calling low-value accounts", "stop calling low-value accounts"),
    ],
)
def test_what_answers_the_turn_before_is_no_part_of_a_request(text: str, rest: str) -> None:
    """Where a request follows."""
    assert without_lead_in(text) == rest
