"""Stand-ins for the ports: they behave as the real adapters do, and the contract tests hold them to it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffExecution, HandoffResult, HandoffStatus
from service.contracts.lm import LMFailure, LMQuestion, LMVerdict, SynthesisQuestion
from service.contracts.model import JsonObject
from service.contracts.optimization import MOST_SIGNALS, OptimizationRequest, OptimizationWish, Priority, RequestStatus
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.errors import ErrorCode, StoreUnavailable
from service.flows.breaker import IN_A_ROW
from service.flows.health import Health
from service.flows.slots import Slots
from service.ports import AgentFailure, Event


class MemoryStore:
    """`Store` and `OptimizationQueue` in memory: the uniqueness and isolation of the real one, without the durability.

    Set `available = False` to break it. Nobody carries requests out, so all of them wait.
    """

    def __init__(self) -> None:
        self.receipts: dict[UUID, Receipt] = {}
        self.wishes: dict[UUID, OptimizationRequest] = {}
        self.signals: dict[str, set[UUID]] = {}
        self.available = True

    async def commit(self, receipt: Receipt) -> Receipt:
        """Keep the receipt unless the tenant's query has one."""
        earlier = await self.by_query(receipt.tenant, receipt.decision.query_id)
        if earlier is not None:
            return earlier
        taken = receipt.decision_id in self.receipts or any(
            kept.signal.signal_id == receipt.signal.signal_id for kept in self.receipts.values()
        )
        if taken:
            raise StoreUnavailable("Another query has a receipt under the same id.")
        self.receipts[receipt.decision_id] = receipt
        return receipt

    async def by_query(self, tenant: str, query_id: UUID) -> Receipt | None:
        """Look a receipt up by query."""
        await self.ping()
        found = (kept for kept in self.receipts.values() if (kept.tenant, kept.decision.query_id) == (tenant, query_id))
        return next(found, None)

    async def by_decision(self, tenant: str, decision_id: UUID) -> Receipt | None:
        """Look a receipt up by decision."""
        await self.ping()
        kept = self.receipts.get(decision_id)
        return kept if kept is not None and kept.tenant == tenant else None

    async def add_feedback(self, tenant: str, feedback: Feedback) -> Receipt | None:
        """Merge feedback into the kept signal."""
        if feedback.decision_id is not None:
            kept = await self.by_decision(tenant, feedback.decision_id)
        else:
            kept = await self.by_query(tenant, feedback.query_id) if feedback.query_id is not None else None
        if kept is None:
            return None
        signal = kept.signal.with_feedback(feedback)
        updated = kept.model_copy(update={"signal": signal, "reward": signal.compute_reward()})
        self.receipts[kept.decision_id] = updated
        return updated

    async def ask_for(self, tenant: str, wish: OptimizationWish) -> OptimizationRequest:
        """Keep a wish, or join it to an equal one."""
        await self.ping()
        about = {"tenant": tenant, "agent_name": wish.agent_name, "signature_name": wish.signature_name}
        fresh = OptimizationRequest(
            **about, request_id=uuid4(), priority=wish.priority, status=RequestStatus.PENDING, created_at=datetime.now(UTC)
        )
        equal = (kept for kept in self.wishes.values() if kept.model_dump(include=set(about)) == about)
        earlier = next(equal, fresh)
        known = self.signals.setdefault(tenant, set())
        new = list(dict.fromkeys(s.signal_id for s in wish.training_signals if s.signal_id not in known))
        kept = new[: MOST_SIGNALS - earlier.signals]
        known.update(kept)
        said = {
            "asked": earlier.asked + (earlier is not fresh),
            "priority": max(earlier.priority, wish.priority, key=list(Priority).index),
            "signals": earlier.signals + len(kept),
            "signals_left_out": earlier.signals_left_out + len(new) - len(kept),
        }
        self.wishes[earlier.request_id] = joined = earlier.model_copy(update=said)
        return joined

    async def requests(self, tenant: str, status: RequestStatus | None = None) -> Sequence[OptimizationRequest]:
        """List the tenant's requests by priority, then age."""
        await self.ping()
        own = [r for r in self.wishes.values() if r.tenant == tenant and status in (None, r.status)]
        return sorted(own, key=lambda r: (-list(Priority).index(r.priority), r.created_at))[:100]

    async def request(self, tenant: str, request_id: UUID) -> OptimizationRequest | None:
        """Look a request up."""
        await self.ping()
        kept = self.wishes.get(request_id)
        return kept if kept is not None and kept.tenant == tenant else None

    async def ping(self) -> None:
        """Answer, or say that the store is broken."""
        if not self.available:
            raise StoreUnavailable("The store was made unavailable by a test.")


class ScriptedAgents:
    """`AgentClient` that answers by script: agent name → what each call returns, the last one again and again; else a success."""

    def __init__(self, script: dict[str, list[AgentFailure | HandoffStatus]] | None = None) -> None:
        self.script = {name: list(answers) for name, answers in (script or {}).items()}
        self.sent: list[AgentDispatch] = []

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Note the dispatch and give the scripted answer."""
        self.sent.append(dispatch)
        answers = self.script.get(agent.name, [])
        answer = (answers.pop(0) if len(answers) > 1 else answers[0]) if answers else HandoffStatus.SUCCESS
        return answer if isinstance(answer, AgentFailure) else handoff_for(agent, dispatch, answer)


def some_health() -> Health:
    """Return what is known of agents that nobody has called yet."""
    return Health(slots=Slots(256, most_waiting=256, reserved=32))


def take_away(health: Health, *agents: Agent) -> None:
    """Let agents be known to fail: their breakers open."""
    for agent in agents:
        for _ in range(IN_A_ROW):
            health.of(agent).breaker.failed()


def handoff_for(
    agent: Agent, dispatch: AgentDispatch, status: HandoffStatus = HandoffStatus.SUCCESS, confidence: float = 0.9
) -> AgentHandoff:
    """Return a handoff that passes the checks."""
    now = datetime.now(UTC)
    output: JsonObject = {"summary": f"{agent.name} finds 42.", **{name: 1 for name in agent.required_output}}
    return AgentHandoff(
        dispatch_id=dispatch.dispatch_id,
        agent_id=agent.name,
        agent_tier=agent.tier,
        execution=HandoffExecution(status=status, started_at=now, completed_at=now, latency_ms=3),
        result=HandoffResult(primary_output=output, confidence=confidence, evidence=("Seen in 12 rows.",), caveats=("Synthetic.",)),
    )


def down(code: ErrorCode = ErrorCode.AGENT_UNAVAILABLE, *, recoverable: bool = False, unavailable: bool = True) -> AgentFailure:
    """Return a failure to reach an agent."""
    return AgentFailure(code, "the agent failed as scripted", recoverable=recoverable, unavailable=unavailable, latency_ms=1)


class ScriptedPredictors:
    """`Predictors` that answers with a given verdict or failure and keeps the questions."""

    def __init__(self, verdict: LMVerdict | LMFailure, composed: str | LMFailure | None = None) -> None:
        self.verdict = verdict
        self.composed = composed if composed is not None else LMFailure(reason="error", detail="not scripted")
        self.questions: list[LMQuestion] = []
        self.to_compose: list[SynthesisQuestion] = []

    async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
        """Give the scripted verdict."""
        self.questions.append(question)
        return self.verdict

    async def compose(self, question: SynthesisQuestion, *, timeout: float) -> str | LMFailure:
        """Give the scripted text."""
        self.to_compose.append(question)
        return self.composed


class Watcher:
    """`Observer` that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def notice(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)
