"""Every metric of the service: name, labels, buckets. An observer; the stages know nothing of it.

Labels come from closed sets only: stage, outcome, intent, agent, attempt, breaker state, rung, action, status, warning code.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from service.flows.breaker import BreakerState
from service.ports import AgentCalled, Audited, Event, RequestDone, RouterTried, StageDone
from service.programs import Programs

STAGE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 30.0, 120.0)
REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 180.0, 600.0)


Breakers = Callable[[], Iterable[tuple[str, BreakerState]]]


class _BreakerStates(Collector):
    """Reads the breakers when it is asked: their states change with time alone, too."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return one gauge a state: 1 for the state that an agent's breaker is in."""
        family = GaugeMetricFamily(
            "orchestrator_agent_breaker", "1 for the state of an agent's circuit breaker.", labels=["agent", "state"]
        )
        for agent, state in self._breakers():
            for one in BreakerState:
                family.add_metric([agent, one.value], float(one is state))
        yield family


class Metrics:
    """Counts and times what the pipeline reports, on its own registry."""

    def __init__(self, programs: Programs, breakers: Breakers = tuple, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._stage = Histogram(
            "orchestrator_stage_seconds", "Time of a stage.", ["stage", "outcome"], buckets=STAGE_BUCKETS, registry=self.registry
        )
        self._agent = Histogram(
            "orchestrator_agent_seconds",
            "Time of one attempt at an agent; `attempt` is first, retry or hedge.",
            ["agent", "outcome", "attempt"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._request = Histogram(
            "orchestrator_request_seconds", "Time of a whole request.", ["status"], buckets=REQUEST_BUCKETS, registry=self.registry
        )
        self._decisions = Counter(
            "orchestrator_decisions_total", "Committed decisions.", ["action", "intent", "agent", "rung"], registry=self.registry
        )
        self._warnings = Counter("orchestrator_warnings_total", "Warnings given in answers.", ["code"], registry=self.registry)
        self._audits = Counter(
            "orchestrator_lm_audits_total",
            "Requests that the student had answered alone and the LM read afterwards; `outcome` is agreed, differed or failed.",
            ["intent", "outcome"],
            registry=self.registry,
        )
        self._audit_usd = Counter("orchestrator_lm_audit_usd_total", "What those calls cost in US dollars.", registry=self.registry)
        self._reloads = Counter(
            "orchestrator_router_reloads_total",
            "Router versions that were loaded while serving; `outcome` is served or refused.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in ("served", "refused"):
            self._reloads.labels(outcome)
        loaded = Gauge("orchestrator_router_loaded", "1 when a router version is loaded.", registry=self.registry)
        loaded.set_function(lambda: float(programs.current is not None))
        self.registry.register(_BreakerStates(breakers))

    def notice(self, event: Event) -> None:
        """Record one event."""
        match event:
            case StageDone():
                self._stage.labels(event.stage, event.outcome).observe(event.seconds)
            case AgentCalled():
                self._agent.labels(event.agent, event.outcome, event.attempt.value).observe(event.seconds)
            case RouterTried():
                self._reloads.labels("served" if event.served else "refused").inc()
            case Audited():
                self._audits.labels(event.intent, event.outcome).inc()
                if event.usd is not None:
                    self._audit_usd.inc(event.usd)
            case RequestDone():
                decision, output = event.receipt.decision, event.receipt.output
                self._request.labels(output.status.value).observe(output.total_latency_ms / 1_000)
                self._decisions.labels(
                    output.action.value, decision.intent or "none", decision.primary_agent or "none", decision.rung.value
                ).inc()
                for warning in output.warnings:
                    self._warnings.labels(warning.code).inc()
