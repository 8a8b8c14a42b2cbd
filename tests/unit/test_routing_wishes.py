"""Routing what the text asks for: several intents, what is not wanted, and languages that are not read."""

from dataclasses import replace
from uuid import uuid4

import pytest

from service.contracts.decision import Action, RouteDecision, Rung
from service.deadline import Deadline
from service.stages.intent import Understanding
from service.stages.routing import Route
from tests.fakes import ScriptedPredictors
from tests.unit.turns import CATALOG, HOSTED, VERDICT, a_router, admitted, understood


async def route_by_student(understanding: Understanding) -> RouteDecision:
    """Route without an LM."""
    return await Route(catalog=CATALOG, predictors=None, lm=None)(uuid4(), admitted(), understanding, a_router(), Deadline.after(2.0))


async def test_other_intents_bring_their_agents_in_order() -> None:
    """Before the supporting agents of the first; every agent once."""
    both = replace(understood(), intents=("drift_check", "ml_training", "explanation"), confidence=0.95)

    decision = await route_by_student(both)

    assert (decision.action, decision.intent, decision.intents) == (Action.DISPATCH, "drift_check", both.intents)
    others = tuple(CATALOG.intent[i].primary_agent for i in both.intents)
    assert (decision.primary_agent, *decision.secondary_agents)[:3] == others
    assert len(set(decision.secondary_agents)) == len(decision.secondary_agents)


async def test_a_request_that_names_only_what_is_not_wanted_is_asked_back() -> None:
    """No agent is called, and the question says what there is."""
    decision = await route_by_student(replace(understood(), declined=True))

    assert (decision.action, decision.primary_agent) == (Action.CLARIFY, None)
    assert decision.question is not None
    assert decision.question.startswith("What would you like instead?")


@pytest.mark.parametrize("best", [0.99, 0.3], ids=["sure", "unsure"])
async def test_a_language_that_is_not_read_is_refused_and_named(best: float) -> None:
    """However sure the student seems; an LM would be asked."""
    decision = await route_by_student(replace(understood(best), language="de"))

    assert decision.action is Action.REFUSE
    assert [w.code for w in decision.warnings] == ["language_not_read"]
    assert "(de)" in decision.rationale


async def test_an_lm_is_asked_about_a_language_that_the_student_does_not_read() -> None:
    """It may know it."""
    predictors = ScriptedPredictors(VERDICT)
    route = Route(catalog=CATALOG, predictors=predictors, lm=HOSTED)

    decision = await route(uuid4(), admitted(), replace(understood(0.99), language="de"), a_router(), Deadline.after(2.0))

    assert (decision.rung, decision.primary_agent) == (Rung.LM, VERDICT.primary_agent)


async def test_an_intent_without_examples_is_for_the_lm_to_judge() -> None:
    """However sure the student is."""
    new = replace(understood(0.99), described=("causal_impact",))
    route = Route(catalog=CATALOG, predictors=ScriptedPredictors(VERDICT), lm=HOSTED)

    decision = await route(uuid4(), admitted(), new, a_router(), Deadline.after(2.0))

    assert (decision.rung, decision.action) == (Rung.LM, Action.DISPATCH)


@pytest.mark.parametrize(("probability", "action"), [(0.99, Action.DISPATCH), (0.7, Action.CLARIFY)])
async def test_without_an_lm_an_intent_without_examples_needs_a_sure_reading(probability: float, action: Action) -> None:
    """And the answer says that nothing is proven about it; to ask back where the user has been clear would lead in circles."""
    decision = await route_by_student(replace(understood(probability), described=("causal_impact",)))

    assert decision.action is action
    assert ("intent_without_examples" in {w.code for w in decision.warnings}) == (action is Action.DISPATCH)


async def test_what_is_not_carried_out_is_said() -> None:
    """The second of two wishes is not lost without a word."""
    decision = await route_by_student(replace(understood(), intents=("drift_check", "ml_training"), confidence=0.95))

    assert [w.message for w in decision.warnings if w.code == "further_intents"] == ["Also asked for and not carried out yet: ml_training."]


async def test_the_rationale_says_that_the_conversation_was_read() -> None:
    """So that a surprising route can be understood from the receipt."""
    decision = await route_by_student(replace(understood(), in_context=True))

    assert "after what was said before" in decision.rationale
