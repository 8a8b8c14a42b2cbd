"""What happened in a request, stage by stage: for the observers, the timings in the answer, and the receipt."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue, TypeAdapter

from service.contracts.model import JsonObject
from service.flows.flow import Outcome, Part, Verdict
from service.flows.work import AgentRun
from service.ports import Observer, StageDone
from service.stages.intent import Understanding
from service.stages.triage import Admitted
from service.tracing import span

_ADMITTED = TypeAdapter(Admitted)
_UNDERSTANDING = TypeAdapter(Understanding)


@dataclass(slots=True)
class Stage:
    """A stage under way; its outcome is `ok` unless it says otherwise; `cancelled` where the caller left, `error` where it broke."""

    outcome: str = "ok"


@dataclass(slots=True)
class Trace:
    """Collects while a request runs; one request's own, never shared."""

    observer: Observer
    router_version: str = ""
    admitted: Admitted | None = None
    understanding: Understanding | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a stage and tell the observer how it ended."""
        stage, started = Stage(), time.perf_counter()
        with span(f"stage {name}") as told:
            try:
                yield stage
            except asyncio.CancelledError:
                stage.outcome = "cancelled"
                raise
            except BaseException:
                stage.outcome = "error"
                raise
            finally:
                self.seconds[name] = time.perf_counter() - started
                told.set_attributes({"pointsman.outcome": stage.outcome, "pointsman.router_version": self.router_version})
                self.observer.notice(StageDone(name, stage.outcome, self.seconds[name], self.router_version))

    def timings_ms(self) -> dict[str, float]:
        """Return the time of each stage so far, in milliseconds."""
        return {name: round(seconds * 1_000, 3) for name, seconds in self.seconds.items()}

    def record(self, verdict: Verdict, outcome: Outcome | None) -> JsonObject:
        """Return each stage's output as JSON."""
        record: JsonObject = {"timings_ms": dict[str, JsonValue](self.timings_ms())}
        if self.admitted is not None:
            record["triage"] = _ADMITTED.dump_python(self.admitted, mode="json", exclude={"text", "history"})
        if self.understanding is not None:
            record["intent"] = _UNDERSTANDING.dump_python(self.understanding, mode="json", exclude={"examples"})
        record["gate"] = {
            "action": verdict.action.value,
            "flow": verdict.flow if verdict.parts else None,
            "parts": [_plan(part) for part in verdict.parts],
            "code": verdict.code.value if verdict.code else None,
            "reason": verdict.reason,
        }
        record["dispatch"] = [_describe(run) for run in outcome.runs] if outcome else []
        return record


def _plan(part: Part) -> JsonValue:
    return {
        "role": part.role.value,
        "intent": part.intent,
        "chain": [agent.name for agent in part.chain],
        "skipped": [{"agent": s.agent.name, "code": s.code.value, "reason": s.reason} for s in part.skipped],
    }


def _describe(run: AgentRun) -> JsonValue:
    return {
        "agent": run.agent.name,
        "attempts": run.attempts,
        "latency_ms": run.latency_ms,
        "dispatch_id": str(run.handoff.dispatch_id) if run.handoff else None,
        "handoff": run.handoff.model_dump(mode="json") if run.handoff else None,
        "failure": {"code": run.failure.code.value, "detail": run.failure.detail, "error_type": run.failure.error_type}
        if run.failure
        else None,
    }
