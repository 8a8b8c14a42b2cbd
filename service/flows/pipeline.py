"""The flow `pipeline`: one agent after the other, each given what it asks of the earlier ones' output; a failed gate stops it.

A step that fails ends the pipeline too: there is no fallback for half a piece of work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from service.catalog.model import Agent
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.model import JsonObject
from service.contracts.notice import Notice
from service.errors import ErrorCode
from service.flows.agent_call import CallAgent
from service.flows.chain import chain_seconds, conclude
from service.flows.flow import Outcome, Part, PartRun, Verdict
from service.flows.work import AgentRun, Work
from service.ports import AgentFailure


class PipelineFlow:
    """The plan's steps in order."""

    def __init__(self, *, call: CallAgent) -> None:
        self._call = call

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Run the steps until one fails or is blocked."""
        done: list[PartRun] = []
        brought: dict[str, JsonObject] = {}
        for place, part in enumerate(verdict.parts):
            if not part.chain:
                done.append(PartRun(part, ()))
                break
            agent, later = part.primary, verdict.parts[place + 1 :]
            inputs = project(part.step.inputs if part.step else {}, brought)
            if isinstance(inputs, str):
                run = _not_begun(agent, ErrorCode.OUTPUT_MISSING, inputs)
            elif not self._can_finish(agent, later, work):
                run = _not_begun(agent, ErrorCode.AGENT_TIMEOUT, f"the time left is too short for {agent.name}")
            else:
                run = _at_the_gate(part, await self._call(agent, replace(work, intent=part.intent, inputs=inputs)))
            done.append(PartRun(part, (run,)))
            if run.handoff is None or run.handoff.execution.status is HandoffStatus.BLOCKED:
                break
            brought[agent.name] = run.handoff.result.primary_output
        return conclude(done, *_not_reached([part.primary for part in verdict.parts[len(done) :]]))

    def seconds(self, parts: Sequence[Part]) -> float:
        """Return the time of all steps together."""
        return sum(map(chain_seconds, parts))

    def _can_finish(self, agent: Agent, later: Sequence[Part], work: Work) -> bool:
        return work.deadline.left > sum(self._call.least_seconds(one) for one in (agent, *(part.primary for part in later)))


def project(inputs: Mapping[str, str], brought: Mapping[str, JsonObject]) -> JsonObject | str:
    """Return the inputs of a step by name, or a sentence that says which is missing. A path is `agent.field.field`."""
    found: JsonObject = {}
    for name, path in inputs.items():
        agent, *fields = path.split(".")
        value = read(brought.get(agent, {}), fields)
        if value is None:
            return f"{agent} did not bring {'.'.join(fields)}"
        found[name] = value
    return found


def read(output: JsonObject, fields: Sequence[str]) -> JsonValue:
    """Return what lies under a path of fields, or None."""
    value: JsonValue = output
    for name in fields:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _not_begun(agent: Agent, code: ErrorCode, why: str) -> AgentRun:
    return AgentRun(agent, None, AgentFailure(code, why, recoverable=False, unavailable=False, latency_ms=0), 0, 0)


def _at_the_gate(part: Part, run: AgentRun) -> AgentRun:
    """Block a run whose gate is not open: whatever the agent says of its status, only `true` opens it."""
    gate, handoff = part.step.gate if part.step else None, run.handoff
    if gate is None or handoff is None or handoff.execution.status is HandoffStatus.BLOCKED:
        return run
    if read(handoff.result.primary_output, gate.split(".")) is True:
        return run
    message = f"{run.agent.name} was stopped by its quality gate: {gate} is not true."
    return replace(
        run, handoff=_blocked(handoff, message), warnings=(*run.warnings, Notice(code=ErrorCode.QC_GATE_BLOCKED, message=message))
    )


def _blocked(handoff: AgentHandoff, message: str) -> AgentHandoff:
    execution = handoff.execution.model_copy(update={"status": HandoffStatus.BLOCKED})
    return handoff.model_copy(update={"execution": execution, "errors": handoff.errors.model_copy(update={"error_message": message})})


def _not_reached(agents: Sequence[Agent]) -> list[Notice]:
    if not agents:
        return []
    names = ", ".join(agent.name for agent in agents)
    return [Notice(code="steps_not_reached", message=f"Not reached: {names}.")]
