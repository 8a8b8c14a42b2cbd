"""What the fault agent answers when nothing is to go wrong: a valid handoff that says that it is made up."""

from collections.abc import Sequence

from pydantic import JsonValue

from service.agents.faults.wire import Answer
from service.agents.finding import Finding, Run
from service.catalog.model import Catalog
from service.contracts.handoff import AgentHandoff, HandoffEnvelope
from service.contracts.model import JsonObject

SUMMARY = "This answer was made up by the fault agent; it says nothing about any data."
MADE_UP = "made up"


def made_up_outputs(catalog: Catalog) -> dict[str, JsonObject]:
    """Return by agent what the catalogue asks of its output: required fields, what later steps of a pipeline take, and open gates."""
    outputs: dict[str, JsonObject] = {agent.name: {} for agent in catalog.agents}
    for agent in catalog.agents:
        for name in agent.required_output:
            _put(outputs[agent.name], [name], MADE_UP)
    for step in (step for intent in catalog.intents for step in intent.pipeline):
        for earlier, *path in (source.split(".") for source in step.inputs.values()):
            _put(outputs[earlier], path, MADE_UP)
        if step.gate is not None:
            _put(outputs[step.agent], step.gate.split("."), True)
    return outputs


def plain_handoff(run: Run, output: JsonObject) -> AgentHandoff:
    """Return a success with full confidence, so that it passes every check where the output is what the catalogue asks for."""
    return run.succeeded(Finding({"summary": SUMMARY, **output}, confidence=1.0, evidence=[SUMMARY], model_used="fault agent"))


def as_answer(handoff: AgentHandoff) -> Answer:
    """Return a handoff in its envelope. It may be one that breaks the contract."""
    envelope = HandoffEnvelope.model_construct(handoff=handoff)
    return Answer(envelope.model_dump_json(warnings=False).encode())


def _put(output: JsonObject, path: Sequence[str], value: JsonValue) -> None:
    """Set a field of a field, but leave a mapping that is there as it is."""
    *parents, last = path
    for name in parents:
        inner = output.get(name)
        if not isinstance(inner, dict):
            inner = output[name] = {}
        output = inner
    if not isinstance(output.get(last), dict):
        output[last] = value
