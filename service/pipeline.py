"""The fixed order of a turn: understand → decide → gate → carry out → merge → commit. Read this first; the rest is detail."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from service.audit import Audit
from service.contracts.caller import Caller
from service.contracts.decision import RouteDecision
from service.contracts.notice import Notice
from service.contracts.progress import DecisionMade, ProgressEvent
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.deadline import Deadline
from service.errors import ErrorCode, IdempotencyConflict, Saturated
from service.flows.flow import Outcome, Verdict
from service.flows.health import Health
from service.flows.slots import Slots
from service.ports import FellBack, Observer, RequestDone, Store
from service.programs import NO_ROUTER, Programs, Router
from service.shadow import Shadow
from service.stages.commit import Commit, Finished, hash_request
from service.stages.dispatch import Dispatch
from service.stages.gate import Gate
from service.stages.intent import ReadIntent
from service.stages.output import write_output
from service.stages.report import Report, unheard
from service.stages.routing import Route
from service.stages.synthesis import Answer, Synthesize, partial_answer
from service.stages.trace import Trace
from service.stages.triage import Triage

log = logging.getLogger(__name__)
Tell = Callable[[ProgressEvent], None]
FINISH = 0.02  # seconds of the caller's budget that are kept for merging and storing
ABANDONED = Notice(
    code=ErrorCode.CANCELLED,
    message="The request was cut off before its answer: the caller left, or the service ended. What had come is stored.",
)
DRAIN_STEP = 0.02
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
    shadow: Shadow
    audit: Audit


@dataclass(frozen=True, slots=True)
class Answered:
    """A committed answer; `replayed` when it was stored before and nothing was dispatched."""

    receipt: Receipt
    replayed: bool


@dataclass(slots=True)
class UnderWay:
    """A request that is being answered; equal ones wait for it. `storing`: its answer, on the way to the disk."""

    body_hash: str
    started: float
    limit: Deadline
    waiting: int = 0
    storing: asyncio.Future[Receipt] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def end(self) -> None:
        """Wait until it is answered, and be counted meanwhile."""
        self.waiting += 1
        try:
            await self.done.wait()
        finally:
            self.waiting -= 1


@dataclass(frozen=True, slots=True)
class Turn:
    """A request on its way from the gate to the commit."""

    caller: Caller
    request: OrchestratorInput
    router: Router | None
    decision: RouteDecision
    verdict: Verdict
    trace: Trace
    here: UnderWay


class Pipeline:
    """Runs turns. Holds no state of a request but the ids of those under way, so that a repeated one waits for the first."""

    def __init__(
        self,
        *,
        stages: Stages,
        programs: Programs,
        health: Health,
        store: Store,
        observer: Observer,
        deciding: Slots,
        decision_budget: float,
    ) -> None:
        self.stages = stages
        self._programs = programs
        self._health = health
        self._store = store
        self._observer = observer
        self._deciding = deciding
        self._decision_budget = decision_budget
        self._under_way: dict[tuple[str, UUID], UnderWay] = {}
        self._storing: set[asyncio.Future[Receipt]] = set()

    async def decide(self, request: OrchestratorInput) -> RouteDecision:
        """Choose a route without carrying it out (`POST /route`).

        Raises:
            Saturated: too many requests wait for a decision.
        """
        router, deadline = self._programs.of(request.session_id), _limit(request).within(self._decision_budget)
        return await self._decide(request, router, Trace(self._observer), deadline)

    async def run(self, request: OrchestratorInput, caller: Caller, correlation_id: str, tell: Tell = unheard) -> Answered:
        """Answer one request, once: the same query id again gets the stored answer.

        Cancelled, it stores what has come so far, unless an equal request waits, which begins anew if that repeats no work.

        Raises:
            IdempotencyConflict: the query id was used with another body.
            Saturated: there is no room for it, or its time went by behind an equal one; nothing was started and nothing is stored.
            StoreUnavailable: the answer could not be made durable.
        """
        started, limit, waited = time.monotonic(), _limit(request), False
        key, body_hash = (caller.tenant, request.parsed_query.query_id), hash_request(request)
        while (first := self._under_way.get(key)) is not None:
            _require_same(first.body_hash, body_hash, key[1])
            await first.end()
            waited = True
        self._under_way[key] = first = UnderWay(body_hash, started, limit)
        try:
            stored = await self._store.by_query(*key)
            if stored is None and waited and limit.left <= 0.0:
                raise Saturated("The time for this went by behind an equal request, which was not answered. Try again in a second.")
            answered = await self._run(request, caller, correlation_id, tell, first) if stored is None else Answered(stored, replayed=True)
            _require_same(answered.receipt.request_hash, body_hash, key[1])
            return answered
        finally:
            if first.storing is None or first.storing.done():
                self._free(key)
            else:  # the caller has left; nobody may begin anew before the answer can be found
                first.storing.add_done_callback(lambda _: self._free(key))

    def _free(self, key: tuple[str, UUID]) -> None:
        self._under_way.pop(key).done.set()

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is under way and everything is stored, `seconds` at most; for the end of the service."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._under_way or self._storing:
                    await asyncio.sleep(DRAIN_STEP)

    async def _run(self, request: OrchestratorInput, caller: Caller, correlation_id: str, tell: Tell, here: UnderWay) -> Answered:
        trace, report, limit = Trace(self._observer), Report(tell), here.limit
        deadline = limit.within(self._decision_budget)
        router = self._programs.of(request.session_id)
        decision = await self._decide(request, router, trace, deadline)
        tell(DecisionMade(decision=decision))
        with trace.stage("gate") as stage:
            verdict = self.stages.gate(decision, caller, lambda agent: self._health.available(agent, limit.left))
            stage.outcome = verdict.action.value
        turn, left, outcome = Turn(caller, request, router, decision, verdict, trace, here), deadline.left, None
        try:
            if verdict.parts:
                with trace.stage("dispatch") as stage:
                    agents_limit = limit.within(limit.left - FINISH)
                    outcome = await self.stages.dispatch(request, caller.tenant, decision, verdict, correlation_id, agents_limit, report)
                    stage.outcome = "answered" if outcome.answered else "failed"
            with trace.stage("synthesis") as stage:
                answer = await self._merge(turn, outcome, limit.within(left))
                stage.outcome = answer.status.value
        except asyncio.CancelledError:  # the caller has left: what has come so far is kept, unless the next in line begins anew
            outcome = outcome or report.cut_off(verdict)
            if not here.waiting or outcome.acted:
                await self._commit(turn, outcome, partial_answer(outcome, ABANDONED))
            raise
        return await self._commit(turn, outcome, answer)

    async def _commit(self, turn: Turn, outcome: Outcome | None, answer: Answer) -> Answered:
        """Store the answer; whoever leaves meanwhile finds it stored."""
        decision, verdict, trace = turn.decision, turn.verdict, turn.trace
        output = write_output(turn.request, decision, verdict, outcome, answer, turn.here.started)
        with trace.stage("commit"):
            finished = Finished(turn.caller, turn.request, decision, verdict, outcome, output, trace.record(verdict, outcome))
            turn.here.storing = storing = asyncio.ensure_future(self.stages.commit(finished))
            self._storing.add(storing)  # the loop itself holds a task only weakly
            storing.add_done_callback(self._storing.discard)
            receipt = await asyncio.shield(storing)
        replayed = receipt.decision_id != decision.decision_id  # another process was first with the same query
        if not replayed:
            self._observer.notice(RequestDone(receipt))
            for fallen in outcome.fallbacks if outcome is not None else ():
                self._observer.notice(FellBack(*fallen))
            self.stages.shadow.read(turn.request, trace, decision)
            self.stages.audit.read(turn.request, trace, decision)
        return Answered(receipt, replayed)

    async def _decide(self, request: OrchestratorInput, router: Router | None, trace: Trace, deadline: Deadline) -> RouteDecision:
        trace.router_version = router.version if router else NO_ROUTER
        with trace.stage("triage"):
            trace.admitted = admitted = self.stages.triage(request)
        try:
            with trace.stage("intent"):
                async with self._turn_to_decide(deadline), asyncio.timeout(deadline.left):
                    trace.understanding = understanding = await asyncio.to_thread(self.stages.intent, admitted, router)
            with trace.stage("routing") as stage:
                decision = await self.stages.routing(request.parsed_query.query_id, admitted, understanding, router, deadline)
                stage.outcome = decision.rung.value
        except Saturated:
            raise
        except TimeoutError:
            log.warning("routing_out_of_time")
            decision = self.stages.routing.after_failure(request.parsed_query.query_id, admitted, router)
        except Exception:  # the contract's ROUTING_FAILED: whatever breaks in a model, the default agent answers
            log.exception("routing_failed")
            decision = self.stages.routing.after_failure(request.parsed_query.query_id, admitted, router)
        return decision.model_copy(update={"timings_ms": trace.timings_ms()})

    @asynccontextmanager
    async def _turn_to_decide(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for a turn, at most half of the decision's time: the rest is for deciding."""
        try:
            async with asyncio.timeout(deadline.left / 2) as waiting, self._deciding.hold():
                waiting.reschedule(None)
                yield
        except TimeoutError as exc:
            if not waiting.expired():
                raise
            raise Saturated("No turn to decide came in time. Try again in a second.") from exc

    async def _merge(self, turn: Turn, outcome: Outcome | None, deadline: Deadline) -> Answer:
        try:
            query = turn.request.parsed_query.raw_query
            return await self.stages.synthesis(query, turn.router, turn.decision, turn.verdict, outcome, deadline)
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
