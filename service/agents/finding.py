"""What an agent finds, or why it cannot, and the one way in which that becomes a handoff."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import JsonValue

from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import (
    AgentHandoff,
    HandoffArtifacts,
    HandoffErrors,
    HandoffExecution,
    HandoffMetadata,
    HandoffResult,
    HandoffStatus,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """An agent's answer. `confidence` is computed from the evidence; `evidence` and `caveats` are sentences with numbers.

    `blocked` says why a quality gate stops the work that was to follow; the finding is then the gate's report.
    """

    primary_output: Mapping[str, object]
    confidence: float
    evidence: Sequence[str]
    caveats: Sequence[str] = ()
    visualizations: Sequence[Mapping[str, object]] = ()
    tables: Sequence[Mapping[str, object]] = ()
    models: Sequence[Mapping[str, object]] = ()
    blocked: str | None = None
    model_used: str = ""
    cache_hit: bool = False


class AgentFailure(Exception):
    """The agent lacks what it needs. The message says what is available; asking again does not help."""

    def __init__(self, error_type: str, message: str) -> None:
        """Keep the type (`missing_data`, `unknown_entity`, ...) beside the message."""
        super().__init__(message)
        self.error_type = error_type


@dataclass(frozen=True, slots=True)
class Run:
    """Which agent ran for which dispatch, and since when."""

    dispatch: AgentDispatch
    agent: str
    tier: int
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def succeeded(self, finding: Finding) -> AgentHandoff:
        """Return the handoff of a finding: `blocked` by its gate, or `partial` when its confidence is below what the caller requires."""
        required = self.dispatch.payload.constraints.required_confidence
        confidence = min(1.0, max(0.0, round(float(finding.confidence), 4)))
        caveats = list(finding.caveats)
        if confidence < required:
            caveats.append(f"The confidence of {confidence:.2f} is below the {required:.2f} that was required.")
        result = HandoffResult.model_validate(
            {
                "primary_output": plain(finding.primary_output),
                "confidence": confidence,
                "evidence": tuple(finding.evidence),
                "caveats": tuple(caveats),
            }
        )
        artifacts = HandoffArtifacts.model_validate(
            {"visualizations": plain(finding.visualizations), "tables": plain(finding.tables), "models": plain(finding.models)}
        )
        status = HandoffStatus.SUCCESS if confidence >= required else HandoffStatus.PARTIAL
        return AgentHandoff(
            dispatch_id=self.dispatch.dispatch_id,
            agent_id=self.agent,
            agent_tier=self.tier,
            execution=self._execution(status if finding.blocked is None else HandoffStatus.BLOCKED),
            result=result,
            artifacts=artifacts,
            errors=HandoffErrors()
            if finding.blocked is None
            else HandoffErrors(error_type="qc_gate_blocked", error_message=finding.blocked),
            metadata=HandoffMetadata(model_used=finding.model_used, cache_hit=finding.cache_hit),
        )

    def failed(self, error_type: str, message: str, *, recoverable: bool, status: HandoffStatus = HandoffStatus.FAILED) -> AgentHandoff:
        """Return the handoff of a run that found nothing, with confidence 0."""
        return AgentHandoff(
            dispatch_id=self.dispatch.dispatch_id,
            agent_id=self.agent,
            agent_tier=self.tier,
            execution=self._execution(status),
            result=HandoffResult(confidence=0.0),
            errors=HandoffErrors(error_type=error_type, error_message=message, recoverable=recoverable),
        )

    def _execution(self, status: HandoffStatus) -> HandoffExecution:
        completed_at = datetime.now(UTC)
        latency_ms = max(0, round((completed_at - self.started_at).total_seconds() * 1000))
        return HandoffExecution(status=status, started_at=self.started_at, completed_at=completed_at, latency_ms=latency_ms)


def plain(value: object) -> JsonValue:
    """Return a value as JSON can carry it: numpy scalars unwrapped, numbers rounded to 6 significant digits, NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    from_numpy = getattr(value, "tolist", None)
    return plain(from_numpy()) if callable(from_numpy) else str(value)
