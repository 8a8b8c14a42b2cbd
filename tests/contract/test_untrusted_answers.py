"""What an agent or the LM has written, on its way into an answer: texts carry nothing out, and data stay data."""

import json
from typing import Any

import pytest

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.contracts.lm import LMFailure
from service.ports import AgentFailure
from tests.conftest import World, body
from tests.contract.asking import CAUSAL
from tests.fakes import ScriptedAgents, ScriptedPredictors, down, handoff_for
from tests.unit.test_plain_text import carried_out

EVIL = 'TRx rose by 0.8 <img src=x onerror="alert(1)"> ![x](https://evil.example/?q=1) \x1b[2J\u202e'
LEAVES = ("summary", "evidence", "caveat", "error")


class EvilAgents(ScriptedAgents):
    """Agents that write markup in one place of their answers, or fail with it."""

    def __init__(self, leaf: str) -> None:
        super().__init__()
        self.leaf = leaf

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Answer with markup."""
        handoff = handoff_for(agent, dispatch)
        output = handoff.result.primary_output
        changes: dict[str, dict[str, Any]] = {
            "summary": {"primary_output": {**output, "summary": EVIL}},
            "evidence": {"evidence": (EVIL,)},
            "caveat": {"caveats": (EVIL,)},
        }
        if self.leaf == "error":
            failure = down()
            return AgentFailure(failure.code, EVIL, recoverable=False, unavailable=True, latency_ms=1)
        return handoff.model_copy(update={"result": handoff.result.model_copy(update=changes[self.leaf])})


def texts(answer: dict[str, Any]) -> list[str]:
    """Return what people read of an answer: all but the agents' data."""
    return [answer["response_text"], *(w["message"] for w in answer["warnings"]), *(r["error"] or "" for r in answer["agent_results"])]


@pytest.mark.parametrize("leaf", LEAVES)
async def test_no_text_of_an_answer_carries_out_what_an_agent_wrote(world: World, leaf: str) -> None:
    """Whichever field of the handoff holds it; a reader still sees what was written. The data in `result` are as they came."""
    world.agents = EvilAgents(leaf)
    async with world.client() as client:
        answer = (await client.post("/orchestrate", json=body(CAUSAL))).json()

    assert carried_out(EVIL)
    assert [text for text in texts(answer) if carried_out(text) or "\x1b" in text or "\u202e" in text] == []
    assert "&lt;img src=x" in "".join(texts(answer))
    if leaf != "error":
        assert json.dumps(EVIL) in json.dumps(answer["agent_results"])


@pytest.mark.parametrize("leaf", LEAVES)
async def test_no_event_of_a_stream_carries_it_out(world: World, leaf: str) -> None:
    """Neither what is told on the way nor what comes last."""
    world.agents = EvilAgents(leaf)
    async with world.client() as client:
        stream = (await client.post("/orchestrate/stream", json=body(CAUSAL))).text
    events = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    told = [e["response_text"] for e in events if "response_text" in e]
    told += [e["result"]["error"] or "" for e in events if "result" in e and "agent_id" in e["result"]]
    told += [text for e in events if "output" in e for text in texts(e["output"])]

    assert "&lt;img src=x" in "".join(told)
    assert [text for text in told if carried_out(text)] == []


async def test_no_wording_of_the_lm_carries_anything_out(world: World) -> None:
    """A model that was led astray could send findings to an address in an image."""
    world.settings = world.settings.model_copy(update={"lm": "openai/scripted"})
    world.predictors = ScriptedPredictors(LMFailure(reason="error", detail="not asked"), composed=EVIL)
    async with world.client() as client:
        answer = (await client.post("/orchestrate", json=body(CAUSAL))).json()

    assert "TRx rose by 0.8 &lt;img" in answer["response_text"]
    assert carried_out(answer["response_text"]) == set()
