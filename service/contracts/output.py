"""What a caller gets back: `OrchestratorOutput`, the specification's fields and a few that say how the answer came about."""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, JsonValue

from service.contracts.decision import Action, Rung
from service.contracts.model import Contract, Instant, JsonObject, Milliseconds, Probability
from service.contracts.notice import Notice


class AgentStatus(StrEnum):
    """How one agent's part ended, as the caller sees it."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"


class OutputStatus(StrEnum):
    """How the request as a whole ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"


class AgentResult(Contract):
    """One dispatched agent's answer. `error` starts with an error code, such as `agent_timeout: ...`."""

    agent_id: str
    agent_tier: Annotated[int, Field(ge=0, le=5)]
    status: AgentStatus
    result: JsonValue
    confidence: Probability
    latency_ms: Milliseconds
    error: str | None = None


class Citation(Contract):
    """Where a statement of the response comes from."""

    source_type: Literal["causal_path", "agent_activity", "business_metric", "ml_model"]
    source_id: str
    relevance: Probability


class OrchestratorOutput(Contract):
    """The answer to one question."""

    query_id: UUID
    status: OutputStatus

    response_text: str
    response_confidence: Probability

    agents_dispatched: tuple[str, ...]
    agent_results: tuple[AgentResult, ...]

    citations: tuple[Citation, ...]
    visualizations: tuple[JsonObject, ...]
    follow_up_suggestions: tuple[str, ...]

    total_latency_ms: Milliseconds
    timestamp: Instant

    decision_id: UUID
    action: Action
    intent: str | None
    flow: str | None
    rung: Rung
    router_version: str
    warnings: tuple[Notice, ...] = ()
