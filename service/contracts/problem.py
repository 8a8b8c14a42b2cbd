"""Errors on the wire: `application/problem+json` (RFC 9457) with the error code and, for invalid input, each field."""

from service.contracts.model import Contract


class InvalidField(Contract):
    """One field that breaks the contract."""

    field: str
    message: str
    kind: str


class Problem(Contract):
    """RFC 9457 problem details. `code` is stable for programs, `detail` is for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    request_id: str | None = None
    retryable: bool = False
    errors: tuple[InvalidField, ...] = ()
