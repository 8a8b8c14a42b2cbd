"""What every `OptimizationQueue` promises: wishes are kept, joined, bounded, and seen by their tenant only. The fake and the real ones."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from service.adapters.sql_store import SqlStore
from service.contracts.optimization import MOST_SIGNALS, OptimizationWish, Priority, RequestStatus
from service.ports import OptimizationQueue
from tests.fakes import MemoryStore

pytestmark = pytest.mark.asyncio


def a_wish(
    signature: str = "routing", agent: str = "gap_analyzer", priority: str = "medium", signals: int = 0, first: int = 0
) -> OptimizationWish:
    """Return a wish with signals whose ids are numbers from `first` on."""
    brought = [
        {
            "signal_id": UUID(int=number),
            "session_id": f"s-{number}",
            "query": "who buys less",
            "query_pattern": "gap_analysis",
            "intent": "prediction",
            "agents_selected": ["prediction_synthesizer"],
            "routing_confidence": 0.5,
            "routing_rationale": "because",
            "corrected_agent": "gap_analyzer",
        }
        for number in range(first, first + signals)
    ]
    said = {"agent_name": agent, "signature_name": signature, "priority": priority, "training_signals": brought}
    return OptimizationWish.model_validate(said)


@pytest_asyncio.fixture(params=["memory", "sqlite", "postgresql"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[OptimizationQueue]:
    """Give each kind of queue, empty."""
    if request.param == "memory":
        yield MemoryStore()
        return
    store = SqlStore(request.getfixturevalue(f"{request.param}_database"))
    await store.open()
    yield store
    await store.close()


async def test_a_wish_is_kept_as_it_was_said(queue: OptimizationQueue) -> None:
    """It waits, and is found under its id."""
    accepted = await queue.ask_for("acme", a_wish(priority="high", signals=3))

    assert (accepted.tenant, accepted.agent_name, accepted.signature_name.value) == ("acme", "gap_analyzer", "routing")
    assert (accepted.priority, accepted.status, accepted.asked, accepted.signals) == (Priority.HIGH, RequestStatus.PENDING, 1, 3)
    assert (accepted.attempts, accepted.reason, accepted.finished_at) == (0, None, None)
    assert await queue.request("acme", accepted.request_id) == accepted
    assert list(await queue.requests("acme")) == [accepted]


async def test_an_equal_wish_joins_the_one_that_waits(queue: OptimizationQueue) -> None:
    """The answer counts how often it was asked for; the higher priority counts, and a signal that is there already is not added again."""
    first = await queue.ask_for("acme", a_wish(priority="low", signals=3))
    raised = await queue.ask_for("acme", a_wish(priority="high", signals=3, first=1))
    last = await queue.ask_for("acme", a_wish(priority="medium"))

    assert {first.request_id} == {raised.request_id, last.request_id}
    assert (last.asked, last.priority, last.signals, last.created_at) == (3, Priority.HIGH, 4, first.created_at)
    assert list(await queue.requests("acme")) == [last]


async def test_signals_that_are_too_many_are_left_out_and_counted(queue: OptimizationQueue) -> None:
    """A caller in a loop fills neither the table nor a request."""
    await queue.ask_for("acme", a_wish(signals=MOST_SIGNALS - 1))

    joined = await queue.ask_for("acme", a_wish(signals=5, first=MOST_SIGNALS))

    assert (joined.signals, joined.signals_left_out) == (MOST_SIGNALS, 4)


async def test_a_signal_that_comes_twice_counts_once(queue: OptimizationQueue) -> None:
    """By its id, in one wish and in several of a tenant."""
    wish = a_wish(signals=1)

    accepted = await queue.ask_for("acme", wish.model_copy(update={"training_signals": wish.training_signals * 2}))
    again = await queue.ask_for("acme", a_wish(agent="explainer", signals=2))
    other = await queue.ask_for("other", wish)

    assert [(one.signals, one.signals_left_out) for one in (accepted, again, other)] == [(1, 0), (1, 0), (1, 0)]


async def test_another_agent_another_signature_and_another_tenant_have_requests_of_their_own(queue: OptimizationQueue) -> None:
    """Only equal wishes of one tenant are joined, and no tenant sees another's."""
    wishes = [("acme", a_wish()), ("acme", a_wish(agent="explainer")), ("acme", a_wish(signature="intent")), ("other", a_wish())]

    accepted = [await queue.ask_for(tenant, wish) for tenant, wish in wishes]

    assert len({one.request_id for one in accepted}) == 4
    assert [one.request_id for one in await queue.requests("other")] == [accepted[3].request_id]
    assert await queue.request("other", accepted[0].request_id) is None
    assert await queue.request("acme", uuid4()) is None


async def test_requests_are_listed_in_the_order_of_their_turn(queue: OptimizationQueue) -> None:
    """The highest priority first, then the oldest; by their state where that is asked for."""
    wanted = [("explainer", "low"), ("gap_analyzer", "medium"), ("health_score", "high"), ("orchestrator", "medium")]
    for agent, priority in wanted:
        await queue.ask_for("acme", a_wish(agent=agent, priority=priority))

    listed, pending = await queue.requests("acme"), await queue.requests("acme", RequestStatus.PENDING)

    assert [one.agent_name for one in listed] == ["health_score", "gap_analyzer", "orchestrator", "explainer"]
    assert list(pending) == list(listed)
    assert list(await queue.requests("acme", RequestStatus.DONE)) == []


async def test_of_many_equal_wishes_at_once_one_request_is_made(queue: OptimizationQueue) -> None:
    """And none of their signals is lost."""
    accepted = await asyncio.gather(*(queue.ask_for("acme", a_wish(signals=2, first=2 * number)) for number in range(20)))

    (kept,) = await queue.requests("acme")
    assert {one.request_id for one in accepted} == {kept.request_id}
    assert (kept.asked, kept.signals) == (20, 40)
