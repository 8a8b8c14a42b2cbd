"""What is asked of the learning loop: a caller's `OptimizationWish`, and the `OptimizationRequest` that is kept and carried out later."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field

from service.contracts.model import Contract, Instant
from service.contracts.query import Identifier
from service.contracts.signals import RoutingTrainingSignal

MOST_SIGNALS = 1_000  # that come with one request
MOST_ATTEMPTS = 3  # at carrying it out
ORCHESTRATOR = "orchestrator"  # the agent name of Pointsman itself


class SignatureName(StrEnum):
    """What can be asked to be made better: the LM calls of `signatures/inventory.py`."""

    INTENT = "intent"
    ROUTING = "routing"
    SYNTHESIS = "synthesis"


class Priority(StrEnum):
    """How soon it is wanted, the least first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class RequestStatus(StrEnum):
    """Where a request stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Ruling(StrEnum):
    """What the court made of a challenger."""

    PROMOTE = "promote"
    REJECT = "reject"
    WAIT = "wait"


class OptimizationWish(Contract):
    """What a caller asks for: a better version of a signature, on behalf of an agent, and what it has learned itself."""

    agent_name: Annotated[Identifier, Field(description="An agent of GET /agents, or orchestrator.")]
    signature_name: SignatureName
    training_signals: Annotated[tuple[RoutingTrainingSignal, ...], Field(max_length=MOST_SIGNALS)] = ()
    priority: Priority = Priority.MEDIUM


class OptimizationRequest(Contract):
    """A wish that was accepted, and what became of it.

    `asked` counts the wishes that it stands for: one for the same agent and signature joins the request that waits already. `signals`
    counts the new ones that came with them, `signals_left_out` those that were too many. `started_at` is when the last of `attempts` began.
    `reason` is the court's, or says why the last attempt failed; `router_version` and `ruling` are there where a version was made.
    """

    request_id: UUID
    tenant: str
    agent_name: str
    signature_name: SignatureName
    priority: Priority
    status: RequestStatus
    asked: Annotated[int, Field(ge=1)] = 1
    signals: Annotated[int, Field(ge=0)] = 0
    signals_left_out: Annotated[int, Field(ge=0)] = 0
    created_at: Instant
    attempts: Annotated[int, Field(ge=0)] = 0
    started_at: Instant | None = None
    router_version: str | None = None
    ruling: Ruling | None = None
    reason: str | None = None
    finished_at: Instant | None = None
