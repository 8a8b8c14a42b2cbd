"""The routes that answer and explain: what they give, and that what is stored is enough to make a decision again."""

from typing import Any
from uuid import UUID

import pytest

from tests.conftest import World, body
from tests.contract.asking import CAUSAL, UNKNOWN, answered, assert_problem

# Answers


async def test_a_question_is_dispatched_answered_and_kept(world: World) -> None:
    """The specification's output fields, filled from what the agent brought; one dispatch, one receipt."""
    async with world.client() as client:
        question = body(CAUSAL)
        response = await client.post("/orchestrate", json=question)

        answer = response.json()
        receipt = world.store.receipts[UUID(answer["decision_id"])]
        assert (answer["query_id"], answer["status"], answer["action"]) == (question["parsed_query"]["query_id"], "success", "dispatch")
        assert (answer["intent"], answer["agents_dispatched"], answer["flow"]) == ("causal_impact", ["causal_impact"], "single")
        assert "causal_impact finds 42." in answer["response_text"]
        assert answer["response_confidence"] == 0.9
        assert [(r["agent_id"], r["agent_tier"], r["status"], r["error"]) for r in answer["agent_results"]] == [
            ("causal_impact", 2, "success", None)
        ]
        assert answer["agent_results"][0]["result"]["evidence"] == ["Seen in 12 rows."]
        assert [(c["source_type"], c["relevance"]) for c in answer["citations"]] == [("causal_path", 0.9)]
        assert answer["follow_up_suggestions"]
        assert answer["total_latency_ms"] >= 0
        assert (answer["router_version"], answer["rung"], answer["warnings"]) == ("test", "rules", [])
        assert receipt.output.model_dump(mode="json") == answer
        assert [d.target_agent for d in world.agents.sent] == ["causal_impact"]


async def test_a_language_that_is_not_read_is_named_in_the_answer(world: World) -> None:
    """The text says why it is refused, as the warning does."""
    async with world.client() as client:
        answer = await answered(client, "Warum sind die Verschreibungen im März gesunken?")

    assert [w["code"] for w in answer["warnings"]] == ["language_not_read"]
    assert answer["response_text"].startswith(answer["warnings"][0]["message"])
    assert "(de)" in answer["response_text"]


async def test_the_dispatch_is_what_the_specification_asks_for(world: World) -> None:
    """Ids, tier, priority, retries and fallback of the catalogue; the caller's context with the question; the request's own id."""
    async with world.client() as client:
        question = {**body(CAUSAL, context={"treatment": "visits"}), "preferences": {"max_latency_ms": 5_000, "required_confidence": 0.25}}
        await client.post("/orchestrate", json=question, headers={"X-Request-ID": "trace-1"})

    dispatch = world.agents.sent[0]
    assert str(dispatch.query_id) == question["parsed_query"]["query_id"]
    assert (dispatch.target_agent, dispatch.target_tier, dispatch.payload.intent) == ("causal_impact", 2, "causal_impact")
    assert dispatch.payload.context == {"treatment": "visits", "raw_query": CAUSAL}
    assert (dispatch.routing.priority, dispatch.routing.retry_count, dispatch.routing.fallback_agent) == (1, 2, "explainer")
    assert 0 < dispatch.payload.constraints.max_latency_ms <= 5_000
    assert dispatch.payload.constraints.required_confidence == 0.25
    assert dispatch.metadata.correlation_id == "trace-1"


async def test_a_route_is_decided_without_asking_anybody(world: World) -> None:
    """`/route` dispatches nothing, stores nothing and needs no store."""
    world.store.available = False
    async with world.client() as client:
        response = await client.post("/route", json=body(CAUSAL))

    decision = response.json()
    assert response.status_code == 200
    assert (decision["action"], decision["primary_agent"], decision["secondary_agents"]) == ("dispatch", "causal_impact", [])
    assert (world.agents.sent, world.store.receipts) == ([], {})


REPLAYABLE: dict[str, dict[str, Any]] = {
    "read by the student": body("Did the rep visits lift Kisqali TRx in the Midwest?"),
    "unclear": body("something about things"),
    "out of scope": body("what is the weather in Paris tomorrow"),
    "a greeting": body("hello there"),
    "nothing": body("   "),
    "an agent by name": body(CAUSAL),
    "an agent that is none": body("@nobody who responds best to samples?"),
    "parsed by the caller": body(intent="gap_analysis", confidence=0.9, entities=[{"type": "brand", "value": "Kisqali"}]),
    "flagged by the caller": body(intent="gap_analysis", confidence=0.9, ambiguity_flag=True),
    "with an unknown intent": body(intent="world_peace", confidence=7),
    "with too many entities": body(entities=[{"type": "brand", "value": f"b{i}", "confidence": 3} for i in range(30)]),
    "with history and wishes": {
        **body("and for Fabhalta?", context={"a": [1, {"b": None}]}, timestamp="2026-01-15T09:30:00.5+02:00"),
        "conversation_history": [{"role": "user", "content": "How large is the effect of visits on Kisqali?", "mine": 1}],
        "preferences": {"depth": "thorough", "rung": "student", "max_latency_ms": 9_000, "mine": 2},
    },
}


@pytest.mark.parametrize("question", REPLAYABLE.values(), ids=REPLAYABLE.keys())
async def test_a_decision_can_be_made_again_from_its_receipt(world: World, question: dict[str, Any]) -> None:
    """The stored request, posted to `/route` under the same router, gives the same decision but for its id and timings."""
    async with world.client() as client:
        answer = (await client.post("/orchestrate", json=question)).json()
        receipt = (await client.get(f"/decisions/{answer['decision_id']}")).json()

        again = (await client.post("/route", json=receipt["request"])).json()

    own = {"decision_id", "timings_ms"}
    assert {k: v for k, v in again.items() if k not in own} == {k: v for k, v in receipt["decision"].items() if k not in own}
    assert again["decision_id"] != receipt["decision"]["decision_id"]


async def test_a_receipt_tells_what_each_stage_made_of_the_request(world: World) -> None:
    """Request, stages, output, signal, catalogue and router: the whole story, as the contract and as it was stored."""
    async with world.client() as client:
        answer = await answered(client)
        receipt = (await client.get(f"/decisions/{answer['decision_id']}")).json()

    assert receipt == world.store.receipts[UUID(answer["decision_id"])].model_dump(mode="json")
    assert receipt["output"] == answer
    assert (receipt["tenant"], receipt["catalog_hash"]) == ("local", world.catalog.hash)
    assert receipt["stages"].keys() >= {"triage", "intent", "gate", "dispatch", "timings_ms"}
    assert [part["chain"] for part in receipt["stages"]["gate"]["parts"]] == [["causal_impact", "explainer"]]
    assert receipt["stages"]["dispatch"][0]["handoff"]["result"]["confidence"] == 0.9
    assert receipt["signal"]["agents_selected"] == ["causal_impact"]


@pytest.mark.parametrize(("path", "status"), [(UNKNOWN, 404), ("q-123", 400), ("%00", 400), (UNKNOWN + "0", 400)])
async def test_a_decision_that_is_none_is_a_problem(world: World, path: str, status: int) -> None:
    """404 for an id that is not stored, 400 for what is no id."""
    async with world.client() as client:
        response = await client.get(f"/decisions/{path}")

    problem = assert_problem(response, status, "not_found" if status == 404 else "invalid_input")
    assert [e["field"] for e in problem.get("errors", [])] == ([] if status == 404 else ["decision_id"])
