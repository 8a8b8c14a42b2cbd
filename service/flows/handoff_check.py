"""The checks of what an agent brings: dispatch id, sender, status, required output; late or unsure answers pass with a warning.

Each has its own error code. Whether the body is a handoff at all is the adapter's business.
"""

from dataclasses import replace

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.notice import Notice
from service.errors import ErrorCode
from service.ports import AgentFailure

MAX_TYPE = 64  # characters of its error type
MAX_REASON = 500  # characters of an agent's error message that are passed on


def check_handoff(agent: Agent, dispatch: AgentDispatch, handoff: AgentHandoff) -> tuple[AgentHandoff, tuple[Notice, ...]] | AgentFailure:
    """Check an agent's answer against the dispatch."""
    execution, limits = handoff.execution, dispatch.payload.constraints

    def fail(code: ErrorCode, detail: str, *, recoverable: bool = False) -> AgentFailure:
        return AgentFailure(code, detail, recoverable=recoverable, unavailable=False, latency_ms=execution.latency_ms)

    if handoff.dispatch_id != dispatch.dispatch_id:  # it may be an answer that came late: asked again on a new connection, it may do better
        said = f"{agent.name} answered dispatch {handoff.dispatch_id}, not {dispatch.dispatch_id}"
        return replace(fail(ErrorCode.DISPATCH_MISMATCH, said, recoverable=True), may_have_run=True)
    if handoff.agent_id != agent.name:
        return fail(ErrorCode.DISPATCH_MISMATCH, f"{handoff.agent_id[:64]!r} answered for {agent.name}")
    said = (handoff.errors.error_message or "no reason given")[:MAX_REASON]
    if execution.status is HandoffStatus.BLOCKED:
        return handoff, (Notice(code=ErrorCode.QC_GATE_BLOCKED, message=f"{agent.name} was stopped by its quality gate: {said}"),)
    if execution.status is HandoffStatus.TIMEOUT:
        return replace(fail(ErrorCode.AGENT_TIMEOUT, f"{agent.name} ran out of time: {said}", recoverable=True), may_have_run=True)
    if execution.status is HandoffStatus.FAILED:
        failure = fail(ErrorCode.AGENT_ERROR, f"{agent.name} failed: {said}", recoverable=handoff.errors.recoverable)
        return replace(failure, error_type=(handoff.errors.error_type or "")[:MAX_TYPE] or None)
    missing = [name for name in agent.required_output if name not in handoff.result.primary_output]
    if missing:
        return fail(ErrorCode.OUTPUT_MISSING, f"{agent.name} left out {', '.join(missing)}")
    warnings: list[Notice] = []
    if execution.latency_ms > limits.max_latency_ms:
        message = f"{agent.name} says it took {execution.latency_ms} ms; {limits.max_latency_ms} ms were allowed."
        warnings.append(Notice(code=ErrorCode.LATENCY_EXCEEDED, message=message))
    if handoff.result.confidence < limits.required_confidence:
        message = f"{agent.name} answers with confidence {handoff.result.confidence:.2f}; {limits.required_confidence:.2f} is required."
        warnings.append(Notice(code=ErrorCode.LOW_CONFIDENCE, message=message))
    return handoff, tuple(warnings)
