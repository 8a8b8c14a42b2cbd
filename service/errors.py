"""The error tree. Every error that a caller can see has a code, an HTTP status, a title and says whether trying again can help.

    PointsmanError
    ├── InvalidInput            400   the body breaks the contract; lists each field
    ├── Unauthenticated         401
    ├── PermissionDenied        403   the key does not name the permission
    ├── NotFound                404
    ├── IdempotencyConflict     409   the same query_id with another body
    ├── NothingToRollBack       409
    ├── BodyTimeout             408
    ├── BodyTooLarge            413
    ├── HeadTooLarge            431
    ├── UnsupportedMediaType    415
    ├── RateLimited             429   more requests in a minute than the key has
    ├── QuotaExceeded           429   more questions in a day than the key has
    ├── Saturated               503   too much waits already; nothing was started
    ├── StoreUnavailable        503   nothing was committed, so nothing is answered
    ├── RegistryUnavailable     503
    ├── IdentityUnavailable     503   the OpenID provider has not told its keys yet
    └── ConfigurationError      500   the service refuses to start; never raised by a request

What goes wrong behind a decision (an agent is down, a gate says no) is not an exception but a result with an `ErrorCode`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """The specification's error categories, followed by the finer codes of the checks before and after a dispatch."""

    INVALID_INPUT = "invalid_input"
    ROUTING_FAILED = "routing_failed"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_ERROR = "agent_error"
    SYNTHESIS_FAILED = "synthesis_failed"
    QC_GATE_BLOCKED = "qc_gate_blocked"
    PERMISSION_DENIED = "permission_denied"
    MISSING_ENTITY = "missing_entity"
    AGENT_UNAVAILABLE = "agent_unavailable"
    SATURATED = "saturated"
    HANDOFF_INVALID = "handoff_invalid"
    CARD_INVALID = "card_invalid"
    DISPATCH_MISMATCH = "dispatch_mismatch"
    STATUS_INVALID = "status_invalid"
    OUTPUT_MISSING = "output_missing"
    LATENCY_EXCEEDED = "latency_exceeded"
    LOW_CONFIDENCE = "low_confidence"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that breaks the contract: where (JSON path), what is wrong, and the machine-readable kind."""

    field: str
    message: str
    kind: str


class PointsmanError(Exception):
    """Base of every error that Pointsman raises on purpose. The message is a sentence for a person.

    `retry_after` is after how many seconds trying again can help, where it can.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    retry_after: int = 1


class InvalidInput(PointsmanError):
    """The body breaks the contract."""

    code, status, title = ErrorCode.INVALID_INPUT, 400, "Invalid input"

    def __init__(self, message: str, fields: Sequence[FieldProblem] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class Unauthenticated(PointsmanError):
    """No key, or one that is not known."""

    code, status, title = "unauthenticated", 401, "Authentication required"


class PermissionDenied(PointsmanError):
    """The key does not name the permission that this needs."""

    code, status, title = ErrorCode.PERMISSION_DENIED, 403, "Permission denied"


class NotFound(PointsmanError):
    """Nothing is stored under that id."""

    code, status, title = "not_found", 404, "Not found"


class IdempotencyConflict(PointsmanError):
    """The id was used before with another body."""

    code, status, title = "idempotency_conflict", 409, "Same id, another body"


class NothingToRollBack(PointsmanError):
    """There is no earlier champion."""

    code, status, title = "nothing_to_roll_back", 409, "Nothing to roll back"


class BodyTimeout(PointsmanError):
    """The body did not arrive in time."""

    code, status, title, retryable = "body_timeout", 408, "Body timeout", True


class BodyTooLarge(PointsmanError):
    """The body is larger than the service reads."""

    code, status, title = "body_too_large", 413, "Body too large"


class HeadTooLarge(PointsmanError):
    """The request line and the headers are longer than the service reads."""

    code, status, title = "head_too_large", 431, "Request header fields too large"


class UnsupportedMediaType(PointsmanError):
    """The body is not JSON."""

    code, status, title = "unsupported_media_type", 415, "Unsupported media type"


class RateLimited(PointsmanError):
    """The key has sent as many requests as it may in a minute."""

    code, status, title, retryable = "rate_limited", 429, "Too many requests", True

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExceeded(RateLimited):
    """The key has asked as many questions as it may in a day."""

    code, title = "quota_exceeded", "Quota exceeded"


class Saturated(PointsmanError):
    """Too much work is under way and waiting. Nothing was started; try again a little later."""

    code, status, title, retryable = ErrorCode.SATURATED, 503, "Saturated", True


class ShuttingDown(PointsmanError):
    """The service ends before the answer; what had come by then is stored."""

    code, status, title, retryable = "shutting_down", 503, "Shutting down", True


class StoreUnavailable(PointsmanError):
    """The decision could not be made durable, so it is not answered."""

    code, status, title, retryable = "store_unavailable", 503, "Store unavailable", True


class RegistryUnavailable(PointsmanError):
    """The registry of router versions cannot be used now."""

    code, status, title, retryable = "registry_unavailable", 503, "Registry unavailable", True


class IdentityUnavailable(PointsmanError):
    """The OpenID provider cannot be asked for its keys, and none are known yet."""

    code, status, title, retryable = "identity_unavailable", 503, "Identity provider unavailable", True


class ConfigurationError(PointsmanError):
    """The service cannot start as it is configured. The message says what to change."""

    code, title = "configuration_error", "Configuration error"
