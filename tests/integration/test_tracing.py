"""Traces of the real service, as a collector gets them: one trace from the caller to the agent, and no word of what a user said."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.conftest import body
from tests.integration.conftest import Start

pytestmark = pytest.mark.timeout(600)
TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUESTION = "@causal_impact Did the visits of Mallory lift TRx?"
CARRIED = {"traceparent": f"00-{TRACE_ID}-{CALLER}-01", "tracestate": "vendor=1", "baggage": "user=mallory"}
SEND_SECONDS = 30.0


@dataclass
class Listener:
    """An HTTP server that keeps what it is sent and answers with a fixed status."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def listening(status: int) -> Iterator[Listener]:
    """Listen on a free port."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # (the name that http.server calls)
            listener.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            listener.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sent(collector: Listener) -> list[Span]:
    """Return the spans that the collector has got, once that of the whole request is among them."""
    limit = time.monotonic() + SEND_SECONDS
    while time.monotonic() < limit:
        batches = [ExportTraceServiceRequest.FromString(content) for content in list(collector.bodies)]
        spans = [s for batch in batches for r in batch.resource_spans for scope in r.scope_spans for s in scope.spans]
        if any(s.name == "POST /orchestrate" for s in spans):
            return spans
        time.sleep(0.1)
    raise AssertionError("no trace came")


def test_a_request_is_one_trace(start_service: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stages hang on the request, attempts on the dispatch, and each agent is told the attempt that asks it."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    with listening(200) as collector, listening(500) as agent:
        service = start_service(
            otlp_endpoint=collector.url, agents_base_url=agent.url, database_url=f"sqlite:///{tmp_path}/t.db", log_level="DEBUG"
        )
        told = CARRIED | {"User-Agent": "Mallory/1.0"}
        answer = httpx.post(f"{service.url}/orchestrate?who=Mallory", json=body(QUESTION), headers=told, timeout=60.0)
        spans = sent(collector)
        page = httpx.get(f"{service.url}/metrics", headers={"Accept": "application/openmetrics-text"}, timeout=10.0).text
        probed = httpx.get(f"{service.url}/healthz", timeout=10.0)

    assert (answer.status_code, probed.status_code) == (200, 200)
    assert {s.trace_id.hex() for s in spans} == {TRACE_ID}
    by_name = {s.name: s for s in spans}
    request, dispatch = by_name["POST /orchestrate"], by_name["stage dispatch"]
    assert request.parent_span_id.hex() == CALLER
    stages = [f"stage {name}" for name in ("triage", "intent", "routing", "gate", "dispatch", "synthesis", "commit")]
    assert {by_name[stage].parent_span_id for stage in stages} == {request.span_id}
    attempts = [s for s in spans if s.name.startswith("agent ")]
    assert {s.name for s in attempts} == {"agent causal_impact", "agent explainer"}
    assert {s.parent_span_id for s in attempts} == {dispatch.span_id}
    assert all(s.status.code == s.status.STATUS_CODE_ERROR for s in attempts)
    in_order = sorted(attempts, key=lambda span: span.start_time_unix_nano)
    assert [h["traceparent"] for h in agent.headers] == [f"00-{TRACE_ID}-{span.span_id.hex()}-01" for span in in_order]
    assert {h.get("baggage") for h in agent.headers} == {None}
    told = [{a.key: a.value.string_value for a in s.attributes} for s in in_order if s.name == "agent causal_impact"]
    assert [t["pointsman.attempt"] for t in told] == ["first", *["retry"] * (len(told) - 1)]
    assert {t["pointsman.outcome"] for t in told} == {"agent_error"}
    assert "Mallory" not in "".join(content.decode(errors="replace") for content in collector.bodies)
    assert f'# {{trace_id="{TRACE_ID}"}}' in page


def test_a_collector_that_is_away_costs_no_request(start_service: Start, closed_port: int, tmp_path: Path) -> None:
    """Neither while it serves nor at its end."""
    service = start_service(otlp_endpoint=f"http://127.0.0.1:{closed_port}", database_url=f"sqlite:///{tmp_path}/t.db")

    answers = [httpx.post(f"{service.url}/orchestrate", json=body("hello"), timeout=10.0) for _ in range(5)]
    started = time.monotonic()
    service.stop()

    assert {answer.status_code for answer in answers} == {200}
    assert time.monotonic() - started < 15.0
    assert service.process.returncode == 0


def test_without_a_collector_nothing_is_traced(start_service: Start, tmp_path: Path) -> None:
    """Agents are told of no trace, not even of the caller's."""
    with listening(500) as agent:
        service = start_service(agents_base_url=agent.url, database_url=f"sqlite:///{tmp_path}/t.db")
        answer = httpx.post(f"{service.url}/orchestrate", json=body(QUESTION), headers=CARRIED, timeout=60.0)

    assert answer.status_code == 200
    assert agent.headers
    assert not [h for h in agent.headers if {"traceparent", "tracestate", "baggage"} & set(h)]
