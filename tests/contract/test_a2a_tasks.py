"""Tasks of A2A agents: looked at until they end, canceled when they are left; and the other binding, HTTP+JSON."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.adapters import a2a_agents
from service.adapters.a2a_agents import A2aAgents
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.errors import ErrorCode
from tests.contract.a2a_server import OPEN_TASK, behind_card, error, method_of, replying, result, saying_tasks, task, text
from tests.contract.agent_client_suite import E, H, T, U, failed
from tests.contract.http_server import AMPLE, TIMEOUT, Answer, Request, Server, Writer, agent_at, hanging, http, send, serving

DONE = task("TASK_STATE_COMPLETED", produced=text("Up by 4 %."))
WORKING = task(OPEN_TASK, text("Wait."))
SUBMITTED = task("TASK_STATE_SUBMITTED")


@pytest.fixture
async def client() -> AsyncIterator[A2aAgents]:
    """The client under test, closed at the end."""
    agents = A2aAgents()
    yield agents
    await agents.close()


def methods(server: Server) -> list[str]:
    """Return the methods of JSON-RPC that were called."""
    return [method_of(request) for request in server.requests if request.body is not None]


async def heard(server: Server, method: str) -> Request:
    """Wait for a call of a method, and return it."""
    async with asyncio.timeout(AMPLE):
        while method not in methods(server):
            await asyncio.sleep(0.01)
    return next(request for request in server.requests if request.body is not None and method_of(request) == method)


def after_message(answer: Answer) -> Answer:
    """Answer the message with a task that is worked on, and everything later as told."""

    async def answer_both(server: Server, request: Request, writer: Writer) -> None:
        if method_of(request) == "SendMessage":
            writer.write(result(request, {"task": WORKING}))
        else:
            await answer(server, request, writer)

    return behind_card(answer_both)


async def test_a_task_is_looked_at_until_it_has_ended(client: A2aAgents) -> None:
    """By its id, without its history; its answer is the handoff, and nothing is left to cancel."""
    async with serving(saying_tasks(SUBMITTED, WORKING, WORKING, DONE)) as server:
        handoff = await send(client, agent_at(server.port))
        await asyncio.sleep(0.05)

    assert isinstance(handoff, AgentHandoff)
    assert handoff.result.primary_output == {"summary": "Up by 4 %."}
    assert methods(server) == ["SendMessage", "GetTask", "GetTask", "GetTask"]
    assert server.requests[2].body["params"] == {"id": "t-1", "historyLength": 0}


async def test_looks_become_rarer(client: A2aAgents) -> None:
    """A task that takes long is not asked for without pause."""
    async with serving(saying_tasks(WORKING)) as server:
        failed(await send(client, agent_at(server.port), timeout=1.5))

    assert 5 <= methods(server).count("GetTask") <= 8


async def test_a_task_that_is_not_done_in_time_is_canceled(client: A2aAgents) -> None:
    """The caller does not wait for that."""

    async def never(server: Server, request: Request, writer: Writer) -> None:
        if method_of(request) == "CancelTask":
            await hanging(server, request, writer)
        writer.write(result(request, WORKING))

    async with serving(after_message(never)) as server:
        started = time.monotonic()
        failure = failed(await send(client, agent_at(server.port), timeout=TIMEOUT))
        took = time.monotonic() - started
        canceled = await heard(server, "CancelTask")

    assert (failure.code, failure.recoverable, failure.unavailable, failure.may_have_run) == (T, True, True, True)
    assert took < TIMEOUT + 0.5
    assert canceled.body["params"] == {"id": "t-1"}


async def test_a_task_whose_caller_has_left_is_canceled(client: A2aAgents) -> None:
    """And then nothing is left behind."""
    async with serving(saying_tasks(WORKING)) as server:
        before = asyncio.all_tasks()
        call = asyncio.create_task(send(client, agent_at(server.port), timeout=30.0))
        await heard(server, "GetTask")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await heard(server, "CancelTask")
        await asyncio.sleep(0.05)

        ours = {t for t in asyncio.all_tasks() - before if "Server.serve" not in repr(t) and "track" not in repr(t)}
    assert ours == set()


@pytest.mark.parametrize("state", ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"])
async def test_a_task_that_waits_for_more_is_canceled_for_nobody_comes_back_to_it(client: A2aAgents, state: str) -> None:
    """What the user says next is another message."""
    async with serving(saying_tasks(task(state, text("Which brand?")))) as server:
        await send(client, agent_at(server.port))
        canceled = await heard(server, "CancelTask")

    assert canceled.body["params"]["id"] == "t-1"


@pytest.mark.parametrize(
    "refuse",
    [
        lambda request: error(request, -32002),
        lambda request: http(b"", "500 Internal Server Error"),
        lambda request: b"x",
        lambda request: http(b"[]"),
    ],
    ids=["not cancelable", "500", "no HTTP", "no JSON-RPC"],
)
async def test_a_refused_cancellation_troubles_nobody(client: A2aAgents, refuse: Any) -> None:
    """It was no more than a courtesy."""

    def reply(request: Request) -> bytes:
        if method_of(request) == "CancelTask":
            refused: bytes = refuse(request)
            return refused
        return result(request, {"task": WORKING} if method_of(request) == "SendMessage" else WORKING)

    async with serving(replying(reply)) as server:
        failed(await send(client, agent_at(server.port), timeout=0.2))
        await heard(server, "CancelTask")
        await asyncio.sleep(0.05)


async def test_a_cancellation_that_hangs_ends_by_itself_and_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an agent nor the end of the service waits for it."""
    monkeypatch.setattr(a2a_agents, "CANCEL_SECONDS", 0.1)
    client = A2aAgents()
    async with serving(after_message(hanging)) as server:
        before = asyncio.all_tasks()
        failed(await send(client, agent_at(server.port), timeout=0.2))
        await heard(server, "CancelTask")
        await asyncio.sleep(0.3)
        left = {t for t in asyncio.all_tasks() - before if "A2aAgents" in repr(t)}
        monkeypatch.setattr(a2a_agents, "CANCEL_SECONDS", 60.0)
        failed(await send(client, agent_at(server.port), timeout=0.2))
        started = time.monotonic()
        await client.close()

    assert left == set()
    assert time.monotonic() - started < 1.0


def after_message_a_reply(reply: Any) -> Answer:
    """Answer each look at the task with a complete response."""

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        writer.write(reply(request))

    return after_message(answer)


LATER: dict[str, tuple[Any, ErrorCode, bool, bool]] = {
    "the task is lost": (lambda request: error(request, -32001), E, True, False),
    "an error": (lambda request: error(request, -32603), E, True, False),
    "bad parameters": (lambda request: error(request, -32602), E, False, False),
    "HTTP 503": (lambda request: http(b"", "503 Service Unavailable"), U, True, True),
    "HTTP 404": (lambda request: http(b"", "404 Not Found"), E, True, False),
    "HTTP 401": (lambda request: http(b"", "401 Unauthorized"), E, False, False),
    "another task": (lambda request: result(request, {**DONE, "id": "t-2"}), H, False, False),
    "no task": (lambda request: result(request, []), H, False, False),
    "not HTTP": (lambda request: b"SSH-2.0-OpenSSH_9.6\r\n\r\n", U, True, True),
}


@pytest.mark.parametrize(("reply", "code", "recoverable", "unavailable"), LATER.values(), ids=LATER)
async def test_what_goes_wrong_after_the_task_was_taken_on_is_a_failure_of_work_that_was_begun(
    client: A2aAgents, reply: Any, code: ErrorCode, recoverable: bool, unavailable: bool
) -> None:
    """So that it is repeated for idempotent agents only; and the task is canceled."""
    async with serving(after_message_a_reply(reply)) as server:
        failure = failed(await send(client, agent_at(server.port)))
        await heard(server, "CancelTask")

    assert (failure.code, failure.recoverable, failure.unavailable) == (code, recoverable, unavailable)
    assert failure.may_have_run or not recoverable


@pytest.mark.parametrize("name", ["", "../t", "a/b", "t?x=1", "t 1", "x" * 300, "t\n"], ids=repr)
async def test_a_task_by_a_name_that_could_lead_elsewhere_is_not_looked_at(client: A2aAgents, name: str) -> None:
    """With one binding the id is a part of the address."""
    async with serving(saying_tasks({**WORKING, "id": name})) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, methods(server)) == (H, ["SendMessage"])


async def test_all_answers_to_one_dispatch_are_bounded_together(client: A2aAgents) -> None:
    """A task that grows while it is looked at cannot send more than one answer may."""
    async with serving(saying_tasks(task(OPEN_TASK, produced=text("x" * 2_000_000)))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, methods(server)[:3]) == (H, ["SendMessage", "GetTask", "GetTask"])
    assert "more than 5000000 bytes" in failure.detail


async def test_an_answer_to_another_request_is_not_taken(client: A2aAgents) -> None:
    """By the id of JSON-RPC; it may be a late one, so the dispatch is worth another try, on a connection of its own."""
    ids = iter(["another", "another"])

    def reply(request: Request) -> bytes:
        return result(Request("", {}, {"id": next(ids, request.body["id"])}), {"task": DONE})

    async with serving(replying(reply)) as server:
        agent = agent_at(server.port)
        failure, again = failed(await send(client, agent)), failed(await send(client, agent))
        handoff = await send(client, agent)

    assert (failure.code, failure.recoverable, failure.may_have_run) == (ErrorCode.DISPATCH_MISMATCH, True, True)
    assert again.code is ErrorCode.DISPATCH_MISMATCH
    assert isinstance(handoff, AgentHandoff)
    assert [request.headers.get("connection") for request in server.requests[1:]] == [None, "close", "close"]


def over_rest(*tasks: dict[str, Any]) -> Answer:
    """Offer HTTP+JSON only: a task for the message, and the next one for each look at it."""
    left = list(tasks)

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        one = left.pop(0) if len(left) > 1 else left[0]
        writer.write(http(json.dumps({"task": one} if request.line.split()[1].endswith("/message:send") else one).encode()))

    def change(card: dict[str, Any]) -> dict[str, Any]:
        return {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], "protocolBinding": "HTTP+JSON"}]}

    return behind_card(answer, change)


async def test_an_agent_that_speaks_http_and_json_is_asked_in_that(client: A2aAgents) -> None:
    """The same message and the same task, at other addresses."""
    async with serving(over_rest(WORKING, DONE)) as server:
        handoff = await send(client, agent_at(server.port))

    assert isinstance(handoff, AgentHandoff)
    assert (handoff.execution.status, handoff.result.primary_output) == (HandoffStatus.SUCCESS, {"summary": "Up by 4 %."})
    lines = [request.line for request in server.requests[1:]]
    assert lines[0] == "POST /agents/causal_impact/message:send HTTP/1.1"
    assert lines[1].startswith("GET /agents/causal_impact/tasks/t-1")
    assert "dispatch" in server.requests[1].body["message"]["parts"][1]["data"]


async def test_a_task_over_http_and_json_is_canceled_there(client: A2aAgents) -> None:
    """When its time is over."""
    async with serving(over_rest(WORKING)) as server:
        failure = failed(await send(client, agent_at(server.port), timeout=TIMEOUT))
        async with asyncio.timeout(AMPLE):
            while not any(":cancel" in request.line for request in server.requests):
                await asyncio.sleep(0.01)

    assert failure.code is T
