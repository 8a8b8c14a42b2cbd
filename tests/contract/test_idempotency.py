"""One `query_id`, one answer: repeats are replayed, other bodies refused, and nothing is dispatched twice."""

import asyncio
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import httpx
import pytest

from service.access.keys import Keys
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.contracts.receipt import Receipt
from service.errors import StoreUnavailable
from service.ports import AgentFailure
from tests.conftest import World, body
from tests.fakes import MemoryStore, ScriptedAgents

REPLAYED = "Idempotent-Replayed"
CROWD = 20


class WaitingAgents(ScriptedAgents):
    """Agents that answer when they are let: `reached` is set by the first dispatch, and all wait for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Note the dispatch, wait, answer."""
        answer = await super().send(agent, url, dispatch, timeout=timeout)
        self.reached.set()
        await self.go.wait()
        return answer


class BuggyStore(MemoryStore):
    """A store with a bug that shows once."""

    shown = False

    async def commit(self, receipt: Receipt) -> Receipt:
        """Raise at the first commit, keep later ones."""
        if not self.shown:
            self.shown = True
            raise RuntimeError("a bug")
        return await super().commit(receipt)


class StumblingStore(MemoryStore):
    """A store whose first commits fail."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def commit(self, receipt: Receipt) -> Receipt:
        """Fail, or keep the receipt."""
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("The disk is full.")
        return await super().commit(receipt)


async def orchestrate(client: httpx.AsyncClient, question: dict[str, Any], **headers: str) -> httpx.Response:
    """Post one question."""
    return await client.post("/orchestrate", json=question, headers=headers)


async def crowd(client: httpx.AsyncClient, questions: Sequence[dict[str, Any]]) -> list[httpx.Response]:
    """Post all at once."""
    return list(await asyncio.gather(*(orchestrate(client, q) for q in questions)))


def replays(responses: Sequence[httpx.Response]) -> list[bool]:
    """Say of each response whether it is marked as a replay."""
    return [r.headers.get(REPLAYED) == "true" for r in responses]


async def counted(client: httpx.AsyncClient) -> list[str]:
    """Return the metrics, but for the HTTP answers: each is one."""
    lines = (await client.get("/metrics")).text.splitlines()
    return [line for line in lines if not line.startswith("orchestrator_responses_")]


@pytest.mark.parametrize("text", ["Did the rep visits lift Kisqali TRx?", "hello", "", "@explainer what is TRx?"], ids=repr)
async def test_a_repeated_request_gets_the_stored_answer(world: World, text: str) -> None:
    """Byte for byte the same answer, marked as replayed; no second dispatch, decision or count, whatever the first led to."""
    question = body(text)
    async with world.client() as client:
        first = await orchestrate(client, question)
        sent, before = len(world.agents.sent), await counted(client)

        second = await orchestrate(client, question)

        assert (first.status_code, second.status_code) == (200, 200)
        assert second.content == first.content
        assert replays([first, second]) == [False, True]
        assert REPLAYED not in first.headers
        assert len(world.agents.sent) == sent
        assert len(world.store.receipts) == 1
        assert await counted(client) == before


async def test_an_answer_is_replayed_after_a_restart(world: World) -> None:
    """What makes a request a repeat is in the store, not in the process; the router may even be gone."""
    question = body()
    async with world.client() as client:
        first = await orchestrate(client, question)
    world.router = None

    async with world.client() as client:
        second = await orchestrate(client, question)

    assert replays([second]) == [True]
    assert second.content == first.content
    assert len(world.agents.sent) == 1


def _restamped(question: dict[str, Any]) -> dict[str, Any]:
    return {**question, "parsed_query": {**question["parsed_query"], "timestamp": "2026-02-01T00:00:00Z"}}


def _reordered(question: dict[str, Any]) -> dict[str, Any]:
    return {**dict(reversed(question.items())), "parsed_query": dict(reversed(question["parsed_query"].items()))}


def _with_id(spell: Callable[[str], str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def respelled(question: dict[str, Any]) -> dict[str, Any]:
        return {**question, "parsed_query": {**question["parsed_query"], "query_id": spell(question["parsed_query"]["query_id"])}}

    return respelled


SAME: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "stamped anew": _restamped,
    "in another order": _reordered,
    "id in capitals": _with_id(str.upper),
    "id without dashes": _with_id(lambda i: i.replace("-", "")),
    "id as a URN": _with_id(lambda i: f"urn:uuid:{i}"),
}


@pytest.mark.parametrize("respell", SAME.values(), ids=SAME.keys())
async def test_the_same_request_in_other_words_is_a_repeat(world: World, respell: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Order, the time stamp of a retry and the spelling of the id make no other body."""
    question = body(timestamp="2026-01-31T00:00:00Z")
    async with world.client() as client:
        first = await orchestrate(client, question)

        second = await orchestrate(client, respell(question))

        assert replays([first, second]) == [False, True]
        assert second.json() == first.json()


OTHER: dict[str, dict[str, Any]] = {
    "question": {"parsed_query": {"raw_query": "Did the rep visits lift Kisqali TRx!"}},
    "intent": {"parsed_query": {"intent": "gap_analysis"}},
    "entities": {"parsed_query": {"entities": []}},
    "confidence": {"parsed_query": {"confidence": 0.99}},
    "flag": {"parsed_query": {"ambiguity_flag": True}},
    "context": {"parsed_query": {"context": {"kpi": "TRx"}}},
    "user": {"user_id": "u-2"},
    "session": {"session_id": "s-2"},
    "history": {"conversation_history": [{"role": "user", "content": "Hi"}]},
    "preferences": {"preferences": {"depth": "thorough"}},
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER.keys())
async def test_another_body_under_a_used_id_is_a_conflict(world: World, change: dict[str, Any]) -> None:
    """409, nothing dispatched, nothing changed: the first body is still replayed."""
    question = body()
    other = {**question, **change, "parsed_query": {**question["parsed_query"], **change.get("parsed_query", {})}}
    async with world.client() as client:
        first = await orchestrate(client, question)

        conflict = await orchestrate(client, other)

        assert conflict.status_code == 409
        assert conflict.headers["content-type"] == "application/problem+json"
        assert (conflict.json()["code"], conflict.json()["retryable"]) == ("idempotency_conflict", False)
        assert REPLAYED not in conflict.headers
        assert len(world.agents.sent) == 1
        assert (await orchestrate(client, question)).content == first.content


async def test_equal_requests_at_once_dispatch_once(world: World) -> None:
    """Of twenty, one is carried out; the others wait for it and get the same answer as a replay."""
    world.agents = agents = WaitingAgents()
    question = body()
    async with world.client() as client:
        posting = asyncio.create_task(crowd(client, [question] * CROWD))
        await agents.reached.wait()
        await asyncio.sleep(0.05)  # time in which a second one would be dispatched

        agents.go.set()
        responses = await posting

        assert {r.status_code for r in responses} == {200}
        assert len({r.content for r in responses}) == 1
        assert sorted(replays(responses)) == [False] + [True] * (CROWD - 1)
        assert len(agents.sent) == 1
        assert len(world.store.receipts) == 1


async def test_other_requests_do_not_wait_for_one_under_way(world: World) -> None:
    """The lock is one query's, not the service's."""
    world.agents = agents = WaitingAgents()
    async with world.client() as client:
        slow = asyncio.create_task(orchestrate(client, body()))
        await agents.reached.wait()

        quick = await asyncio.wait_for(orchestrate(client, body("hello")), 10)

        assert quick.status_code == 200
        assert not slow.done()
        agents.go.set()
        assert (await slow).status_code == 200


async def test_other_bodies_at_once_under_one_id_are_conflicts(world: World) -> None:
    """The first body in is answered; each other one is refused, never answered with the first one's answer."""
    question = body()
    others = [{**question, "user_id": f"u-{i}"} for i in range(CROWD)]
    async with world.client() as client:
        responses = await crowd(client, others)

    assert sorted(r.status_code for r in responses) == [200] + [409] * (CROWD - 1)
    assert len(world.agents.sent) == 1


async def test_another_tenant_may_use_the_same_id(world: World) -> None:
    """Ids are a tenant's own: the other tenant gets an answer of its own, and no conflict tells it of the first."""
    world.keys = Keys.parse(",".join(f"{tenant}:{sha256(tenant.encode()).hexdigest()}:tier:*" for tenant in ("acme", "umbrella")))
    question = body()
    async with world.client() as client:
        first = await orchestrate(client, question, **{"X-API-Key": "acme"})

        other = await orchestrate(client, {**question, "user_id": "somebody else"}, **{"X-API-Key": "umbrella"})
        again = await orchestrate(client, question, **{"X-API-Key": "acme"})

        assert [r.status_code for r in (first, other, again)] == [200, 200, 200]
        assert replays([first, other, again]) == [False, False, True]
        assert other.json()["decision_id"] != first.json()["decision_id"]
        assert again.content == first.content
        assert {r.tenant for r in world.store.receipts.values()} == {"acme", "umbrella"}


async def test_a_failed_commit_leaves_the_id_free(world: World) -> None:
    """503 and nothing stored; the retry is carried out anew, and is replayed from then on."""
    world.store = StumblingStore(1)
    question = body()
    async with world.client() as client:
        failed = await orchestrate(client, question)
        stored = len(world.store.receipts)

        second, third = await orchestrate(client, question), await orchestrate(client, question)

        assert (failed.status_code, failed.headers["retry-after"], failed.json()["code"]) == (503, "1", "store_unavailable")
        assert stored == 0
        assert [second.status_code, third.status_code] == [200, 200]
        assert replays([second, third]) == [False, True]
        assert third.content == second.content


async def test_a_failed_commit_fails_its_own_request_only(world: World) -> None:
    """Of twenty equal requests at once, the one whose commit fails gets 503; the next one is carried out and the rest are replays."""
    world.store = StumblingStore(1)
    question = body()
    async with world.client() as client:
        responses = await crowd(client, [question] * CROWD)

    assert sorted(r.status_code for r in responses) == [200] * (CROWD - 1) + [503]
    assert sum(replays(responses)) == CROWD - 2
    assert len(world.agents.sent) == 2
    assert len(world.store.receipts) == 1


async def test_a_bug_behind_a_request_leaves_the_id_free(world: World) -> None:
    """After a 500, the same request is carried out."""
    world.store = BuggyStore()
    question = body()
    async with world.client() as client:
        broken, second = await orchestrate(client, question), await orchestrate(client, question)

        assert (broken.status_code, second.status_code) == (500, 200)
        assert replays([second]) == [False]


async def test_the_callers_time_runs_while_the_store_is_asked(world: World) -> None:
    """`max_latency_ms` is one budget for everything."""

    class Sluggish(MemoryStore):
        async def by_query(self, tenant: str, query_id: UUID) -> Receipt | None:
            await asyncio.sleep(0.5)
            return await super().by_query(tenant, query_id)

    world.store = Sluggish()
    question = body() | {"preferences": {"max_latency_ms": 300}}
    async with world.client() as client:
        answer = await orchestrate(client, question)

    assert answer.json()["total_latency_ms"] >= 500
    assert world.agents.sent == []  # there was no time left


async def test_who_waited_behind_a_failure_until_its_time_was_up_may_try_again(world: World) -> None:
    """503 and nothing stored: nothing was begun for it."""

    class Stalling(StumblingStore):
        async def commit(self, receipt: Receipt) -> Receipt:
            await asyncio.sleep(0.6)
            return await super().commit(receipt)

    world.store = Stalling(1)
    question = body() | {"preferences": {"max_latency_ms": 300}}
    async with world.client() as client:
        first = asyncio.create_task(orchestrate(client, question))
        await asyncio.sleep(0.2)
        second = await orchestrate(client, question)
        third = await orchestrate(client, question)

    assert [(r.status_code, r.json().get("code")) for r in (await first, second)] == [(503, "store_unavailable"), (503, "saturated")]
    assert (third.status_code, third.json()["status"]) == (200, "success")


async def test_a_route_asked_for_uses_up_no_id(world: World) -> None:
    """`/route` decides anew each time and stores nothing; the id is still free for `/orchestrate`."""
    question = body()
    async with world.client() as client:
        routes = [await client.post("/route", json=question) for _ in range(2)]

        answer = await orchestrate(client, question)

        assert len({r.json()["decision_id"] for r in routes}) == 2
        assert not any(replays([*routes, answer]))
        assert [UUID(answer.json()["decision_id"])] == list(world.store.receipts)


async def test_a_refused_body_uses_up_no_id(world: World) -> None:
    """After a 400 the same id may be used with the corrected body."""
    question = body()
    broken = json.loads(json.dumps(question))
    broken["user_id"] = ""
    async with world.client() as client:
        refused, answer = await orchestrate(client, broken), await orchestrate(client, question)

        assert (refused.status_code, answer.status_code) == (400, 200)
        assert replays([answer]) == [False]
