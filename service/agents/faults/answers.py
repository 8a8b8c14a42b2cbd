"""The faults that are proper HTTP: an error status, a body that is no handoff, or a handoff that is not what it should be.

Each is a function of the plan's entry, the run and the handoff that would have been right; none touches the connection.
"""

import json
from collections.abc import Callable
from uuid import NAMESPACE_OID, uuid5

from service.agents.faults.handoffs import as_answer
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import PlannedFault
from service.agents.faults.wire import Answer
from service.agents.finding import Run
from service.contracts.handoff import AgentHandoff, HandoffStatus

Builder = Callable[[PlannedFault, Run, AgentHandoff], Answer]
HTML = (("Content-Type", "text/html; charset=utf-8"),)
PROBLEM = (("Content-Type", "application/problem+json"),)
SIGN_IN = b"<!doctype html><html><head><title>Sign in</title></head><body><h1>Your session is over</h1></body></html>"
DEPTH = 100_000
FAR_TOO_LATE_MS = 86_400_000  # a day
_DRILL = "The fault agent acts out a drill."


def _status(status: int | None = None, *, retry_after: int | None = None) -> Builder:
    """Return the builder of an error; what the entry says goes before the arguments."""

    def build(planned: PlannedFault, _: Run, __: AgentHandoff) -> Answer:
        said = planned.status if status is None else status
        wait = retry_after if planned.retry_after is None else planned.retry_after
        body = json.dumps({"type": "about:blank", "title": "Fault", "status": said, "detail": _DRILL}).encode()
        return Answer(body, said or 500, PROBLEM if wait is None else (*PROBLEM, ("Retry-After", str(wait))))

    return build


def _redirect(planned: PlannedFault, _: Run, __: AgentHandoff) -> Answer:
    return Answer(b"", planned.status or 302, (("Location", planned.location),))


def _body(change: Callable[[bytes], bytes], headers: tuple[tuple[str, str], ...] | None = None) -> Builder:
    """Return the builder of a body that is made from the right one."""

    def build(_: PlannedFault, __: Run, right: AgentHandoff) -> Answer:
        answer = as_answer(right)
        return Answer(change(answer.body), 200, answer.headers if headers is None else headers)

    return build


def _handoff(**fields: object) -> Builder:
    """Return the builder of a handoff with other fields; they are not checked."""
    return lambda _, __, right: as_answer(right.model_copy(update=fields))


def _execution(**fields: object) -> Builder:
    return lambda _, __, right: as_answer(right.model_copy(update={"execution": right.execution.model_copy(update=fields)}))


def _result(**fields: object) -> Builder:
    return lambda _, __, right: as_answer(right.model_copy(update={"result": right.result.model_copy(update=fields)}))


def _wrong_dispatch_id(_: PlannedFault, run: Run, right: AgentHandoff) -> Answer:
    return as_answer(right.model_copy(update={"dispatch_id": uuid5(NAMESPACE_OID, str(run.dispatch.dispatch_id))}))


def _failed(planned: PlannedFault, run: Run, _: AgentHandoff) -> Answer:
    return as_answer(run.failed("drill", _DRILL, recoverable=planned.recoverable))


def _timed_out(_: PlannedFault, run: Run, __: AgentHandoff) -> Answer:
    return as_answer(run.failed("timeout", _DRILL, recoverable=True, status=HandoffStatus.TIMEOUT))


def _blocked(_: PlannedFault, run: Run, right: AgentHandoff) -> Answer:
    stopped = run.failed("qc_gate_blocked", _DRILL, recoverable=False, status=HandoffStatus.BLOCKED)
    return as_answer(stopped.model_copy(update={"result": right.result}))


ANSWERS: dict[Fault, Builder] = {
    Fault.ERROR_500: _status(500),
    Fault.RATE_LIMIT_429: _status(429, retry_after=1),
    Fault.UNAVAILABLE_503: _status(503),
    Fault.NOT_FOUND_404: _status(404),
    Fault.HTTP_STATUS: _status(),
    Fault.REDIRECT: _redirect,
    Fault.EMPTY_200: _body(lambda _: b""),
    Fault.HTML_200: _body(lambda _: SIGN_IN, HTML),
    Fault.INVALID_JSON: _body(lambda right: right[: len(right) // 2]),
    Fault.NOT_UTF8: _body(lambda right: right.replace(b"made up", b"made \xff\xfe")),
    Fault.DEEP_JSON: _body(lambda _: b"[" * DEPTH + b"]" * DEPTH),
    Fault.NAN_CONFIDENCE: _body(lambda right: right.replace(b'"confidence":1.0', b'"confidence":NaN')),
    Fault.NO_ENVELOPE: _body(lambda right: right.removeprefix(b'{"handoff":').removesuffix(b"}")),
    Fault.WRONG_DISPATCH_ID: _wrong_dispatch_id,
    Fault.WRONG_AGENT_ID: _handoff(agent_id="somebody_else"),
    Fault.UNKNOWN_STATUS: _execution(status="done"),
    Fault.MISSING_OUTPUT: _result(primary_output={}),
    Fault.LOW_CONFIDENCE: _result(confidence=0.01),
    Fault.CONFIDENCE_ABOVE_ONE: _result(confidence=1.5),
    Fault.LATE_CLAIM: _execution(latency_ms=FAR_TOO_LATE_MS),
    Fault.FAILED: _failed,
    Fault.TIMED_OUT: _timed_out,
    Fault.BLOCKED: _blocked,
}
