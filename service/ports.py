"""What the stages need of the world, as protocols. Adapters implement them; `bootstrap.py` joins the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.contracts.lm import LMFailure, LMQuestion, LMVerdict, SynthesisQuestion
from service.contracts.optimization import OptimizationRequest, OptimizationWish, RequestStatus
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.errors import ErrorCode
from service.programs import Router, Stage


class Predictors(Protocol):
    """The LM rung. Never raises for what an LM does: whatever goes wrong is an `LMFailure`, within `timeout` seconds."""

    async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
        """Choose an intent and agents among the question's options."""
        ...

    async def compose(self, question: SynthesisQuestion, *, timeout: float) -> str | LMFailure:
        """Word findings as one answer."""
        ...


@dataclass(frozen=True, slots=True)
class AgentFailure:
    """An agent gave no usable handoff.

    `unavailable` tells availability (refused, down, overloaded) from a bad answer; `may_have_run` says that the work may have been
    started, so that repeating it is safe for idempotent agents only; `retry_after` are the seconds for which it asks to be left alone;
    `error_type` is the agent's own word for what it lacks, `status` the HTTP status that it, or a proxy before it, answered with.
    """

    code: ErrorCode
    detail: str
    recoverable: bool
    unavailable: bool
    latency_ms: int
    may_have_run: bool = False
    retry_after: float | None = None
    error_type: str | None = None
    status: int | None = None


class AgentClient(Protocol):
    """How a dispatch reaches an agent. Never raises for what an agent does."""

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Send one dispatch to one of the agent's addresses and wait at most `timeout` seconds; the agent is told how long, too."""
        ...


class Store(Protocol):
    """Durable decisions and signals."""

    async def commit(self, receipt: Receipt) -> Receipt:
        """Store decision and signal in one transaction; durable on return.

        A receipt already stored for the tenant and query wins and is returned, so that of two equal requests at once both get one answer.

        Raises:
            StoreUnavailable: nothing was stored.
        """
        ...

    async def by_query(self, tenant: str, query_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's query, or None."""
        ...

    async def by_decision(self, tenant: str, decision_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's decision, or None."""
        ...

    async def add_feedback(self, tenant: str, feedback: Feedback) -> Receipt | None:
        """Merge feedback into the decision's signal and recompute its reward; None when the tenant has no such decision."""
        ...

    async def ping(self) -> str | None:
        """Return when the store would take a commit; what an operator should know of it, if there is anything.

        Raises:
            StoreUnavailable: it does not.
        """
        ...


@dataclass(frozen=True, slots=True)
class Spool:
    """What is kept on this machine's disk until the database takes it.

    Attributes:
        held: how many decisions there are, in all processes that share it.
        refused: how many of them the database has refused; they stay.
        most: how many it can hold; 0 where there is none.
    """

    held: int = 0
    refused: int = 0
    most: int = 0


class OptimizationQueue(Protocol):
    """Durable requests to make a signature better. Each tenant sees its own. Every method can raise `StoreUnavailable`."""

    async def ask_for(self, tenant: str, wish: OptimizationWish) -> OptimizationRequest:
        """Keep a wish; durable on return.

        One for the same agent and signature joins the request of the tenant that waits already: its priority is raised where the wish has
        a higher one, and signals that it does not have are added as far as they fit.
        """
        ...

    async def requests(self, tenant: str, status: RequestStatus | None = None) -> Sequence[OptimizationRequest]:
        """Return the first hundred: those that have not ended in the order of their turn, then the latest that have."""
        ...

    async def request(self, tenant: str, request_id: UUID) -> OptimizationRequest | None:
        """Return one of the tenant's requests, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Noted:
    """What the registry was last seen to name as champion; None where it names none, or `problem` says why it cannot be asked.

    `asked` is false as long as nobody has asked it yet.
    """

    version: str | None = None
    problem: str | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class NotedCandidate:
    """Which challenger the registry was last seen to try beside the champion, and how; a canary serves `share` of the sessions."""

    version: str
    stage: Stage
    share: float


class ProgramSource(Protocol):
    """Where router versions come from. Blocking work for a thread; the registry itself is asked by another process."""

    def load_last_good(self) -> Router | None:
        """Load the version that served last on this machine; None when there is none.

        Raises:
            ConfigurationError: there is one, but it cannot be served.
        """
        ...

    def noted(self) -> Noted:
        """Return what the registry was last seen to name."""
        ...

    def load_noted(self) -> Router | None:
        """Load, check and rehearse that version; None when there is none.

        Raises:
            ConfigurationError: it cannot be served; the message says why.
        """
        ...

    def noted_candidate(self) -> NotedCandidate | None:
        """Return which challenger is tried beside the champion."""
        ...

    def load_candidate(self) -> Router | None:
        """Load, check and rehearse that challenger; see `load_noted`."""
        ...

    def given_back(self, version: str) -> frozenset[str]:
        """Return the intents that a version's student no longer answers alone. Never raises."""
        ...

    def keep(self, router: Router) -> None:
        """Remember a version that serves, for the next start. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class StageDone:
    """One stage of one request has ended. `outcome` comes from a closed set of the stage."""

    stage: str
    outcome: str
    seconds: float
    router_version: str


class Attempt(StrEnum):
    """Why an agent is called: for the first time in a request, again after a failure, or beside a call that takes long."""

    FIRST = "first"
    RETRY = "retry"
    HEDGE = "hedge"


@dataclass(frozen=True, slots=True)
class AgentCalled:
    """One attempt at one agent has ended."""

    agent: str
    outcome: str
    seconds: float
    attempt: Attempt = Attempt.FIRST


@dataclass(frozen=True, slots=True)
class RequestDone:
    """One request has ended."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class FellBack:
    """An agent's work fell to another agent, or to the template answer; `reason` is the code of what it failed with or was kept from by."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Responded:
    """One HTTP request has its answer. `route` is the path as routes are declared; `code` names the problem, where it is one."""

    method: str
    route: str
    status: int
    code: str | None


@dataclass(frozen=True, slots=True)
class FeedbackTaken:
    """Feedback was stored; `kinds` are the fields that it has."""

    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LMCalled:
    """One program was run on the LM. `outcome` is answered or the reason of an `LMFailure`; what the LM does not tell is None."""

    program: str
    outcome: str
    seconds: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A candidate has read in the shadow what the champion answered; `outcome` is agreed, differed or failed."""

    outcome: str


@dataclass(frozen=True, slots=True)
class RouterTried:
    """A router version was loaded: it serves from now on, or it cannot, and the one before it goes on."""

    version: str | None
    served: bool


@dataclass(frozen=True, slots=True)
class Audited:
    """The LM has read a request that the student had answered alone.

    `outcome` is agreed, differed or failed; `usd` is None where nobody knows what it cost.
    """

    intent: str
    outcome: str
    usd: float | None


Event = StageDone | AgentCalled | RequestDone | FellBack | Responded | FeedbackTaken | LMCalled | Shadowed | RouterTried | Audited


class Observer(Protocol):
    """Watches; changes nothing. Must not block or raise."""

    def notice(self, event: Event) -> None:
        """Take note of an event."""
        ...
