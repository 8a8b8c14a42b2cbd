"""Pure ASGI middleware: an id for every request, guards for browsers, a count of every answer, and bounded, strict JSON bodies."""

import asyncio
import re
import time
from collections.abc import Iterable
from contextlib import nullcontext
from math import isfinite
from uuid import uuid4

import structlog
from pydantic_core import from_json
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import describe, respond
from service.errors import BodyTimeout, BodyTooLarge, InvalidInput, PointsmanError, ShuttingDown, UnsupportedMediaType
from service.logs import begin_line, end_line
from service.ports import Responded
from service.tracing import name_request, request_span

BODY_SECONDS = 15.0
ENDING = "The service is shutting down. What had come by then is stored under the query_id."
MAX_MEMBERS = 10_000  # members of all objects of a body together: each can be one field that breaks the contract, and is then listed
MORE_MEMBERS = {"/optimizations": 30_000}  # where a thousand signals may come, each with all its fields
REQUEST_ID = "X-Request-ID"
LEAST_PROBLEM = 400
# What the OWASP REST Security Cheat Sheet asks of every answer; TLS, and with it Strict-Transport-Security, is the ingress's.
GUARDS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
PAGES = ("/docs", "/static-offline-docs/")  # of people; they bring a script and a style of their own
PAGE_POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
)
STREAM_PROBLEM = "stream_problem"  # where in the request's state a stream leaves the problem in which it ended
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # which are not traced
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestId:
    """Takes the caller's `X-Request-ID` if it is harmless, or makes one; binds it to the logs and returns it, with the guards."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _header(scope, b"x-request-id")
        request_id = given if _SAFE_ID.fullmatch(given) else uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        started = ended = False

        async def tagged(message: Message) -> None:
            nonlocal started, ended
            if message["type"] == "http.response.start":
                started = True
                headers = list(message.get("headers", []))
                message["headers"] = [*headers, *_guards(scope["path"], headers), (REQUEST_ID.lower().encode(), request_id.encode())]
            await send(message)
            ended = started and not message.get("more_body", message["type"] != "http.response.body")

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, tagged)
            except asyncio.CancelledError:  # the server cancels what is under way when its time to end is up
                if not started:
                    problem = describe(ShuttingDown(ENDING), scope["path"], request_id)
                    await respond(problem, {"Connection": "close"})(scope, receive, tagged)
                if not ended:
                    raise


class Watched:
    """Opens the request's span, inside the caller's trace where it sends one, and tells metrics and log of every answer.

    A stream that ends in a problem counts as that problem, though its status line says 200.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, problem, line, started = 0, b"", begin_line(), time.monotonic()

        async def watched(message: Message) -> None:
            nonlocal status, problem
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= LEAST_PROBLEM:  # a problem is sent in one piece
                problem = problem or message.get("body", b"")
            await send(message)

        code = None
        with request_span(scope["headers"]) if scope["path"] not in PROBES else nullcontext() as told:
            try:
                await self._app(scope, receive, watched)
            except Exception:  # it is answered further out, as what nobody foresaw
                status, code = status or 500, str(PointsmanError.code)
                raise
            finally:
                code = code or _code_of(problem)
                route = getattr(scope.get("route"), "path", "none")  # nobody makes up series by asking for what is not there
                method = scope["method"] if scope["method"] in _METHODS else "other"
                if status:
                    if (last := scope["state"].get(STREAM_PROBLEM)) is not None:  # it said 200 before it knew
                        status, code = last.status, last.code
                    scope["state"]["services"].metrics.notice(Responded(method, route, status, code))
                    if told is not None:
                        name_request(told, method, route, status)
                if scope["path"] not in PROBES:
                    request_id, seconds = scope["state"]["request_id"], time.monotonic() - started
                    end_line(line, request_id=request_id, method=method, route=route, status=status, code=code, seconds=seconds)


class JsonBodies:
    """Lets a POST pass only without a body, or with a JSON body of bounded size that strict JSON allows: no NaN, no deep nesting.

    What no route takes goes on unread, to be answered with 404 or 405.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["method"] not in {"POST", "PUT", "PATCH"} or not _has_route(scope):
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._read(scope, receive)
            if body:
                check_json(body, MORE_MEMBERS.get(scope["path"], MAX_MEMBERS))
        except TimeoutError:
            problem = BodyTimeout(f"The body did not arrive within {BODY_SECONDS:g} s.")
            await respond(describe(problem, scope["path"], scope["state"]["request_id"]), {"Connection": "close"})(scope, receive, send)
            return
        except PointsmanError as exc:
            await respond(describe(exc, scope["path"], scope["state"]["request_id"]))(scope, receive, send)
            return
        except ConnectionError:
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        declared = _header(scope, b"content-length")
        if declared.isdigit() and len(declared) < 20 and int(declared) > self._max_bytes:
            raise BodyTooLarge(f"The body has {declared} bytes; at most {self._max_bytes} are read.")
        if declared in {"", "0"} and not _header(scope, b"transfer-encoding"):
            return b""  # a request without a body need not say what the body is
        kind = _header(scope, b"content-type").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise UnsupportedMediaType("Send JSON, with the header `Content-Type: application/json`.")
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                raise BodyTooLarge(f"The body has more than {self._max_bytes} bytes.")
            if not message.get("more_body", False):
                return bytes(body)


def check_json(body: bytes, most: int = MAX_MEMBERS) -> None:
    """Check that a body is strict JSON whose objects have at most so many members together.

    Raises:
        InvalidInput: it is not; the message says where.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as exc:
        raise InvalidInput(f"The body is not valid JSON: {str(exc)[:200]}.") from exc
    members, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            members += len(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, float) and not isfinite(value):
            raise InvalidInput("The body is not valid JSON: it holds a number that is too large.")
    if members > most:
        raise InvalidInput(f"The objects of the body have more than {most} members together.")


def _guards(path: str, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the guards that an answer does not have yet."""
    set_already = {name for name, _ in headers}
    own = {b"content-security-policy": PAGE_POLICY} if path.startswith(PAGES) else {}
    return [(name, own.get(name, value)) for name, value in GUARDS if name not in set_already]


def _code_of(problem: bytes) -> str | None:
    """Return the code of a body that is a problem, or None."""
    try:
        return str(from_json(problem)["code"]) if problem else None
    except (ValueError, LookupError, TypeError):
        return None  # such as the body of a service that is not ready


def _has_route(scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].routes)


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
