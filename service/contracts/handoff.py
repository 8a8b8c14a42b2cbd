"""What an agent returns: `AgentHandoff`, exactly the specification's fields, in an envelope `{"handoff": ...}`.

An agent's answer is untrusted input. Unknown fields are ignored, so that an agent may say more than the contract asks for.
"""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import ConfigDict, Field

from service.contracts.model import Contract, Instant, JsonObject, Milliseconds, Probability


class _FromAgent(Contract):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class HandoffStatus(StrEnum):
    """How the agent's work ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"
    BLOCKED = "blocked"


class HandoffExecution(_FromAgent):
    """The agent's own account of its run."""

    status: HandoffStatus
    started_at: Instant
    completed_at: Instant
    latency_ms: Milliseconds


class HandoffResult(_FromAgent):
    """The finding: `primary_output` is the agent's own shape, `evidence` and `caveats` are sentences for a reader."""

    primary_output: JsonObject = Field(default_factory=dict)
    confidence: Probability
    evidence: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


class HandoffArtifacts(_FromAgent):
    """Charts (Vega-Lite specifications), tables and, from tier 0, models."""

    visualizations: tuple[JsonObject, ...] = ()
    tables: tuple[JsonObject, ...] = ()
    models: tuple[JsonObject, ...] = ()


class HandoffErrors(_FromAgent):
    """What went wrong, and whether asking again can help."""

    error_type: str | None = None
    error_message: str | None = None
    recoverable: bool = False


class HandoffMetadata(_FromAgent):
    """What the answer cost."""

    model_used: str = ""
    tokens_consumed: Annotated[int, Field(ge=0)] = 0
    cache_hit: bool = False


class AgentHandoff(_FromAgent):
    """One agent's answer to one dispatch."""

    dispatch_id: UUID
    agent_id: str
    agent_tier: Annotated[int, Field(ge=0, le=5)]
    execution: HandoffExecution
    result: HandoffResult
    artifacts: HandoffArtifacts = HandoffArtifacts()
    errors: HandoffErrors = HandoffErrors()
    metadata: HandoffMetadata = HandoffMetadata()


class HandoffEnvelope(_FromAgent):
    """The body of the agent's HTTP answer."""

    handoff: AgentHandoff
