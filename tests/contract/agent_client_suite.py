"""How what holds for every `AgentClient` is staged over HTTP and over A2A, and all that an agent can do wrong with a dispatch.

`test_agent_clients.py` and `test_agent_reach.py` make the claims, for both adapters, against bare servers on loopback.
"""

import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from service.catalog.model import Agent, AgentKey
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.ports import AgentClient, AgentFailure
from tests.contract import a2a_server
from tests.contract.http_server import Answer, Request, Server, Writer, good, hanging, http, saying

T, U, E, H = ErrorCode.AGENT_TIMEOUT, ErrorCode.AGENT_UNAVAILABLE, ErrorCode.AGENT_ERROR, ErrorCode.HANDOFF_INVALID
KEY = AgentKey(env="AGENT_KEY")
SECRET = "Bearer s3cr3t-of-the-agent"
Change = Callable[[dict[str, Any]], Any]


class Client(AgentClient, Protocol):
    """An adapter, as the suite needs it."""

    async def close(self) -> None: ...


class Opens(Protocol):
    """An adapter's class."""

    def __call__(self, agents: tuple[Agent, ...] = (), *, environment: Mapping[str, str] = ...) -> Client: ...


@dataclass(frozen=True)
class Tongue:
    """A protocol: its adapter, and how an agent that speaks it is staged on the bare server.

    `stage` turns what the agent does when it gets the dispatch into all that its server does; `around` writes the body that holds a handoff
    envelope (given as JSON text); `unwrap` finds the dispatch envelope in a request.
    """

    opens: Opens
    stage: Callable[..., Answer]
    around: Callable[[Request, str], bytes]
    unwrap: Callable[[Request], Request]

    def answering(self, change: Change = lambda envelope: envelope, **headers: str) -> Answer:
        """Answer with a good handoff, changed."""
        return self.stage(self.writing(lambda request: json.dumps(change(good(request))), **headers))

    def writing(self, envelope: Callable[[Request], str], **headers: str) -> Answer:
        """Answer with an envelope as it is written; not staged yet."""

        async def answer(server: Server, request: Request, writer: Writer) -> None:
            writer.write(http(self.around(request, envelope(self.unwrap(request))), **headers))

        return answer

    def dispatches(self, server: Server) -> list[Request]:
        """Return the requests that brought a dispatch."""
        return [request for request in server.requests if request.line.startswith("POST")]

    def dispatch_in(self, request: Request) -> AgentDispatch:
        """Return the dispatch of a request."""
        return AgentDispatch.model_validate(self.unwrap(request).body["dispatch"])

    @asynccontextmanager
    async def open(self, *agents: Agent, **environment: str) -> AsyncIterator[Client]:
        """Open the adapter, and close it."""
        client = self.opens(agents, environment=environment)
        try:
            yield client
        finally:
            await client.close()


def failed(answer: AgentHandoff | AgentFailure) -> AgentFailure:
    """Return the answer, which must be a failure."""
    assert isinstance(answer, AgentFailure), answer
    return answer


def _around_nothing(_: Request, envelope: str) -> bytes:
    return envelope.encode()


def _around_message(request: Request, envelope: str) -> bytes:
    parts = '[{"data": ' + envelope + "}]"
    return f'{{"jsonrpc": "2.0", "id": "{request.body["id"]}", "result": {{"message": {{"messageId": "m", "parts": {parts}}}}}}}'.encode()


def over_http(opens: Opens) -> Tongue:
    """Return the dispatch envelope posted, and the handoff envelope back."""
    return Tongue(opens, lambda answer, **_: answer, _around_nothing, lambda request: request)


def over_a2a(opens: Opens) -> Tongue:
    """Return A2A over JSON-RPC: the card first, then a message with the dispatch, and a message with the handoff back."""
    return Tongue(opens, a2a_server.behind_card, _around_message, a2a_server.unwrap)


def without(*path: str) -> Change:
    """Return a change that takes a field out."""

    def change(envelope: dict[str, Any]) -> dict[str, Any]:
        *parents, last = path
        inner = envelope
        for name in parents:
            inner = inner[name]
        del inner[last]
        return envelope

    return change


def putting(value: Any, *path: str) -> Change:
    """Return a change that sets a field of the handoff."""

    def change(envelope: dict[str, Any]) -> dict[str, Any]:
        *parents, last = path
        inner = envelope["handoff"]
        for name in parents:
            inner = inner[name]
        inner[last] = value
        return envelope

    return change


@dataclass(frozen=True)
class Fault:
    """What an agent does wrong with a dispatch, and what is said of it."""

    does: Callable[[Tongue], Answer]
    code: ErrorCode
    recoverable: bool = False
    unavailable: bool = False


def _says(code: ErrorCode, *parts: bytes, pause: float = 0.0, close: bool = False, again: bool = False, away: bool = False) -> Fault:
    return Fault(lambda tongue: tongue.stage(saying(*parts, pause=pause, close=close)), code, again, away)


def _status(line: str, code: ErrorCode, *, again: bool = False, away: bool = False) -> Fault:
    return _says(code, http(b"{}", line), again=again, away=away)


def _hands(change: Change, code: ErrorCode = H) -> Fault:
    return Fault(lambda tongue: tongue.answering(change), code)


def _plants(number: str) -> Fault:
    """A handoff whose output holds what JSON text can write, but no contract admits."""

    def write(request: Request) -> str:
        return json.dumps(putting("PLANTED", "result", "primary_output", "ate")(good(request))).replace('"PLANTED"', number)

    return Fault(lambda tongue: tongue.stage(tongue.writing(write)), H)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"
HEADERS = (b"HTTP/1.1 200 OK\r\n", *(b"X-A: b\r\n",) * 50)
PACKED = gzip.compress(b"{}" * 1_000)
FAULTS: dict[str, Fault] = {
    "hangs": Fault(lambda tongue: tongue.stage(hanging), T, True, True),
    "drips headers": _says(T, *HEADERS, pause=0.05, again=True, away=True),
    "drips the body": _says(T, HEAD, *[b"{"] * 50, pause=0.05, again=True, away=True),
    "stops within the body": _says(T, HEAD, b"{" * 10, pause=10.0, again=True, away=True),
    "hangs up at once": _says(U, close=True, again=True, away=True),
    "hangs up within the headers": _says(U, b"HTTP/1.1 200 OK\r\nConte", close=True, again=True, away=True),
    "hangs up within the body": _says(U, HEAD, b"x" * 100, close=True, again=True, away=True),
    "does not speak HTTP": _says(U, b"SSH-2.0-OpenSSH_9.6\r\n\r\n", close=True, again=True, away=True),
    "HTTP 400": _status("400 Bad Request", E),
    "HTTP 401": _status("401 Unauthorized", E),
    "HTTP 403": _status("403 Forbidden", E),
    "HTTP 404": _status("404 Not Found", U, away=True),
    "HTTP 408": _status("408 Request Timeout", E, again=True),
    "HTTP 410": _status("410 Gone", U, away=True),
    "HTTP 422": _status("422 Unprocessable Entity", E),
    "HTTP 429": _status("429 Too Many Requests", U, again=True, away=True),
    "HTTP 500": _status("500 Internal Server Error", E, again=True),
    "HTTP 502": _status("502 Bad Gateway", U, again=True, away=True),
    "HTTP 503": _status("503 Service Unavailable", U, again=True, away=True),
    "HTTP 504": _status("504 Gateway Timeout", U, again=True, away=True),
    "HTTP 202": _status("202 Accepted", E),
    "HTTP 204": _says(E, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "empty 200": _says(H, http(b"")),
    "HTML": _says(H, http(b"<html>Sign in</html>")),
    "cut-off JSON": _says(H, http(b'{"handoff": {"dispatch_id"')),
    "not UTF-8": _says(H, http(b'{"handoff": "\xff\xfe"}')),
    "a list": _says(H, http(b"[]")),
    "null": _says(H, http(b"null")),
    "an empty object": _says(H, http(b"{}")),
    "nested without end": _says(H, http(b"[" * 100_000)),
    "nested deeper than can be stored": _plants("[" * 150 + "]" * 150),
    "more values than are checked": _plants("[" + "1," * 150_000 + "1]"),
    "a lone surrogate": _plants('"\\ud800"'),
    "NaN": _plants("NaN"),
    "infinity": _plants("-Infinity"),
    "a number beyond floats": _plants("1e999"),
    "a number without end": _plants("9" * 10_000),
    "compressed though not asked to": _says(H, http(PACKED, Content_Encoding="gzip")),
    "said to be compressed": _says(H, http(b"no gzip at all", Content_Encoding="gzip")),
    "unknown status": _hands(putting("done", "execution", "status"), ErrorCode.STATUS_INVALID),
    "no dispatch id": _hands(without("handoff", "dispatch_id")),
    "a dispatch id that is none": _hands(putting("d-001", "dispatch_id")),
    "no execution": _hands(without("handoff", "execution")),
    "no confidence": _hands(without("handoff", "result", "confidence")),
    "confidence above one": _hands(putting(1.5, "result", "confidence")),
    "confidence as text": _hands(putting("high", "result", "confidence")),
    "time without zone": _hands(putting("2025-12-08T10:00:00", "execution", "started_at")),
    "negative latency": _hands(putting(-1, "execution", "latency_ms")),
    "evidence that is no list": _hands(putting("Seen.", "result", "evidence")),
    "output that is no object": _hands(putting([1], "result", "primary_output")),
}
