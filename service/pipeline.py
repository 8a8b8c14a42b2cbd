"""The fixed order of a turn: understand → decide → gate → carry out → merge → commit. Read this first; the rest is detail."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from uuid import UUID

from service.contracts.caller import Caller
from service.contracts.decision import RouteDecision
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
from service.stages.output import write_output
from service.stages.routing import NO_ROUTER, Route
from service.stages.synthesis import Answer, Synthesize, partial_answer
from service.stages.trace import Trace
from service.stages.triage import Triage

log = logging.getLogger(__name__)
LONGEST_SECONDS = 3_600.0  # the most that a caller may wish; the agents' timeouts end a request sooner


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


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A request that is being answered; an equal one waits for it."""

    body_hash: str
    done: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._under_way: dict[tuple[str, UUID], UnderWay] = {}

    async def decide(self, request: OrchestratorInput) -> RouteDecision:
        """Choose a route without carrying it out (`POST /route`)."""
        return await self._decide(request, Trace(self._observer), _limit(request).within(self._decision_budget))

    async def run(self, request: OrchestratorInput, caller: Caller, correlation_id: str) -> Answered:
        """Answer one request, once: the same query id again gets the stored answer.

        Raises:
            IdempotencyConflict: the query id was used with another body.
            StoreUnavailable: the answer could not be made durable.
        """
        key, body_hash = (caller.tenant, request.parsed_query.query_id), hash_request(request)
        while (first := self._under_way.get(key)) is not None:
            _require_same(first.body_hash, body_hash, key[1])
            await first.done.wait()
        self._under_way[key] = turn = UnderWay(body_hash)
        try:
            stored = await self._store.by_query(*key)
            answered = Answered(stored, replayed=True) if stored is not None else await self._run(request, caller, correlation_id)
            _require_same(answered.receipt.request_hash, body_hash, key[1])
            return answered
        finally:
            del self._under_way[key]
            turn.done.set()

    async def _run(self, request: OrchestratorInput, caller: Caller, correlation_id: str) -> Answered:
        started, trace, limit = time.monotonic(), Trace(self._observer), _limit(request)
        deadline = limit.within(self._decision_budget)
        decision = await self._decide(request, trace, deadline)
        with trace.stage("gate") as stage:
            verdict = self._stages.gate(decision, caller, self._agents.available)
            stage.outcome = verdict.action.value
        left, outcome = deadline.left, None
        if verdict.chain or verdict.skipped:
            with trace.stage("dispatch") as stage:
                outcome = await self._stages.dispatch(request, decision, verdict, correlation_id, limit)
                stage.outcome = "answered" if outcome.runs and outcome.runs[-1].handoff else "failed"
        with trace.stage("synthesis") as stage:
            answer = await self._merge(request, decision, verdict, outcome, limit.within(left))
            stage.outcome = answer.status.value
        output = write_output(request, decision, verdict, outcome, answer, started)
        with trace.stage("commit"):
            finished = Finished(caller, request, decision, verdict, outcome, output, trace.record(verdict, outcome))
            receipt = await self._stages.commit(finished)
        replayed = receipt.decision_id != decision.decision_id  # another process was first with the same query
        if not replayed:
            self._observer.notice(RequestDone(receipt))
        return Answered(receipt, replayed)

    async def _decide(self, request: OrchestratorInput, trace: Trace, deadline: Deadline) -> RouteDecision:
        router = self._programs.current
        trace.router_version = router.version if router else NO_ROUTER
        with trace.stage("triage"):
            trace.admitted = admitted = self._stages.triage(request)
        try:
            with trace.stage("intent"):
                async with asyncio.timeout(deadline.left):
                    trace.understanding = understanding = await asyncio.to_thread(self._stages.intent, admitted, router)
            with trace.stage("routing") as stage:
                decision = await self._stages.routing(request.parsed_query.query_id, admitted, understanding, router, deadline)
                stage.outcome = decision.rung.value
        except TimeoutError:
            log.warning("routing_out_of_time")
            decision = self._stages.routing.after_failure(request.parsed_query.query_id, admitted, router)
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


def _require_same(known: str, given: str, query_id: UUID) -> None:
    if known != given:
        raise IdempotencyConflict(f"query_id {query_id} was used before with another body. Send a new query_id.")


def _limit(request: OrchestratorInput) -> Deadline:
    """Return when the caller wants its answer at the latest."""
    wish = request.preferences.max_latency_ms if request.preferences is not None else None
    return Deadline.after(LONGEST_SECONDS if wish is None else wish / 1_000)
