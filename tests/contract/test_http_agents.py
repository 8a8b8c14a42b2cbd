"""Agents over real HTTP on loopback: whatever a server does, the client returns a handoff or the right failure, in time."""

import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest

from service.adapters import http_agents
from service.adapters.http_agents import CORRELATION_HEADER, DEADLINE_HEADER, HttpAgents
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.flows.work import build_dispatch
from service.ports import AgentFailure
from tests.contract.http_server import (
    AMPLE,
    TIMEOUT,
    Answer,
    Request,
    Server,
    Writer,
    agent_at,
    answering,
    free_port,
    good,
    hanging,
    http,
    saying,
    send,
    serving,
)
from tests.unit.turns import a_request, calling, some_work


@pytest.fixture
async def client() -> AsyncIterator[HttpAgents]:
    """The client under test, closed at the end."""
    agents = HttpAgents()
    yield agents
    await agents.close()


async def test_a_good_handoff_is_returned(client: HttpAgents) -> None:
    """Field by field as the agent sent it; what it says beyond the contract is ignored."""
    async with serving(answering(lambda e: {**e, "more": 1, "handoff": {**e["handoff"], "mood": "fine"}})) as server:
        agent = agent_at(server.port)
        dispatch = build_dispatch(agent, some_work(), AMPLE, uuid4())

        handoff = await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

    assert isinstance(handoff, AgentHandoff)
    assert (handoff.dispatch_id, handoff.agent_id) == (dispatch.dispatch_id, "causal_impact")
    assert handoff.result.evidence == ("Seen in 12 rows.",)


async def test_the_dispatch_arrives_as_specified(client: HttpAgents) -> None:
    """The envelope as JSON to the catalogue's path, with what is left of the deadline and the correlation id in headers."""
    async with serving(answering()) as server:
        agent = agent_at(server.port)
        dispatch = build_dispatch(agent, some_work(request=a_request("Did it? ü 🙂")), AMPLE, uuid4())
        await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

    request = server.requests[0]
    assert request.line == "POST /agents/causal_impact HTTP/1.1"
    assert AgentDispatch.model_validate(request.body["dispatch"]) == dispatch
    assert request.body.keys() == {"dispatch"}
    assert request.headers["content-type"] == "application/json"
    assert request.headers[DEADLINE_HEADER.lower()] == str(dispatch.payload.constraints.max_latency_ms)
    assert request.headers[CORRELATION_HEADER.lower()] == "corr-1"
    assert "authorization" not in request.headers


async def test_no_proxy_of_the_environment_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are reached where the catalogue says."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{await free_port()}")
    agents = HttpAgents()

    async with serving(answering()) as server:
        answer = await send(agents, agent_at(server.port))
    await agents.close()

    assert isinstance(answer, AgentHandoff)


async def test_connections_are_used_again(client: HttpAgents) -> None:
    """Ten dispatches in turn need one connection."""
    async with serving(answering()) as server:
        for _ in range(10):
            assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)

    assert (len(server.requests), server.connections) == (10, 1)


BIG = b"x" * 3_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"
T, U, E, H = ErrorCode.AGENT_TIMEOUT, ErrorCode.AGENT_UNAVAILABLE, ErrorCode.AGENT_ERROR, ErrorCode.HANDOFF_INVALID
Fault = tuple[Answer, ErrorCode, bool, bool]


def without(*path: str) -> Callable[[dict[str, Any]], Any]:
    """Return a change that takes a field out."""

    def change(envelope: dict[str, Any]) -> dict[str, Any]:
        *parents, last = path
        inner = envelope
        for name in parents:
            inner = inner[name]
        del inner[last]
        return envelope

    return change


def putting(value: Any, *path: str) -> Callable[[dict[str, Any]], Any]:
    """Return a change that sets a field of the handoff."""

    def change(envelope: dict[str, Any]) -> dict[str, Any]:
        *parents, last = path
        inner = envelope["handoff"]
        for name in parents:
            inner = inner[name]
        inner[last] = value
        return envelope

    return change


def raw(body: bytes) -> Answer:
    """Answer 200 with these bytes."""
    return saying(http(body))


def planted(number: bytes) -> Answer:
    """Answer with a handoff whose output holds a number that JSON text can write, but no contract admits."""

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        body = json.dumps(putting("PLANTED", "result", "primary_output", "ate")(good(request))).encode()
        writer.write(http(body.replace(b'"PLANTED"', number)))

    return answer


FAULTS: dict[str, Fault] = {  # what the server does: code, recoverable, unavailable
    "hangs": (hanging, T, True, True),
    "drips headers": (saying(*[b"HTTP/1.1 200 OK\r\n", *[b"X-A: b\r\n"] * 50], pause=0.05), T, True, True),
    "drips the body": (saying(HEAD, *[b"{"] * 50, pause=0.05), T, True, True),
    "stops within the body": (saying(HEAD, b"{" * 10, pause=10.0), T, True, True),
    "hangs up at once": (saying(close=True), U, True, True),
    "hangs up within the headers": (saying(b"HTTP/1.1 200 OK\r\nConte", close=True), U, True, True),
    "hangs up within the body": (saying(HEAD, BIG[:100], close=True), U, True, True),
    "does not speak HTTP": (saying(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", close=True), U, True, True),
    "HTTP 400": (saying(http(b"{}", "400 Bad Request")), E, False, False),
    "HTTP 401": (saying(http(b"{}", "401 Unauthorized")), E, False, False),
    "HTTP 404": (saying(http(b"{}", "404 Not Found")), U, False, True),
    "HTTP 408": (saying(http(b"{}", "408 Request Timeout")), E, True, False),
    "HTTP 410": (saying(http(b"{}", "410 Gone")), U, False, True),
    "HTTP 422": (saying(http(b"{}", "422 Unprocessable Entity")), E, False, False),
    "HTTP 429": (saying(http(b"{}", "429 Too Many Requests", Retry_After="1")), U, True, True),
    "HTTP 500": (saying(http(b"{}", "500 Internal Server Error")), E, True, False),
    "HTTP 502": (saying(http(b"{}", "502 Bad Gateway")), U, True, True),
    "HTTP 503": (saying(http(b"{}", "503 Service Unavailable")), U, True, True),
    "HTTP 504": (saying(http(b"{}", "504 Gateway Timeout")), U, True, True),
    "HTTP 202": (saying(http(b"{}", "202 Accepted")), E, False, False),
    "HTTP 204": (saying(b"HTTP/1.1 204 No Content\r\n\r\n"), E, False, False),
    "empty 200": (raw(b""), H, False, False),
    "HTML": (raw(b"<html>Sign in</html>"), H, False, False),
    "cut-off JSON": (raw(b'{"handoff": {"dispatch_id"'), H, False, False),
    "not UTF-8": (raw(b'{"handoff": "\xff\xfe"}'), H, False, False),
    "a list": (raw(b"[]"), H, False, False),
    "null": (raw(b"null"), H, False, False),
    "nested without end": (raw(b"[" * 100_000), H, False, False),
    "a lone surrogate": (planted(b'"\\ud800"'), H, False, False),
    "NaN": (planted(b"NaN"), H, False, False),
    "infinity": (planted(b"-Infinity"), H, False, False),
    "a number beyond floats": (planted(b"1e999"), H, False, False),
    "a number without end": (planted(b"9" * 10_000), H, False, False),
    "compressed though not asked to": (saying(http(gzip.compress(b"{}" * 1_000), Content_Encoding="gzip")), H, False, False),
    "said to be compressed": (saying(http(b"no gzip at all", Content_Encoding="gzip")), H, False, False),
    "no envelope": (answering(lambda e: e["handoff"]), H, False, False),
    "unknown status": (answering(putting("done", "execution", "status")), ErrorCode.STATUS_INVALID, False, False),
    "no dispatch id": (answering(without("handoff", "dispatch_id")), H, False, False),
    "a dispatch id that is none": (answering(putting("d-001", "dispatch_id")), H, False, False),
    "no execution": (answering(without("handoff", "execution")), H, False, False),
    "no confidence": (answering(without("handoff", "result", "confidence")), H, False, False),
    "confidence above one": (answering(putting(1.5, "result", "confidence")), H, False, False),
    "confidence as text": (answering(putting("high", "result", "confidence")), H, False, False),
    "time without zone": (answering(putting("2025-12-08T10:00:00", "execution", "started_at")), H, False, False),
    "negative latency": (answering(putting(-1, "execution", "latency_ms")), H, False, False),
    "evidence that is no list": (answering(putting("Seen.", "result", "evidence")), H, False, False),
    "output that is no object": (answering(putting([1], "result", "primary_output")), H, False, False),
}


@pytest.mark.parametrize(("fault", "code", "recoverable", "unavailable"), FAULTS.values(), ids=FAULTS)
async def test_every_fault_is_the_right_failure_in_time(
    client: HttpAgents, fault: Answer, code: ErrorCode, recoverable: bool, unavailable: bool
) -> None:
    """Never an exception, never later than the timeout; and the client serves on."""
    async with serving(fault) as server:
        started = time.monotonic()
        answer = await send(client, agent_at(server.port), timeout=TIMEOUT if code is T else AMPLE)
        took = time.monotonic() - started

    assert isinstance(answer, AgentFailure)
    assert (answer.code, answer.recoverable, answer.unavailable) == (code, recoverable, unavailable)
    assert took < TIMEOUT + 2.0
    assert answer.latency_ms <= took * 1_000 + 1
    assert answer.detail.startswith("causal_impact ")
    async with serving(answering()) as server:
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)


async def test_an_agent_that_refuses_connections_is_unavailable(client: HttpAgents) -> None:
    """Known at once, not after the timeout."""
    started = time.monotonic()

    answer = await send(client, agent_at(await free_port()), timeout=30.0)

    assert isinstance(answer, AgentFailure)
    assert (answer.code, answer.recoverable, answer.unavailable) == (U, True, True)
    assert time.monotonic() - started < 5.0


async def test_no_more_of_an_answer_is_read_than_the_limit(client: HttpAgents) -> None:
    """A body without end costs neither memory nor time."""
    sent = 0

    async def flood(server: Server, request: Request, writer: Writer) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            sent += 65_536
            await writer.drain()

    async with serving(flood) as server:
        answer = await send(client, agent_at(server.port), timeout=10.0)

    assert isinstance(answer, AgentFailure)
    assert (answer.code, answer.recoverable, answer.unavailable) == (H, False, False)
    assert sent < 4 * http_agents.MAX_ANSWER_BYTES


async def test_an_answer_just_within_the_limit_is_read(client: HttpAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on bytes, and exact."""
    async with serving(answering(putting("x" * 10_000, "result", "primary_output", "summary"))) as server:
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)
        body = json.dumps(putting("x" * 10_000, "result", "primary_output", "summary")(good(server.requests[0]))).encode()

        monkeypatch.setattr(http_agents, "MAX_ANSWER_BYTES", len(body))
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)
        monkeypatch.setattr(http_agents, "MAX_ANSWER_BYTES", len(body) - 1)
        too_large = await send(client, agent_at(server.port))

    assert isinstance(too_large, AgentFailure)
    assert "more than" in too_large.detail


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_is_not_followed(client: HttpAgents, status: str) -> None:
    """An agent cannot send the question elsewhere."""
    async with serving(answering()) as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}/agents/causal_impact"
        async with serving(saying(http(b"", status, Location=location))) as server:
            answer = await send(client, agent_at(server.port))

    assert isinstance(answer, AgentFailure)
    assert (answer.code, answer.recoverable, answer.unavailable) == (E, False, False)
    assert elsewhere.requests == []


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
    client: HttpAgents, change: Callable[[dict[str, Any]], Any], code: ErrorCode, attempts: int, said: str
) -> None:
    """The checks after the handoff, over the wire; only the answer to another dispatch, which may be a late one, is asked for again."""
    async with serving(answering(change)) as server:
        run = await calling(client)(agent_at(server.port), some_work())

    assert run.failure is not None
    assert (run.failure.code, run.attempts) == (code, attempts)
    assert said in run.failure.detail


async def test_a_dispatch_is_retried_over_the_wire_until_it_is_answered(client: HttpAgents) -> None:
    """A hang, an overload, then a handoff: one run, three ids, one correlation id, and the headers of each attempt."""

    async def recovering(server: Server, request: Request, writer: Writer) -> None:
        if len(server.requests) == 1:
            await hanging(server, request, writer)
        elif len(server.requests) == 2:
            writer.write(http(b"{}", "503 Service Unavailable"))
        else:
            await answering()(server, request, writer)

    async with serving(recovering) as server:
        run = await calling(client)(agent_at(server.port, timeout_ms=800), some_work(10.0))

    assert (run.attempts, run.failure) == (3, None)
    dispatches = [r.body["dispatch"] for r in server.requests]
    assert len({d["dispatch_id"] for d in dispatches}) == 1
    assert {d["metadata"]["correlation_id"] for d in dispatches} == {"corr-1"}
    limits = [int(r.headers[DEADLINE_HEADER.lower()]) for r in server.requests]
    assert limits == pytest.approx([800, 1_200, 800], abs=200)
