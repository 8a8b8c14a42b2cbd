"""Structured logs: one JSON line per event on standard error, one per request. User text is never logged above DEBUG.

A request that was committed has the line `request`, which tells how it was decided; every other one the line `response`; probes none.
"""

import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import structlog

from service.ports import Event, RequestDone

_WITHOUT_LOCALS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # a frame's locals hold user text
_SERVER_ERROR = 500
EXTRA = ("agent", "reason")  # what the standard library's events may carry beside their text


def configure_logs(level: str) -> None:
    """Send the standard library's and structlog's events through one JSON renderer."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow=EXTRA)],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.ExceptionRenderer(_WITHOUT_LOCALS),
                *(() if level == "DEBUG" else (_without_messages,)),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("httpx", "httpcore", "alembic", "LiteLLM", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _without_messages(_: structlog.types.WrappedLogger, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Take out what exceptions say, which can be user text: a parser quotes what it cannot read. Type and place stay."""
    for raised in _each(event.get("exception") or []):
        raised["exc_value"], raised["exc_notes"], raised["syntax_error"] = "told at the log level DEBUG", [], None
    return event


def _each(raised: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Go through exceptions, their causes, and those of groups."""
    for one in raised:
        yield one
        for group in one["exceptions"]:
            yield from _each(group)


@dataclass(slots=True)
class Line:
    """Whether the request that is being answered has its line in the log already."""

    written: bool = False


_LINE: ContextVar[Line] = ContextVar("line")


def begin_line() -> Line:
    """Begin a request that is to have one line, in this context and those that are copied from it."""
    line = Line()
    _LINE.set(line)
    return line


def end_line(line: Line, *, request_id: str, method: str, route: str, status: int, code: str | None, seconds: float) -> None:
    """Write the line of a request that has none yet; status 0: the caller left before there was an answer."""
    if line.written:
        return
    log = structlog.stdlib.get_logger("pointsman.request")
    (log.warning if status >= _SERVER_ERROR else log.info)(
        "response",
        request_id=request_id,
        method=method,
        route=route,
        status=status or None,
        code=code if status else "client_left",
        seconds=round(seconds, 4),
    )


class RequestLog:
    """Writes one line per committed request."""

    def __init__(self) -> None:
        self._log = structlog.stdlib.get_logger("pointsman.request")

    def notice(self, event: Event) -> None:
        """Log a finished request; stages and attempts are in the metrics."""
        if not isinstance(event, RequestDone):
            return
        decision, output = event.receipt.decision, event.receipt.output
        _LINE.get(Line()).written = True
        self._log.info(
            "request",
            decision_id=str(decision.decision_id),
            query_id=str(output.query_id),
            tenant=event.receipt.tenant,
            action=output.action.value,
            intent=decision.intent,
            agent=decision.primary_agent,
            rung=decision.rung.value,
            router_version=decision.router_version,
            status=output.status.value,
            warnings=[w.code for w in output.warnings],
            timings_ms=decision.timings_ms,
            total_latency_ms=output.total_latency_ms,
        )
