"""Traces by OpenTelemetry: a span for each request, stage, run on the LM and attempt at an agent, sent by OTLP over HTTP where wanted.

A trace that comes in (W3C Trace Context) is gone on with, and agents are told which span asks them. Spans hold ids, names and outcomes from
closed sets, never what a user or an agent wrote. OpenTelemetry's own variables (`OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_EXPORTER_OTLP_HEADERS`) hold as well.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SEND_SECONDS = 5  # for one batch; a collector that is away costs spans, never a request
FAILED = 500
_TRACE_CONTEXT = TraceContextTextMapPropagator()  # the context alone: baggage is the caller's word, and not for agents
_CARRIED = frozenset({b"traceparent", b"tracestate"})
_NO_SPAN = nullcontext[Span](trace.INVALID_SPAN)
_tracers: list[Tracer] = []  # the one in use; empty as long as nothing is traced


def span(name: str, kind: SpanKind = SpanKind.INTERNAL) -> AbstractContextManager[Span]:
    """Open a span inside the one that is open; where nothing is traced, one that keeps nothing and costs nothing."""
    if not _tracers:
        return _NO_SPAN
    return _tracers[-1].start_as_current_span(name, kind=kind, record_exception=False, set_status_on_exception=False)


def request_span(headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[Span]:
    """Open the span of an HTTP request; the route that gives its name is known later."""
    if not _tracers:
        return _NO_SPAN
    carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _CARRIED}
    context = _TRACE_CONTEXT.extract(carried)
    return _tracers[-1].start_as_current_span(
        "request",
        context,
        SpanKind.SERVER,
        record_exception=False,
        set_status_on_exception=False,  # their text may hold the user's
    )


def trace_headers() -> dict[str, str]:
    """Return the headers that name the open span to whoever is called inside it (`traceparent`, W3C); none where nothing is traced."""
    headers: dict[str, str] = {}
    _TRACE_CONTEXT.inject(headers)
    return headers


def name_request(told: Span, method: str, route: str, status: int) -> None:
    """Name a request's span by its route, and say how it ended (OpenTelemetry's conventions for HTTP); never by the path itself."""
    told.update_name(f"{method} {route}")
    told.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
    if status >= FAILED:
        told.set_status(StatusCode.ERROR)


@contextmanager
def traced(endpoint: str | None) -> Iterator[None]:
    """Send traces to a collector, `http://host:4318` for one on the usual port; None: there are none. What waits at the end is sent."""
    if endpoint is None:
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # half a second of imports
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "pointsman", "service.version": version("pointsman")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=SEND_SECONDS)))
    _tracers.append(provider.get_tracer("pointsman"))
    try:
        yield
    finally:
        _tracers.pop()
        provider.shutdown()
