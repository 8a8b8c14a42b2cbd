"""What is kept of a request: `Receipt`, from which a decision can be explained and replayed."""

from uuid import UUID

from pydantic import Field

from service.contracts.decision import RouteDecision
from service.contracts.model import Contract, Instant, JsonObject
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.signals import RoutingTrainingSignal


class Receipt(Contract):
    """One committed request: what came in, what each stage made of it, what went out, and the signal to learn from.

    `stages` maps a stage's name to its output; with `request`, `router_version` and `catalog_hash` the decision can be made again.
    `request_hash` is the SHA-256 of the canonical request body, which tells a repeated request from another one under the same id.
    """

    decision: RouteDecision
    tenant: str
    catalog_hash: str
    request_hash: str
    request: OrchestratorInput
    stages: JsonObject = Field(default_factory=dict)
    output: OrchestratorOutput
    signal: RoutingTrainingSignal
    reward: float | None = None
    committed_at: Instant

    @property
    def decision_id(self) -> UUID:
        """The decision's id."""
        return self.decision.decision_id
