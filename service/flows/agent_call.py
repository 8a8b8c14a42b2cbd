"""One agent's part: send the dispatch, wait no longer than allowed, retry and hedge what may be, and check what comes back.

Every flow calls agents through this. It knows no fallback: what to do after a failure is the flow's business.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from opentelemetry.trace import SpanKind, StatusCode

from service.catalog.model import Agent
from service.contracts.handoff import AgentHandoff
from service.contracts.notice import Notice
from service.deadline import Deadline
from service.errors import ErrorCode, Saturated
from service.flows.handoff_check import check_handoff
from service.flows.health import AgentHealth, Health
from service.flows.work import AgentRun, AgentStarted, Work, build_dispatch
from service.ports import AgentCalled, AgentClient, AgentFailure, Attempt, Observer
from service.tracing import span

log = logging.getLogger(__name__)
EXTENDED = 1.5  # the first retry after a timeout gets this much more time
SHORT_REST = 1.0  # seconds of `Retry-After` that are waited out though another agent could be asked
BACKOFF = 0.1  # seconds before the first retry, doubled for each further one, with full jitter

Checked = tuple[AgentHandoff, tuple[Notice, ...]] | AgentFailure


@dataclass(slots=True)
class _Call:
    """One agent's part under way. All attempts carry one dispatch id, by which an agent can know a repeated one."""

    agent: Agent
    work: Work
    health: AgentHealth
    dispatch_id: UUID
    attempts: int = 0

    @property
    def may_repeat(self) -> bool:
        return self.attempts <= self.agent.max_retries


class CallAgent:
    """`Agent` and `Work` → `AgentRun`."""

    def __init__(self, *, client: AgentClient, health: Health, observer: Observer, jitter: Callable[[], float] = random.random) -> None:
        self._client = client
        self._health = health
        self._observer = observer
        self._jitter = jitter

    async def __call__(self, agent: Agent, work: Work) -> AgentRun:
        """Try the agent up to 1 + its retries times, all inside the work's deadline."""
        started = time.monotonic()
        call = _Call(agent, work, self._health.of(agent), work.dispatch_id(agent))
        work.progress(AgentStarted(agent, started, lambda: call.attempts))
        checked = await self._try(call)
        latency_ms = int((time.monotonic() - started) * 1_000)
        if isinstance(checked, AgentFailure):
            run = AgentRun(agent, None, checked, call.attempts, latency_ms)
        else:
            run = AgentRun(agent, checked[0], None, call.attempts, latency_ms, checked[1])
        work.progress(run)
        return run

    def least_seconds(self, agent: Agent) -> float:
        """Return the time below which the agent cannot be expected to finish, as far as is known."""
        return self._health.of(agent).fastest

    def rests(self, agent: Agent) -> bool:
        """Say whether the agent has asked not to be called for so long that one who can ask another does so."""
        return self._health.of(agent).left_alone_for > SHORT_REST

    def passed_over(self, agent: Agent) -> AgentRun:
        """Return the run of an agent that rests and is not waited for."""
        said = f"{agent.name} asked not to be called for another {self._health.of(agent).left_alone_for:.1f} s"
        return AgentRun(agent, None, _not_called(agent, ErrorCode.AGENT_UNAVAILABLE, said), 0, 0)

    async def _try(self, call: _Call) -> Checked:
        agent, health = call.agent, call.health
        timeout, extension, attempt = agent.timeout_ms / 1_000, EXTENDED, Attempt.FIRST
        health.retries.earn()
        health.hedges.earn()
        while True:
            before = call.attempts
            checked = await self._attempt(call, timeout, attempt)
            if not isinstance(checked, AgentFailure) or call.attempts == before:
                return checked
            if not checked.recoverable or (checked.may_have_run and not agent.idempotent) or not call.may_repeat:
                return checked
            pause = BACKOFF * 2 ** (call.attempts - 1) * self._jitter()
            if call.work.deadline.left <= max(pause, health.left_alone_for) + health.fastest or not health.retries.spend():
                return checked
            await asyncio.sleep(pause)
            timeout, attempt = agent.timeout_ms / 1_000, Attempt.RETRY
            if checked.code is ErrorCode.AGENT_TIMEOUT:
                timeout, extension = timeout * extension, 1.0

    async def _attempt(self, call: _Call, timeout: float, attempt: Attempt) -> Checked:
        """Make one attempt when the agent may be called and there is room; its failure counts no attempt where it was not called."""
        agent, health, deadline = call.agent, call.health, call.work.deadline
        if deadline.left <= 0.0 or deadline.left < health.fastest:
            return _not_called(agent, ErrorCode.AGENT_TIMEOUT, f"no time was left for {agent.name}", unavailable=False)
        if (rest := health.left_alone_for) > 0.0:
            if deadline.left <= rest + health.fastest:
                return _not_called(agent, ErrorCode.AGENT_UNAVAILABLE, f"{agent.name} asked not to be called for another {rest:.1f} s")
            try:
                async with health.resting.hold(agent.priority):
                    await asyncio.sleep(rest + BACKOFF * self._jitter())
            except Saturated as exc:
                return _not_called(agent, ErrorCode.SATURATED, str(exc))
        try:
            async with (
                asyncio.timeout(deadline.left) as waiting,
                health.slots.hold(agent.priority),
                self._health.slots.hold(agent.priority),
            ):
                waiting.reschedule(None)
                if not health.breaker.enter(deadline.within(timeout).left):
                    return _not_called(agent, ErrorCode.AGENT_UNAVAILABLE, f"{agent.name} is not called for now: it kept failing")
                return await self._send(call, deadline.within(timeout), attempt)
        except TimeoutError:
            return _not_called(agent, ErrorCode.AGENT_TIMEOUT, f"no room for {agent.name} came free in time")
        except Saturated as exc:
            return _not_called(agent, ErrorCode.SATURATED, str(exc))

    async def _send(self, call: _Call, limit: Deadline, attempt: Attempt) -> Checked:
        """Call the agent; beside a call that takes longer than its usual answers, call another address and take what comes first."""
        url, delay = call.health.choose_url(), call.health.hedge_after
        if delay is None or not call.agent.idempotent or delay >= limit.left:
            return await self._call(call, url, limit, attempt)
        first = asyncio.create_task(self._call(call, url, limit, attempt))
        calls = {first}
        try:
            await asyncio.wait(calls, timeout=delay)
            if not first.done() and call.may_repeat and call.health.hedges.spend():
                other = call.health.choose_url(other_than=url)
                calls.add(asyncio.create_task(self._call(call, other, limit, Attempt.HEDGE)))
            pending = set(calls)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                good = next((task for task in done if not isinstance(task.result(), AgentFailure)), None)
                if good is not None:
                    return good.result()
            return first.result()
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, call: _Call, url: str, limit: Deadline, attempt: Attempt) -> Checked:
        with span(f"agent {call.agent.name}", SpanKind.CLIENT) as told:
            checked, outcome = await self._ask(call, url, limit, attempt)
            told.set_attributes(
                {"pointsman.attempt": attempt.value, "pointsman.dispatch_id": str(call.dispatch_id), "pointsman.outcome": outcome}
            )
            if isinstance(checked, AgentFailure):
                told.set_status(StatusCode.ERROR, outcome)
        return checked

    async def _ask(self, call: _Call, url: str, limit: Deadline, attempt: Attempt) -> tuple[Checked, str]:
        """Send the dispatch once; return what came of it, checked, and that in one word."""
        call.attempts += 1
        started, agent = time.monotonic(), call.agent
        dispatch = build_dispatch(agent, call.work, limit.left, call.dispatch_id)
        try:
            answer = await self._client.send(agent, url, dispatch, timeout=limit.left)
        except Exception as exc:  # whatever breaks on the way to one agent is that agent's failure, and sinks no request
            log.exception("agent_not_asked", extra={"agent": agent.name})
            answer = _broken(agent, exc, time.monotonic() - started)
        checked = answer if isinstance(answer, AgentFailure) else check_handoff(agent, dispatch, answer)
        seconds = time.monotonic() - started
        if isinstance(checked, AgentFailure):
            call.health.failed(url, checked, seconds)
            outcome = checked.code.value
        else:
            call.health.answered(seconds)
            outcome = checked[0].execution.status.value
        self._observer.notice(AgentCalled(agent.name, outcome, seconds, attempt))
        return checked, outcome


def _broken(agent: Agent, exc: Exception, seconds: float) -> AgentFailure:
    said = f"{agent.name} could not be asked ({type(exc).__name__}); the log says why"
    return AgentFailure(
        ErrorCode.AGENT_UNAVAILABLE, said, recoverable=False, unavailable=True, latency_ms=int(seconds * 1_000), may_have_run=True
    )


def _not_called(agent: Agent, code: ErrorCode, detail: str, *, unavailable: bool = True) -> AgentFailure:
    return AgentFailure(code, detail, recoverable=False, unavailable=unavailable, latency_ms=0)
