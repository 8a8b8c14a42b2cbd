"""What every `Store` promises, for the fake and for the real one alike. A further one is one more entry in `STORES`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from service.adapters.spooled_store import SpooledStore
from service.adapters.sql_store import SqlStore
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback, RoutingTrainingSignal
from service.errors import StoreUnavailable
from service.ids import new_id
from service.ports import Store
from tests.fakes import MemoryStore

pytestmark = pytest.mark.asyncio
NOW = datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)


def a_receipt(
    *, tenant: str = "acme", query_id: UUID | None = None, text: str = "How is Remibrutinib doing?", **changes: object
) -> Receipt:
    """Return a complete receipt with fresh ids."""
    ids = {"decision_id": new_id(), "query_id": query_id or uuid4()}
    both = {**ids, "action": "dispatch", "intent": "explanation", "flow": "parallel", "rung": "student", "router_version": "7"}
    result = {
        "agent_id": "explainer",
        "agent_tier": 5,
        "status": "success",
        "result": {"a": [1, None]},
        "confidence": 0.5,
        "latency_ms": 40,
    }
    decided = {"confidence": 0.875, "primary_agent": "explainer", "secondary_agents": ["gap_analyzer"], "oos_score": 0.1}
    signal = RoutingTrainingSignal(
        signal_id=new_id(),
        session_id="s-1",
        query=text,
        query_pattern="how is <brand> doing",
        intent="explanation",
        entities_extracted=("brand:Remibrutinib",),
        agents_selected=("explainer", "gap_analyzer"),
        routing_confidence=0.875,
        routing_rationale="because",
        agents_succeeded=2,
        total_latency_ms=50.0,
        latency_budget_ms=100,
    )
    values = {
        "decision": {**both, **decided, "policy": "p1", "rationale": "because", "timings_ms": {"intent": 4.25}},
        "tenant": tenant,
        "catalog_hash": "c" * 64,
        "request_hash": "r" * 64,
        "request": {
            "parsed_query": {"query_id": ids["query_id"], "raw_query": text, "timestamp": NOW},
            **{"user_id": "u-1", "session_id": "s-1"},
        },
        "stages": {"intent": {"best": "explanation", "scores": [0.875, 0.125]}, "gate": None},
        "output": {
            **{**both, "status": "success", "response_text": text, "response_confidence": 0.5, "agents_dispatched": ["explainer"]},
            **{"agent_results": [result], "citations": [], "visualizations": [{"x": 1}], "follow_up_suggestions": []},
            **{"total_latency_ms": 61, "timestamp": NOW},
        },
        "signal": signal,
        "reward": signal.compute_reward(),
        "committed_at": NOW,
    }
    return Receipt.model_validate({**values, **changes})


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[Store]:
    """Give the fake."""
    yield MemoryStore()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    """Give the real store on a new SQLite file."""
    store = SqlStore(f"sqlite:///{folder}/new folder/50% #1.db")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def spooled(folder: Path) -> AsyncIterator[Store]:
    """Give a store with a spool, whose database is there."""
    store = SpooledStore(SqlStore(f"sqlite:///{folder}/main.db"), SqlStore(f"sqlite:///{folder}/spool.db"), most=1_000)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Store]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "spooled": spooled,
}


@pytest_asyncio.fixture(params=[*STORES, "postgresql", "pooled"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Give each kind of store, empty."""
    if request.param not in STORES:
        opened = SqlStore(request.getfixturevalue(f"{request.param}_database"))
        await opened.open()
        yield opened
        await opened.close()
        return
    async with STORES[request.param](tmp_path) as made:
        yield made


async def test_a_committed_receipt_comes_back_as_it_was(store: Store) -> None:
    """Nothing is lost or changed on the way in and out, under either key."""
    receipt = a_receipt(text="naïve ☃ 'quoted' \\u0041 \U0001f600\n")

    returned = await store.commit(receipt)

    assert returned == receipt
    assert await store.by_query("acme", receipt.decision.query_id) == receipt
    assert await store.by_decision("acme", receipt.decision_id) == receipt


async def test_the_instant_of_a_commit_comes_back_in_any_zone(store: Store) -> None:
    """`committed_at` is the same instant, whatever zone it was given in."""
    receipt = a_receipt(committed_at=datetime.fromisoformat("2026-06-01T01:30:00+05:30"))

    await store.commit(receipt)

    kept = await store.by_decision("acme", receipt.decision_id)
    assert kept is not None
    assert kept.committed_at == datetime(2026, 5, 31, 20, 0, tzinfo=UTC)


async def test_the_earlier_receipt_wins(store: Store) -> None:
    """A second commit under the same tenant and query returns the first receipt and stores nothing."""
    first = a_receipt()
    second = a_receipt(query_id=first.decision.query_id, text="something else")
    await store.commit(first)

    returned = await store.commit(second)

    assert returned == first
    assert await store.by_decision("acme", second.decision_id) is None


async def test_of_many_equal_commits_at_once_one_wins_and_all_get_it(store: Store) -> None:
    """Fifty commits for one query, with other queries between them, agree on one receipt; the others are stored."""
    query_id = uuid4()
    rivals, others = [a_receipt(query_id=query_id) for _ in range(50)], [a_receipt() for _ in range(20)]

    returned = await asyncio.gather(*(store.commit(receipt) for receipt in [*rivals, *others]))

    winner = await store.by_query("acme", query_id)
    assert winner in rivals
    assert returned == [winner] * 50 + others
    assert [await store.by_query("acme", other.decision.query_id) for other in others] == others


async def test_one_bad_receipt_does_not_sink_its_neighbours(store: Store) -> None:
    """A receipt whose decision id another query has is refused; those committed at the same moment are stored."""
    first, good = a_receipt(), [a_receipt() for _ in range(10)]
    await store.commit(first)
    other = a_receipt()
    bad = other.model_copy(update={"decision": other.decision.model_copy(update={"decision_id": first.decision_id})})

    results = await asyncio.gather(*(store.commit(receipt) for receipt in [*good[:5], bad, *good[5:]]), return_exceptions=True)

    assert isinstance(results.pop(5), StoreUnavailable)
    assert results == good
    assert await store.by_query("acme", other.decision.query_id) is None


async def test_a_tenant_sees_only_its_own(store: Store) -> None:
    """Another tenant finds nothing under either key, cannot give feedback, and may use the same query id for itself."""
    receipt = a_receipt()
    await store.commit(receipt)
    query_id, decision_id = receipt.decision.query_id, receipt.decision_id

    assert await store.by_query("other", query_id) is None
    assert await store.by_decision("other", decision_id) is None
    assert await store.add_feedback("other", Feedback(query_id=query_id, user_satisfaction=1)) is None
    assert await store.add_feedback("other", Feedback(decision_id=decision_id, user_satisfaction=1)) is None
    own = a_receipt(tenant="other", query_id=query_id)
    assert await store.commit(own) == own
    assert await store.by_query("acme", query_id) == receipt


@pytest.mark.parametrize("key", ["decision_id", "query_id"])
async def test_feedback_changes_what_it_says_and_the_reward(store: Store, key: str) -> None:
    """Fields that are absent stay, repeated ones are replaced, and the reward follows."""
    receipt = a_receipt()
    await store.commit(receipt)
    name = {key: getattr(receipt.decision, key)}

    await store.add_feedback("acme", Feedback(**name, user_satisfaction=1.0, answer_quality=0.5))
    returned = await store.add_feedback("acme", Feedback(**name, user_satisfaction=5.0))

    expected = receipt.signal.model_copy(update={"user_satisfaction": 5.0, "answer_quality": 0.5})
    assert returned is not None
    assert returned.signal == expected
    assert returned.reward == expected.compute_reward()
    assert returned.reward != receipt.reward
    assert returned == receipt.model_copy(update={"signal": expected, "reward": expected.compute_reward()})
    assert await store.by_query("acme", receipt.decision.query_id) == returned
    assert await store.commit(receipt) == returned


@pytest.mark.parametrize(
    ("corrected", "said", "expected"),
    [
        pytest.param("forecast", None, True, id="another agent means rerouted"),
        pytest.param("forecast", False, False, id="what is said wins"),
        pytest.param("gap_analyzer", None, None, id="a selected agent says nothing"),
    ],
)
async def test_a_correction_tells_of_a_reroute(store: Store, corrected: str, said: bool | None, expected: bool | None) -> None:
    """`was_rerouted` follows from an agent that was not selected, unless the feedback says it itself."""
    receipt = a_receipt()
    await store.commit(receipt)

    feedback = Feedback(decision_id=receipt.decision_id, corrected_agent=corrected, was_rerouted=said)
    returned = await store.add_feedback("acme", feedback)

    assert returned is not None
    assert (returned.signal.corrected_agent, returned.signal.was_rerouted) == (corrected, expected)


async def test_feedback_for_nothing_is_none(store: Store) -> None:
    """An unknown decision or query gives None, and the lookups too."""
    assert await store.add_feedback("acme", Feedback(decision_id=uuid4(), user_satisfaction=3)) is None
    assert await store.add_feedback("acme", Feedback(query_id=uuid4(), user_satisfaction=3)) is None
    assert await store.by_query("acme", uuid4()) is None
    assert await store.by_decision("acme", uuid4()) is None


async def test_feedback_on_different_fields_at_once_survives(store: Store) -> None:
    """Of several feedbacks at the same moment none is lost."""
    receipt = a_receipt()
    await store.commit(receipt)
    said = {"user_satisfaction": 2.0, "answer_quality": 0.25, "was_rerouted": False, "corrected_agent": "explainer"}
    each = [Feedback.model_validate({"decision_id": receipt.decision_id, name: value}) for name, value in said.items()]

    await asyncio.gather(*(store.add_feedback("acme", feedback) for feedback in each * 5))

    kept = await store.by_decision("acme", receipt.decision_id)
    assert kept is not None
    assert kept.signal == receipt.signal.model_copy(update=said)


async def test_nul_in_json_is_kept_and_in_the_signal_replaced_at_most(store: Store) -> None:
    """NUL from an agent's answer stops nothing and is in the output as it was."""
    receipt = a_receipt(text="a\x00b")

    await store.commit(receipt)

    kept = await store.by_decision("acme", receipt.decision_id)
    assert kept is not None
    assert kept.output == receipt.output
    assert kept.signal.query in ("a\x00b", "a\ufffdb")


async def test_a_commit_that_nobody_waits_for_harms_no_other(store: Store) -> None:
    """A caller that is cancelled while it waits leaves the others their answers."""
    given_up, waited_for = a_receipt(), a_receipt()
    first = asyncio.create_task(store.commit(given_up))
    second = asyncio.create_task(store.commit(waited_for))
    await asyncio.sleep(0)

    first.cancel()

    assert await second == waited_for


async def test_ping_returns_when_the_store_answers(store: Store) -> None:
    """A store that is open answers a ping."""
    await store.ping()
