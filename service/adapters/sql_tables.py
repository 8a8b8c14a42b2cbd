"""The tables of the application's database, and how a receipt becomes rows and comes back.

Types are those that SQLite and PostgreSQL share. Ids are kept as text with dashes, so that an id from an answer or a log finds its row on
both. The schema itself is made by `migrations/`; a test holds the two together.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlmodel import Field, SQLModel

from service.contracts.receipt import Receipt
from service.contracts.signals import RoutingTrainingSignal


class UtcDateTime(sa.TypeDecorator[datetime]):
    """An instant, in UTC on the way in and with its zone on the way out (SQLite has no zones of its own)."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FreeText(sa.TypeDecorator[str]):
    r"""Text that users or models wrote. PostgreSQL cannot hold NUL in text, so it becomes U+FFFD on every database.

    JSON columns keep NUL as it is (`\u0000` in a column of type json, not jsonb), so the request and the output are stored unchanged.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace NUL."""
        return None if value is None else value.replace("\x00", "\ufffd")


class Decision(SQLModel, table=True):
    """One committed request. What operators ask for is a column; the whole of it is in the JSON columns."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "query_id", name="uq_decision_tenant_query_id"),
        sa.Index("ix_decision_committed_at", "committed_at"),
    )

    decision_id: str = Field(primary_key=True)
    query_id: str
    tenant: str
    catalog_hash: str
    request_hash: str
    router_version: str
    rung: str
    policy: str
    action: str
    intent: str | None
    primary_agent: str | None
    flow: str | None
    propensity: float
    confidence: float
    oos_score: float
    committed_at: datetime = Field(sa_type=UtcDateTime)
    session_id: str = Field(sa_type=FreeText)
    user_id: str = Field(sa_type=FreeText)
    route: dict[str, Any] = Field(sa_type=sa.JSON)
    request: dict[str, Any] = Field(sa_type=sa.JSON)
    stages: dict[str, Any] = Field(sa_type=sa.JSON)
    output: dict[str, Any] = Field(sa_type=sa.JSON)


class Signal(SQLModel, table=True):
    """The training signal of a decision: the truth for it, which feedback updates. A row says all that training needs."""

    __table_args__ = (
        sa.UniqueConstraint("decision_id", name="uq_signal_decision_id"),
        sa.Index("ix_signal_created_at", "created_at"),
    )

    signal_id: str = Field(primary_key=True)
    decision_id: str = Field(foreign_key="decision.decision_id")
    tenant: str
    user_id: str = Field(sa_type=FreeText)
    created_at: datetime = Field(sa_type=UtcDateTime)
    session_id: str = Field(sa_type=FreeText)
    query: str = Field(sa_type=FreeText)
    query_pattern: str = Field(sa_type=FreeText)
    intent: str
    entities_extracted: list[str] = Field(sa_type=sa.JSON)
    agents_selected: list[str] = Field(sa_type=sa.JSON)
    routing_confidence: float
    routing_rationale: str = Field(sa_type=FreeText)
    agents_succeeded: int
    agents_failed: int
    total_latency_ms: float | None
    user_satisfaction: float | None
    answer_quality: float | None
    was_rerouted: bool | None
    agents_unavailable: int
    latency_budget_ms: int | None
    corrected_agent: str | None = Field(sa_type=FreeText)
    router_version: str
    rung: str | None
    propensity: float
    alternative: str | None
    asked: str | None = Field(sa_type=FreeText)
    from_history: bool
    caller_intent: str | None = Field(sa_type=FreeText)
    further_intents: list[str] = Field(sa_type=sa.JSON)
    reward: float | None
    updated_at: datetime = Field(sa_type=UtcDateTime)


class Shadow(SQLModel, table=True):
    """How a candidate did in the shadow: the counts of all services together."""

    version: str = Field(primary_key=True)
    requests: int
    differing: int
    failing: int


class Region(SQLModel, table=True):
    """What became of the requests that a router version read as one intent, by day (UTC); see `service.routing.regions.RegionTally`."""

    version: str = Field(primary_key=True)
    intent: str = Field(primary_key=True)
    day: date = Field(primary_key=True)
    local: int
    asked: int
    audited: int
    agreed: int
    failed: int
    priced: int
    seconds: float
    usd: float


class RegionGivenBack(SQLModel, table=True):
    """An intent that a router version's student no longer answers alone."""

    __tablename__ = "region_given_back"

    version: str = Field(primary_key=True)
    intent: str = Field(primary_key=True)
    reason: str = Field(sa_type=FreeText)
    given_back_at: datetime = Field(sa_type=UtcDateTime)


class Optimization(SQLModel, table=True):
    """One request to make a signature better. `lease` is the token of the lease that it is carried out under; `priority` 0 is the least."""

    __table_args__ = (sa.Index("ix_optimization_status", "status"),)

    request_id: str = Field(primary_key=True)
    tenant: str
    agent_name: str
    signature_name: str
    priority: int
    status: str
    asked: int
    signals: int
    signals_left_out: int
    created_at: datetime = Field(sa_type=UtcDateTime)
    attempts: int
    started_at: datetime | None = Field(sa_type=UtcDateTime)
    lease: str | None
    router_version: str | None
    ruling: str | None
    reason: str | None = Field(sa_type=FreeText)
    finished_at: datetime | None = Field(sa_type=UtcDateTime)


class ReceivedSignal(SQLModel, table=True):
    """A training signal that came with a request rather than from a decision here. `request_id` is the first one that brought it."""

    __tablename__ = "received_signal"

    tenant: str = Field(primary_key=True)
    signal_id: str = Field(primary_key=True)
    request_id: str = Field(foreign_key="optimization.request_id")
    session_id: str = Field(sa_type=FreeText)
    received_at: datetime = Field(sa_type=UtcDateTime)
    signal: dict[str, Any] = Field(sa_type=sa.JSON)


class JobLease(SQLModel, table=True):
    """Who does a job that only one may do at a time, and until when nobody else may; a new `token` each time that it is taken."""

    __tablename__ = "job_lease"

    name: str = Field(primary_key=True)
    token: str
    holder: str = Field(sa_type=FreeText)
    taken_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)


class StoredKey(SQLModel, table=True):
    """An API key by its digest; the key itself is nowhere."""

    __tablename__ = "api_key"
    __table_args__ = (sa.UniqueConstraint("digest", name="uq_api_key_digest"),)

    key_id: str = Field(primary_key=True)
    digest: str
    tenant: str
    name: str = Field(sa_type=FreeText)
    scopes: list[str] = Field(sa_type=sa.JSON)
    rate_per_minute: int | None
    quota_per_day: int | None
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(sa_type=UtcDateTime)


class KeyUsage(SQLModel, table=True):
    """How many questions were asked with a key in a day (UTC), by all processes together."""

    __tablename__ = "key_usage"

    day: date = Field(primary_key=True)
    key_id: str = Field(primary_key=True)
    questions: int


def decision_values(receipt: Receipt) -> dict[str, object]:
    """Return the decision row of a receipt. JSON columns hold contracts: the engine's serializer writes them."""
    decision, request = receipt.decision, receipt.request
    copied = ("intent", "primary_agent", "flow", "router_version", "policy", "propensity", "confidence", "oos_score")
    return {
        "decision_id": str(decision.decision_id),
        "query_id": str(decision.query_id),
        "tenant": receipt.tenant,
        "catalog_hash": receipt.catalog_hash,
        "request_hash": receipt.request_hash,
        "rung": decision.rung.value,
        "action": decision.action.value,
        **{name: getattr(decision, name) for name in copied},
        "committed_at": receipt.committed_at,
        "session_id": request.session_id,
        "user_id": request.user_id,
        "route": decision,
        "request": request,
        "stages": receipt.stages,
        "output": receipt.output,
    }


def signal_values(receipt: Receipt) -> dict[str, object]:
    """Return the signal row of a receipt."""
    return {
        **receipt.signal.model_dump(mode="json"),
        "decision_id": str(receipt.decision_id),
        "tenant": receipt.tenant,
        "user_id": receipt.request.user_id,
        "created_at": receipt.committed_at,
        "reward": receipt.reward,
        "updated_at": receipt.committed_at,
    }


def signal_from(row: Signal) -> RoutingTrainingSignal:
    """Return the signal that a row holds."""
    return RoutingTrainingSignal.model_validate({name: getattr(row, name) for name in RoutingTrainingSignal.model_fields})


def receipt_from(decision: Decision, signal: Signal) -> Receipt:
    """Return the receipt that two rows hold.

    Raises:
        pydantic.ValidationError: the rows do not hold what was written.
    """
    values: Mapping[str, object] = {
        "decision": decision.route,
        "tenant": decision.tenant,
        "catalog_hash": decision.catalog_hash,
        "request_hash": decision.request_hash,
        "request": decision.request,
        "stages": decision.stages,
        "output": decision.output,
        "signal": signal_from(signal),
        "reward": signal.reward,
        "committed_at": decision.committed_at,
    }
    return Receipt.model_validate(values)
