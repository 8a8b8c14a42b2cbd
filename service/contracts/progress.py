"""What a caller of `POST /orchestrate/stream` is told while its request is under way, and the last word."""

from service.contracts.decision import RouteDecision
from service.contracts.model import Contract
from service.contracts.output import AgentResult, OrchestratorOutput
from service.contracts.problem import Problem


class DecisionMade(Contract):
    """It is decided who should handle the request. Event `decision`."""

    decision: RouteDecision


class AgentStart(Contract):
    """An agent is being called. Event `agent_start`."""

    agent_id: str
    agent_tier: int


class AgentEnd(Contract):
    """An agent has answered or failed. Event `agent_end`."""

    result: AgentResult


class PartialResult(Contract):
    """What can be told so far, from the agents that have answered. Event `partial`."""

    response_text: str
    agents_answered: tuple[str, ...]


class FinalOutput(Contract):
    """The answer, committed. Event `output`; the stream ends with it. `replayed`: it was stored before, and nothing was dispatched."""

    output: OrchestratorOutput
    replayed: bool = False


class StreamProblem(Contract):
    """Nothing was answered. Event `problem`; the stream ends with it."""

    problem: Problem


ProgressEvent = DecisionMade | AgentStart | AgentEnd | PartialResult
