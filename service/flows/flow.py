"""What every flow is: a way to carry the gate's verdict out."""

from dataclasses import dataclass
from typing import Protocol

from service.catalog.model import Agent
from service.contracts.decision import Action
from service.contracts.notice import Notice
from service.errors import ErrorCode
from service.flows.agent_call import AgentRun, Work

TEMPLATE_ANSWER = "template_answer"  # the warning that says that no agent could answer


@dataclass(frozen=True, slots=True)
class Skipped:
    """An agent of the chain that will not be called, and why."""

    agent: Agent
    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate lets happen.

    Attributes:
        action: the decision's action, or `refuse` or `clarify` where the gate stops a dispatch.
        primary: the agent that the decision names.
        chain: the agents to try, in order: the primary agent, then its fallbacks. Only agents that passed every check.
        skipped: agents of the chain that did not pass.
        ends_in_template: the chain ends in the template answer; otherwise in failure.
        code: why the gate stopped a dispatch, or None.
        reason: the same as a sentence.
    """

    action: Action
    primary: Agent | None = None
    chain: tuple[Agent, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    ends_in_template: bool = False
    code: ErrorCode | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a flow brought.

    Attributes:
        runs: every agent that was called, in order; the last one answered, unless all failed.
        template: no agent could answer, and the template answer stands in.
        warnings: why the answer is not the primary agent's, where it is not.
    """

    runs: tuple[AgentRun, ...]
    template: bool = False
    warnings: tuple[Notice, ...] = ()


class Flow(Protocol):
    """A way to carry a verdict out. Agent failures are part of the outcome, never raised."""

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Do the work by the verdict's agents."""
        ...
