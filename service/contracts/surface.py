"""What the listing and probing routes return."""

from typing import Literal
from uuid import UUID

from service.contracts.model import Contract, Probability


class AgentListing(Contract):
    """One agent of the catalogue, as `GET /agents` shows it. `available`: its circuit `breaker` lets a patient request through."""

    name: str
    tier: int
    description: str
    permissions: tuple[str, ...]
    timeout_ms: int
    max_retries: int
    fallback: str | None
    priority: int
    critical_path: bool
    idempotent: bool
    required_entities: tuple[str, ...]
    intents: tuple[str, ...]
    available: bool
    breaker: Literal["closed", "open", "half_open"]
    protocol: Literal["http", "a2a"]
    max_concurrent: int
    receives: tuple[str, ...]


class IntentListing(Contract):
    """One intent of the catalogue, as `GET /intents` shows it."""

    name: str
    description: str
    primary_agent: str
    supporting_agents: tuple[str, ...]
    pipeline: tuple[str, ...] = ()


class RolledBack(Contract):
    """Which router version served, and which one serves now."""

    was: str
    now: str


class Health(Contract):
    """The process is alive."""

    status: str = "ok"


class Readiness(Contract):
    """Whether the service answers as configured, and with what. `rungs` are the rungs of the cascade that are in use."""

    ready: bool
    router_version: str | None
    rungs: tuple[str, ...]
    lm: str | None
    store: str
    notes: tuple[str, ...] = ()


class FeedbackReceipt(Contract):
    """The signal after feedback was merged."""

    decision_id: UUID
    signal_id: UUID
    reward: Probability | None
