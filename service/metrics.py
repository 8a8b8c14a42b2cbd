"""Every metric of the service: name, labels, buckets. An observer; the stages know nothing of it.

Labels come from closed sets only: what the catalogue and the code name, and the router versions that have served since the start. Times
have exemplars with the id of the trace, where requests are traced.

Where several worker processes share the port, each writes its numbers to a folder that all share (`PROMETHEUS_MULTIPROC_DIR`), and
whichever is asked adds them up; such metrics have no exemplars (prometheus-client 0.26).
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import time
from typing import Literal

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, exposition
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.openmetrics import exposition as open_metrics

from service.contracts.receipt import Receipt
from service.flows.breaker import BreakerState
from service.ports import (
    AgentCalled,
    Audited,
    Event,
    FeedbackTaken,
    FellBack,
    LMCalled,
    RequestDone,
    Responded,
    RouterTried,
    Shadowed,
    Spool,
    StageDone,
)

OPEN_METRICS = "application/openmetrics-text"
SHARED = "PROMETHEUS_MULTIPROC_DIR"
DECISION_STAGES = ("triage", "intent", "routing")
# Seconds. The student takes 5 ms, the decision part may take 2 s: both lie between two close bounds.
STAGE_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 1.9, 2.0, 2.1, 5.0, 30.0, 120.0)
REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 180.0, 600.0)
SHARES = tuple(n / 10 for n in range(1, 11))

Mode = Literal["livesum", "livemin", "livemax"]


@dataclass(frozen=True, slots=True)
class Live:
    """What is so at the moment, in this process.

    Attributes:
        router_version: of the router that serves, or None.
        breakers: state of each agent's breaker.
        under_way, waiting: how many are in each part of the service, and how many wait for their turn there.
        spool: what waits for the database.
        router_made: when that router was made, as far as it tells.
        given_back: how many intents its student leaves to the LM.
        registry_asked: when the registry of router versions last answered (Unix time), or None.
    """

    router_version: str | None = None
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)
    under_way: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    spool: Spool = field(default_factory=Spool)
    router_made: datetime | None = None
    given_back: int = 0
    registry_asked: float | None = None


class Metrics:
    """Counts and times what is reported, on its own registry.

    Args:
        live: asked for what is so at the moment, whenever somebody wants to know.
    """

    def __init__(self, live: Callable[[], Live] = Live) -> None:
        self._live = live
        self.registry = CollectorRegistry()
        self._responses = self._counter("responses", "HTTP responses.", "method", "route", "status")
        self._problems = self._counter("problems", "HTTP responses that are problems, by their code.", "route", "code")
        self._request = self._seconds("request", "Time of a whole request.", REQUEST_BUCKETS, "status")
        self._decision = self._seconds("decision", "Time of the decision: triage, intent and routing together.", STAGE_BUCKETS, "rung")
        self._stage = self._seconds("stage", "Time of a stage.", STAGE_BUCKETS, "stage", "outcome")
        for outcome in ("ok", "error"):  # what is not there yet has no first increase, and one is too many
            self._stage.labels("commit", outcome)
        self._agent = self._seconds(
            "agent", "Time of one attempt at an agent; `attempt` is first, retry or hedge.", REQUEST_BUCKETS, "agent", "outcome", "attempt"
        )
        self._lm = self._seconds("lm", "Time of one program on the LM.", STAGE_BUCKETS, "program", "outcome")
        self._decisions = self._counter("decisions", "Committed decisions.", "action", "intent", "agent", "rung", "version")
        self._confidence = self._shares("confidence", "Confidence of what was dispatched.", "outcome")
        self._fallbacks = self._counter("fallbacks", "Work of an agent that fell to another, or to the template answer.", "agent", "reason")
        self._warnings = self._counter("warnings", "Warnings given in answers.", "code")
        self._tokens = self._counter("lm_tokens", "Tokens that the LM read and wrote, as far as it tells.", "program", "direction")
        self._usd = self._counter("lm_usd", "What the LM cost in US dollars, as far as prices are known.", "program")
        self._signals = self._counter("signals", "Training signals stored; `rewarded` tells whether the outcome is known.", "rewarded")
        self._reward = self._shares("reward", "Reward of a decision when it was stored, before any feedback.")
        self._feedback = self._counter("feedback", "Feedback stored, by what it tells.", "kind")
        self._audits = self._counter(
            "lm_audits", "Requests that the student had answered alone and the LM read afterwards.", "intent", "outcome"
        )
        self._audit_usd = self._counter("lm_audit_usd", "What those calls cost in US dollars.")
        self._shadowed = self._counter("shadow_reads", "Requests that a candidate read in the shadow of the champion.", "outcome")
        self._reloads = self._counter("router_reloads", "Router versions loaded while serving; `outcome` is served or refused.", "outcome")
        for outcome in ("served", "refused"):
            self._reloads.labels(outcome)
        self._make_gauges()
        self._served: set[str] = set()

    def _make_gauges(self) -> None:
        self._loaded = self._gauge("router_loaded", "1 when a router version is loaded.", "livemin")
        self._version = self._gauge("router_version", "1 for the router version that serves.", "livemax", "version")
        self._since = self._gauge("router_since_seconds", "When this version began to serve here (Unix time).", "livemax")
        self._made = self._gauge("router_made_seconds", "When this version was made (Unix time); 0 where it does not tell.", "livemax")
        self._given_back = self._gauge("regions_given_back", "How many intents the student leaves to the LM.", "livemax")
        self._breaker = self._gauge("agent_breaker", "1 for the state of an agent's circuit breaker.", "livemax", "agent", "state")
        self._under_way = self._gauge("under_way", "How many are in a part of the service at the moment.", "livesum", "part")
        self._waiting = self._gauge("waiting", "How many wait for their turn in a part of the service.", "livesum", "part")
        self._spooled = self._gauge("spooled", "Decisions in the spool: the database is away, or they are being handed over.", "livemax")
        self._refused = self._gauge("spool_refused", "Those of them that the database has refused; they stay in the spool.", "livemax")
        self._most = self._gauge("spool_limit", "How many the spool can hold; 0 where there is none.", "livemax")
        self._asked = self._gauge("registry_asked_seconds", "When the registry of router versions last answered (Unix time).", "livemax")

    def notice(self, event: Event) -> None:
        """Record one event."""
        match event:
            case StageDone():
                self._stage.labels(event.stage, event.outcome).observe(event.seconds, _exemplar())
            case AgentCalled():
                self._agent.labels(event.agent, event.outcome, event.attempt.value).observe(event.seconds, _exemplar())
            case RequestDone():
                self._count(event.receipt)
            case FellBack():
                self._fallbacks.labels(event.agent, event.reason).inc()
            case Responded():
                self._responses.labels(event.method, event.route, str(event.status)).inc()
                if event.code is not None:
                    self._problems.labels(event.route, event.code).inc()
            case LMCalled():
                self._lm.labels(event.program, event.outcome).observe(event.seconds, _exemplar())
                self._tokens.labels(event.program, "read").inc(event.prompt_tokens or 0)
                self._tokens.labels(event.program, "written").inc(event.completion_tokens or 0)
                self._usd.labels(event.program).inc(event.usd or 0.0)
            case FeedbackTaken():
                for kind in event.kinds:
                    self._feedback.labels(kind).inc()
            case Shadowed():
                self._shadowed.labels(event.outcome).inc()
            case RouterTried():
                self._reloads.labels("served" if event.served else "refused").inc()
                if event.served:
                    self._since.set(time())
            case Audited():
                self._audits.labels(event.intent, event.outcome).inc()
                self._audit_usd.inc(event.usd or 0.0)

    def refresh(self) -> None:
        """Write down what is so at the moment; each process has to, for whichever is asked."""
        live = self._live()
        self._loaded.set(float(live.router_version is not None))
        self._served |= {live.router_version} if live.router_version is not None else set()
        for version in self._served:
            self._version.labels(version).set(float(version == live.router_version))
        for agent, state in live.breakers.items():
            for one in BreakerState:
                self._breaker.labels(agent, one.value).set(float(one is state))
        self._made.set(live.router_made.timestamp() if live.router_made is not None else 0.0)
        self._given_back.set(live.given_back)
        self._asked.set(live.registry_asked or 0.0)
        for size, value in ((self._spooled, live.spool.held), (self._refused, live.spool.refused), (self._most, live.spool.most)):
            size.set(value)
        for gauge, counts in ((self._under_way, live.under_way), (self._waiting, live.waiting)):
            for part, count in counts.items():
                gauge.labels(part).set(count)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the format that is wanted (`Accept`: OpenMetrics, or else Prometheus' text), and its media type."""
        self.refresh()
        registry = self.registry
        if folder := os.environ.get(SHARED):
            _forget_ended(Path(folder))
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        kinds = {one.partition(";")[0].strip().lower() for one in accept.split(",")}  # prometheus-client's own choice fails at odd versions
        if OPEN_METRICS in kinds:
            return open_metrics.generate_latest(registry), open_metrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]
        return exposition.generate_latest(registry), exposition.CONTENT_TYPE_PLAIN_0_0_4

    def _count(self, receipt: Receipt) -> None:
        decision, output, signal = receipt.decision, receipt.output, receipt.signal
        self._request.labels(output.status.value).observe(output.total_latency_ms / 1_000, _exemplar())
        timings = decision.timings_ms
        self._decision.labels(decision.rung.value).observe(sum(timings.get(s, 0.0) for s in DECISION_STAGES) / 1_000, _exemplar())
        intent, agent = decision.intent or "none", decision.primary_agent or "none"
        self._decisions.labels(output.action.value, intent, agent, decision.rung.value, decision.router_version).inc()
        if signal.agents_succeeded or signal.agents_failed:
            self._confidence.labels("answered" if signal.agents_succeeded else "failed").observe(decision.confidence)
        self._signals.labels("yes" if receipt.reward is not None else "no").inc()
        if receipt.reward is not None:
            self._reward.observe(receipt.reward)
        for warning in output.warnings:
            self._warnings.labels(warning.code).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"orchestrator_{name}_total", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"orchestrator_{name}_seconds", text, labels, buckets=buckets, registry=self.registry)

    def _shares(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"orchestrator_{name}", text, labels, buckets=SHARES, registry=self.registry)

    def _gauge(self, name: str, text: str, mode: Mode, *labels: str) -> Gauge:
        return Gauge(f"orchestrator_{name}", text, labels, registry=self.registry, multiprocess_mode=mode)


def _exemplar() -> dict[str, str] | None:
    """Return what points from a measured time to the trace that it belongs to."""
    context = trace.get_current_span().get_span_context()
    return {"trace_id": trace.format_trace_id(context.trace_id)} if context.is_valid else None


def _forget_ended(folder: Path) -> None:
    """Take the gauges of processes that have ended out of the folder; their counters stay, as they did happen."""
    for file in folder.glob("gauge_live*_*.db"):
        process = int(file.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            with suppress(FileNotFoundError):  # another process was quicker
                mark_process_dead(process, path=str(folder))  # type: ignore[no-untyped-call]
        except PermissionError:
            pass  # it lives, and is somebody else's
