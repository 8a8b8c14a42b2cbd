"""What the agents' tests share: the data set, one with eight weeks of future, and a way to ask an agent."""

from collections.abc import Callable, Mapping
from datetime import date
from uuid import UUID

import pytest

from service.agents.directory import AGENTS, load_agent
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot, generate_snapshot
from service.contracts.dispatch import AgentDispatch

TODAY = date(2026, 6, 17)

MakeDispatch = Callable[..., AgentDispatch]
Ask = Callable[..., Finding]


@pytest.fixture(scope="session")
def data() -> Snapshot:
    """The data set as of a fixed day."""
    return generate_snapshot(today=TODAY)


@pytest.fixture(scope="session")
def future() -> Snapshot:
    """The same data with the eight weeks that follow."""
    return generate_snapshot(today=TODAY, weeks=112)


@pytest.fixture(scope="session")
def make_dispatch() -> MakeDispatch:
    """Build a dispatch for an agent: entities as keywords, a list for several of one type."""

    def make(
        agent: str,
        *,
        context: Mapping[str, object] | None = None,
        max_latency_ms: int = 30_000,
        required_confidence: float = 0.0,
        **entities: str | list[str],
    ) -> AgentDispatch:
        pairs = [(kind, one) for kind, value in entities.items() for one in ([value] if isinstance(value, str) else value)]
        return AgentDispatch.model_validate(
            {
                "dispatch_id": UUID(int=1),
                "query_id": UUID(int=2),
                "target_agent": agent,
                "target_tier": AGENTS[agent].tier,
                "payload": {
                    "intent": "explanation",
                    "entities": [{"type": kind, "value": value} for kind, value in pairs],
                    "context": dict(context or {}),
                    "constraints": {"max_latency_ms": max_latency_ms, "required_confidence": required_confidence},
                },
                "routing": {"priority": 1, "timeout_ms": max_latency_ms, "retry_count": 0, "fallback_agent": None},
                "metadata": {"dispatched_at": "2026-06-17T00:00:00Z", "correlation_id": "test"},
            }
        )

    return make


@pytest.fixture(scope="session")
def ask(data: Snapshot, make_dispatch: MakeDispatch) -> Ask:
    """Ask an agent about the data set and return its finding."""

    def answer(agent: str, *, on: Snapshot = data, **what: object) -> Finding:
        return load_agent(agent)(make_dispatch(agent, **what), on)

    return answer
