"""Feedback over HTTP: merged, refused, and kept apart by tenant."""

from typing import Any
from uuid import UUID

import pytest

from tests.conftest import World, body
from tests.contract.asking import CAUSAL, UNKNOWN, answered, assert_problem, two_tenants

# Feedback


async def test_feedback_is_merged_into_the_signal_and_changes_the_reward(world: World) -> None:
    """Each kind by its weight of the specification; what is not said stays as it was, what is said again is replaced."""
    async with world.client() as client:
        answer = await answered(client)
        decision, budget = answer["decision_id"], world.store.receipts[UUID(answer["decision_id"])].signal.latency_budget_ms
        efficiency = 1.0 - answer["total_latency_ms"] / (budget or 1)

        async def say(**said: Any) -> float:
            response = await client.post("/feedback", json=said)
            receipt = (await client.get(f"/decisions/{decision}")).json()
            assert response.status_code == 200, response.text
            assert response.json() == {
                "decision_id": decision,
                "signal_id": receipt["signal"]["signal_id"],
                "reward": receipt["reward"],
            }
            reward: float = response.json()["reward"]
            return reward

        def expected(satisfaction: float, rerouted: bool) -> float:
            return 0.35 + 0.25 * efficiency + 0.2 * (not rerouted) + 0.2 * (satisfaction - 1) / 4

        assert await say(decision_id=decision, user_satisfaction=1) == pytest.approx(expected(1, False))
        assert await say(query_id=answer["query_id"], user_satisfaction=5) == pytest.approx(expected(5, False))
        assert await say(decision_id=decision, answer_quality=0.0) == pytest.approx(expected(5, False))
        assert await say(decision_id=decision, corrected_agent="causal_impact") == pytest.approx(expected(5, False))
        assert await say(decision_id=decision, corrected_agent="gap_analyzer") == pytest.approx(expected(5, True))
        assert await say(query_id=answer["query_id"], was_rerouted=False) == pytest.approx(expected(5, False))

    signal = world.store.receipts[UUID(decision)].signal
    assert (signal.user_satisfaction, signal.answer_quality, signal.was_rerouted, signal.corrected_agent) == (5, 0.0, False, "gap_analyzer")


FEEDBACK: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, [("body", "value_error")]),
    "no decision": ({"user_satisfaction": 4}, [("body", "value_error")]),
    "both ids": ({"decision_id": UNKNOWN, "query_id": UNKNOWN, "user_satisfaction": 4}, [("body", "value_error")]),
    "nothing said": ({"decision_id": UNKNOWN}, [("body", "value_error")]),
    "only nulls said": (
        {"decision_id": UNKNOWN, "user_satisfaction": None, "answer_quality": None, "was_rerouted": None, "corrected_agent": None},
        [("body", "value_error")],
    ),
    "an id that is none": ({"decision_id": "q-123", "user_satisfaction": 4}, [("decision_id", "uuid_parsing")]),
    "a query id that is none": ({"query_id": 7, "user_satisfaction": 4}, [("query_id", "uuid_type")]),
    "satisfaction below 1": ({"decision_id": UNKNOWN, "user_satisfaction": 0}, [("user_satisfaction", "greater_than_equal")]),
    "satisfaction above 5": ({"decision_id": UNKNOWN, "user_satisfaction": 5.01}, [("user_satisfaction", "less_than_equal")]),
    "satisfaction in words": ({"decision_id": UNKNOWN, "user_satisfaction": "good"}, [("user_satisfaction", "float_type")]),
    "satisfaction as text": ({"decision_id": UNKNOWN, "user_satisfaction": "4"}, [("user_satisfaction", "float_type")]),
    "quality below 0": ({"decision_id": UNKNOWN, "answer_quality": -0.1}, [("answer_quality", "greater_than_equal")]),
    "quality above 1": ({"decision_id": UNKNOWN, "answer_quality": 1.1}, [("answer_quality", "less_than_equal")]),
    "quality true": ({"decision_id": UNKNOWN, "answer_quality": True}, [("answer_quality", "float_type")]),
    "quality a list": ({"decision_id": UNKNOWN, "answer_quality": []}, [("answer_quality", "float_type")]),
    "rerouted in words": ({"decision_id": UNKNOWN, "was_rerouted": "yes"}, [("was_rerouted", "bool_type")]),
    "an empty agent": ({"decision_id": UNKNOWN, "corrected_agent": ""}, [("corrected_agent", "string_too_short")]),
    "a long agent": ({"decision_id": UNKNOWN, "corrected_agent": "x" * 257}, [("corrected_agent", "string_too_long")]),
    "an agent that is a number": ({"decision_id": UNKNOWN, "corrected_agent": 3}, [("corrected_agent", "string_type")]),
    "an agent that is none": ({"decision_id": UNKNOWN, "corrected_agent": "nobody"}, [("corrected_agent", "unknown_agent")]),
    "an unknown field": ({"decision_id": UNKNOWN, "was_rerouted": True, "stars": 5}, [("stars", "extra_forbidden")]),
    "several": (
        {"decision_id": "x", "user_satisfaction": 9, "answer_quality": 9},
        [("decision_id", "uuid_parsing"), ("user_satisfaction", "less_than_equal"), ("answer_quality", "less_than_equal")],
    ),
}


@pytest.mark.parametrize(("said", "errors"), FEEDBACK.values(), ids=FEEDBACK.keys())
async def test_feedback_that_breaks_the_contract_is_refused_by_field(
    world: World, said: dict[str, Any], errors: list[tuple[str, str]]
) -> None:
    """400 with every broken field."""
    async with world.client() as client:
        response = await client.post("/feedback", json=said)

    problem = assert_problem(response, 400, "invalid_input")
    assert [(e["field"], e["kind"]) for e in problem["errors"]] == errors


@pytest.mark.parametrize("key", ["decision_id", "query_id"])
async def test_feedback_on_nothing_is_not_found(world: World, key: str) -> None:
    """404, whichever id is given."""
    async with world.client() as client:
        assert_problem(await client.post("/feedback", json={key: UNKNOWN, "user_satisfaction": 4}), 404, "not_found")


async def test_a_tenant_sees_and_changes_only_its_own(world: World) -> None:
    """Another tenant's decision is not found, to read or to rate, by either id; and its reward stays."""
    world.keys = two_tenants()
    async with world.client() as client:
        mine, theirs = {"X-API-Key": "acme"}, {"X-API-Key": "umbrella"}
        answer = (await client.post("/orchestrate", json=body(CAUSAL), headers=mine)).json()
        decision, query = answer["decision_id"], answer["query_id"]
        reward = world.store.receipts[UUID(decision)].reward

        for ids in ({"decision_id": decision}, {"query_id": query}):
            said = {**ids, "user_satisfaction": 1}
            assert_problem(await client.post("/feedback", json=said, headers=theirs), 404, "not_found")
        assert_problem(await client.get(f"/decisions/{decision}", headers=theirs), 404, "not_found")

        assert world.store.receipts[UUID(decision)].reward == reward
        assert (await client.get(f"/decisions/{decision}", headers=mine)).json()["tenant"] == "acme"
        assert (await client.post("/feedback", json={"query_id": query, "user_satisfaction": 1}, headers=mine)).json()["reward"] < reward
