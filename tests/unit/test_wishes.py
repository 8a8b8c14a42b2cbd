"""Joining readings: several intents only where each is sure, and nothing is routed to what is not wanted."""

import numpy as np
import pytest

from service.routing.clauses import split
from service.routing.policy import Policy
from service.routing.student import Reading
from service.routing.wishes import Wishes, agree, texts, understand

POLICY = Policy(
    refuse_above=0.5, act_above=0.9, clarify_below=0.5, accepted_in_scope=0.95, risk_target=0.02, coverage=0.8, several_above=0.8
)
TRAIN, EXPLAIN, CHECK = "ml_training", "explanation", "drift_check"


def reading(label: str, probability: float = 0.95, oos_score: float = 0.05) -> Reading:
    """Return a reading with this best label."""
    others = [other for other in (TRAIN, EXPLAIN, CHECK) if other != label]
    rest = dict.fromkeys(others, (1.0 - probability) / 2)
    return Reading({label: probability, **rest}, oos_score, np.zeros(1, np.float32))


def wishes(text: str, whole: Reading, *parts: Reading, policy: Policy = POLICY) -> Wishes:
    """Join made-up readings of the clauses of a text."""
    clauses = split(text)
    assert len(parts) == (len(texts(clauses)) if clauses is not None else 0)
    return understand(whole, clauses, parts, policy)


def test_a_whole_text_is_read_as_it_is() -> None:
    """One intent, none negated."""
    made = wishes("retrain the model", reading(TRAIN))

    assert (made.intents, made.ordered, made.negated, made.declined) == ((TRAIN,), False, frozenset(), False)


def test_a_text_out_of_scope_asks_for_nothing() -> None:
    """By the policy's threshold."""
    assert wishes("bake a cake", reading(TRAIN, oos_score=0.6)).intents == ()


THEN = "check drift and then retrain the model"


def test_two_sure_clauses_are_two_intents_in_their_order() -> None:
    """Though the whole text speaks of the second."""
    made = wishes(THEN, reading(TRAIN, 0.6), reading(CHECK), reading(TRAIN))

    assert (made.intents, made.ordered) == ((CHECK, TRAIN), True)
    assert made.surest.probabilities[CHECK] == 0.95


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        (reading(TRAIN), [reading(CHECK, 0.7), reading(TRAIN)]),
        (reading(TRAIN), [reading(CHECK, oos_score=0.3), reading(TRAIN)]),
        (reading(TRAIN), [reading(TRAIN), reading(TRAIN)]),
        (reading(EXPLAIN), [reading(CHECK), reading(TRAIN)]),
    ],
    ids=["an unsure clause", "a clause half out of scope", "the same twice", "neither is what the whole text speaks of"],
)
def test_otherwise_the_whole_text_decides(whole: Reading, parts: list[Reading]) -> None:
    """One intent, its own."""
    assert wishes(THEN, whole, *parts).intents == tuple(list(whole.probabilities)[:1])


def test_a_policy_without_evidence_never_finds_several() -> None:
    """The default threshold is above one."""
    policy = POLICY.model_copy(update={"several_above": 1.01})

    assert wishes(THEN, reading(TRAIN), reading(CHECK, 1.0, 0.0), reading(TRAIN, 1.0, 0.0), policy=policy).intents == (TRAIN,)


def test_a_wish_beside_small_talk_is_found() -> None:
    """A text that is out of scope as a whole has one clause that is surely not."""
    made = wishes("order a pizza and then retrain the model", reading(TRAIN, 0.6, 0.7), reading(EXPLAIN, 0.4, 0.9), reading(TRAIN))

    assert made.intents == (TRAIN,)
    assert made.surest.oos_score == 0.05


NOT_BUT = "don't train anything, just explain the score"


def test_what_is_negated_is_not_wanted() -> None:
    """The rest of the text decides where the whole speaks of what is negated."""
    made = wishes(NOT_BUT, reading(TRAIN), reading(EXPLAIN), reading(TRAIN), reading(EXPLAIN))

    assert (made.intents, made.negated, made.declined) == ((EXPLAIN,), {TRAIN}, False)
    assert next(iter(made.reading.probabilities)) == EXPLAIN


def test_a_negation_alone_asks_for_nothing() -> None:
    """The user has to say what is wanted instead."""
    made = wishes("don't retrain the model", reading(TRAIN), reading(TRAIN))

    assert (made.intents, made.declined) == ((), True)


def test_a_label_that_is_said_by_negations_is_not_negated_by_one() -> None:
    """Not syncing a phone may be an intent of its own."""
    policy = POLICY.model_copy(update={"says_no": (TRAIN,)})

    made = wishes("don't retrain the model", reading(TRAIN), reading(TRAIN), policy=policy)

    assert (made.intents, made.declined) == ((TRAIN,), False)


@pytest.mark.parametrize(
    ("text", "declined"), [("retrain it. Actually, do not retrain it.", True), ("retrain A but do not retrain B", False)]
)
def test_a_retraction_has_the_last_word(text: str, declined: bool) -> None:
    """Where the whole text still reads like the wish; an exception leaves the rest."""
    clauses = split(text)
    assert clauses is not None

    made = wishes(text, reading(TRAIN), *(reading(TRAIN) for _ in texts(clauses)))

    assert made.declined is declined
    assert made.intents == (() if declined else (TRAIN,))


AGREEING = {
    "all speak of the same": (reading(TRAIN), [reading(TRAIN), reading(TRAIN)], True),
    "one hints at another intent": (reading(TRAIN), [reading(TRAIN), reading(TRAIN, 0.85)], False),
    "the hint is hardly in scope": (reading(TRAIN), [reading(TRAIN), reading(CHECK, oos_score=0.97)], True),
    "the whole is out of scope, a part is not": (reading(TRAIN, oos_score=0.6), [reading(TRAIN), reading(TRAIN, oos_score=0.97)], False),
    "a part is not found in the text": (reading(TRAIN), None, False),
}


@pytest.mark.parametrize(("whole", "parts", "agreeing"), AGREEING.values(), ids=AGREEING)
def test_clauses_agree_where_none_hints_at_another_intent(whole: Reading, parts: list[Reading] | None, agreeing: bool) -> None:
    """Then none has to be read alone."""
    assert agree(whole, parts, POLICY) is agreeing
