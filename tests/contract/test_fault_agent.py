"""The fault agent on real sockets: each fault is on the wire what its name says, everything else is answered, and nothing stays behind."""

import asyncio
import gzip
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from service.adapters.http_agents import MAX_ANSWER_BYTES
from service.agents.faults.acts import ACTS
from service.agents.faults.answers import ANSWERS
from service.agents.faults.drill import agents_behind
from service.agents.faults.handoffs import made_up_outputs
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from service.catalog.model import Catalog
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff, HandoffEnvelope, HandoffStatus
from tests.conftest import ROOT

AGENT = "causal_impact"
PATIENCE = 10.0  # seconds, for what should come at once


def serving(fault: Fault | None = None, **fields: Any) -> FaultServer:
    """Return a server that does one thing to every dispatch, or nothing."""
    faults = () if fault is None else (PlannedFault(agent="*", fault=fault, **fields),)
    return FaultServer(FaultPlan(faults=faults))


def some_dispatch(agent: str = AGENT, question: str = "Did it?") -> AgentDispatch:
    return AgentDispatch.model_validate(
        {
            "dispatch_id": uuid4(),
            "query_id": uuid4(),
            "target_agent": agent,
            "target_tier": 2,
            "payload": {
                "intent": "explanation",
                "context": {"raw_query": question},
                "constraints": {"max_latency_ms": 60_000, "required_confidence": 0.5},
            },
            "routing": {"priority": 1, "timeout_ms": 60_000, "retry_count": 0, "fallback_agent": None},
            "metadata": {"dispatched_at": "2026-06-17T00:00:00Z", "correlation_id": "c-1"},
        }
    )


async def post(url: str, dispatch: AgentDispatch, client: httpx.AsyncClient | None = None) -> httpx.Response:
    """Send a dispatch, as Pointsman does."""
    headers = {"Content-Type": "application/json", "X-Deadline-Ms": "1234", "X-Correlation-ID": "c-1", "Accept-Encoding": "identity"}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as own:
        return await (client or own).post(url, content=DispatchEnvelope(dispatch=dispatch).model_dump_json(), headers=headers)


def as_request(dispatch: AgentDispatch) -> bytes:
    body = DispatchEnvelope(dispatch=dispatch).model_dump_json().encode()
    return f"POST /agents/{dispatch.target_agent} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def listen(server: FaultServer, enough: Callable[[bytes], bool] = lambda _: False) -> tuple[bytes, str]:
    """Send a dispatch over a bare socket. Return all that comes back, until enough or the end, and how it ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    received, ending = b"", "open"
    try:
        writer.write(as_request(some_dispatch()))
        async with asyncio.timeout(PATIENCE):
            while not enough(received):
                piece = await reader.read(65_536)
                if not piece:
                    ending = "closed"
                    break
                received += piece
    except ConnectionResetError:
        ending = "reset"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return received, ending


async def settled(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; False when it does not come to that."""
    limit = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < limit:
        await asyncio.sleep(0.005)
    return holds()


def parts(answer: bytes) -> tuple[str, dict[str, str], bytes]:
    """Return an answer's status line, headers and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    return line, dict(f.split(": ", 1) for f in fields), body


def half_of_a_body(answer: bytes) -> bool:
    line, headers, body = parts(answer)
    return line == "HTTP/1.1 200 OK" and 0 < len(body) < int(headers["Content-Length"]) <= 2 * len(body) + 1


def whole_body(answer: bytes) -> bool:
    _, headers, body = parts(answer)
    return len(body) == int(headers["Content-Length"]) and bool(HandoffEnvelope.model_validate_json(body))


def more_than_the_length(answer: bytes) -> bool:
    _, headers, body = parts(answer)
    return b"\r\n\r\n" in answer and int(headers["Content-Length"]) == len(body) // 2 and body.endswith(b"}}")


Spoken = tuple[dict[str, Any], str, Callable[[bytes], bool]]
SPOKEN: dict[Fault, Spoken] = {  # fields of the entry, how the connection ends, what was sent
    Fault.REFUSE: ({}, "reset", lambda a: a == b""),
    Fault.HANG_UP: ({}, "closed", lambda a: a == b""),
    Fault.HANG: ({"seconds": 0.3}, "closed", lambda a: a == b""),
    Fault.LATE_ANSWER: ({"seconds": 0.3}, "open", whole_body),
    Fault.SLOW_HEADERS: ({"seconds": 0.3}, "open", whole_body),
    Fault.SLOW_BODY: ({"seconds": 0.3}, "open", whole_body),
    Fault.STALLED_BODY: ({"seconds": 0.3}, "closed", half_of_a_body),
    Fault.CUT_CONNECTION: ({}, "closed", half_of_a_body),
    Fault.RESET_IN_BODY: ({}, "reset", lambda a: a == b"" or half_of_a_body(a)),
    Fault.CLOSED_AFTER_ANSWER: ({}, "closed", lambda a: whole_body(a) and b"onnection" not in a.partition(b"\r\n\r\n")[0]),
    Fault.NOT_HTTP: ({}, "closed", lambda a: a == b"SSH-2.0-OpenSSH_9.6\r\n"),
    Fault.ENDLESS_HEADERS: ({}, "open", lambda a: len(a) > 200_000 and b"\r\n\r\n" not in a),
    Fault.TRUNCATED_CHUNKS: ({}, "closed", lambda a: b"Transfer-Encoding: chunked" in a and not a.endswith(b"0\r\n\r\n")),
    Fault.BROKEN_CHUNKS: ({}, "closed", lambda a: b"\r\n\r\nzz\r\n" in a),
    Fault.SHORT_LENGTH: ({}, "open", more_than_the_length),
    Fault.TWO_ANSWERS: ({}, "open", lambda a: a.count(b"HTTP/1.1 200 OK") == 2 and a.endswith(b"}}")),
    Fault.INTERIM_ANSWER: ({}, "open", lambda a: a.startswith(b"HTTP/1.1 103 ") and b"\r\n\r\nHTTP/1.1 200" in a and a.endswith(b"}}")),
    Fault.HUGE_BODY: ({}, "open", lambda a: b"Transfer-Encoding: chunked" in a and len(a) > MAX_ANSWER_BYTES),
}


@pytest.mark.parametrize(("fault", "spoken"), SPOKEN.items(), ids=SPOKEN)
async def test_a_fault_of_the_connection_is_on_the_wire(fault: Fault, spoken: Spoken) -> None:
    """Byte by byte, and with the end of the connection that it should have."""
    fields, ending, sent = spoken

    def enough(answer: bytes) -> bool:
        with suppress(ValueError, KeyError):  # it has not all arrived
            return ending == "open" and sent(answer)
        return False

    async with serving(fault, **fields) as server:
        started = time.monotonic()
        answer, ended = await listen(server, enough)

    assert ended == ending
    assert sent(answer)
    assert time.monotonic() - started >= fields.get("seconds", 0.0) * 0.8


@pytest.mark.parametrize(("framing", "header"), [("length", "Content-Length: 1000000000000"), ("close", "Connection: close")])
async def test_a_huge_body_comes_with_and_without_a_length(framing: str, header: str) -> None:
    """More than the client's limit in any case; and it ends when the client leaves."""
    async with serving(Fault.HUGE_BODY, framing=framing) as server:
        answer, _ = await listen(server, lambda a: len(a) > MAX_ANSWER_BYTES)

        assert await settled(lambda: server.open_connections == 0)

    assert header in answer.partition(b"\r\n\r\n")[0].decode()
    assert b"chunked" not in answer
    assert server.received[0].hung_up


@pytest.mark.parametrize("fault", [Fault.SLOW_HEADERS, Fault.SLOW_BODY])
async def test_a_slow_answer_begins_at_once(fault: Fault) -> None:
    """A client that waits for the first byte only, or for each byte, would not notice that it is slow."""
    async with serving(fault, seconds=10.0) as server:
        answer, _ = await listen(server, lambda a: len(a) > 5 and (fault is Fault.SLOW_HEADERS or len(parts(a)[2]) > 0))

    assert answer.startswith(b"HTTP/")
    assert (b"\r\n\r\n" in answer) is (fault is Fault.SLOW_BODY)
    assert len(answer) < 400


def handoff_of(response: httpx.Response) -> AgentHandoff:
    return HandoffEnvelope.model_validate_json(response.content).handoff


def raw_of(response: httpx.Response) -> dict[str, Any]:
    return dict(response.json()["handoff"])


Answered = tuple[dict[str, Any], int, Callable[[httpx.Response, UUID], bool]]
ANSWERED: dict[Fault, Answered] = {  # fields of the entry, HTTP status, what is said
    Fault.ERROR_500: ({}, 500, lambda r, _: r.json()["status"] == 500),
    Fault.RATE_LIMIT_429: ({"retry_after": 7}, 429, lambda r, _: r.headers["retry-after"] == "7"),
    Fault.UNAVAILABLE_503: ({"retry_after": "Sat, 28 Nov"}, 503, lambda r, _: r.headers["retry-after"] == "Sat, 28 Nov"),
    Fault.NOT_FOUND_404: ({}, 404, lambda r, _: "retry-after" not in r.headers and r.headers["content-type"] == "application/problem+json"),
    Fault.HTTP_STATUS: ({"status": 204}, 204, lambda r, _: r.content == b""),
    Fault.REDIRECT: ({"status": 307, "location": "http://example.invalid/"}, 307, lambda r, _: r.headers["location"].endswith("d/")),
    Fault.EMPTY_200: ({}, 200, lambda r, _: r.content == b""),
    Fault.HTML_200: ({}, 200, lambda r, _: r.headers["content-type"].startswith("text/html") and b"<html>" in r.content),
    Fault.INVALID_JSON: ({}, 200, lambda r, _: r.content.startswith(b'{"handoff":{') and not r.content.endswith(b"}}")),
    Fault.NOT_UTF8: ({}, 200, lambda r, _: b"made \xff\xfe" in r.content),
    Fault.DEEP_JSON: ({}, 200, lambda r, _: r.content.count(b"[") == r.content.count(b"]") == 100_000),
    Fault.NAN_CONFIDENCE: ({}, 200, lambda r, _: raw_of(r)["result"]["confidence"] != raw_of(r)["result"]["confidence"]),
    Fault.NO_ENVELOPE: ({}, 200, lambda r, d: r.json()["dispatch_id"] == str(d)),
    Fault.GZIP_UNASKED: ({}, 200, lambda r, d: r.headers["content-encoding"] == "gzip" and handoff_of(r).dispatch_id == d),
    Fault.WRONG_DISPATCH_ID: ({}, 200, lambda r, d: handoff_of(r).dispatch_id != d),
    Fault.WRONG_AGENT_ID: ({}, 200, lambda r, d: (handoff_of(r).agent_id, handoff_of(r).dispatch_id) == ("somebody_else", d)),
    Fault.UNKNOWN_STATUS: ({}, 200, lambda r, _: raw_of(r)["execution"]["status"] not in set(HandoffStatus)),
    Fault.MISSING_OUTPUT: ({}, 200, lambda r, _: handoff_of(r).result.primary_output == {}),
    Fault.LOW_CONFIDENCE: ({}, 200, lambda r, _: handoff_of(r).result.confidence == 0.01 and "ate" in handoff_of(r).result.primary_output),
    Fault.CONFIDENCE_ABOVE_ONE: ({}, 200, lambda r, _: raw_of(r)["result"]["confidence"] == 1.5),
    Fault.LATE_CLAIM: ({}, 200, lambda r, _: handoff_of(r).execution.latency_ms == 86_400_000),
    Fault.FAILED: (
        {"recoverable": True},
        200,
        lambda r, _: handoff_of(r).execution.status == "failed" and handoff_of(r).errors.recoverable,
    ),
    Fault.TIMED_OUT: ({}, 200, lambda r, _: handoff_of(r).execution.status == "timeout"),
    Fault.BLOCKED: ({}, 200, lambda r, _: handoff_of(r).execution.status == "blocked" and handoff_of(r).result.confidence == 1.0),
}


@pytest.mark.parametrize(("fault", "answered"), ANSWERED.items(), ids=ANSWERED)
async def test_a_fault_of_the_answer_is_proper_http(fault: Fault, answered: Answered) -> None:
    """The status, the headers and the body are what the fault is; the connection serves on."""
    fields, status, said = answered
    dispatch = some_dispatch()

    async with serving(fault, **fields, times=1) as server, httpx.AsyncClient(trust_env=False) as client:
        response = await post(server.url(AGENT), dispatch, client)
        after = await post(server.url(AGENT), some_dispatch(), client)
        connections = server.open_connections

    assert response.status_code == status
    assert said(response, dispatch.dispatch_id)
    assert (handoff_of(after).execution.status, connections) == (HandoffStatus.SUCCESS, 1)


async def test_a_gzip_bomb_is_small_on_the_wire_and_huge_when_unpacked() -> None:
    """A megabyte for a gigabyte, of which a fiftieth is unpacked here."""
    async with serving(Fault.GZIP_BOMB) as server, httpx.AsyncClient(trust_env=False) as client:
        content = DispatchEnvelope(dispatch=some_dispatch()).model_dump_json()
        async with client.stream("POST", server.url(AGENT), content=content) as response:
            packed = b"".join([piece async for piece in response.aiter_raw()])

    assert response.headers["content-encoding"] == "gzip"
    assert len(packed) < 2_000_000
    assert len(gzip.decompress(packed[: len(packed) // 50])) == 20 * 2**20


def test_every_fault_is_acted_out_tested_and_documented() -> None:
    """In one way each."""
    documented = [line.split("`")[1] for line in (ROOT / "docs" / "drills.md").read_text().splitlines() if line.startswith("| `")]

    assert ACTS.keys() | ANSWERS.keys() == SPOKEN.keys() | ANSWERED.keys() | {Fault.GZIP_BOMB} == set(Fault)
    assert ACTS.keys() & ANSWERS.keys() == set()
    assert [name for name in documented if name in set(Fault)] == list(Fault)


async def test_without_a_fault_any_agent_answers_at_once_and_the_dispatch_is_noted() -> None:
    """A valid success with all that the catalogue requires, for each agent by its own name; one connection serves all."""
    first, second = some_dispatch(), some_dispatch("nobody")

    async with serving() as server, httpx.AsyncClient(trust_env=False) as client:
        answers = [handoff_of(await post(server.url(d.target_agent), d, client)) for d in (first, second)]

        assert server.open_connections == 1

    assert [(a.dispatch_id, a.agent_id, a.execution.status) for a in answers] == [
        (first.dispatch_id, AGENT, "success"),
        (second.dispatch_id, "nobody", "success"),
    ]
    assert {"summary", "ate", "confidence_interval"} <= answers[0].result.primary_output.keys()
    assert server.counts == {AGENT: 1, "nobody": 1}
    noted = server.received_by("nobody")[0]
    assert (noted.dispatch_id, noted.deadline_ms, noted.correlation_id) == (second.dispatch_id, 1234, "c-1")
    assert (noted.fault, noted.hung_up, noted.headers["accept-encoding"]) == (None, False, "identity")


def test_a_plain_answer_has_all_that_the_catalogue_asks_of_it(catalog: Catalog) -> None:
    """So that a pipeline runs to its end over agents that are made up."""
    outputs = made_up_outputs(catalog)

    def value(agent: str, *path: str) -> Any:
        found: Any = outputs[agent]
        for name in path:
            found = found[name]
        return found

    assert all(value(agent.name, name) for agent in catalog.agents for name in agent.required_output)
    steps = [step for intent in catalog.intents for step in intent.pipeline]
    assert all(value(*source.split(".")) for step in steps for source in step.inputs.values())
    assert all(value(step.agent, *step.gate.split(".")) is True for step in steps if step.gate is not None)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /agents/causal_impact HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /agents/causal_impact HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST /agents/causal_impact HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", 100),
        (b"POST /agents/causal_impact HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + b" " * 5_000_000, 413),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=["health", "head", "get", "no dispatch", "expects to be told", "too large", "no http"],
)
async def test_what_is_no_dispatch_meets_no_fault(request_: bytes, status: int) -> None:
    """It is answered and not counted."""
    async with serving(Fault.HANG) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_)
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    assert line.startswith(b"HTTP/1.1 %d " % status)
    assert server.counts == {}


async def test_a_client_that_hangs_up_is_noted_and_its_connection_is_gone() -> None:
    """As it happens, not when the fault would end."""
    async with serving(Fault.HANG) as server:
        call = asyncio.create_task(post(server.url(AGENT), some_dispatch()))
        assert await settled(lambda: server.open_connections == 1 and len(server.received) == 1)
        assert not server.received[0].hung_up

        call.cancel()

        assert await settled(lambda: server.open_connections == 0)
        assert server.received[0].hung_up


async def test_the_refused_url_refuses_the_tcp_connection() -> None:
    """And nobody else can take its port meanwhile."""
    async with serving() as server:
        with pytest.raises(httpx.ConnectError):
            await post(server.refused_url, some_dispatch())
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(lambda _, __: None, "127.0.0.1", httpx.URL(server.refused_url).port)


async def test_at_its_end_neither_task_nor_socket_stays_and_it_can_be_opened_again() -> None:
    """Although clients hang, are flooded and do not read, and wait with an open connection."""
    tasks, files = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))
    faults = (PlannedFault(agent="slow", fault=Fault.HANG), PlannedFault(agent="wild", fault=Fault.HUGE_BODY))
    server = FaultServer(FaultPlan(faults=faults))

    async with server:
        writers = []
        for name in ("slow", "wild", "plain"):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(as_request(some_dispatch(name)))
            writers.append(writer)
        assert await settled(lambda: server.counts.total() == 3)
    port = server.port

    assert (asyncio.all_tasks() - tasks, server.open_connections) == (set(), 0)
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    assert len(os.listdir("/proc/self/fd")) == files
    async with server:
        assert server.port == port
        assert (await post(server.url("plain"), some_dispatch("plain"))).status_code == 200


async def test_what_meets_no_fault_is_answered_by_the_agents_behind() -> None:
    """The real answer, and other requests too; and the faults that spoil a right answer spoil the real one."""
    plan = FaultPlan(faults=(PlannedFault(agent="health_score", fault=Fault.GZIP_UNASKED),))

    async with agents_behind(warm_up=False) as behind, FaultServer(plan, behind=behind) as server, httpx.AsyncClient() as client:
        listed = (await client.get(f"{server.address}/agents")).json()["agents"]
        term = handoff_of(await post(server.url("explainer"), some_dispatch("explainer", "What is a confidence interval?")))
        nobody = await post(server.url("nobody"), some_dispatch("nobody"))
        score = await post(server.url("health_score"), some_dispatch("health_score"))

    assert {"explainer", "health_score"} <= {one["name"] for one in listed}
    assert (term.agent_id, nobody.status_code) == ("explainer", 404)
    assert "interval" in json.dumps(term.result.primary_output)
    assert score.headers["content-encoding"] == "gzip"
    assert "made up" not in score.text
    assert handoff_of(score).agent_id == "health_score"


async def test_agents_that_are_not_behind_are_a_bad_gateway() -> None:
    """Said, not raised."""
    async with serving() as gone:
        address = gone.address

    async with FaultServer(behind=address) as server:
        assert (await post(server.url(AGENT), some_dispatch())).status_code == 502
