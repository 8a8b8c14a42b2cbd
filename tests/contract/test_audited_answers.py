"""The audit behind the real app: the answer does not wait for it, the metrics tell it, and a region given back is the LM's."""

import asyncio
from dataclasses import replace

import httpx

from service.contracts.lm import LMFailure, LMQuestion, LMVerdict
from service.settings import Settings
from tests.conftest import World, body
from tests.fakes import ScriptedPredictors

TEXT = "where are the gaps of Kisqali against its target in the north"
AUDITS = 'orchestrator_lm_audits_total{intent="gap_analysis",outcome="'


class Gated(ScriptedPredictors):
    """An LM that answers when it is let; it chooses the option that it is told to."""

    def __init__(self, place: int) -> None:
        super().__init__(LMFailure(reason="error", detail="not asked yet"))
        self.place, self.gate = place, asyncio.Event()

    async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
        """Choose the option at the place, once the gate is open."""
        self.questions.append(question)
        await self.gate.wait()
        chosen = question.options[self.place]
        return LMVerdict(
            intent=chosen.intent,
            sub_intent="",
            primary_agent=chosen.name,
            secondary_agents=(),
            confidence=0.9,
            rationale="",
            usd=0.002,
        )


def with_lm(world: World, lm: Gated, share: float) -> World:
    """Give the world an LM that may decide, and that reads a share afterwards, and a student that is sure of what it reads."""
    assert world.router is not None
    world.router = replace(world.router, policy=world.router.policy.model_copy(update={"act_above": 0.1}))
    world.settings = Settings(_env_file=None, lm="openai/some", lm_audit=share)  # type: ignore[call-arg]  # pydantic-settings' own argument
    world.predictors = lm
    return world


async def metrics(client: httpx.AsyncClient) -> str:
    """Return the metrics once nothing is read any more."""
    for _ in range(200):
        await asyncio.sleep(0.005)
        text = (await client.get("/metrics")).text
        if AUDITS in text:
            return text
    return text


async def test_the_answer_comes_before_the_lm_has_read_it(world: World) -> None:
    """It was held back until the answer had come; then agreement and cost are counted."""
    lm = Gated(place=0)
    async with with_lm(world, lm, 1.0).client() as client:
        answer = await client.post("/orchestrate", json=body(TEXT))
        lm.gate.set()
        text = await metrics(client)

    assert (answer.status_code, answer.json()["rung"]) == (200, "student"), answer.text
    assert len(lm.questions) == 1
    assert AUDITS + 'agreed"} 1.0' in text
    assert "orchestrator_lm_audit_usd_total 0.002" in text


async def test_what_the_lm_would_have_done_otherwise_is_counted_and_not_carried_out(world: World) -> None:
    """The user has the student's answer."""
    lm = Gated(place=1)
    lm.gate.set()
    async with with_lm(world, lm, 1.0).client() as client:
        answer = (await client.post("/orchestrate", json=body(TEXT))).json()
        text = await metrics(client)

    assert answer["rung"] == "student"
    assert AUDITS + 'differed"} 1.0' in text


async def test_nothing_is_read_where_the_share_is_none(world: World) -> None:
    """The LM is left alone."""
    lm = Gated(place=0)
    async with with_lm(world, lm, 0.0).client() as client:
        await client.post("/orchestrate", json=body(TEXT))
        await asyncio.sleep(0.05)

    assert lm.questions == []


async def test_a_region_that_was_given_back_is_put_to_the_lm(world: World) -> None:
    """Before the answer, however sure the student is."""
    lm = Gated(place=1)
    lm.gate.set()
    world = with_lm(world, lm, 0.0)
    assert world.router is not None
    world.router = replace(world.router, policy=world.router.policy.model_copy(update={"given_back": frozenset({"gap_analysis"})}))
    async with world.client() as client:
        answer = (await client.post("/orchestrate", json=body(TEXT))).json()

    assert answer["rung"] == "lm"
    assert len(lm.questions) == 1
