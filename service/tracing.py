"""Traces by OpenTelemetry: a span for each request, stage, run on the LM and attempt at an agent, sent by OTLP over HTTP where wanted.

A trace that comes in (W3C Trace Context) is gone on with, and agents are told which span asks them. Spans hold ids, names and outcomes from
closed sets, never what a user or an agent wrote. OpenTelemetry's own variables (`OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_EXPORTER_OTLP_HEADERS`) hold as well.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Tracer

SEND_SECONDS = 5  # for one batch; a collector that is away costs spans, never a request
_NO_SPAN = nullcontext[Span](trace.INVALID_SPAN)
_tracers: list[Tracer] = []  # the one in use; empty as long as nothing is traced


def span(name: str, kind: SpanKind = SpanKind.INTERNAL) -> AbstractContextManager[Span]:
    """Open a span inside the one that is open; where nothing is traced, one that keeps nothing and costs nothing."""
    if not _tracers:
        return _NO_SPAN
    return _tracers[-1].start_as_current_span(name, kind=kind, record_exception=False, set_status_on_exception=False)


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
    trace.set_tracer_provider(provider)  # for the HTTP edge
    _tracers.append(provider.get_tracer("pointsman"))
    try:
        yield
    finally:
        _tracers.pop()
        provider.shutdown()
