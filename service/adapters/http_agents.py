"""Agents over HTTP: `POST` of the dispatch envelope to the catalogue's URL, the handoff envelope back. Their answers are untrusted.

It follows no redirect, keeps no cookie, reads no more than `MAX_ANSWER_BYTES`, and decides nothing: what to try again is said by
`service/flows/agent_call.py`.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
from pydantic import ValidationError
from pydantic_core import from_json

from service.catalog.model import Agent, AgentTls
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff, HandoffEnvelope
from service.errors import ConfigurationError, ErrorCode
from service.ports import AgentFailure

MAX_ANSWER_BYTES = 5_000_000
FAIR_SHARE = 0.9  # of an agent's own timeout; after a shorter wait, silence says nothing about the agent
DEADLINE_HEADER = "X-Deadline-Ms"
CORRELATION_HEADER = "X-Correlation-ID"
_RECOVERABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_BEGUN = frozenset({408, 500, 502, 504})  # the work may have been started before it went wrong
_UNAVAILABLE = frozenset({404, 410, 429, 502, 503, 504})
_STATUS_FIELD = ("handoff", "execution", "status")


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    retry_after: str
    encoding: str
    body: bytes


class HttpAgents:
    """`AgentClient` over a pool of aiohttp connections; one on which an agent has sent more than its answer is not used again."""

    def __init__(self, agents: Iterable[Agent] = (), *, environment: Mapping[str, str] = os.environ) -> None:
        """Read keys and certificates. To be called where an event loop runs.

        Raises:
            ConfigurationError: an agent's key is not in the environment, or a TLS file cannot be used.
        """
        agents = tuple(agents)
        self._keys = {agent.name: _read_key(agent, environment) for agent in agents if agent.auth is not None}
        self._out_of_step: set[str] = set()
        self._contexts = {agent.tls: _context(agent.tls) for agent in agents if agent.tls is not None}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # how many there may be, the slots say
            cookie_jar=aiohttp.DummyCookieJar(),  # what one agent sets, no other request may carry
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,  # a small compressed answer can be a huge one
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Send one dispatch; whatever goes wrong is an `AgentFailure` within `timeout` seconds."""
        started = time.monotonic()

        def fail(code: ErrorCode, detail: str, *, recoverable: bool, unavailable: bool, begun: bool = False) -> AgentFailure:
            spent_ms = int((time.monotonic() - started) * 1_000)
            return AgentFailure(code, f"{agent.name} {detail}", recoverable, unavailable, spent_ms, may_have_run=begun)

        try:
            async with asyncio.timeout(timeout):
                reply = await self._post(agent, url, dispatch)
        except TimeoutError:
            fair = timeout * 1_000 >= agent.timeout_ms * FAIR_SHARE
            said = f"did not answer within {timeout * 1_000:.0f} ms"
            return fail(ErrorCode.AGENT_TIMEOUT, said, recoverable=True, unavailable=fair, begun=True)
        except (aiohttp.ClientError, OSError) as exc:
            said, begun = f"cannot be reached ({type(exc).__name__})", not isinstance(exc, aiohttp.ClientConnectorError)
            return fail(ErrorCode.AGENT_UNAVAILABLE, said, recoverable=True, unavailable=True, begun=begun)
        except _TooLarge:
            said = f"answered with more than {MAX_ANSWER_BYTES} bytes"
            return fail(ErrorCode.HANDOFF_INVALID, said, recoverable=False, unavailable=False)
        if reply.status != HTTPStatus.OK:
            return _refused(agent, reply, int((time.monotonic() - started) * 1_000))
        try:
            handoff = HandoffEnvelope.model_validate(from_json(reply.body, allow_inf_nan=False)).handoff
        except (ValidationError, ValueError) as exc:
            code, problem = _first_problem(exc)
            packed = f", packed as {reply.encoding}" if reply.encoding else ""
            return fail(code, f"broke the handoff contract: {problem}{packed}", recoverable=False, unavailable=False)
        if handoff.dispatch_id != dispatch.dispatch_id:
            self._out_of_step.add(url)
        return handoff

    async def _post(self, agent: Agent, url: str, dispatch: AgentDispatch) -> _Reply:
        """Return the reply with its body as it was sent, unpacked by nobody."""
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            DEADLINE_HEADER: str(dispatch.payload.constraints.max_latency_ms),
            CORRELATION_HEADER: dispatch.metadata.correlation_id,
            **self._keys.get(agent.name, {}),
        }
        if url in self._out_of_step:
            self._out_of_step.discard(url)
            headers["Connection"] = "close"  # what came was the answer to something else, and so might be what comes next
        content = DispatchEnvelope(dispatch=dispatch).model_dump_json().encode()
        tls = self._contexts[agent.tls] if agent.tls is not None else True
        async with self._session.post(url, data=content, headers=headers, allow_redirects=False, ssl=tls) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise _TooLarge
            given = response.headers
            return _Reply(response.status, given.get("Retry-After", ""), given.get("Content-Encoding", "")[:32], bytes(body))


class _TooLarge(Exception):
    pass


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


def _refused(agent: Agent, reply: _Reply, latency_ms: int) -> AgentFailure:
    status = reply.status
    down = status in _UNAVAILABLE
    return AgentFailure(
        ErrorCode.AGENT_UNAVAILABLE if down else ErrorCode.AGENT_ERROR,
        f"{agent.name} answered with HTTP {status}",
        recoverable=status in _RECOVERABLE,
        unavailable=down,
        latency_ms=latency_ms,
        may_have_run=status in _BEGUN,
        retry_after=read_retry_after(reply.retry_after, datetime.now(UTC)),
    )


def read_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header (RFC 9110, 10.2.3: seconds or an HTTP date); None where it says nothing usable."""
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (until - now).total_seconds()) if until.tzinfo is not None else None


def _first_problem(exc: ValidationError | ValueError) -> tuple[ErrorCode, str]:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_input=False, include_url=False)[0]
        code = ErrorCode.STATUS_INVALID if first["loc"] == _STATUS_FIELD else ErrorCode.HANDOFF_INVALID
        return code, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return ErrorCode.HANDOFF_INVALID, "not valid JSON"
