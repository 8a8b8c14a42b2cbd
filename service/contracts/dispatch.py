"""What Pointsman sends to an agent: `AgentDispatch`, exactly the specification's fields, in an envelope `{"dispatch": ...}`."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from service.contracts.model import Contract, Instant, JsonObject, Milliseconds, Probability
from service.contracts.query import ParsedEntity


class DispatchConstraints(Contract):
    """Limits the agent should keep: the time that is left for it, and the confidence below which its answer counts as partial."""

    max_latency_ms: Milliseconds
    required_confidence: Probability


class DispatchPayload(Contract):
    """The work itself. `context` holds the caller's context and the question under `raw_query`."""

    intent: str
    entities: tuple[ParsedEntity, ...] = ()
    context: JsonObject = Field(default_factory=dict)
    constraints: DispatchConstraints


class DispatchRouting(Contract):
    """How the work is scheduled. Priority 1 is the highest; `retry_count` is the number of retries allowed, not made."""

    priority: Annotated[int, Field(ge=1)]
    timeout_ms: Milliseconds
    retry_count: Annotated[int, Field(ge=0)]
    fallback_agent: str | None


class DispatchMetadata(Contract):
    """When the work was sent, and the id that joins logs and traces across services."""

    dispatched_at: Instant
    correlation_id: str


class AgentDispatch(Contract):
    """One piece of work for one agent of tier 0 to 5."""

    dispatch_id: UUID
    query_id: UUID
    target_agent: str
    target_tier: Annotated[int, Field(ge=0, le=5)]
    payload: DispatchPayload
    routing: DispatchRouting
    metadata: DispatchMetadata


class DispatchEnvelope(Contract):
    """The body of the HTTP request to an agent."""

    dispatch: AgentDispatch
