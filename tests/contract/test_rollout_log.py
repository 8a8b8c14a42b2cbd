"""The evidence on routers that are tried, over a real database of each kind."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.adapters.rollout_log import RolloutLog
from service.adapters.sql_store import SqlStore
from service.contracts.signals import RoutingTrainingSignal
from tests.contract.test_store import a_receipt

TWO = {"agents_selected": ["gap_analyzer", "drift_monitor"]}
OUTCOMES: list[dict[str, Any]] = [
    {"agents_succeeded": 1},
    {"agents_succeeded": 1, "total_latency_ms": 50_000.0, "latency_budget_ms": 100_000},
    {"agents_failed": 1, "was_rerouted": False, "user_satisfaction": 2.0},
    {"agents_succeeded": 1, "was_rerouted": True},
    {"agents_succeeded": 1, **TWO},
    {"agents_succeeded": 1, "agents_failed": 1, "agents_unavailable": 1, "user_satisfaction": 4.0, **TWO},
    {"agents_succeeded": 1, "agents_failed": 1, "agents_unavailable": 1},
    {"agents_succeeded": 1, "agents_failed": 1, "agents_unavailable": 1, "user_satisfaction": 5.0},
    {"agents_succeeded": 2},
]


def test_a_reward_is_that_of_the_signal_but_for_its_speed(database: str) -> None:
    """Whoever failed, was down, answered in another's place, or was complained of; one request an intent."""
    nothing = {"agents_succeeded": 0, "agents_failed": 0, "agents_unavailable": 0, "was_rerouted": None, "user_satisfaction": None}
    changed = nothing | {"agents_selected": ["gap_analyzer"], "router_version": "7"}
    receipts = [a_receipt() for _ in OUTCOMES]
    signals = [
        RoutingTrainingSignal.model_validate(made.signal.model_dump() | changed | {"intent": str(i)} | one)
        for i, (made, one) in enumerate(zip(receipts, OUTCOMES, strict=True))
    ]

    async def commit() -> None:
        store = SqlStore(database)
        await store.open()
        for made, signal in zip(receipts, signals, strict=True):
            await store.commit(made.model_copy(update={"signal": signal, "committed_at": datetime.now(UTC)}))
        await store.close()

    asyncio.run(commit())
    called = RolloutLog(database).arm("7", since=datetime.now(UTC) - timedelta(hours=1)).called

    expected = {one.intent: one.model_copy(update={"total_latency_ms": None}).compute_reward() for one in signals}
    assert None in expected.values()
    assert {name: one.rewards if one.rewarded else None for name, one in called.items()} == pytest.approx(expected)
