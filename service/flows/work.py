"""What is to be done, and how one agent is told of it: the dispatch holds what the agent's `receives` names of the request, and no more."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid5

from pydantic import JsonValue

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch, DispatchConstraints, DispatchMetadata, DispatchPayload, DispatchRouting
from service.contracts.handoff import AgentHandoff
from service.contracts.model import JsonObject
from service.contracts.notice import Notice
from service.contracts.query import ConversationTurn, OrchestratorInput, ParsedEntity
from service.deadline import Deadline
from service.ports import AgentFailure
from service.routing.history import UTTERANCES

MOST_SAID = 2_000  # characters of an earlier utterance that an agent is told


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """An agent is being called: since when by `time.monotonic`, and how often until now."""

    agent: Agent
    at: float
    attempts: Callable[[], int]


@dataclass(frozen=True, slots=True)
class AgentRun:
    """How one agent's part ended: a handoff that passed the checks, or a failure. `attempts` counts calls, hedges among them."""

    agent: Agent
    handoff: AgentHandoff | None
    failure: AgentFailure | None
    attempts: int
    latency_ms: int
    warnings: tuple[Notice, ...] = ()


_DISPATCHES = UUID("6b8d1f3e-52c0-4a7e-9d35-0c1f7a94e2b6")  # the name space of dispatch ids (RFC 9562, 5.5)

Progress = Callable[[AgentStarted | AgentRun], None]


def unwatched(_: AgentStarted | AgentRun) -> None:
    """Take no note of progress."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, whoever does it.

    `asked` is the text that is carried out where it is not the question itself; `inputs` is what earlier steps of a pipeline brought.
    """

    request: OrchestratorInput
    tenant: str
    correlation_id: str
    intent: str
    entities: tuple[ParsedEntity, ...]
    deadline: Deadline
    asked: str | None = None
    inputs: JsonObject = field(default_factory=dict)
    progress: Progress = unwatched

    def dispatch_id(self, agent: Agent) -> UUID:
        """Return the id of an agent's part, by which the agent can know that it did the work before.

        It follows from the query: whoever repeats one whose answer was lost, or was taken up by two processes at once, does not have it
        done twice by an agent that keeps its ids. No other tenant's query has the same.
        """
        query_id = self.request.parsed_query.query_id
        return uuid5(_DISPATCHES, "\n".join((self.tenant, str(query_id), self.intent, agent.name)))


def build_dispatch(agent: Agent, work: Work, timeout: float, dispatch_id: UUID) -> AgentDispatch:
    """Write the dispatch for one attempt; `timeout` in seconds, cut to what the deadline leaves."""
    allowed_ms = max(1, int(work.deadline.within(timeout).left * 1_000))
    wishes = work.request.preferences
    wished = wishes.required_confidence if wishes is not None else None
    return AgentDispatch(
        dispatch_id=dispatch_id,
        query_id=work.request.parsed_query.query_id,
        target_agent=agent.name,
        target_tier=agent.tier,
        payload=DispatchPayload(
            intent=work.intent,
            entities=_entities(agent, work),
            context=_context(agent, work),
            constraints=DispatchConstraints(
                max_latency_ms=allowed_ms, required_confidence=agent.required_confidence if wished is None else wished
            ),
        ),
        routing=DispatchRouting(
            priority=agent.priority, timeout_ms=allowed_ms, retry_count=agent.max_retries, fallback_agent=agent.fallback_agent
        ),
        metadata=DispatchMetadata(dispatched_at=datetime.now(UTC), correlation_id=work.correlation_id),
    )


def _entities(agent: Agent, work: Work) -> tuple[ParsedEntity, ...]:
    if "entities" in agent.receives:
        return work.entities
    return tuple(e for e in work.entities if f"entities.{e.type.value}" in agent.receives)


def _context(agent: Agent, work: Work) -> JsonObject:
    request, query, wanted = work.request, work.request.parsed_query, agent.receives
    said: dict[str, JsonValue] = {
        "raw_query": query.raw_query,
        "request": work.asked,
        "user_id": request.user_id,
        "session_id": request.session_id,
        "conversation_history": _last_said(request.conversation_history),
    }
    given = {key: value for key, value in (query.context or {}).items() if key not in said}  # which a caller cannot fake
    context: JsonObject = {key: value for key, value in given.items() if "context" in wanted or f"context.{key}" in wanted}
    return context | {name: value for name, value in said.items() if name in wanted and value not in (None, [])} | work.inputs


def _last_said(history: tuple[ConversationTurn, ...]) -> JsonValue:
    return [{"role": turn.role, "content": turn.content[:MOST_SAID]} for turn in history[-UTTERANCES:]]
