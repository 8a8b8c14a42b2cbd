"""The cascade after an answer: what is mere courtesy starts nothing, and what cannot be undone is asked about unless it is said surely."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from service.contracts.decision import Action
from service.deadline import Deadline
from service.routing.replies import Reply
from service.stages.routing import Route
from tests.unit.turns import CATALOG, a_router, admitted, understood

D, C, S = Action.DISPATCH, Action.CLARIFY, Action.SOCIAL
REPLIES: dict[str, tuple[dict[str, Any], Action, str | None, str | None]] = {
    "thanks": ({"reply": Reply.THANKS}, S, None, None),
    "a dismissal": ({"reply": Reply.DISMISSES}, C, None, "instead?"),
    "a yes to nothing": ({"reply": Reply.ACCEPTS}, C, None, "I can help you to"),
    "a choice": ({"chosen": "model_deploy", "admitted": {"text": "Yes"}}, D, "model_deployer", None),
    "a choice by its place": (
        {"chosen": "model_deploy", "admitted": {"placed": True, "text": "2"}},
        D,
        "model_deployer",
        None,
    ),
    "a conditional yes": (
        {"chosen": "prediction", "admitted": {"text": "sure, in May"}},
        D,
        "prediction_synthesizer",
        None,
    ),
    "a conditional yes to what cannot be undone": (
        {"chosen": "model_deploy", "admitted": {"text": "yes once legal approved"}},
        C,
        None,
        CATALOG.intent["model_deploy"].wish,
    ),
    "a follow-up": ({"carried": True, "in_context": True}, D, "causal_impact", None),
    "a follow-up to what cannot be undone": (
        {"carried": True, "in_context": True, "intents": ("model_deploy",)},
        C,
        None,
        CATALOG.intent["model_deploy"].wish,
    ),
}


@pytest.mark.parametrize(("read", "action", "agent", "question"), REPLIES.values(), ids=REPLIES)
async def test_a_mere_answer_starts_nothing_but_what_it_chooses(
    read: dict[str, Any], action: Action, agent: str | None, question: str | None
) -> None:
    """What only the history tells is warned of, and asked about where it cannot be undone."""
    route = Route(catalog=CATALOG, predictors=None, lm=None)

    asked = admitted(**read.get("admitted", {}))
    understanding = replace(understood(), **{name: value for name, value in read.items() if name != "admitted"})

    decision = await route(uuid4(), asked, understanding, a_router(), Deadline.after(2.0))

    assert (decision.action, decision.primary_agent) == (action, agent)
    assert (decision.question is None) is (question is None)
    assert question is None or question in str(decision.question)
    assert ("intent_from_history" in {w.code for w in decision.warnings}) is read.get("carried", False)


async def test_what_cannot_be_undone_is_asked_about_where_the_reading_is_unsure() -> None:
    """A warning comes too late for it."""
    route, asked = Route(catalog=CATALOG, predictors=None, lm=None), admitted(text="Deploy version 7")
    surely = replace(understood(0.95), intents=("model_deploy",))

    decisions = [await route(uuid4(), asked, replace(surely, confidence=c), a_router(), Deadline.after(2.0)) for c in (0.95, 0.7)]

    assert [(d.action, d.primary_agent) for d in decisions] == [(D, "model_deployer"), (C, None)]


async def test_what_cannot_be_undone_is_asked_about_where_it_is_not_said_plainly() -> None:
    """However sure the reading is."""
    surely = replace(understood(0.99), intents=("model_deploy",))
    doubtful = admitted(text="Let's not deploy version 7")

    decision = await Route(catalog=CATALOG, predictors=None, lm=None)(uuid4(), doubtful, surely, a_router(), Deadline.after(2.0))

    assert (decision.action, decision.primary_agent, decision.intent) == (C, None, "model_deploy")
    assert CATALOG.intent["model_deploy"].wish in (decision.question or "")


async def test_a_yes_to_several_is_asked_about_again() -> None:
    """With the same options."""
    route, options = Route(catalog=CATALOG, predictors=None, lm=None), ("prediction", "explanation")
    accepted = replace(understood(), reply=Reply.ACCEPTS)

    decision = await route(uuid4(), admitted(offered=options), accepted, a_router(), Deadline.after(2.0))

    assert decision.action is C
    assert all(CATALOG.intent[name].wish in (decision.question or "") for name in options)
