"""Commit writes down decision and signal, so that credit falls on the agent that was chosen, and the same request is known again."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.contracts.caller import Caller
from service.contracts.handoff import HandoffStatus
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.errors import ErrorCode, StoreUnavailable
from service.flows.flow import Verdict
from service.flows.work import AgentRun
from service.stages.commit import Commit, Finished, collect_signal, hash_request
from service.stages.gate import Gate
from service.stages.synthesis import Synthesize
from tests.fakes import MemoryStore, down
from tests.unit.turns import a_decision, a_handoff, a_request, a_run, an_agent, an_entity, an_outcome

CATALOG = load_catalog()
ACME = Caller(tenant="acme")
CAUSAL, EXPLAINER = an_agent(CATALOG, "causal_impact"), an_agent(CATALOG, "explainer")
DOWN, WRONG = down(), down(ErrorCode.HANDOFF_INVALID, unavailable=False)


async def finish(*runs: AgentRun, absent: tuple[str, ...] = (), request: OrchestratorInput | None = None, **decision: Any) -> Finished:
    """Return all that is known of a request whose flow brought these runs."""
    request = request or a_request()
    decided = a_decision(query_id=request.parsed_query.query_id, entities=[an_entity()], **decision)
    verdict: Verdict = Gate(catalog=CATALOG)(decided, Caller(), lambda a: a.name not in absent)
    outcome = an_outcome(*runs, part=verdict.parts[0]) if verdict.parts else None
    answer = await Synthesize(catalog=CATALOG, predictors=None)("q", None, decided, verdict, outcome, Deadline.after(1.0))
    output = OrchestratorOutput(
        query_id=decided.query_id,
        status=answer.status,
        response_text=answer.text,
        response_confidence=answer.confidence,
        agents_dispatched=tuple(r.agent.name for r in runs),
        agent_results=answer.results,
        citations=answer.citations,
        visualizations=answer.visualizations,
        follow_up_suggestions=answer.follow_ups,
        total_latency_ms=60_000,
        timestamp=datetime.now(UTC),
        decision_id=decided.decision_id,
        action=verdict.action,
        intent=decided.intent,
        flow=decided.flow,
        rung=decided.rung,
        router_version=decided.router_version,
        warnings=answer.warnings,
    )
    return Finished(ACME, request, decided, verdict, outcome, output, {"gate": {}})


OUTCOMES: dict[str, tuple[tuple[AgentRun, ...], tuple[str, ...], tuple[int, int, int], bool | None, float | None]] = {
    "answered": ((a_run(CAUSAL),), (), (1, 0, 0), False, (0.35 + 0.25 * 0.5 + 0.20) / 0.80),
    "answered in part": ((a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.PARTIAL)),), (), (1, 0, 0), False, (0.35 + 0.125 + 0.20) / 0.80),
    "failed": ((a_run(CAUSAL, WRONG),), (), (0, 1, 0), True, 0.125 / 0.80),
    "blocked": ((a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.BLOCKED)),), (), (0, 1, 0), True, 0.125 / 0.80),
    "failed, a fallback answered": ((a_run(CAUSAL, WRONG), a_run(EXPLAINER)), (), (0, 1, 0), True, 0.125 / 0.80),
    "down, a fallback answered": ((a_run(CAUSAL, DOWN), a_run(EXPLAINER)), (), (0, 1, 1), None, None),
    "down, all of them": ((a_run(CAUSAL, DOWN), a_run(EXPLAINER, DOWN)), (), (0, 1, 1), None, None),
    "left out because it was down": ((a_run(EXPLAINER),), ("causal_impact",), (0, 1, 1), None, None),
    "its fallback was down": ((a_run(CAUSAL),), ("explainer",), (1, 0, 0), False, (0.35 + 0.125 + 0.20) / 0.80),
}


@pytest.mark.parametrize(("runs", "absent", "counts", "rerouted", "reward"), OUTCOMES.values(), ids=OUTCOMES)
async def test_credit_falls_on_the_agent_that_was_chosen(
    runs: tuple[AgentRun, ...], absent: tuple[str, ...], counts: tuple[int, int, int], rerouted: bool | None, reward: float | None
) -> None:
    """A fallback's success is not the choice's, and a choice is not blamed for an agent that was down."""
    signal = collect_signal(await finish(*runs, absent=absent))

    assert signal.agents_selected == ("causal_impact",)
    assert (signal.agents_succeeded, signal.agents_failed, signal.agents_unavailable) == counts
    assert signal.was_rerouted is rerouted
    assert signal.compute_reward() == (None if reward is None else pytest.approx(reward))


@pytest.mark.parametrize(
    "decision",
    [
        {"action": "social", "agent": None},
        {"action": "clarify", "agent": None},
        {"action": "refuse", "agent": None},
        {"agent": "nobody"},
    ],
    ids=["social", "clarify", "refuse", "stopped by the gate"],
)
async def test_what_was_not_dispatched_selects_nobody(decision: dict[str, Any]) -> None:
    """Nothing is known of its success, so there is no reward until feedback comes."""
    signal = collect_signal(await finish(**decision))

    assert signal.agents_selected == ()
    assert (signal.total_latency_ms, signal.was_rerouted, signal.compute_reward()) == (None, None, None)


async def test_the_signal_holds_what_routing_knew() -> None:
    """The specification's input context and decision."""
    finished = await finish(a_run(CAUSAL))

    signal = collect_signal(finished)

    assert signal.query == finished.request.parsed_query.raw_query
    assert (signal.session_id, signal.intent, signal.query_pattern) == ("s-1", "causal_impact", "causal_impact")
    assert signal.entities_extracted == ("brand:Kisqali",)
    assert (signal.routing_confidence, signal.routing_rationale) == (0.9, "because")
    assert (signal.total_latency_ms, signal.latency_budget_ms) == (60_000.0, CAUSAL.timeout_ms)


async def test_a_decision_without_intent_is_named_by_its_action() -> None:
    """No field of the signal is left without a value that training can group by."""
    signal = collect_signal(await finish(agent=None, action="social", intent=None))

    assert (signal.intent, signal.query_pattern) == ("", "social")


async def test_a_receipt_is_stored_complete_and_returned() -> None:
    """What is returned can be found again, as it is."""
    store = MemoryStore()
    finished = await finish(a_run(CAUSAL))

    receipt = await Commit(store=store, catalog_hash="c" * 64)(finished)

    assert await store.by_decision("acme", finished.decision.decision_id) == receipt
    assert (receipt.tenant, receipt.catalog_hash, receipt.request) == ("acme", "c" * 64, finished.request)
    assert receipt.request_hash == hash_request(finished.request)
    assert receipt.reward == receipt.signal.compute_reward()
    assert (receipt.output, receipt.stages) == (finished.output, {"gate": {}})


async def test_the_earlier_of_two_receipts_of_one_query_is_the_answer() -> None:
    """Two equal requests at once get one answer."""
    store, request = MemoryStore(), a_request()
    commit = Commit(store=store, catalog_hash="c" * 64)
    first = await commit(await finish(a_run(CAUSAL), request=request))

    second = await commit(await finish(a_run(CAUSAL), request=request))

    assert second == first
    assert len(store.receipts) == 1


async def test_a_store_that_is_down_is_not_passed_over() -> None:
    """What is not durable is not answered."""
    store = MemoryStore()
    store.available = False

    with pytest.raises(StoreUnavailable):
        await Commit(store=store, catalog_hash="c" * 64)(await finish(a_run(CAUSAL)))


QUERY_ID = str(uuid4())


def a_body(**parsed: Any) -> dict[str, Any]:
    """Return a body under one query id."""
    return {
        "parsed_query": {"query_id": QUERY_ID, "raw_query": "Did it?", "context": {"a": 1, "b": [1, "ü"]}, **parsed},
        "user_id": "u",
        "session_id": "s",
    }


def hashed(body: dict[str, Any]) -> str:
    """Return the hash of a body as it arrives."""
    return hash_request(OrchestratorInput.model_validate(body))


def test_the_hash_of_a_request_is_pinned() -> None:
    """A change of the hash would turn every stored answer's repetition into a conflict, so it must be a decision."""
    body = {**a_body(query_id="6f1b7c0e-54a6-4f5b-9a6e-0d1a2b3c4d5e", context={"a": 1}, confidence=1)}
    written = (
        '{"parsed_query": {"confidence": 1.0, "context": {"a": 1}, "query_id": "6f1b7c0e-54a6-4f5b-9a6e-0d1a2b3c4d5e", '
        '"raw_query": "Did it?"}, "session_id": "s", "user_id": "u"}'
    )

    assert hashed(body) == sha256(written.encode()).hexdigest()


def test_the_order_of_keys_and_the_time_stamp_do_not_matter() -> None:
    """A client that repeats a request may write it anew and stamp it anew."""
    body = a_body()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    again = {
        "session_id": "s",
        "user_id": "u",
        "parsed_query": dict(reversed({**body["parsed_query"], "context": {"b": [1, "ü"], "a": 1}, "timestamp": later}.items())),
    }

    assert hashed(again) == hashed(body)


CHANGES: dict[str, dict[str, Any]] = {
    "text": a_body(raw_query="Did it not?"),
    "intent": a_body(intent="prediction"),
    "context": a_body(context={"a": 2, "b": [1, "ü"]}),
    "order in a list": a_body(context={"a": 1, "b": ["ü", 1]}),
    "confidence": a_body(confidence=0.5),
    "no entities, said aloud": a_body(entities=[]),
    "user": {**a_body(), "user_id": "v"},
    "session": {**a_body(), "session_id": "t"},
    "history": {**a_body(), "conversation_history": [{"role": "user", "content": "hi"}]},
    "preferences": {**a_body(), "preferences": {"rung": "student"}},
}


@pytest.mark.parametrize("other", CHANGES.values(), ids=CHANGES)
def test_whatever_can_change_the_answer_changes_the_hash(other: dict[str, Any]) -> None:
    """Another body under the same id is a conflict, not a repetition."""
    assert hashed(other) != hashed(a_body())


@given(text=st.text(max_size=50), context=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_the_hash_survives_a_round_trip(text: str, context: dict[str, Any]) -> None:
    """A request that was written to JSON and read again is the same request."""
    request = OrchestratorInput.model_validate(a_body(raw_query=text, context=context))

    again = OrchestratorInput.model_validate_json(request.model_dump_json(exclude_unset=True))

    assert hash_request(again) == hash_request(request)
