"""observability_connector against a real Prometheus: what it tells is what was counted, before and after a restart."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from service.agents.directory import AGENTS, load_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot, generate_snapshot
from service.contracts.dispatch import AgentDispatch
from tests.integration.conftest import free_port

INSTALL = "apt-get update && apt-get install -y prometheus"
READY_SECONDS = 60.0
CONFIGURATION = """\
global: {{scrape_interval: 250ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: pointsman
    static_configs: [{{targets: ["127.0.0.1:{metrics}"]}}]
  - job_name: gone
    static_configs: [{{targets: ["127.0.0.1:{closed}"]}}]
"""


class Platform:
    """A metrics endpoint with the service's metric names, on a registry of its own."""

    def __init__(self, port: int) -> None:
        self.registry = CollectorRegistry()
        buckets = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
        self._agent = Histogram("orchestrator_agent_seconds", "t", ["agent", "outcome"], buckets=buckets, registry=self.registry)
        self._request = Histogram("orchestrator_request_seconds", "t", ["status"], buckets=buckets, registry=self.registry)
        self._decisions = Counter("orchestrator_decisions", "d", ["action", "intent", "agent", "rung"], registry=self.registry)
        Gauge("orchestrator_router_loaded", "1", registry=self.registry).set(1)
        Gauge("kafka_consumergroup_lag", "k", ["topic"], registry=self.registry).labels("claims").set(4000)
        self.server, self.thread = start_http_server(port, "127.0.0.1", self.registry)

    def serve(self, agent: str, outcome: str, seconds: float, times: int) -> None:
        """Count some calls of an agent, each with its request."""
        for _ in range(times):
            self._agent.labels(agent, outcome).observe(seconds)
            self._request.labels("success" if outcome == "success" else "failed").observe(seconds + 0.01)
            self._decisions.labels("dispatch", "explanation", agent, "student").inc()

    def stop(self) -> None:
        """End the endpoint."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@dataclass
class Watched:
    """A platform and the Prometheus that watches it."""

    platform: Platform
    url: str

    def wait_for(self, query: str, value: float) -> None:
        """Wait until Prometheus has seen a value."""
        limit = time.monotonic() + READY_SECONDS
        while time.monotonic() < limit:
            rows = httpx.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=5).json()["data"]["result"]
            if rows and float(rows[0]["value"][1]) >= value:
                return
            time.sleep(0.1)
        pytest.fail(f"Prometheus did not see {query} reach {value}")


@pytest.fixture(scope="module")
def binary() -> str:
    """Prometheus' program. Under CI it has to be there; elsewhere the tests are skipped with the command that installs it."""
    found = shutil.which("prometheus")
    if found is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"no prometheus: run `{INSTALL}`")
    return str(found)


@pytest.fixture
def watched(binary: str, tmp_path: Path) -> Iterator[Watched]:
    """A platform with a Prometheus that asks it four times a second; both end with the test."""
    metrics, port = free_port(), free_port()
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(metrics=metrics, closed=free_port()))
    platform = Platform(metrics)
    arguments = [f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([binary, *arguments], stdout=log, stderr=log)
    watched = Watched(platform, f"http://127.0.0.1:{port}")
    try:
        _wait_ready(watched.url, process, tmp_path / "log")
        yield watched
    finally:
        process.terminate()
        process.wait(20)
        platform.stop()


def _wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit:
        if process.poll() is not None:
            pytest.fail(f"prometheus ended with {process.returncode}:\n{log.read_text(errors='replace')}")
        try:
            if httpx.get(f"{url}/-/ready", timeout=2).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"prometheus was not ready:\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="module")
def data() -> Snapshot:
    """The data set, which this agent does not need."""
    return generate_snapshot(today=date(2026, 6, 17))


def ask(text: str, data: Snapshot) -> Finding:
    """Ask the agent."""
    dispatch = AgentDispatch.model_validate(
        {
            "dispatch_id": UUID(int=1),
            "query_id": UUID(int=2),
            "target_agent": "observability_connector",
            "target_tier": AGENTS["observability_connector"].tier,
            "payload": {
                "intent": "health_check",
                "context": {"raw_query": text},
                "constraints": {"max_latency_ms": 20_000, "required_confidence": 0.0},
            },
            "routing": {"priority": 1, "timeout_ms": 20_000, "retry_count": 0, "fallback_agent": None},
            "metadata": {"dispatched_at": "2026-06-17T00:00:00Z", "correlation_id": "test"},
        }
    )
    return load_agent("observability_connector")(dispatch, data)


def test_the_numbers_are_what_was_counted(watched: Watched, data: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 calls, 12 of them failed, seen from their first check on; the other target is down; Kafka's lag is found."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", watched.url)
    watched.platform.serve("explainer", "success", 0.03, 40)
    watched.platform.serve("causal_impact", "success", 0.3, 8)
    watched.platform.serve("causal_impact", "agent_timeout", 3.0, 12)
    watched.wait_for("sum(orchestrator_request_seconds_count)", 60)
    watched.wait_for("count_over_time(up{job='pointsman'}[5m])", 4)

    finding = ask("Are any of the 16 agents throwing errors in the last hour? kafka consumer lag?", data)
    found = dict(finding.primary_output)
    service, agents = found["service"], {row["name"]: row for row in found["agents"]}  # type: ignore[attr-defined]

    assert found["source"] == "prometheus"
    assert service["calls"] == pytest.approx(60, rel=0.02)  # type: ignore[index]
    assert service["failed"] == pytest.approx(12, rel=0.02)  # type: ignore[index]
    assert agents["explainer"]["calls"] == pytest.approx(40, rel=0.02)
    assert agents["causal_impact"]["error_share"] == pytest.approx(0.6, abs=0.01)
    assert 10.0 <= agents["explainer"]["p95_ms"] <= 50.0
    assert 1000.0 <= agents["causal_impact"]["p95_ms"] <= 5000.0
    lines = " ".join(found["out_of_line"])  # type: ignore[arg-type]
    assert "causal_impact fails" in lines
    assert "gone at 127.0.0.1" in lines
    assert found["other_systems"] == [{"metric": "kafka_consumergroup_lag", "value": 4000.0}]
    ups = {row["job"]: row["up"] for row in found["targets"]}  # type: ignore[attr-defined]
    assert ups == {"pointsman": True, "gone": False}
    assert 0.0 < finding.confidence < 60 / 80 * 0.2  # an hour was asked, and seconds are covered
    assert any("Prometheus has data for" in caveat for caveat in finding.caveats)


def test_growth_after_the_first_check_counts_too(watched: Watched, data: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 calls before and 30 after Prometheus looked are 50, and a second question sees the calls that came in between."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", watched.url)
    watched.platform.serve("explainer", "success", 0.03, 20)
    watched.wait_for("sum(orchestrator_request_seconds_count)", 20)
    first = dict(ask("latency last 10 minutes", data).primary_output)["service"]
    watched.platform.serve("explainer", "success", 0.03, 30)
    watched.wait_for("sum(orchestrator_request_seconds_count)", 50)
    second = dict(ask("latency last 10 minutes", data).primary_output)["service"]

    assert first["calls"] == pytest.approx(20, rel=0.05)  # type: ignore[index]
    assert second["calls"] == pytest.approx(50, rel=0.05)  # type: ignore[index]


def test_a_time_without_data_is_not_made_up(watched: Watched, data: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Last year's August has no samples: no traffic, no confidence, and a caveat."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", watched.url)
    watched.platform.serve("explainer", "success", 0.03, 20)
    watched.wait_for("sum(orchestrator_request_seconds_count)", 20)

    finding = ask("uptime yesterday", data)

    assert finding.primary_output["state"] == "no_traffic"
    assert finding.confidence == 0.0
    assert any("no checks (up)" in caveat for caveat in finding.caveats)


def test_many_questions_at_once_are_answered_alike(watched: Watched, data: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads ask at once; all get the same number of requests."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", watched.url)
    watched.platform.serve("explainer", "success", 0.03, 25)
    watched.wait_for("sum(orchestrator_request_seconds_count)", 25)
    found: list[float] = []

    def run() -> None:
        found.append(ask("status", data).primary_output["service"]["calls"])  # type: ignore[index]

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert found == pytest.approx([25] * 8, rel=0.05)


def test_a_prometheus_that_has_ended_is_told(binary: str, data: Snapshot, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    """Nothing listens: the failure names the variable to set."""
    monkeypatch.setenv("POINTSMAN_PROMETHEUS_URL", f"http://127.0.0.1:{closed_port}")
    monkeypatch.delenv("POINTSMAN_METRICS_URL", raising=False)

    with pytest.raises(AgentFailure, match="POINTSMAN_PROMETHEUS_URL") as failure:
        ask("status", data)

    assert failure.value.error_type == "missing_data"
