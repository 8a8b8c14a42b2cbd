"""What a caller posts: `OrchestratorInput` and its parts.

The shape is checked here. Rules that repair a value and warn (unknown intent, confidence out of range, too many entities) need the
catalogue and a place for their warnings, so they live in `service/stages/triage.py`.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, Strict, StringConstraints
from pydantic_core import PydanticKnownError

from service.contracts.model import Contract, Instant, JsonObject, Probability

MAX_QUERY_CHARACTERS = 100_000
MAX_HISTORY_TURNS = 200
MAX_ENTITIES_READ = 1_000  # what comes after is not even looked at, for the reason given at `_count`

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Text = Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARACTERS)]
Number = Annotated[float, Strict()]  # no text and no truth value in place of a number
Flag = Annotated[bool, Strict()]


class EntityType(StrEnum):
    """The kinds of thing a question can be about."""

    BRAND = "brand"
    REGION = "region"
    KPI = "kpi"
    TIME_PERIOD = "time_period"
    HCP_ID = "hcp_id"
    PATIENT_ID = "patient_id"


class EntitySource(StrEnum):
    """How an entity was found in the text."""

    EXACT = "exact"
    FUZZY = "fuzzy"
    INFERRED = "inferred"


class ParsedEntity(Contract):
    """One entity of the question. `confidence` out of [0, 1] is clamped with a warning."""

    type: EntityType
    value: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    confidence: Number = 1.0
    source: EntitySource = EntitySource.EXACT


def _no_number(instant: object) -> object:
    if isinstance(instant, int | float):
        raise ValueError("must be text such as 2026-01-31T12:00:00Z")  # noqa: TRY004  (pydantic reports a ValueError by field)
    return instant


def _cut(entities: object) -> object:
    return entities[:MAX_ENTITIES_READ] if isinstance(entities, list) else entities


class ParsedQuery(Contract):
    """The question. A caller without a language layer sends only `query_id` and `raw_query`."""

    query_id: UUID
    raw_query: Text
    intent: Annotated[str, StringConstraints(max_length=256)] | None = None
    entities: Annotated[tuple[ParsedEntity, ...] | None, BeforeValidator(_cut)] = None
    confidence: Number = 1.0
    ambiguity_flag: Flag = False
    context: JsonObject | None = None
    timestamp: Annotated[Instant, BeforeValidator(_no_number)] = Field(default_factory=lambda: datetime.now(UTC))


class ConversationTurn(Contract):
    """One earlier message. Further fields that the caller keeps with a message are accepted and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    role: Literal["user", "assistant", "system"] = "user"
    content: Text = ""


def _count(turns: object) -> object:
    # Before any turn is looked at: a body of broken turns would take seconds and a gigabyte to list.
    if isinstance(turns, list) and len(turns) > MAX_HISTORY_TURNS:
        known = {"field_type": "Tuple", "max_length": MAX_HISTORY_TURNS, "actual_length": len(turns)}
        raise PydanticKnownError("too_long", known)
    return turns


class Depth(StrEnum):
    """How many perspectives the caller wants."""

    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


def _number(value: object) -> object:
    if isinstance(value, str | bool):
        raise ValueError("must be a number")  # noqa: TRY004  (pydantic reports a ValueError by field)
    return value


class Preferences(Contract):
    """The caller's wishes. Unknown ones are accepted and ignored, so that a newer caller can talk to an older service."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    max_latency_ms: Annotated[int, Field(ge=1, le=3_600_000), BeforeValidator(_number)] | None = None
    required_confidence: Annotated[Probability, Strict()] | None = None
    depth: Depth = Depth.STANDARD
    rung: Literal["student", "lm"] | None = None


class OrchestratorInput(Contract):
    """The body of `POST /orchestrate` and `POST /route`."""

    parsed_query: ParsedQuery
    user_id: Identifier
    session_id: Identifier
    conversation_history: Annotated[tuple[ConversationTurn, ...], Field(max_length=MAX_HISTORY_TURNS), BeforeValidator(_count)] = ()
    preferences: Preferences | None = None
