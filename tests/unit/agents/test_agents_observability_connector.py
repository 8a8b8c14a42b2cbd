"""observability_connector tells what the metrics say, from Prometheus' API or from a text, and says what to set where it cannot."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.agents import directory, sample_data
from service.agents.finding import AgentFailure, Finding
from service.agents.monitoring.read import LARGEST_BODY, Reader, Reading, Sample, parse_metrics, read_prometheus
from service.agents.monitoring.summary import confidence_of, summarize
from service.agents.monitoring.window import read_window
from service.agents.observability_connector import describe, observe
from service.agents.sample_data import Snapshot
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff

NOW = datetime(2026, 6, 17, 15, 30, tzinfo=UTC)
"""A Wednesday."""
BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
MakeDispatch = Callable[..., AgentDispatch]
Serve = Callable[..., str]


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of the machine that runs the tests do not count."""
    monkeypatch.delenv("POINTSMAN_PROMETHEUS_URL", raising=False)
    monkeypatch.delenv("POINTSMAN_METRICS_URL", raising=False)


def platform(*, explainer: int = 40, causal: int = 10, causal_failed: int = 6, slow: float = 0.03) -> str:
    """Return a /metrics text of a platform with these calls."""
    registry = CollectorRegistry()
    agent = Histogram("orchestrator_agent_seconds", "t", ["agent", "outcome"], buckets=BUCKETS, registry=registry)
    request = Histogram("orchestrator_request_seconds", "t", ["status"], buckets=BUCKETS, registry=registry)
    stage = Histogram("orchestrator_stage_seconds", "t", ["stage", "outcome"], buckets=BUCKETS, registry=registry)
    decisions = Counter("orchestrator_decisions", "d", ["action", "intent", "agent", "rung"], registry=registry)
    Gauge("orchestrator_router_loaded", "1", registry=registry).set(1)
    Gauge("orchestrator_new_thing", "n", ["kind"], registry=registry).labels("a").set(7)
    Gauge("unrelated", "n", registry=registry).set(5)
    for at in range(explainer + causal):
        failed = at < causal_failed
        name, seconds = ("causal_impact", slow) if at < causal else ("explainer", 0.03)
        agent.labels(name, "agent_timeout" if failed else "success").observe(seconds)
        request.labels("failed" if failed else "success").observe(seconds + 0.04)
        stage.labels("routing", "student").observe(0.004)
        decisions.labels("dispatch", "explanation", name, "student").inc()
    return generate_latest(registry).decode()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve one body on a loopback port; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(body: str | bytes, *, status: int = 200, headers: dict[str, str] | None = None, wait: float = 0.0) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(wait)
                self.send_response(status)
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.end_headers()
                try:
                    self.wfile.write(body if isinstance(body, bytes) else body.encode())
                except OSError:
                    return

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(make: MakeDispatch, data: Snapshot, text: str, **what: Any) -> Finding:
    """Ask the agent a question."""
    return directory.load_agent("observability_connector")(make("observability_connector", context={"raw_query": text}, **what), data)


def reader(respond: Callable[[httpx.Request], httpx.Response], seconds: float = 5.0) -> Reader:
    """Return a reader whose answers come from a function."""
    return Reader(httpx.Client(transport=httpx.MockTransport(respond)), time.monotonic() + seconds)


def test_the_service_s_own_metrics_are_read_where_no_prometheus_is_set(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 requests, 6 failed; causal_impact fails in 6 of 10; the new gauge is seen, another program's is not."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))
    finding = ask(make_dispatch, data, "any errors")
    found: dict[str, Any] = dict(finding.primary_output)

    assert (found["source"], found["state"]) == ("metrics", "attention")
    assert (found["service"]["calls"], found["service"]["failed"], found["service"]["error_share"]) == (50, 6, 0.12)
    assert {row["name"]: (row["calls"], row["failed"]) for row in found["agents"]} == {"explainer": (40, 0), "causal_impact": (10, 6)}
    assert any("causal_impact fails: 6 of 10 calls (60 %), mostly agent_timeout" in one for one in found["out_of_line"])
    assert {row["metric"] for row in found["further_metrics"]} >= {"orchestrator_new_thing", "orchestrator_router_loaded"}
    assert "unrelated" not in json.dumps(found)
    assert finding.confidence == pytest.approx(50 / 70, abs=1e-6)
    assert "since the process started" in finding.evidence[0]
    assert len(found["agents_not_called"]) == len(directory.AGENTS) - 2


def test_a_healthy_platform_is_called_so(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No failures: the first sentence says that nothing is out of line."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform(causal_failed=0)))
    finding = ask(make_dispatch, data, "platform: green or red?")

    assert finding.primary_output["state"] == "ok"
    assert finding.evidence[0].startswith("Nothing is out of line")


@pytest.mark.parametrize(
    ("text", "agent", "sentence"),
    [
        ("is the causal agent alive", "causal_impact", "causal_impact answers"),
        ("The gap finder agent has been thinking for twenty minutes", "gap_analyzer", "gap_analyzer was not called"),
        ("p95 of the explainer", "explainer", "explainer answers"),
    ],
    ids=["causal", "gap", "explainer"],
)
def test_a_named_agent_is_answered_first(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch, text: str, agent: str, sentence: str
) -> None:
    """What people call an agent leads to it; one that was not called is not said to be alive or dead, and earns no confidence."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))
    finding = ask(make_dispatch, data, text)

    assert finding.primary_output["asked_agents"] == [agent]
    assert finding.evidence[0].startswith(sentence)
    assert finding.confidence == pytest.approx({"causal_impact": 10 / 30, "gap_analyzer": 0.0, "explainer": 40 / 60}[agent], abs=1e-6)


def test_a_health_score_is_not_the_agent_of_that_name(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is about the platform."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))

    assert ask(make_dispatch, data, "overall system health score").primary_output["asked_agents"] == []


def test_what_the_metrics_do_not_cover_is_said(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka, pods and uptime are not in the service's own metrics."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))
    finding = ask(make_dispatch, data, "kafka consumer lag?? any pods restarting, uptime for aug")
    text = " ".join(finding.caveats)

    assert finding.evidence[0].startswith("The metrics cannot answer this")
    assert finding.confidence == 0.0
    assert "nothing on 'kafka', 'consumer lag', 'pods'" in text
    assert "Uptime needs Prometheus' checks" in text


def test_a_time_before_the_process_earns_no_confidence(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics of a process that has just begun say nothing of yesterday, and little of the last hour."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))

    assert ask(make_dispatch, data, "errors of the agents yesterday").confidence == 0.0
    assert ask(make_dispatch, data, "errors of the agents in the last hour").confidence < 0.05


def test_a_slow_agent_is_out_of_line_and_one_slow_call_is_not(data: Snapshot) -> None:
    """p95 over a second and three times the others', from five calls on."""
    slow = summarize(parse_metrics(platform(causal_failed=0, slow=3.0), time.time() + 60, "x"))
    once = summarize(parse_metrics(platform(causal=1, causal_failed=0, slow=3.0), time.time() + 60, "x"))

    assert any("causal_impact is slow" in one for one in slow.out_of_line)
    assert not any("slow" in one for one in once.out_of_line)


@pytest.mark.parametrize(
    ("body", "status", "headers", "message"),
    [
        ("no metrics { here", 200, {}, "does not send metrics"),
        ("# HELP x y\nx 1\n", 200, {}, "no metrics that begin with orchestrator_"),
        ("", 503, {}, "status 503"),
        ("", 302, {"Location": "http://127.0.0.1:1/"}, "status 302"),
        (b"x" * (LARGEST_BODY + 1), 200, {}, "more than 4 MiB"),
        (b"\xff\xfe\x00", 200, {}, "no metrics|does not send"),
    ],
    ids=["text", "others", "status", "redirect", "size", "bytes"],
)
def test_unexpected_answers_are_a_failure_that_says_what_to_set(
    make_dispatch: MakeDispatch,
    data: Snapshot,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    body: str | bytes,
    status: int,
    headers: dict[str, str],
    message: str,
) -> None:
    """No redirect is followed, no body read without end."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(body, status=status, headers=headers))
    with pytest.raises(AgentFailure, match=message) as failure:
        ask(make_dispatch, data, "all green?")

    assert failure.value.error_type == "missing_data"
    assert "POINTSMAN_METRICS_URL" in str(failure.value)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/metrics", "nonsense://x", "http://[::bad", "http://user:secret@127.0.0.1:1/?t=secret"]
)
def test_an_unreachable_address_is_named_without_its_secrets(
    make_dispatch: MakeDispatch, data: Snapshot, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """The message says what to set and shows no password."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", address)
    with pytest.raises(AgentFailure, match="POINTSMAN_PROMETHEUS_URL") as failure:
        ask(make_dispatch, data, "all green?")

    assert "secret" not in str(failure.value)


def test_a_slow_address_does_not_hold_the_agent(
    make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 300 ms to live it gives up after 180."""
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform(), wait=1.0))
    started = time.monotonic()
    with pytest.raises(AgentFailure, match="cannot be reached"):
        ask(make_dispatch, data, "all green?", max_latency_ms=300)

    assert time.monotonic() - started < 0.9


def test_a_prometheus_that_has_just_begun_covers_its_seconds_and_not_the_window() -> None:
    """Its first check may lie between two steps of a query over time; the latest one is there."""

    def respond(request: httpx.Request) -> httpx.Response:
        seen = request.url.params.get("query", "") == "min(timestamp(up))"
        result = [{"metric": {}, "value": [NOW.timestamp(), str(NOW.timestamp() - 2.0)]}] if seen else []
        data = [] if request.url.path.endswith("/values") else {"resultType": "vector", "result": result}
        return httpx.Response(200, json={"status": "success", "data": data})

    reading = read_prometheus(reader(respond), "http://prometheus", 3600.0, NOW.timestamp(), [])

    assert reading.seconds == pytest.approx(2.0)


def test_no_word_of_the_question_reaches_prometheus() -> None:
    """Whatever is asked, the queries are the fixed ones with whole seconds and listed names in them."""
    asked: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("query", ""))
        if request.url.path.endswith("/label/__name__/values"):
            names = ["orchestrator_request_seconds_count", 'orchestrator_evil{x="}', "kafka_lag", "up", 7]
            return httpx.Response(200, json={"status": "success", "data": names})
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}})

    text = 'kafka orchestrator_request_seconds_count{a="b"} or vector(1) last 3 hours'
    reading = read_prometheus(reader(respond), "http://prometheus", 10800.4, NOW.timestamp(), ["kafka"])

    assert text not in " ".join(asked)
    assert set(asked) == {
        "",
        "increase(orchestrator_request_seconds_count[10800s])",
        "increase(orchestrator_request_seconds_count[10800s] offset 10800s)",
        "sum(kafka_lag)",
        "up",
        "avg_over_time(up[10800s])",
        "min(min_over_time(timestamp(up)[10800s:22s]))",
        "min(min_over_time(timestamp(up)[3600s:1s]))",
        "min(timestamp(up))",
    }
    assert reading.samples == ()
    assert reading.notes


@pytest.mark.parametrize(
    "data_part",
    [
        None,
        [],
        {},
        {"resultType": "matrix", "result": []},
        {"resultType": "vector", "result": [1, {"metric": 3}, {"metric": {}, "value": [0, "NaN"]}]},
    ],
    ids=["none", "list", "empty", "matrix", "rows"],
)
def test_malformed_parts_of_prometheus_answers_are_left_out(data_part: object) -> None:
    """What is no vector of numbers counts as nothing."""

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/values"):
            return httpx.Response(200, json={"status": "success", "data": ["orchestrator_request_seconds_count"]})
        return httpx.Response(200, json={"status": "success", "data": data_part})

    reading = read_prometheus(reader(respond), "http://prometheus", 60.0, NOW.timestamp(), [])

    assert reading.samples == ()
    assert summarize(reading).service.calls == 0


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"status": "error"}', b'{"status": "success", "data": 3}'], ids=["html", "list", "error", "number"]
)
def test_something_else_than_prometheus_is_told_from_it(body: bytes) -> None:
    """An address of another program is a failure, not a crash."""
    with pytest.raises(AgentFailure, match="does not answer as Prometheus does"):
        read_prometheus(reader(lambda _: httpx.Response(200, content=body)), "http://other", 60.0, NOW.timestamp(), [])


def test_queries_that_prometheus_refuses_lower_the_confidence() -> None:
    """Half of the queries without an answer halve it; a window covered in part counts in part."""
    half = Reading("prometheus", (), 1800.0, failed_queries=5, queries=10)

    assert confidence_of(20.0, half, 0.5) == pytest.approx(0.5 * 0.5 * 0.5)
    assert confidence_of(0.0, half, 1.0) == 0.0


def test_the_metrics_stand_in_for_a_prometheus_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both set and Prometheus down, the service's metrics answer, and the caveat says so; alone it is a failure."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", "http://prometheus")

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.host == "prometheus":
            return httpx.Response(500)
        return httpx.Response(200, text=platform())

    window = read_window("last hour", NOW)
    with pytest.raises(AgentFailure, match="status 500"):
        observe(reader(respond), window, "last hour", NOW)
    monkeypatch.setenv("POINTSMAN_METRICS_URL", "http://service/metrics")
    reading, notes = observe(reader(respond), window, "last hour", datetime.now(UTC))

    assert reading.source == "metrics"
    assert "status 500" in notes[0]


def test_a_process_that_is_down_and_a_worse_window_are_out_of_line() -> None:
    """Up = 0, twice the p95 of the window before, and more failures than before."""

    def calls(ok: float, failed: float, seconds: float) -> tuple[Sample, ...]:
        counts = [
            Sample("orchestrator_request_seconds_count", {"status": status}, count)
            for status, count in (("success", ok), ("failed", failed))
        ]
        bounds = [
            Sample(
                "orchestrator_request_seconds_bucket", {"status": "success", "le": bound}, ok + failed if float(bound) >= seconds else 0.0
            )
            for bound in ("0.5", "1.0", "5.0", "+Inf")
        ]
        return (*counts, *bounds)

    from service.agents.monitoring.read import Target

    reading = Reading("prometheus", calls(50, 20, 5.0), 3600.0, calls(90, 1, 0.5), (Target("pointsman", "host:8100", False, 0.4),))
    found = " ".join(summarize(reading).out_of_line)

    assert "pointsman at host:8100 is down" in found
    assert "slower than in the window before" in found
    assert "More requests fail than in the window before: 29 % against 1 %" in found
    finding = describe(reading, read_window("", NOW), "", [], NOW)
    assert "host:8100 40.00 %" in " ".join(finding.evidence)


def test_the_answer_survives_json(make_dispatch: MakeDispatch, data: Snapshot, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through run_agent: the handoff's JSON reads back as the same handoff; a failure becomes a failed handoff."""
    monkeypatch.setattr(sample_data, "load_snapshot", lambda: data)
    monkeypatch.setenv("POINTSMAN_METRICS_URL", serve(platform()))
    dispatch = make_dispatch("observability_connector", context={"raw_query": "status, all agents"})
    handoff = directory.run_agent("observability_connector", dispatch)
    monkeypatch.setenv("POINTSMAN_METRICS_URL", "http://127.0.0.1:1/metrics")
    failed = directory.run_agent("observability_connector", dispatch)

    assert handoff.execution.status.value == "success"
    assert AgentHandoff.model_validate_json(handoff.model_dump_json()) == handoff
    assert failed.errors.error_type == "missing_data"
