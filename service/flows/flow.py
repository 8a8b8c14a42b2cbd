"""What every flow is: a way to carry the gate's verdict out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Protocol

from service.catalog.model import Agent, Step
from service.contracts.decision import Action
from service.contracts.notice import Notice
from service.errors import ErrorCode
from service.flows.work import AgentRun, Work

TEMPLATE_ANSWER = "template_answer"  # the warning that says that no agent could answer


@dataclass(frozen=True, slots=True)
class Skipped:
    """An agent of the chain that will not be called, and why."""

    agent: Agent
    code: ErrorCode
    reason: str


class Role(StrEnum):
    """Why an agent has a part: an intent of the request is its own, it adds a perspective, or it is a step on the way."""

    ASKED = "asked"
    SUPPORTS = "supports"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a plan: an agent, and who stands in for it.

    Attributes:
        role: why it has a part.
        intent: what the agent is to do.
        primary: the agent that the decision names.
        chain: the agents to try, in order: the primary agent, then its fallbacks. Only agents that passed every check.
        skipped: agents of the chain that did not pass.
        ends_in_template: the chain ends in the template answer; otherwise in failure.
        step: of a pipeline, what it takes from earlier steps and what it must show.
    """

    role: Role
    intent: str
    primary: Agent
    chain: tuple[Agent, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    ends_in_template: bool = False
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate lets happen.

    Attributes:
        action: the decision's action, or `refuse` or `clarify` where the gate stops a dispatch.
        flow: how the parts are carried out.
        parts: who does what, the first intent's first; empty unless something is dispatched.
        code: why the gate stopped a dispatch, or None.
        reason: the same as a sentence.
    """

    action: Action
    flow: str = "single"
    parts: tuple[Part, ...] = ()
    code: ErrorCode | None = None
    reason: str = ""

    @property
    def primary(self) -> Agent | None:
        """The agent of the first intent."""
        return self.parts[0].primary if self.parts else None


@dataclass(frozen=True, slots=True)
class PartRun:
    """How a part went: every agent of its chain that was called, in order; the last one answered, unless all failed."""

    part: Part
    runs: tuple[AgentRun, ...]

    @property
    def answer(self) -> AgentRun | None:
        """The run that answered, or None."""
        return self.runs[-1] if self.runs and self.runs[-1].handoff is not None else None

    @property
    def hindrance(self) -> ErrorCode | None:
        """What the part's own agent failed with or was kept from by, or None."""
        own = (r.failure.code for r in self.runs if r.failure is not None and r.agent == self.part.primary)
        kept = (s.code for s in self.part.skipped if s.agent == self.part.primary)
        return next(chain(own, kept), None)

    @property
    def by_another(self) -> bool:
        """Whether a fallback answered in place of the part's own agent."""
        return self.answer is not None and self.answer.agent.name != self.part.primary.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a flow brought.

    Attributes:
        parts: how each part went that was begun, in the order of the plan.
        template: no agent could answer, and the template answer stands in.
        warnings: why an answer is not the primary agent's, where it is not, and what was not carried out.
    """

    parts: tuple[PartRun, ...]
    template: bool = False
    warnings: tuple[Notice, ...] = ()

    @property
    def runs(self) -> tuple[AgentRun, ...]:
        """Every agent that was called, in order."""
        return tuple(run for part in self.parts for run in part.runs)

    @property
    def fallbacks(self) -> tuple[tuple[str, str], ...]:
        """The agents whose work fell to another agent or to the template answer, each with the code of what came between."""
        fallen = [p for p in self.parts if p.by_another or (self.template and p.part.ends_in_template and p.part.role is Role.ASKED)]
        return tuple((p.part.primary.name, p.hindrance.value) for p in fallen if p.hindrance is not None)

    @property
    def acted(self) -> bool:
        """Whether an agent was called whose work must not be done again."""
        called = (run for run in self.runs if run.attempts and not run.agent.idempotent)
        return any(run.failure is None or run.failure.may_have_run for run in called)

    @property
    def answered(self) -> bool:
        """Whether any agent answered."""
        return any(part.answer is not None for part in self.parts)


class Flow(Protocol):
    """A way to carry a verdict out. Agent failures are part of the outcome, never raised."""

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Do the work by the verdict's agents."""
        ...

    def seconds(self, parts: Sequence[Part]) -> float:
        """Return the time that the parts may take by their agents' timeouts."""
        ...
