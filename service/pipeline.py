"""The fixed order of a turn: understand → decide → gate → carry out → merge → commit. Read this first; the rest is detail."""

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from service.contracts.caller import Caller
from service.contracts.decision import RouteDecision
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.deadline import Deadline
from service.errors import IdempotencyConflict
from service.flows.flow import Outcome, Verdict
from service.ports import AgentClient, Observer, RequestDone, Store
from service.programs import Programs
from service.stages.commit import Commit, Finished, hash_request
from service.stages.dispatch import Dispatch
from service.stages.gate import Gate
from service.stages.intent import ReadIntent
from service.stages.routing import NO_ROUTER, Route
from service.stages.synthesis import Answer, Synthesize, partial_answer
from service.stages.trace import Trace
from service.stages.triage import Triage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stages:
    """One callable a stage, in the order of a turn."""

    triage: Triage
    intent: ReadIntent
    routing: Route
    gate: Gate
    dispatch: Dispatch
    synthesis: Synthesize
    commit: Commit


@dataclass(frozen=True, slots=True)
class Answered:
    """A committed answer; `replayed` when it was stored before and nothing was dispatched."""

    receipt: Receipt
    replayed: bool


class Pipeline:
    """Runs turns. Holds no state of a request but the ids of those under way, so that a repeated one waits for the first."""

    def __init__(
        self, *, stages: Stages, programs: Programs, agents: AgentClient, store: Store, observer: Observer, decision_budget: float
    ) -> None:
        self._stages = stages
        self._programs = programs
        self._agents = agents
        self._store = store
        self._observer = observer
        self._decision_budget = decision_budget
        self._under_way: dict[tuple[str, UUID], asyncio.Event] = {}

    async def decide(self, request: OrchestratorInput) -> RouteDecision:
        """Choose a route without carrying it out (`POST /route`)."""
        return await self._decide(request, Trace(self._observer), Deadline.after(self._decision_budget))

    async def run(self, request: OrchestratorInput, caller: Caller, correlation_id: str) -> Answered:
        """Answer one request, once: the same query id again gets the stored answer.

        Raises:
            IdempotencyConflict: the query id was used with another body.
            StoreUnavailable: the answer could not be made durable.
        """
        key = (caller.tenant, request.parsed_query.query_id)
        while (first := self._under_way.get(key)) is not None:
            await first.wait()
        self._under_way[key] = done = asyncio.Event()
        try:
            stored = await self._store.by_query(*key)
            if stored is None:
                receipt = await self._run(request, caller, correlation_id)
                return Answered(_of(receipt, request), replayed=False)
            return Answered(_of(stored, request), replayed=True)
        finally:
            del self._under_way[key]
            done.set()

    async def _run(self, request: OrchestratorInput, caller: Caller, correlation_id: str) -> Receipt:
        started, trace, deadline = time.monotonic(), Trace(self._observer), Deadline.after(self._decision_budget)
        decision = await self._decide(request, trace, deadline)
        with trace.stage("gate") as stage:
            verdict = self._stages.gate(decision, caller, self._agents.available)
            stage.outcome = verdict.action.value
        left, outcome = deadline.left, None
        if verdict.chain or verdict.skipped:
            with trace.stage("dispatch") as stage:
                outcome = await self._stages.dispatch(request, decision, verdict, correlation_id)
                stage.outcome = "answered" if outcome.runs and outcome.runs[-1].handoff else "failed"
        with trace.stage("synthesis") as stage:
            answer = await self._merge(request, decision, verdict, outcome, Deadline.after(left))
            stage.outcome = answer.status.value
        output = _write(request, decision, verdict, outcome, answer, started)
        with trace.stage("commit"):
            finished = Finished(caller, request, decision, verdict, outcome, output, trace.record(verdict, outcome))
            receipt = await self._stages.commit(finished)
        self._observer.notice(RequestDone(receipt))
        return receipt

    async def _decide(self, request: OrchestratorInput, trace: Trace, deadline: Deadline) -> RouteDecision:
        router = self._programs.current
        trace.router_version = router.version if router else NO_ROUTER
        with trace.stage("triage"):
            trace.admitted = admitted = self._stages.triage(request)
        try:
            with trace.stage("intent"):
                trace.understanding = understanding = await asyncio.to_thread(self._stages.intent, admitted, router)
            with trace.stage("routing") as stage:
                decision = await self._stages.routing(request.parsed_query.query_id, admitted, understanding, router, deadline)
                stage.outcome = decision.rung.value
        except Exception:  # the contract's ROUTING_FAILED: whatever breaks in a model, the default agent answers
            log.exception("routing_failed")
            decision = self._stages.routing.after_failure(request.parsed_query.query_id, admitted, router)
        return decision.model_copy(update={"timings_ms": trace.timings_ms()})

    async def _merge(
        self, request: OrchestratorInput, decision: RouteDecision, verdict: Verdict, outcome: Outcome | None, deadline: Deadline
    ) -> Answer:
        try:
            return await self._stages.synthesis(request.parsed_query.raw_query, decision, verdict, outcome, deadline)
        except Exception:  # the contract's SYNTHESIS_FAILED: the agents' results are returned as they are
            log.exception("synthesis_failed")
            return partial_answer(outcome)


def _of(receipt: Receipt, request: OrchestratorInput) -> Receipt:
    """Return the receipt if it belongs to this body."""
    if receipt.request_hash != hash_request(request):
        raise IdempotencyConflict(f"query_id {request.parsed_query.query_id} was used before with another body. Send a new query_id.")
    return receipt


def _write(
    request: OrchestratorInput, decision: RouteDecision, verdict: Verdict, outcome: Outcome | None, answer: Answer, started: float
) -> OrchestratorOutput:
    return OrchestratorOutput(
        query_id=request.parsed_query.query_id,
        status=answer.status,
        response_text=answer.text,
        response_confidence=answer.confidence,
        agents_dispatched=tuple(run.agent.name for run in outcome.runs) if outcome else (),
        agent_results=answer.results,
        citations=answer.citations,
        visualizations=answer.visualizations,
        follow_up_suggestions=answer.follow_ups,
        total_latency_ms=int((time.monotonic() - started) * 1_000),
        timestamp=datetime.now(UTC),
        decision_id=decision.decision_id,
        action=verdict.action,
        intent=decision.intent,
        flow=decision.flow,
        rung=decision.rung,
        router_version=decision.router_version,
        warnings=decision.warnings + answer.warnings,
    )
