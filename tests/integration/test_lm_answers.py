"""What an LM answers and what its server says of it: texts that are not whole, absurd figures, refusals, and a second LM that is away."""

import json

import pytest

from service.adapters.dspy_predictors import DspyPredictors
from service.adapters.local_lm import LMEndpoint
from service.contracts.lm import Finding, LMFailure, LMVerdict, SynthesisQuestion
from service.metrics import Metrics
from service.ports import LMCalled
from tests.fakes import Watcher
from tests.integration.test_lm_faults import AMPLE, INTENT, ROUTING, answering, asking, completion, hanging_up, http, served
from tests.unit.signatures.questions import QUESTION

SYNTHESIS = SynthesisQuestion(query="why?", findings=(Finding(agent_id="a", summary="It fell."),), router_version="1", programs={})
HALF_A_SIGN, CUT_OFF = '{"response_text": "It fell \\ud83d."}', '{"response_text": "It fell and'
CUT_OFF_BEHIND_A_BRACE = '{"response_text": "The set {a, b} fell, but not because of'
WHOLE = '{"response_text": "It fell \\ud83d\\ude00,\nas {a, b} did.",}'


@pytest.mark.parametrize("content", [HALF_A_SIGN, CUT_OFF, CUT_OFF_BEHIND_A_BRACE], ids=["half a sign", "cut off", "behind a brace"])
async def test_a_text_that_is_not_whole_is_not_shown(content: str) -> None:
    """It could not be stored, or lacks the word that turns its meaning."""
    async with served(answering(completion(content))) as address, asking(address) as predictors:
        answer = await predictors.compose(SYNTHESIS, timeout=AMPLE)

    assert isinstance(answer, LMFailure)
    assert answer.reason == "invalid_output"


async def test_a_text_that_is_whole_is_shown() -> None:
    """Though its JSON is not strict, and a sign is written as a pair of escapes."""
    async with served(answering(completion(WHOLE))) as address, asking(address) as predictors:
        answer = await predictors.compose(SYNTHESIS, timeout=AMPLE)

    assert answer == "It fell \U0001f600,\nas {a, b} did."


async def test_absurd_figures_of_use_cost_no_answer() -> None:
    """A server may say anything; what it says is bounded."""
    absurd = completion('{"intent": "gap_analysis", "sub_intent": "x", "confidence": 0.9}', prompt_tokens=10**400)
    async with served(answering(absurd, ROUTING)) as address, asking(address, Metrics()) as predictors:
        answer = await predictors.route(QUESTION, timeout=AMPLE)

    assert isinstance(answer, LMVerdict)


async def test_prompts_that_are_refused_for_their_content_shut_nobody_out() -> None:
    """What one caller says is no fault of the LM."""
    refused = http(b'{"error": {"message": "It breaks the policy.", "code": "content_filter"}}', "400 Bad Request")
    async with served(answering(*[refused] * 4, INTENT, ROUTING)) as address, asking(address) as predictors:
        answers = [await predictors.route(QUESTION, timeout=AMPLE) for _ in range(5)]

    assert [a.reason for a in answers if isinstance(a, LMFailure)] == ["invalid_output"] * 4
    assert isinstance(answers[4], LMVerdict)


async def test_a_second_lm_that_is_away_is_left_alone_and_told() -> None:
    """The first one's intent decides meanwhile; without a breaker every request would wait for the second."""
    watcher = Watcher()
    async with served(answering(INTENT)) as light, served(hanging_up) as primary:
        predictors = DspyPredictors(
            LMEndpoint("openai/primary", primary, "key"), light=LMEndpoint("openai/light", light, "key"), observer=watcher
        )
        await predictors.warm()
        answers = [await predictors.route(QUESTION, timeout=AMPLE) for _ in range(5)]
        await predictors.close()

    assert [isinstance(a, LMVerdict) for a in answers] == [True] * 5
    told = [event.outcome for event in watcher.events if isinstance(event, LMCalled)]
    assert told == ["unavailable"] * 3 + ["answered"] * 2


@pytest.mark.parametrize(
    ("model", "thinks"), [("openai/gpt-5-mini", True), ("openai/o3", True), ("openai/gpt-5-chat", False), ("openai/test", False)]
)
async def test_a_reasoning_model_is_asked_for_no_temperature(model: str, thinks: bool) -> None:
    """It would refuse, and needs room for what it thinks."""
    asked: list[str] = []
    async with served(answering(INTENT, ROUTING, keep=asked)) as address:
        predictors = DspyPredictors(LMEndpoint(model, address, "key"), observer=Watcher())
        await predictors.warm()
        await predictors.route(QUESTION, timeout=AMPLE)
        await predictors.close()

    bodies = [json.loads(one) for one in asked]
    assert len(bodies) == 2
    assert all(("temperature" in body) is not thinks for body in bodies)
    assert all((max(body.get("max_completion_tokens", 0), body.get("max_tokens", 0)) > 1_000) is thinks for body in bodies)
