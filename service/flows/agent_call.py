"""One agent's part: send the dispatch, wait no longer than allowed, retry what can be retried, and check what comes back.

Every flow calls agents through this. It knows no fallback: what to do after a failure is the flow's business.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch, DispatchConstraints, DispatchMetadata, DispatchPayload, DispatchRouting
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.model import JsonObject
from service.contracts.notice import Notice
from service.contracts.query import ParsedEntity
from service.deadline import Deadline
from service.errors import ErrorCode
from service.ports import AgentCalled, AgentClient, AgentFailure, Observer

EXTENDED = 1.5  # the first retry after a timeout gets this much more time
MAX_REASON = 500  # characters of an agent's error message that are passed on
BACKOFF = 0.1  # seconds before the first retry, doubled for each further one, with full jitter


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, whoever does it."""

    query_id: UUID
    correlation_id: str
    intent: str
    entities: tuple[ParsedEntity, ...]
    context: JsonObject
    required_confidence: float | None
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class AgentRun:
    """How one agent's part ended: a handoff that passed the checks, or a failure."""

    agent: Agent
    handoff: AgentHandoff | None
    failure: AgentFailure | None
    attempts: int
    latency_ms: int
    warnings: tuple[Notice, ...] = ()


class CallAgent:
    """`Agent` and `Work` → `AgentRun`."""

    def __init__(self, *, client: AgentClient, observer: Observer, jitter: Callable[[], float] = random.random) -> None:
        self._client = client
        self._observer = observer
        self._jitter = jitter

    async def __call__(self, agent: Agent, work: Work) -> AgentRun:
        """Try the agent up to 1 + its retries times, all inside the work's deadline."""
        started, dispatch_id = time.monotonic(), uuid4()  # one id for all attempts, by which an agent can know a repeated one
        timeout, extension = agent.timeout_ms / 1_000, EXTENDED
        handoff: AgentHandoff | None = None
        failure = _out_of_time(agent)
        warnings: tuple[Notice, ...] = ()
        attempts = 0
        while attempts <= agent.max_retries and work.deadline.left > 0.0:
            attempts += 1
            dispatch = build_dispatch(agent, work, timeout, dispatch_id)
            answer = await self._attempt(agent, dispatch, work.deadline.within(timeout))
            checked = answer if isinstance(answer, AgentFailure) else check_handoff(agent, dispatch, answer)
            if not isinstance(checked, AgentFailure):
                handoff, warnings = checked
                break
            failure = checked
            if not failure.recoverable or (failure.may_have_run and not agent.idempotent):
                break
            timeout = agent.timeout_ms / 1_000
            if failure.code is ErrorCode.AGENT_TIMEOUT:
                timeout, extension = timeout * extension, 1.0
            if attempts <= agent.max_retries:
                await asyncio.sleep(min(BACKOFF * 2 ** (attempts - 1) * self._jitter(), work.deadline.left))
        latency_ms = int((time.monotonic() - started) * 1_000)
        return AgentRun(agent, handoff, failure if handoff is None else None, attempts, latency_ms, warnings)

    async def _attempt(self, agent: Agent, dispatch: AgentDispatch, limit: Deadline) -> AgentHandoff | AgentFailure:
        started = time.monotonic()
        answer = await self._client.send(agent, dispatch, timeout=limit.left, deadline_ms=dispatch.payload.constraints.max_latency_ms)
        outcome = answer.code.value if isinstance(answer, AgentFailure) else answer.execution.status.value
        self._observer.notice(AgentCalled(agent.name, outcome, time.monotonic() - started))
        return answer


def build_dispatch(agent: Agent, work: Work, timeout: float, dispatch_id: UUID) -> AgentDispatch:
    """Write the dispatch for one attempt; `timeout` in seconds, cut to what the deadline leaves."""
    allowed_ms = max(1, int(work.deadline.within(timeout).left * 1_000))
    required = agent.required_confidence if work.required_confidence is None else work.required_confidence
    return AgentDispatch(
        dispatch_id=dispatch_id,
        query_id=work.query_id,
        target_agent=agent.name,
        target_tier=agent.tier,
        payload=DispatchPayload(
            intent=work.intent,
            entities=work.entities,
            context=work.context,
            constraints=DispatchConstraints(max_latency_ms=allowed_ms, required_confidence=required),
        ),
        routing=DispatchRouting(
            priority=agent.priority, timeout_ms=allowed_ms, retry_count=agent.max_retries, fallback_agent=agent.fallback_agent
        ),
        metadata=DispatchMetadata(dispatched_at=datetime.now(UTC), correlation_id=work.correlation_id),
    )


def check_handoff(agent: Agent, dispatch: AgentDispatch, handoff: AgentHandoff) -> tuple[AgentHandoff, tuple[Notice, ...]] | AgentFailure:
    """Check an agent's answer against the dispatch: ids, status, required output; late or unsure answers pass with a warning."""
    execution, limits = handoff.execution, dispatch.payload.constraints

    def fail(code: ErrorCode, detail: str, *, recoverable: bool = False) -> AgentFailure:
        return AgentFailure(code, detail, recoverable=recoverable, unavailable=False, latency_ms=execution.latency_ms)

    if handoff.dispatch_id != dispatch.dispatch_id:
        return fail(ErrorCode.HANDOFF_INVALID, f"{agent.name} answered dispatch {handoff.dispatch_id}, not {dispatch.dispatch_id}")
    if handoff.agent_id != agent.name:
        return fail(ErrorCode.HANDOFF_INVALID, f"{handoff.agent_id[:64]!r} answered for {agent.name}")
    said = (handoff.errors.error_message or "no reason given")[:MAX_REASON]
    if execution.status is HandoffStatus.BLOCKED:
        return handoff, (Notice(code=ErrorCode.QC_GATE_BLOCKED, message=f"{agent.name} was stopped by its quality gate: {said}"),)
    if execution.status is HandoffStatus.TIMEOUT:
        return replace(fail(ErrorCode.AGENT_TIMEOUT, f"{agent.name} ran out of time: {said}", recoverable=True), may_have_run=True)
    if execution.status is HandoffStatus.FAILED:
        return fail(ErrorCode.AGENT_ERROR, f"{agent.name} failed: {said}", recoverable=handoff.errors.recoverable)
    missing = [name for name in agent.required_output if name not in handoff.result.primary_output]
    if missing:
        return fail(ErrorCode.HANDOFF_INVALID, f"{agent.name} left out {', '.join(missing)}")
    warnings: list[Notice] = []
    if execution.latency_ms > limits.max_latency_ms:
        message = f"{agent.name} says it took {execution.latency_ms} ms; {limits.max_latency_ms} ms were allowed."
        warnings.append(Notice(code="latency_exceeded", message=message))
    if handoff.result.confidence < limits.required_confidence:
        message = f"{agent.name} answers with confidence {handoff.result.confidence:.2f}; {limits.required_confidence:.2f} is required."
        warnings.append(Notice(code=ErrorCode.LOW_CONFIDENCE, message=message))
    return handoff, tuple(warnings)


def _out_of_time(agent: Agent) -> AgentFailure:
    return AgentFailure(ErrorCode.AGENT_TIMEOUT, f"no time was left for {agent.name}", recoverable=False, unavailable=False, latency_ms=0)
