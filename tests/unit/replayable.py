"""Logged signals as record batches, for tests of the replay: each maker's signal is valid, with the given fields replaced."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from service.adapters.signal_log import schema

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def a_signal(query: str = "where are the gaps", agent: str | None = "gap_analyzer", **fields: Any) -> dict[str, Any]:
    """Return a signal of a request that one agent answered well."""
    ids = {name: "1" for name in ("signal_id", "decision_id", "tenant")} | {"user_id": "u-1", "session_id": "s-1"}
    outcome = {"agents_succeeded": int(agent is not None), "agents_failed": 0, "agents_unavailable": 0, "was_rerouted": None}
    decided = {"intent": "gap_analysis", "rung": "student", "router_version": "1", "routing_confidence": 0.9, "propensity": 1.0}
    empty = dict.fromkeys(name for name in schema().names)
    lists = {"agents_selected": [agent] if agent is not None else [], "further_intents": []}
    return {**empty, "created_at": NOW, **ids, "query": query, **decided, **lists, **outcome, "from_history": False, **fields}


def batches(*signals: dict[str, Any], rows: int = 3) -> Iterator[pa.RecordBatch]:
    """Yield signals as the log does, a few at a time."""
    for start in range(0, len(signals), rows):
        yield pa.RecordBatch.from_pylist(list(signals[start : start + rows]), schema=schema())


def quiet(_: str) -> None:
    """Say nothing."""
