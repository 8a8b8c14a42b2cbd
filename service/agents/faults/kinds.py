"""Which faults there are, and which fields of a plan's entry each one reads. It knows not how a fault is acted out."""

from enum import StrEnum


class Fault(StrEnum):
    """What can be done to a dispatch. `docs/drills.md` says what each one puts on the wire."""

    # The connection: too little of an answer, or none
    REFUSE = "refuse"
    HANG_UP = "hang_up"
    HANG = "hang"
    LATE_ANSWER = "late_answer"
    SLOW_HEADERS = "slow_headers"
    SLOW_BODY = "slow_body"
    STALLED_BODY = "stalled_body"
    CUT_CONNECTION = "cut_connection"
    RESET_IN_BODY = "reset_in_body"
    CLOSED_AFTER_ANSWER = "closed_after_answer"

    # The protocol: what is sent is no proper HTTP, or more than was asked for
    NOT_HTTP = "not_http"
    ENDLESS_HEADERS = "endless_headers"
    TRUNCATED_CHUNKS = "truncated_chunks"
    BROKEN_CHUNKS = "broken_chunks"
    SHORT_LENGTH = "short_length"
    TWO_ANSWERS = "two_answers"
    INTERIM_ANSWER = "interim_answer"
    HUGE_BODY = "huge_body"
    GZIP_UNASKED = "gzip_unasked"
    GZIP_BOMB = "gzip_bomb"

    # The status: proper HTTP that says no
    ERROR_500 = "error_500"
    RATE_LIMIT_429 = "rate_limit_429"
    UNAVAILABLE_503 = "unavailable_503"
    NOT_FOUND_404 = "not_found_404"
    HTTP_STATUS = "http_status"
    REDIRECT = "redirect"

    # The body: HTTP 200 with something that is no handoff
    EMPTY_200 = "empty_200"
    HTML_200 = "html_200"
    INVALID_JSON = "invalid_json"
    NOT_UTF8 = "not_utf8"
    DEEP_JSON = "deep_json"
    NAN_CONFIDENCE = "nan_confidence"
    NO_ENVELOPE = "no_envelope"

    # The handoff: valid JSON whose content is not what it should be
    WRONG_DISPATCH_ID = "wrong_dispatch_id"
    WRONG_AGENT_ID = "wrong_agent_id"
    UNKNOWN_STATUS = "unknown_status"
    MISSING_OUTPUT = "missing_output"
    LOW_CONFIDENCE = "low_confidence"
    CONFIDENCE_ABOVE_ONE = "confidence_above_one"
    LATE_CLAIM = "late_claim"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    BLOCKED = "blocked"


READ_BY: dict[str, frozenset[Fault]] = {
    "seconds": frozenset({Fault.HANG, Fault.LATE_ANSWER, Fault.SLOW_HEADERS, Fault.SLOW_BODY, Fault.STALLED_BODY}),
    "retry_after": frozenset({Fault.RATE_LIMIT_429, Fault.UNAVAILABLE_503, Fault.HTTP_STATUS}),
    "status": frozenset({Fault.HTTP_STATUS, Fault.REDIRECT}),
    "location": frozenset({Fault.REDIRECT}),
    "framing": frozenset({Fault.HUGE_BODY}),
    "recoverable": frozenset({Fault.FAILED}),
}
"""The fields that only some faults read."""
