"""Loads the data and the agents' heavy imports after the start, in a thread of its own, so that the first requests need not."""

import logging
import threading
import time
from datetime import UTC, datetime
from uuid import UUID

from service.agents.directory import AGENTS, load_agent, run_agent
from service.contracts.dispatch import AgentDispatch, DispatchConstraints, DispatchMetadata, DispatchPayload, DispatchRouting

logger = logging.getLogger(__name__)

_NOBODY = UUID(int=0)
_TRIAL_BUDGET_MS = 100
"""A trial answer needs no precision: with this budget causal_impact runs its fewest simulations."""


class WarmUp:
    """One warm-up of the process. Requests may come while it runs."""

    def __init__(self) -> None:
        """Start nothing."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents-warm-up", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the agent that it is loading."""
        self._stopped.set()

    @property
    def is_running(self) -> bool:
        """Whether agents are still being loaded."""
        return self._thread.is_alive()

    def _run(self) -> None:
        started = time.monotonic()
        for name in AGENTS:
            if self._stopped.is_set():
                return
            try:
                load_agent(name)
            except ImportError:
                logger.exception("agent %s cannot be loaded", name)
                continue
            if not AGENTS[name].has_effect:
                run_agent(name, _trial(name))
        logger.info("agents_warm agents=%d seconds=%.1f", len(AGENTS), time.monotonic() - started)


def _trial(name: str) -> AgentDispatch:
    return AgentDispatch(
        dispatch_id=_NOBODY,
        query_id=_NOBODY,
        target_agent=name,
        target_tier=AGENTS[name].tier,
        payload=DispatchPayload(
            intent="warm_up",
            context={"raw_query": "Why did TRx change?"},
            constraints=DispatchConstraints(max_latency_ms=_TRIAL_BUDGET_MS, required_confidence=0.0),
        ),
        routing=DispatchRouting(priority=1, timeout_ms=_TRIAL_BUDGET_MS, retry_count=0, fallback_agent=None),
        metadata=DispatchMetadata(dispatched_at=datetime.now(UTC), correlation_id="warm-up"),
    )
