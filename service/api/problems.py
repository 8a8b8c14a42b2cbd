"""Errors on the wire: the error tree, FastAPI's own errors and what nobody foresaw, all as RFC 9457 `application/problem+json`."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.contracts.problem import InvalidField, Problem
from service.errors import (
    BodyTimeout,
    BodyTooLarge,
    IdempotencyConflict,
    IdentityUnavailable,
    InvalidInput,
    NotFound,
    NothingToRollBack,
    PermissionDenied,
    PointsmanError,
    QuotaExceeded,
    RateLimited,
    RegistryUnavailable,
    Saturated,
    StoreUnavailable,
    Unauthenticated,
    UnsupportedMediaType,
)

MEDIA_TYPE = "application/problem+json"
MAX_FIELDS = 100
NAMED_FIELDS = 10  # how many the detail names
MAX_NAME = 64  # characters of one part of a path: the name of an unknown field is the caller's text
log = logging.getLogger(__name__)


def respond(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """Write a problem as a response."""
    return Response(problem.model_dump_json(exclude_none=True), problem.status, headers, MEDIA_TYPE)


def describe(error: PointsmanError, instance: str | None = None, request_id: str | None = None) -> Problem:
    """Turn an error of the tree into a problem."""
    fields = error.fields if isinstance(error, InvalidInput) else ()
    return Problem(
        type=f"urn:pointsman:problem:{error.code}",
        title=error.title,
        status=error.status,
        detail=str(error),
        code=str(error.code),
        instance=instance and quote(instance),
        request_id=request_id,
        retryable=error.retryable,
        errors=tuple(InvalidField(field=f.field, message=f.message, kind=f.kind) for f in fields[:MAX_FIELDS]),
    )


def install(app: FastAPI, guards: Mapping[str, str]) -> None:
    """Register the handlers; what nobody foresaw is answered outside of all middleware, with these headers of its own."""

    @app.exception_handler(PointsmanError)
    async def _ours(request: Request, exc: PointsmanError) -> Response:
        if exc.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("%s: %s (%s)", exc.code, exc, type(exc.__cause__).__name__)  # a cause's text can hold user text
        headers = {"Retry-After": str(exc.retry_after)} if exc.retryable else {}
        if isinstance(exc, Unauthenticated):
            headers["WWW-Authenticate"] = "Bearer"
        return respond(describe(exc, request.scope["path"], _request_id(request)), headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, exc: RequestValidationError) -> Response:
        errors = exc.errors()
        fields = tuple(InvalidField(field=_path(e["loc"]), message=e["msg"], kind=e["type"]) for e in errors[:MAX_FIELDS])
        names = [f.field if f.kind != "extra_forbidden" else "an unknown field" for f in fields[:NAMED_FIELDS]]
        count = len(errors)
        problem = Problem(
            type=f"urn:pointsman:problem:{InvalidInput.code}",
            title=InvalidInput.title,
            status=InvalidInput.status,
            detail=f"{count} field{'s' if count != 1 else ''} broke the contract: {', '.join(dict.fromkeys(names))}.",
            code=str(InvalidInput.code),
            instance=quote(request.scope["path"]),
            request_id=_request_id(request),
            errors=fields,
        )
        return respond(problem)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, exc: HTTPException) -> Response:
        phrase = HTTPStatus(exc.status_code).phrase.capitalize()
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        detail = f"{phrase}. What this service answers to is described at /docs."
        problem = Problem(
            type=f"urn:pointsman:problem:{code}",
            title=phrase,
            status=exc.status_code,
            detail=detail,
            code=code,
            instance=quote(request.scope["path"]),
            request_id=_request_id(request),
        )
        return respond(problem, dict(exc.headers or {}))

    @app.exception_handler(Exception)
    async def _unforeseen(request: Request, exc: Exception) -> Response:
        log.error("unforeseen_error", exc_info=exc)
        error = PointsmanError("Something went wrong inside the service. The log has the request id.")
        request_id = _request_id(request)
        headers = {**guards, "X-Request-ID": request_id} if request_id else dict(guards)
        return respond(describe(error, request.scope["path"], request_id), headers)


def documented(*errors: type[PointsmanError]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI `responses` of a route that can fail with these errors."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        example = {
            "type": f"urn:pointsman:problem:{error.code}",
            "title": error.title,
            "status": error.status,
            "detail": (error.__doc__ or error.title).strip().splitlines()[0],
            "code": str(error.code),
            "retryable": error.retryable,
        }
        content = responses.setdefault(error.status, {"description": error.title, "content": {}})["content"]
        examples = content.setdefault(MEDIA_TYPE, {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}})["examples"]
        examples[str(error.code)] = {"value": example}
    return responses


KEPT_OUT = (Unauthenticated, RateLimited, IdentityUnavailable, StoreUnavailable)  # the door's
ASKED = (*KEPT_OUT, QuotaExceeded)
BODY = (InvalidInput, BodyTimeout, BodyTooLarge, UnsupportedMediaType)
POSTED = documented(*BODY, *ASKED, IdempotencyConflict, Saturated)
POSTED_DECISION = documented(*BODY, *ASKED, Saturated)
POSTED_FEEDBACK = documented(*BODY, *KEPT_OUT, NotFound)
FETCHED = documented(InvalidInput, *KEPT_OUT, NotFound)
LISTED = documented(*KEPT_OUT)
POSTED_OPTIMIZATION = documented(*BODY, *KEPT_OUT, PermissionDenied)
FETCHED_OPTIMIZATION = documented(InvalidInput, *KEPT_OUT, PermissionDenied, NotFound)
POSTED_ROLLBACK = documented(*KEPT_OUT, PermissionDenied, NothingToRollBack, RegistryUnavailable)
LISTED_OPTIMIZATIONS = documented(InvalidInput, *KEPT_OUT, PermissionDenied)


def _path(location: tuple[int | str, ...]) -> str:
    """Return `parsed_query.entities[3].type` for ("body", "parsed_query", "entities", 3, "type")."""
    path = ""
    for part in location[1:] if location[:1] in {("body",), ("path",), ("query",)} else location:
        name = str(part) if len(str(part)) <= MAX_NAME else f"{str(part)[:MAX_NAME]}…"
        path += f"[{part}]" if isinstance(part, int) else f".{name}" if path else name
    return path or "body"


def _request_id(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)
