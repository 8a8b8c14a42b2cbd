"""Agents over HTTP: `POST` of the dispatch envelope to the catalogue's URL, the handoff envelope back. Their answers are untrusted."""

import asyncio
import time
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx
from pydantic import ValidationError
from pydantic_core import from_json

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff, HandoffEnvelope
from service.errors import ErrorCode
from service.ports import AgentFailure

MAX_ANSWER_BYTES = 5_000_000
FAILURES_TO_REST = 3  # an agent that could not be reached this often in a row is left alone for a while
REST_SECONDS = 5.0
FAIR_SHARE = 0.9  # of an agent's own timeout; after a shorter wait, silence says nothing about the agent
DEADLINE_HEADER = "X-Deadline-Ms"
CORRELATION_HEADER = "X-Correlation-ID"
_RECOVERABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_BEGUN = frozenset({408, 500, 502, 504})  # the work may have been started before it went wrong
_UNAVAILABLE = frozenset({404, 410, 429, 502, 503, 504})


@dataclass(slots=True)
class _Reach:
    """What is known of reaching one agent."""

    failures: int = 0
    rests_until: float = 0.0
    url: int = 0


class HttpAgents:
    """`AgentClient` over one pooled httpx client. Follows no redirect and reads no more than `MAX_ANSWER_BYTES`."""

    def __init__(self, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)  # a shared bound would let one slow agent hold the rest
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # what one agent sets, no other request may carry
        self._client = httpx.AsyncClient(
            follow_redirects=False, limits=limits, timeout=None, transport=transport, trust_env=False, cookies=no_cookies
        )
        self._reach: dict[str, _Reach] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def available(self, agent: Agent) -> bool:
        """Say no for `REST_SECONDS` after `FAILURES_TO_REST` failures in a row to reach the agent."""
        reach = self._reach.get(agent.name)
        return reach is None or time.monotonic() >= reach.rests_until

    async def send(self, agent: Agent, dispatch: AgentDispatch, *, timeout: float, deadline_ms: int) -> AgentHandoff | AgentFailure:
        """Send one dispatch; whatever goes wrong is an `AgentFailure` within `timeout` seconds."""
        started = time.monotonic()
        reach = self._reach.setdefault(agent.name, _Reach())
        url = str(agent.urls[reach.url % len(agent.urls)])

        def fail(code: ErrorCode, detail: str, *, recoverable: bool, unavailable: bool, may_have_run: bool = False) -> AgentFailure:
            if recoverable or unavailable:
                reach.url += 1  # a replica may do better
            if unavailable:
                reach.failures += 1
                if reach.failures % FAILURES_TO_REST == 0:
                    reach.rests_until = time.monotonic() + REST_SECONDS
            latency_ms = int((time.monotonic() - started) * 1_000)
            return AgentFailure(
                code,
                f"{agent.name} {detail}",
                recoverable=recoverable,
                unavailable=unavailable,
                latency_ms=latency_ms,
                may_have_run=may_have_run,
            )

        try:
            async with asyncio.timeout(timeout):
                status, body = await self._post(url, dispatch, deadline_ms)
        except TimeoutError:
            fair = timeout * 1_000 >= agent.timeout_ms * FAIR_SHARE
            said = f"did not answer within {timeout * 1_000:.0f} ms"
            return fail(ErrorCode.AGENT_TIMEOUT, said, recoverable=True, unavailable=fair, may_have_run=True)
        except httpx.TransportError as exc:
            said, begun = f"cannot be reached ({type(exc).__name__})", not isinstance(exc, httpx.ConnectError)
            return fail(ErrorCode.AGENT_UNAVAILABLE, said, recoverable=True, unavailable=True, may_have_run=begun)
        except _TooLarge:
            return fail(
                ErrorCode.HANDOFF_INVALID, f"answered with more than {MAX_ANSWER_BYTES} bytes", recoverable=False, unavailable=False
            )
        down = status in _UNAVAILABLE
        if not down:
            reach.failures = 0
        if status != httpx.codes.OK:
            code = ErrorCode.AGENT_UNAVAILABLE if down else ErrorCode.AGENT_ERROR
            return fail(
                code, f"answered with HTTP {status}", recoverable=status in _RECOVERABLE, unavailable=down, may_have_run=status in _BEGUN
            )
        try:
            return HandoffEnvelope.model_validate(from_json(body, allow_inf_nan=False)).handoff
        except (ValidationError, ValueError) as exc:
            problem = _first_problem(exc)
            return fail(ErrorCode.HANDOFF_INVALID, f"broke the handoff contract: {problem}", recoverable=False, unavailable=False)

    async def _post(self, url: str, dispatch: AgentDispatch, deadline_ms: int) -> tuple[int, bytes]:
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # a small compressed answer can be a huge one
            DEADLINE_HEADER: str(deadline_ms),
            CORRELATION_HEADER: dispatch.metadata.correlation_id,
        }
        content = DispatchEnvelope(dispatch=dispatch).model_dump_json()
        async with self._client.stream("POST", url, content=content, headers=headers) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise _TooLarge
            return response.status_code, bytes(body)


class _TooLarge(Exception):
    pass


def _first_problem(exc: ValidationError | ValueError) -> str:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return "not valid JSON"
