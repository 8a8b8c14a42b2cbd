"""What all adapters to agents share: connections, keys, TLS, limits, and what a failure on the way means. It knows no protocol above HTTP.

It follows no redirect, keeps no cookie, asks no proxy, unpacks nothing, and reads no more of an answer than it is told to.
"""

import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
from pydantic import ValidationError
from yarl import URL

from service.catalog.model import Agent, AgentTls
from service.contracts.dispatch import AgentDispatch
from service.errors import ConfigurationError, ErrorCode
from service.ports import AgentFailure
from service.tracing import trace_headers

KEEP_ALIVE_SECONDS = 4.0  # less than the 5 s of uvicorn and Node.js: a request must not meet a connection that the agent closes just then
MAX_ANSWER_BYTES = 5_000_000
MAX_ANSWER_VALUES, MAX_ANSWER_DEPTH = 100_000, 100
FAIR_SHARE = 0.9  # of an agent's own timeout; after a shorter wait, silence says nothing about the agent
DEADLINE_HEADER = "X-Deadline-Ms"
CORRELATION_HEADER = "X-Correlation-ID"
_RECOVERABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_BEGUN = frozenset({408, 500, 502, 504})  # the work may have been started before it went wrong; with 503 unless the agent says when to come
_UNAVAILABLE = frozenset({404, 410, 429, 502, 503, 504})
_STATUS_FIELD = ("handoff", "execution", "status")


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answered, as it was sent: the body is unpacked by nobody."""

    status: int
    retry_after: str
    encoding: str
    body: bytes


class TooLarge(Exception):
    """An answer has more bytes than were to be read; the rest was not."""


class TooManyValues(Exception):
    """An answer holds too many JSON values, or they lie too deep."""


def count_values(value: object, *, most: int = MAX_ANSWER_VALUES) -> int:
    """Return how many JSON values a value holds, itself among them.

    They are checked on the event loop, in some microseconds each: a limit of bytes alone would let an agent stop the loop for seconds.

    Raises:
        TooManyValues: there are more than `most`, or one lies deeper than what is stored can be read again.
    """
    count, level = 0, [value]
    for _ in range(MAX_ANSWER_DEPTH):
        count += len(level)
        if not level or count > most:
            break
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())]
    if level:
        raise TooManyValues
    return count


class AgentWire:
    """A pool of aiohttp connections; one on which an agent has sent more than its answer is not used again."""

    def __init__(self, agents: Iterable[Agent], environment: Mapping[str, str]) -> None:
        """Read keys and certificates. To be called where an event loop runs.

        Raises:
            ConfigurationError: an agent's key is not in the environment, or a TLS file cannot be used.
        """
        agents = tuple(agents)
        self._keys = {agent.name: _read_key(agent, environment) for agent in agents if agent.auth is not None}
        self._out_of_step: set[str] = set()
        self._contexts = {agent.tls: _context(agent.tls) for agent in agents if agent.tls is not None}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),  # how many there may be, the slots say
            cookie_jar=aiohttp.DummyCookieJar(),  # what one agent sets, no other request may carry
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,  # a small compressed answer can be a huge one
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def key_of(self, agent: Agent) -> dict[str, str]:
        """Return the header that proves to the agent who asks; nothing where it wants none."""
        return self._keys.get(agent.name, {})

    def headers_for(self, agent: Agent, dispatch: AgentDispatch) -> dict[str, str]:
        """Return the headers that go with every request about a dispatch; `traceparent` (W3C) names the span that asks, if there is one."""
        headers = {
            "Accept-Encoding": "identity",
            DEADLINE_HEADER: str(dispatch.payload.constraints.max_latency_ms),
            CORRELATION_HEADER: dispatch.metadata.correlation_id,
            **self.key_of(agent),
        }
        return headers | trace_headers()

    def distrust(self, url: str) -> None:
        """Ask for the next answer of this address on a connection of its own: what came was the answer to something else."""
        self._out_of_step.add(url)

    async def exchange(
        self, agent: Agent, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, most: int
    ) -> Reply:
        """Send one request and read its answer, `most` bytes of it.

        Raises:
            TooLarge: the answer is longer.
            aiohttp.ClientError: the agent cannot be reached, or broke off.
            OSError: the same.
        """
        given = dict(headers)
        if url in self._out_of_step:
            self._out_of_step.discard(url)
            given["Connection"] = "close"
        tls = self._contexts[agent.tls] if agent.tls is not None else True
        asked = self._session.request(method, URL(url, encoded=True), data=content, headers=given, allow_redirects=False, ssl=tls)
        async with asked as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > most:
                    raise TooLarge
            got = response.headers
            return Reply(response.status, got.get("Retry-After", ""), got.get("Content-Encoding", "")[:32], bytes(body))


@dataclass(frozen=True, slots=True)
class Sending:
    """One dispatch on its way to an agent, `timeout` seconds long; writes down what went wrong. `begun`: the work may have been started."""

    agent: Agent
    timeout: float
    started: float = field(default_factory=time.monotonic)

    @property
    def spent_ms(self) -> int:
        """Milliseconds since it was sent."""
        return int((time.monotonic() - self.started) * 1_000)

    def failed(
        self,
        code: ErrorCode,
        detail: str,
        *,
        recoverable: bool = False,
        unavailable: bool = False,
        begun: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> AgentFailure:
        """Return a failure; `detail` completes a sentence that begins with the agent's name."""
        said = f"{self.agent.name} {detail}".encode(errors="backslashreplace").decode()  # a header may hold what is no text
        return AgentFailure(code, said, recoverable, unavailable, self.spent_ms, may_have_run=begun, retry_after=retry_after, status=status)

    def timed_out(self, *, begun: bool) -> AgentFailure:
        """Nothing came in time."""
        fair = self.timeout * 1_000 >= self.agent.timeout_ms * FAIR_SHARE
        said = f"did not answer within {self.timeout * 1_000:.0f} ms"
        return self.failed(ErrorCode.AGENT_TIMEOUT, said, recoverable=True, unavailable=fair, begun=begun)

    def unreachable(self, exc: aiohttp.ClientError | OSError, *, begun: bool) -> AgentFailure:
        """There was no connection, or it broke."""
        if isinstance(exc, aiohttp.ClientSSLError):
            said = "cannot be reached: TLS with it fails"
        elif isinstance(exc, aiohttp.ClientConnectorError):
            said = "cannot be reached: nothing answers at its address"
        else:
            said = "broke the connection off"
        return self.failed(ErrorCode.AGENT_UNAVAILABLE, said, recoverable=True, unavailable=True, begun=begun)

    def too_large(self) -> AgentFailure:
        """The answer was longer than is read."""
        return self.failed(ErrorCode.HANDOFF_INVALID, f"answered with more than {MAX_ANSWER_BYTES} bytes")

    def too_many_values(self) -> AgentFailure:
        """The answer holds more than is checked."""
        said = f"answered with more than {MAX_ANSWER_VALUES} JSON values, or with values more than {MAX_ANSWER_DEPTH} deep"
        return self.failed(ErrorCode.HANDOFF_INVALID, said)

    def refused(self, status: int, *, retry_after: str = "", said: str = "", begun: bool = False) -> AgentFailure:
        """The agent answered with another HTTP status than 200, or with what says the same in its protocol."""
        down, wait = status in _UNAVAILABLE, read_retry_after(retry_after, datetime.now(UTC))
        return self.failed(
            ErrorCode.AGENT_UNAVAILABLE if down else ErrorCode.AGENT_ERROR,
            said or f"answered with HTTP {status}",
            recoverable=status in _RECOVERABLE,
            unavailable=down,
            begun=begun or status in _BEGUN or (status == HTTPStatus.SERVICE_UNAVAILABLE and wait is None),
            retry_after=wait,
            status=status,
        )

    def broke_contract(self, exc: ValueError, encoding: str = "") -> AgentFailure:
        """The answer is no handoff."""
        code, problem = _first_problem(exc)
        packed = f", packed as {encoding}" if encoding else ""
        return self.failed(code, f"broke the handoff contract: {problem}{packed}")


def _context(tls: AgentTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authority)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as exc:
        files = ", ".join(name for name in (tls.authority, tls.certificate, tls.key) if name is not None)
        raise ConfigurationError(f"The TLS files {files} of an agent cannot be used: {exc}") from exc
    return context


def _read_key(agent: Agent, environment: Mapping[str, str]) -> dict[str, str]:
    key = agent.auth
    value = environment.get(key.env, "").strip() if key is not None else ""
    if key is None or not value:
        name = key.env if key is not None else ""
        raise ConfigurationError(f"The agent {agent.name} needs a key: set the environment variable {name} to the value of its header.")
    if not (value.isascii() and value.isprintable()):
        raise ConfigurationError(f"The environment variable {key.env} holds signs that no HTTP header may have.")
    return {key.header: value}


def read_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header (RFC 9110, 10.2.3: seconds or an HTTP date); None where it says nothing usable."""
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (until - now).total_seconds()) if until.tzinfo is not None else None


def _first_problem(exc: ValueError) -> tuple[ErrorCode, str]:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_input=False, include_url=False)[0]
        code = ErrorCode.STATUS_INVALID if first["loc"] == _STATUS_FIELD else ErrorCode.HANDOFF_INVALID
        return code, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return ErrorCode.HANDOFF_INVALID, "not valid JSON"
