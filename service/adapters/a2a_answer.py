"""What an A2A agent's answer says, as a handoff: the one that it holds, or one made of its texts and data. Pure functions."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from a2a.types import Message, Part, Task, TaskState
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from service.adapters.agent_wire import Sending
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffEnvelope, HandoffExecution, HandoffResult, HandoffStatus
from service.contracts.model import JsonObject
from service.errors import ErrorCode
from service.ports import AgentFailure

UNSTATED = 0.5  # the confidence of an answer that states none
MAX_REASON = 500  # characters of an agent's reason that are passed on
_LARGEST_WHOLE = 2.0**53  # above it, a number of the protocol is not exact
_UNDER_WAY = frozenset({TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING})
_WENT_WRONG = {
    TaskState.TASK_STATE_FAILED: "failed",
    TaskState.TASK_STATE_REJECTED: "rejected the work",
    TaskState.TASK_STATE_CANCELED: "canceled the work",
    TaskState.TASK_STATE_AUTH_REQUIRED: "asks for an authentication that Pointsman cannot give",
}


def is_under_way(task: Task) -> bool:
    """Say whether the agent still works on the task by itself."""
    return task.status.state in _UNDER_WAY


def is_over(task: Task) -> bool:
    """Say whether the task has ended, so that nothing is left to cancel."""
    interrupted = {TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED}
    return not is_under_way(task) and task.status.state not in interrupted


def read_answer(answer: Message | Task, dispatch: AgentDispatch, sending: Sending) -> AgentHandoff | AgentFailure:
    """Return the answer to a dispatch as a handoff, or why it is none.

    A handoff within the answer goes before everything else, unless the task went wrong and the handoff says otherwise.
    """
    if isinstance(answer, Message):
        said, produced, notes, state = answer, [], [answer.metadata], TaskState.TASK_STATE_COMPLETED
    else:
        said, state = answer.status.message, answer.status.state
        produced = [part for artifact in answer.artifacts for part in artifact.parts]
        notes = [said.metadata, *(artifact.metadata for artifact in answer.artifacts), answer.metadata]
    asks = state == TaskState.TASK_STATE_INPUT_REQUIRED
    handoff = None if asks else _find_handoff([*produced, *said.parts])
    if handoff is not None:
        return _read_handoff(handoff, said, state, notes, sending)
    if state in _WENT_WRONG:
        return _went_wrong(said, state, notes, sending)
    if state not in {TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_INPUT_REQUIRED}:
        return sending.failed(ErrorCode.HANDOFF_INVALID, f"broke the A2A protocol: task state {int(state)} is not one of version 1.0")
    try:
        return _compose(list(said.parts) if asks or not produced else produced, notes, state, dispatch, sending)
    except ValueError as exc:
        return sending.broke_contract(exc)


def plain(value: Value) -> JsonValue:
    """Return a value of the protocol as JSON. Its numbers are all floats; whole ones are given back as such."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {name: plain(inner) for name, inner in value.struct_value.fields.items()}
    if kind == "list_value":
        return [plain(inner) for inner in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) <= _LARGEST_WHOLE else number
    if kind == "bool_value":
        return value.bool_value
    return value.string_value if kind == "string_value" else None


def _find_handoff(parts: Iterable[Part]) -> Value | None:
    found = (part.data for part in parts if part.WhichOneof("content") == "data" and "handoff" in part.data.struct_value.fields)
    return next(found, None)


def _read_handoff(found: Value, said: Message, state: TaskState, notes: Sequence[Struct], sending: Sending) -> AgentHandoff | AgentFailure:
    try:
        handoff = HandoffEnvelope.model_validate(plain(found)).handoff
    except ValueError as exc:
        return sending.broke_contract(exc)
    if state in _WENT_WRONG and handoff.execution.status in {HandoffStatus.SUCCESS, HandoffStatus.PARTIAL}:
        return _went_wrong(said, state, notes, sending)
    return handoff


def _went_wrong(said: Message, state: TaskState, notes: Sequence[Struct], sending: Sending) -> AgentFailure:
    reason = _text(said.parts)[:MAX_REASON] or "no reason given"
    again = state == TaskState.TASK_STATE_FAILED and _note(notes, "recoverable") is True
    detail = f"{_WENT_WRONG[state]}: {reason}"
    return sending.failed(ErrorCode.AGENT_ERROR, detail, recoverable=again, begun=state != TaskState.TASK_STATE_REJECTED)


def _compose(
    parts: Sequence[Part], notes: Sequence[Struct], state: TaskState, dispatch: AgentDispatch, sending: Sending
) -> AgentHandoff | AgentFailure:
    asks = state == TaskState.TASK_STATE_INPUT_REQUIRED
    output = _output(parts)
    if not output:
        return sending.failed(ErrorCode.HANDOFF_INVALID, "broke the handoff contract: its answer has neither text nor data")
    stated, caveats = _note(notes, "confidence"), []
    if isinstance(stated, int | float) and not isinstance(stated, bool) and 0.0 <= stated <= 1.0:
        confidence = float(stated)
    else:
        confidence = 0.0 if asks else UNSTATED
        caveats.append(f"The agent states no confidence; {confidence} stands for it.")
    if asks:
        caveats.append("The agent did not answer: it asks for more, and what it asks is the summary.")
    files = sum(part.WhichOneof("content") in {"raw", "url"} for part in parts)
    if files:
        caveats.append(f"The agent's answer has {files} {'file' if files == 1 else 'files'} that Pointsman does not pass on.")
    now = datetime.now(UTC)
    return AgentHandoff(
        dispatch_id=dispatch.dispatch_id,
        agent_id=sending.agent.name,
        agent_tier=sending.agent.tier,
        execution=HandoffExecution(
            status=HandoffStatus.PARTIAL if asks else HandoffStatus.SUCCESS,
            started_at=now - timedelta(milliseconds=sending.spent_ms),
            completed_at=now,
            latency_ms=sending.spent_ms,
        ),
        result=HandoffResult(primary_output=output, confidence=confidence, caveats=tuple(caveats)),
    )


def _output(parts: Sequence[Part]) -> JsonObject:
    """Return the fields of all data, data without names under `data`, and all texts as `summary`."""
    output: JsonObject = {}
    nameless: list[JsonValue] = []
    for part in parts:
        if part.WhichOneof("content") == "data":
            value = plain(part.data)
            if isinstance(value, dict):
                output |= value
            else:
                nameless.append(value)
    if nameless:
        output["data"] = nameless[0] if len(nameless) == 1 else nameless
    if text := _text(parts):
        output["summary"] = text
    return output


def _text(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if part.WhichOneof("content") == "text").strip()


def _note(notes: Sequence[Struct], name: str) -> JsonValue:
    return next((plain(note.fields[name]) for note in notes if name in note.fields), None)
