"""The metrics: exemplars where requests are traced, the version that serves, and the sum over several worker processes."""

import json
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client import Counter
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from service.flows.breaker import BreakerState
from service.metrics import SHARED, STAGE_BUCKETS, Live, Metrics
from service.ports import AgentCalled, Audited, LMCalled, RouterTried, Spool, StageDone
from tests.conftest import ROOT

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


def read(metrics: Metrics) -> dict[str, float]:
    """Return the samples, by name and labels as they are written."""
    families = text_string_to_metric_families(metrics.expose("")[0].decode())
    return {f"{s.name}{json.dumps(s.labels, sort_keys=True) if s.labels else ''}": s.value for f in families for s in f.samples}


def test_a_measured_time_points_to_its_trace() -> None:
    """As an exemplar of OpenMetrics; Prometheus' older text has none, and what is not traced has none."""
    metrics = Metrics()
    with trace.use_span(NonRecordingSpan(SpanContext(TRACE_ID, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)))):
        metrics.notice(StageDone("intent", "ok", 0.004, "1"))
        metrics.notice(AgentCalled("explainer", "success", 0.2))
    metrics.notice(StageDone("gate", "dispatch", 0.001, "1"))

    content, media_type = metrics.expose(OPEN_METRICS)
    pointing = [line for line in content.decode().splitlines() if f'# {{trace_id="{TRACE_ID:032x}"}}' in line]

    assert media_type.startswith("application/openmetrics-text")
    assert [line.partition("{")[0] for line in pointing] == ["orchestrator_stage_seconds_bucket", "orchestrator_agent_seconds_bucket"]
    assert 'stage="intent"' in pointing[0]
    assert "trace_id" not in metrics.expose("")[0].decode()


def test_the_buckets_tell_the_student_and_the_budget_apart() -> None:
    """From 5 ms and from 2 s the next bound is at most half as far away again, and both are bounds themselves: objectives count at them."""
    for bound in (0.005, 2.0):
        place = STAGE_BUCKETS.index(bound)
        assert STAGE_BUCKETS[place + 1] <= 1.5 * bound
        assert STAGE_BUCKETS[place - 1] >= 0.5 * bound


def test_a_version_that_no_longer_serves_is_told_as_such() -> None:
    """One version serves at a time; when it began to is told too."""
    live = Live("1", {"explainer": BreakerState.OPEN})
    metrics = Metrics(lambda: live)
    first = read(metrics)
    live = Live("2")
    metrics.notice(RouterTried("2", served=True))
    second = read(metrics)

    version = 'orchestrator_router_version{{"version": "{}"}}'.format
    assert first[version("1")] == 1.0
    assert (second[version("1")], second[version("2")]) == (0.0, 1.0)
    assert second["orchestrator_router_since_seconds"] > first["orchestrator_router_since_seconds"] == 0.0
    assert first['orchestrator_agent_breaker{"agent": "explainer", "state": "open"}'] == 1.0


def test_what_waits_for_the_database_and_what_the_router_is_are_told() -> None:
    """The spool with its bound, when the router was made and what it leaves to the LM; zeros where there is none."""
    made = datetime(2026, 1, 31, 12, tzinfo=UTC)
    full = read(Metrics(lambda: Live("1", spool=Spool(7, 2, 10_000), router_made=made, given_back=3)))
    empty = read(Metrics(lambda: Live("1")))

    names = [f"orchestrator_{name}" for name in ("spooled", "spool_refused", "spool_limit", "router_made_seconds", "regions_given_back")]
    assert [full[name] for name in names] == [7, 2, 10_000, made.timestamp(), 3]
    assert [empty[name] for name in names] == [0, 0, 0, 0, 0]


def test_a_commit_that_fails_has_a_first_increase() -> None:
    """Prometheus sees no growth in what was not there before, and the objective of commits is all of them."""
    metrics = Metrics()
    failed = 'orchestrator_stage_seconds_count{"outcome": "error", "stage": "commit"}'
    before = read(metrics)[failed]
    metrics.notice(StageDone("commit", "error", 0.1, "1"))

    assert (before, read(metrics)[failed]) == (0.0, 1.0)


def test_what_the_lm_used_is_added_up() -> None:
    """What it does not tell counts as nothing; an audit's cost is its own."""
    metrics = Metrics()
    metrics.notice(LMCalled("routing", "answered", 0.3, 100, 7, 0.25))
    metrics.notice(LMCalled("routing", "timeout", 1.5))
    metrics.notice(Audited("explanation", "agreed", 0.5))
    told = read(metrics)

    assert told['orchestrator_lm_tokens_total{"direction": "read", "program": "routing"}'] == 100
    assert told['orchestrator_lm_tokens_total{"direction": "written", "program": "routing"}'] == 7
    assert told['orchestrator_lm_usd_total{"program": "routing"}'] == 0.25
    assert told["orchestrator_lm_audit_usd_total"] == 0.5
    assert told['orchestrator_lm_seconds_count{"outcome": "timeout", "program": "routing"}'] == 1


WORKER = """
import sys, time
from service.flows.breaker import BreakerState
from service.metrics import Live, Metrics
from service.ports import Responded, StageDone

version, waiting, state = sys.argv[1], int(sys.argv[2]), BreakerState(sys.argv[3])
metrics = Metrics(lambda: Live(version, {"explainer": state}, waiting={"decision": waiting}))
for _ in range(waiting):
    metrics.notice(Responded("POST", "/orchestrate", 200, None))
metrics.notice(StageDone("gate", "dispatch", 0.001, version))
metrics.refresh()
print("told", flush=True)
sys.stdin.read()
"""


def test_several_workers_are_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts add up and outlive their process; what is so at the moment is told of those that live."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(WORKER), *arguments]
        environment = {SHARED: str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": ""}
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "told\n"
        return worker

    def end(worker: subprocess.Popen[str]) -> None:
        worker.communicate("", timeout=20)

    first, second = start("1", "3", "open"), start("2", "4", "closed")
    monkeypatch.setenv(SHARED, str(tmp_path))
    both = read(Metrics())
    end(first)
    one = read(Metrics())
    end(second)

    answers = 'orchestrator_responses_total{"method": "POST", "route": "/orchestrate", "status": "200"}'
    waiting, opened = 'orchestrator_waiting{"part": "decision"}', 'orchestrator_agent_breaker{"agent": "explainer", "state": "open"}'
    assert (both[answers], both[waiting], both[opened]) == (7, 7, 1)
    assert (one[answers], one[waiting], one[opened]) == (7, 4, 0)
    assert both['orchestrator_stage_seconds_count{"outcome": "dispatch", "stage": "gate"}'] == 2
    assert 'orchestrator_router_version{"version": "1"}' in both
    assert 'orchestrator_router_version{"version": "1"}' not in one
    assert one['orchestrator_router_version{"version": "2"}'] == 1


def test_the_documentation_tells_every_metric_with_its_labels() -> None:
    """`docs/operations.md` and the code name the same metrics, and none twice."""
    rows = [line.split("|")[1:3] for line in (ROOT / "docs/operations.md").read_text().splitlines() if line.startswith("| `orchestrator_")]
    told = {name.strip(" `"): tuple(labels.strip().split(", ")) if labels.strip() else () for name, labels in rows}
    collectors = Metrics().registry._collector_to_names
    known = {
        f"{metric._name}{'_total' if isinstance(metric, Counter) else ''}": tuple(metric._labelnames)
        for metric in collectors
        if isinstance(metric, MetricWrapperBase)
    }

    assert len(rows) == len(told)
    assert told == known
