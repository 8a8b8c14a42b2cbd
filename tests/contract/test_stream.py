"""`POST /orchestrate/stream` on a real server: what is told, in which order, and what stays when a client leaves."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from service.api import stream
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.output import OrchestratorOutput
from service.errors import StoreUnavailable
from service.ports import AgentFailure
from tests.conftest import World, body
from tests.fakes import MemoryStore, ScriptedAgents, down

QUESTION = "@causal_impact Did the rep visits lift Kisqali TRx?"
SEVERAL = {"intent": "causal_impact", "confidence": 0.95}


class PacedAgents(ScriptedAgents):
    """Agents of which some answer only when they are let; notes which calls were given up."""

    def __init__(self, *waiting: str, **script: list[AgentFailure | HandoffStatus]) -> None:
        super().__init__(script)
        self.waiting, self.go = set(waiting), asyncio.Event()
        self.given_up: list[str] = []

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Note the dispatch, perhaps wait, answer."""
        answer = await super().send(agent, url, dispatch, timeout=timeout)
        try:
            await asyncio.sleep(0.01)  # no agent answers before the next one is called
            if agent.name in self.waiting:
                await self.go.wait()
        except asyncio.CancelledError:
            self.given_up.append(agent.name)
            raise
        return answer


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the world's app on a real socket and give a client for it."""
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(world.app(), log_config=None, access_log=False))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=20.0) as client:
            yield client
    finally:
        server.should_exit = True
        await running
        bound.close()


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    """Read server-sent events: name and data of each; a comment is an event without data."""
    name, number = "", 0
    async for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number += 1
            assert value == str(number)
        elif field == "data":
            data = json.loads(value)
        elif line.startswith(": "):
            yield "comment", value
        elif not line and name:
            yield name, data
            name = ""


async def told(client: httpx.AsyncClient, question: dict[str, Any]) -> list[tuple[str, Any]]:
    """Post a question and return every event."""
    async with client.stream("POST", "/orchestrate/stream", json=question) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-store", "no")
        assert response.headers["x-request-id"]
        return [event async for event in events(response.aiter_lines())]


async def eventually(condition: Any) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_turn_is_told_from_the_decision_to_the_answer(world: World) -> None:
    """Decision, the agent's start and end, what can be told so far, and the committed output, which is that of `/orchestrate`."""
    question = body(QUESTION)
    async with serving(world) as client:
        got = await told(client, question)
        again = (await client.post("/orchestrate", json=question)).json()

    assert [name for name, _ in got] == ["decision", "agent_start", "agent_end", "partial", "output"]
    decision, start, end, partial, output = (data for _, data in got)
    assert decision["decision"]["primary_agent"] == "causal_impact"
    assert start == {"agent_id": "causal_impact", "agent_tier": 2}
    assert (end["result"]["agent_id"], end["result"]["status"]) == ("causal_impact", "success")
    assert partial["agents_answered"] == ["causal_impact"]
    assert OrchestratorOutput.model_validate(output["output"])
    assert (output["output"], output["replayed"]) == (again, False)
    assert partial["response_text"] in output["output"]["response_text"]


async def test_perspectives_are_told_as_they_come(world: World) -> None:
    """The first answer is there while the second agent still works."""
    world.agents = agents = PacedAgents("explainer")
    question = {**body("Did the rep visits lift TRx?", **SEVERAL), "preferences": {"depth": "thorough"}}
    async with serving(world) as client, client.stream("POST", "/orchestrate/stream", json=question) as response:
        got: list[tuple[str, Any]] = []
        async for event in events(response.aiter_lines()):
            got.append(event)
            if event[0] == "partial":
                agents.go.set()

    names = [(name, data.get("agent_id") or data.get("agents_answered")) for name, data in got[1:-1] if name != "agent_end"]
    assert names == [
        ("agent_start", "causal_impact"),
        ("agent_start", "explainer"),
        ("partial", ["causal_impact"]),
        ("partial", ["causal_impact", "explainer"]),
    ]
    assert got[-1][1]["output"]["flow"] == "parallel"


async def test_a_failure_and_its_fallback_are_told(world: World) -> None:
    """An agent that cannot be reached ends, its fallback starts."""
    world.agents = ScriptedAgents({"causal_impact": [down()]})
    async with serving(world) as client:
        got = await told(client, body(QUESTION))

    ends = [(data["result"]["agent_id"], data["result"]["status"]) for name, data in got if name == "agent_end"]
    assert ends == [("causal_impact", "failed"), ("explainer", "success")]
    assert got[-1][1]["output"]["status"] == "partial"


async def test_what_needs_no_agent_is_told_too(world: World) -> None:
    """A greeting: decision and answer."""
    async with serving(world) as client:
        got = await told(client, body("hello"))

    assert [name for name, _ in got] == ["decision", "output"]


async def test_a_repeated_question_is_answered_from_the_store(world: World) -> None:
    """Only the last event, marked as replayed; nothing is dispatched again."""
    question = body(QUESTION)
    async with serving(world) as client:
        first, second = await told(client, question), await told(client, question)

    assert [name for name, _ in second] == ["output"]
    assert second[0][1] == {**first[-1][1], "replayed": True}
    assert len(world.agents.sent) == 1


async def test_a_client_that_leaves_cancels_the_work_and_what_had_come_is_stored(world: World) -> None:
    """The agent that still worked is given up; the answer of the other is in the receipt, with the code `cancelled`."""
    world.agents = agents = PacedAgents("explainer")
    question = {**body("Did the rep visits lift TRx?", **SEVERAL), "preferences": {"depth": "thorough"}}
    async with serving(world) as client:
        async with client.stream("POST", "/orchestrate/stream", json=question) as response:
            async for name, _ in events(response.aiter_lines()):
                if name == "partial":
                    break
        await eventually(lambda: agents.given_up == ["explainer"])
        await eventually(lambda: world.store.receipts)
        again = await client.post("/orchestrate", json=question)

    (receipt,) = world.store.receipts.values()
    assert [(r.agent_id, r.status.value) for r in receipt.output.agent_results] == [("causal_impact", "success"), ("explainer", "failed")]
    assert receipt.output.agent_results[1].error is not None
    assert receipt.output.agent_results[1].error.startswith("cancelled: ")
    assert (receipt.output.status.value, [w.code for w in receipt.output.warnings]) == ("partial", ["cancelled"])
    assert (receipt.signal.agents_succeeded, receipt.signal.agents_unavailable) == (1, 1)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(agents.sent) == 2


async def test_a_client_that_leaves_leaves_no_task_and_no_slot(world: World) -> None:
    """Twenty at once, in the middle of everything."""
    world.agents = agents = PacedAgents("causal_impact")
    async with serving(world) as client:
        before = asyncio.all_tasks()

        async def leave() -> None:
            async with client.stream("POST", "/orchestrate/stream", json=body(QUESTION)) as response:
                async for name, _ in events(response.aiter_lines()):
                    if name == "agent_start":
                        return

        await asyncio.gather(*(leave() for _ in range(20)))
        await eventually(lambda: len(agents.given_up) == 20)
        await eventually(lambda: len(world.store.receipts) == 20)
        await eventually(lambda: not {t for t in asyncio.all_tasks() - before if "stream" in repr(t) or "pipeline" in repr(t)})

    assert world.health.slots.taken == 0
    assert world.deciding.taken == 0


async def test_a_long_silence_is_bridged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments keep proxies from closing the connection while an agent works."""
    monkeypatch.setattr(stream, "KEEP_ALIVE", 0.05)
    world.agents = agents = PacedAgents("causal_impact")
    async with serving(world) as client, client.stream("POST", "/orchestrate/stream", json=body(QUESTION)) as response:
        names = []
        async for name, _ in events(response.aiter_lines()):
            names.append(name)
            if names[-3:] == ["comment"] * 3:
                agents.go.set()

    assert names[:2] == ["decision", "agent_start"]
    assert names[-3:] == ["agent_end", "partial", "output"]


async def test_what_fails_before_anything_is_told_is_an_ordinary_problem(world: World) -> None:
    """With its status and media type, as on `/orchestrate`."""
    question = body(QUESTION)
    async with serving(world) as client:
        await told(client, question)
        conflict = await client.post("/orchestrate/stream", json={**question, "user_id": "another"})
        invalid = await client.post("/orchestrate/stream", json={"user_id": "u"})
        world.store.available = False
        broken = await client.post("/orchestrate/stream", json=body(QUESTION))

    assert [r.status_code for r in (conflict, invalid, broken)] == [409, 400, 503]
    assert {r.headers["content-type"] for r in (conflict, invalid, broken)} == {"application/problem+json"}


async def test_what_fails_later_is_told_as_the_last_event(world: World) -> None:
    """The status line has been sent, so the problem comes as an event; the answer that could not be stored does not come."""

    class Forgetful(MemoryStore):
        async def commit(self, receipt: Any) -> Any:
            self.available = False
            return await super().commit(receipt)

    world.store = Forgetful()
    async with serving(world) as client:
        got = await told(client, body(QUESTION))

    assert [name for name, _ in got][-1] == "problem"
    assert "output" not in [name for name, _ in got]
    problem = got[-1][1]["problem"]
    assert (problem["code"], problem["status"], problem["retryable"]) == ("store_unavailable", 503, True)
    assert problem["instance"] == "/orchestrate/stream"


async def test_a_stream_that_ends_in_a_problem_counts_as_one(world: World) -> None:
    """With the problem's status and code, as if it had not begun: an objective on failures would see nothing otherwise."""

    class Forgetful(MemoryStore):
        async def commit(self, receipt: Any) -> Any:
            raise StoreUnavailable("It is away.")

    async with serving(world) as client:
        await told(client, body(QUESTION))
        world.store.commit = Forgetful().commit  # type: ignore[method-assign]
        await told(client, body(QUESTION))
        families = text_string_to_metric_families((await client.get("/metrics")).text)

    samples = [s for f in families for s in f.samples if s.labels.get("route") == "/orchestrate/stream" and s.name.endswith("_total")]
    assert {(s.name.split("_")[1], s.labels.get("status") or s.labels["code"], s.value) for s in samples} == {
        ("responses", "200", 1.0),
        ("responses", "503", 1.0),
        ("problems", "store_unavailable", 1.0),
    }


async def test_a_stream_that_waits_for_an_equal_request_is_not_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins after a while without an event, so that no proxy takes it for dead; what comes of the request is its end."""
    monkeypatch.setattr(stream, "KEEP_ALIVE", 0.1)
    world.agents = agents = PacedAgents("causal_impact")
    question = body(QUESTION)
    async with serving(world) as client:
        first = asyncio.create_task(client.post("/orchestrate", json=question))
        await eventually(lambda: agents.sent)
        heard: list[str] = []
        async with client.stream("POST", "/orchestrate/stream", json=question) as response:
            async for name, _ in events(response.aiter_lines()):
                heard.append(name)
                if len(heard) == 2:
                    agents.go.set()
        answered = await first

    assert (response.status_code, answered.status_code) == (200, 200)
    assert set(heard[:-1]) == {"comment"}
    assert heard[-1] == "output"
    assert len(agents.sent) == 1


async def test_who_leaves_while_the_answer_is_stored_is_no_failed_commit(world: World) -> None:
    """It is stored all the same; the objective of commits counts what broke, not who left."""
    storing, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def commit(self, receipt: Any) -> Any:
            storing.set()
            await go.wait()
            return await super().commit(receipt)

    world.store = Slow()
    async with serving(world) as client:
        leaving = asyncio.create_task(told(client, body(QUESTION)))
        await storing.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)

        async def commits() -> dict[str, float]:
            families = text_string_to_metric_families((await client.get("/metrics")).text)
            counted = [s for f in families for s in f.samples if s.name == "orchestrator_stage_seconds_count"]
            return {s.labels["outcome"]: s.value for s in counted if s.labels["stage"] == "commit"}

        async with asyncio.timeout(10):
            while "cancelled" not in (told_of := await commits()):
                await asyncio.sleep(0.01)
        go.set()
        await eventually(lambda: world.store.receipts)

    assert (told_of["cancelled"], told_of["error"]) == (1.0, 0.0)


async def test_a_client_that_does_not_read_is_left_after_a_while(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream ends, although megabytes are unread; the answer is stored."""
    monkeypatch.setattr(stream, "PATIENCE", 0.3)

    class Talkative(ScriptedAgents):
        async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
            handoff = await super().send(agent, url, dispatch, timeout=timeout)
            assert isinstance(handoff, AgentHandoff)
            output = {**handoff.result.primary_output, "rows": "x" * 4_000_000}
            return handoff.model_copy(update={"result": handoff.result.model_copy(update={"primary_output": output})})

    world.agents = Talkative()
    question = json.dumps(body(QUESTION)).encode()
    lines = ("POST /orchestrate/stream HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(question)}")
    head = "\r\n".join([*lines, "", ""])
    async with serving(world) as client:
        silent = socket.create_connection(("127.0.0.1", client.base_url.port or 0))
        silent.sendall(head.encode() + question)
        await eventually(lambda: any("EventStream._send_all" in repr(task) for task in asyncio.all_tasks()))
        await eventually(lambda: world.store.receipts)
        await eventually(lambda: not any("EventStream._send_all" in repr(task) for task in asyncio.all_tasks()))
        silent.close()

    (receipt,) = world.store.receipts.values()
    assert receipt.output.status.value == "success"
