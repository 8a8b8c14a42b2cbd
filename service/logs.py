"""Structured logs: one JSON line per event on standard error, one per request. User text is never logged above DEBUG."""

import logging
import sys

import structlog

from service.ports import Event, RequestDone

_WITHOUT_LOCALS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # a frame's locals hold user text

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


class RequestLog:
    """Writes one line per committed request."""

    def __init__(self) -> None:
        self._log = structlog.stdlib.get_logger("pointsman.request")

    def notice(self, event: Event) -> None:
        """Log a finished request; stages and attempts are in the metrics."""
        if not isinstance(event, RequestDone):
            return
        decision, output = event.receipt.decision, event.receipt.output
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
