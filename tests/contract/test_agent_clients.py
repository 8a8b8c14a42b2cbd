"""What holds for every `AgentClient`: whatever a server does with a dispatch, a handoff or the right failure, in time."""

import json
import time
from typing import Any
from uuid import uuid4

import pytest

from service.adapters import a2a_exchange, agent_wire, http_agents
from service.adapters.agent_wire import CORRELATION_HEADER, DEADLINE_HEADER
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.flows.work import build_dispatch
from tests.contract.agent_client_suite import FAULTS, Change, Client, Fault, H, T, Tongue, U, failed, putting, without
from tests.contract.http_server import (
    AMPLE,
    TIMEOUT,
    Request,
    Server,
    Writer,
    agent_at,
    free_port,
    good,
    hanging,
    http,
    saying,
    send,
    serving,
)
from tests.unit.turns import a_request, an_entity, calling, some_work


async def test_a_good_handoff_is_returned(tongue: Tongue, client: Client) -> None:
    """Field by field as the agent sent it, whole numbers as such; what it says beyond the contract is ignored."""

    def change(envelope: dict[str, Any]) -> dict[str, Any]:
        envelope["handoff"]["result"]["primary_output"] = {
            "rows": 12,
            "effect": -0.25,
            "none": None,
            "deep": [{"yes": True}],
            "text": "ü 🙂",
        }
        return {**envelope, "more": 1, "handoff": {**envelope["handoff"], "mood": "fine"}}

    async with serving(tongue.answering(change)) as server:
        agent = agent_at(server.port)
        dispatch = build_dispatch(agent, some_work(), AMPLE, uuid4())

        handoff = await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

    assert isinstance(handoff, AgentHandoff)
    assert (handoff.dispatch_id, handoff.agent_id) == (dispatch.dispatch_id, "causal_impact")
    assert handoff.result.evidence == ("Seen in 12 rows.",)
    assert handoff.result.primary_output == {"rows": 12, "effect": -0.25, "none": None, "deep": [{"yes": True}], "text": "ü 🙂"}
    assert isinstance(handoff.result.primary_output["rows"], int)


async def test_the_dispatch_arrives_whole(tongue: Tongue, client: Client) -> None:
    """With what is left of the deadline and the correlation id in headers, and nothing that would prove who asks."""
    async with serving(tongue.answering()) as server:
        agent = agent_at(server.port, receives=("raw_query", "context"))
        nested: dict[str, Any] = {"end": 1}
        for _ in range(20):
            nested = {"in": nested}
        request = a_request("Did it? ü 🙂", context={"number": 0.1, "count": 3, "nested": nested})
        dispatch = build_dispatch(agent, some_work(request=request), AMPLE, uuid4())
        answer = await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

    assert isinstance(answer, AgentHandoff)
    (arrived,) = tongue.dispatches(server)
    assert tongue.dispatch_in(arrived) == dispatch
    assert arrived.line == "POST /agents/causal_impact HTTP/1.1"
    assert arrived.headers["content-type"] == "application/json"
    assert arrived.headers["accept-encoding"] == "identity"
    assert arrived.headers[DEADLINE_HEADER.lower()] == str(dispatch.payload.constraints.max_latency_ms)
    assert arrived.headers[CORRELATION_HEADER.lower()] == "corr-1"
    assert all("authorization" not in request.headers for request in server.requests)


async def test_nothing_beyond_the_projection_is_sent(tongue: Tongue, client: Client) -> None:
    """Neither in bodies nor in headers nor in addresses: an agent that is told the brand only does not see the question."""
    said = a_request("Did it lift sales in secret?", context={"plan": "hidden"}, history=[{"role": "user", "content": "before"}])
    request = said.model_copy(update={"user_id": "user-17", "session_id": "session-4"})
    work = some_work(request=request, entities=(an_entity(), an_entity("region", "Northeast")))
    async with serving(tongue.answering()) as server:
        agent = agent_at(server.port, receives=("entities.brand",))
        answer = await send(client, agent, work=work)

    assert isinstance(answer, AgentHandoff)
    sent = "\n".join(f"{one.line} {one.headers} {json.dumps(one.body)}" for one in server.requests)
    assert "Kisqali" in sent
    assert [word for word in ("secret", "hidden", "user-17", "session-4", "before", "Northeast") if word in sent] == []


async def test_an_agent_that_answers_twice_gets_no_second_hearing(tongue: Tongue, client: Client) -> None:
    """What came too much is not the answer to the next dispatch."""

    async def twice(server: Server, request: Request, writer: Writer) -> None:
        body = tongue.around(request, json.dumps(good(tongue.unwrap(request))))
        writer.write(http(body) + http(body))

    async with serving(tongue.stage(twice)) as server:
        agent = agent_at(server.port)
        for _ in range(3):
            dispatch = build_dispatch(agent, some_work(), AMPLE, uuid4())
            handoff = await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

            assert isinstance(handoff, AgentHandoff)
            assert handoff.dispatch_id == dispatch.dispatch_id


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_every_fault_is_the_right_failure_in_time(tongue: Tongue, client: Client, fault: Fault) -> None:
    """Never an exception, never later than the timeout; and the client serves on."""
    async with serving(fault.does(tongue)) as server:
        started = time.monotonic()
        failure = failed(await send(client, agent_at(server.port), timeout=TIMEOUT if fault.code is T else AMPLE))
        took = time.monotonic() - started

    assert (failure.code, failure.recoverable, failure.unavailable) == (fault.code, fault.recoverable, fault.unavailable)
    assert took < TIMEOUT + 2.0
    assert failure.latency_ms <= took * 1_000 + 1
    assert failure.detail.startswith("causal_impact ")
    assert len(failure.detail) < 1_000
    async with serving(tongue.answering()) as server:
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_how_long_an_agent_wants_to_be_left_alone_is_passed_on(tongue: Tongue, client: Client, status: str) -> None:
    """In seconds, as `Retry-After` says."""
    async with serving(tongue.stage(saying(http(b"{}", status, Retry_After="7")))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.retry_after) == (U, 7.0)


@pytest.mark.parametrize(
    "asked", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2029 00:00:00 +9999999999999999999999999", "soon", "-7", "1e9"]
)
async def test_a_retry_after_that_means_nothing_is_none(tongue: Tongue, client: Client, asked: str) -> None:
    """Whatever an agent writes there, it is a failure like another."""
    async with serving(tongue.stage(saying(http(b"{}", "503 Service Unavailable", Retry_After=asked)))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.retry_after) == (U, None)


async def test_a_header_that_is_no_text_breaks_nothing_that_is_stored(tongue: Tongue, client: Client) -> None:
    """What the failure quotes of it can be encoded."""
    packed = http(b"no json").replace(b"\r\n\r\n", b"\r\nContent-Encoding: \xff\xfe\x80\r\n\r\n", 1)
    async with serving(tongue.stage(saying(packed))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert failure.detail.encode()


async def test_an_agent_that_refuses_connections_is_unavailable(client: Client) -> None:
    """Known at once, not after the timeout."""
    started = time.monotonic()

    failure = failed(await send(client, agent_at(await free_port()), timeout=30.0))

    assert (failure.code, failure.recoverable, failure.unavailable) == (U, True, True)
    assert time.monotonic() - started < 5.0


async def test_no_more_of_an_answer_is_read_than_the_limit(tongue: Tongue, client: Client) -> None:
    """A body without end costs neither memory nor time."""
    sent = 0

    async def flood(server: Server, request: Request, writer: Writer) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            sent += 65_536
            await writer.drain()

    async with serving(tongue.stage(flood)) as server:
        failure = failed(await send(client, agent_at(server.port), timeout=10.0))

    assert (failure.code, failure.recoverable, failure.unavailable) == (H, False, False)
    assert sent < 4 * agent_wire.MAX_ANSWER_BYTES


async def test_an_answer_just_within_the_limit_is_read(tongue: Tongue, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on bytes, and exact."""
    size = 0

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        nonlocal size
        body = tongue.around(
            request, json.dumps(putting("x" * 10_000, "result", "primary_output", "summary")(good(tongue.unwrap(request))))
        )
        size = len(body)
        writer.write(http(body))

    async with serving(tongue.stage(answer)) as server:
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)
        for module in (http_agents, a2a_exchange):
            monkeypatch.setattr(module, "MAX_ANSWER_BYTES", size)
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)
        for module in (http_agents, a2a_exchange):
            monkeypatch.setattr(module, "MAX_ANSWER_BYTES", size - 1)
        too_large = failed(await send(client, agent_at(server.port)))

    assert "more than" in too_large.detail


@pytest.mark.parametrize(
    ("change", "code", "attempts", "said"),
    [
        (putting(str(uuid4()), "dispatch_id"), ErrorCode.DISPATCH_MISMATCH, 3, "answered dispatch"),
        (putting("explainer", "agent_id"), ErrorCode.DISPATCH_MISMATCH, 1, "answered for causal_impact"),
        (without("handoff", "result", "primary_output", "ate"), ErrorCode.OUTPUT_MISSING, 1, "left out ate"),
    ],
    ids=["another dispatch", "another agent", "a required output missing"],
)
async def test_a_valid_handoff_that_does_not_belong_here_is_refused(
    tongue: Tongue, client: Client, change: Change, code: ErrorCode, attempts: int, said: str
) -> None:
    """The checks after the handoff, over the wire; only the answer to another dispatch, which may be a late one, is asked for again."""
    async with serving(tongue.answering(change)) as server:
        run = await calling(client)(agent_at(server.port), some_work())

    assert run.failure is not None
    assert (run.failure.code, run.attempts) == (code, attempts)
    assert said in run.failure.detail


async def test_a_dispatch_is_retried_over_the_wire_until_it_is_answered(tongue: Tongue, client: Client) -> None:
    """A hang, an overload, then a handoff: one run, one dispatch id, one correlation id, and the headers of each attempt."""

    async def recovering(server: Server, request: Request, writer: Writer) -> None:
        if len(tongue.dispatches(server)) == 1:
            await hanging(server, request, writer)
        elif len(tongue.dispatches(server)) == 2:
            writer.write(http(b"{}", "503 Service Unavailable"))
        else:
            await tongue.writing(lambda dispatch: json.dumps(good(dispatch)))(server, request, writer)

    async with serving(tongue.stage(recovering)) as server:
        run = await calling(client)(agent_at(server.port, timeout_ms=800), some_work(10.0))

    assert (run.attempts, run.failure) == (3, None)
    arrived = tongue.dispatches(server)
    dispatches = [tongue.dispatch_in(request) for request in arrived]
    assert len({dispatch.dispatch_id for dispatch in dispatches}) == 1
    assert {dispatch.metadata.correlation_id for dispatch in dispatches} == {"corr-1"}
    limits = [int(request.headers[DEADLINE_HEADER.lower()]) for request in arrived]
    assert limits == pytest.approx([800, 1_200, 800], abs=200)
