"""Asking for optimizations over HTTP: accepted, joined, refused by field, and only with the permission."""

from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest

from service.access.keys import Keys
from service.contracts.optimization import MOST_SIGNALS
from service.contracts.signals import RoutingTrainingSignal
from tests.conftest import World
from tests.contract.asking import UNKNOWN, assert_problem

SIGNAL = {
    "signal_id": UNKNOWN,
    "session_id": "s-1",
    "query": "who buys less",
    "query_pattern": "gap_analysis",
    "intent": "prediction",
    "routing_confidence": 0.5,
    "routing_rationale": "because",
}
WISH: dict[str, Any] = {"agent_name": "gap_analyzer", "signature_name": "routing"}


def keys_of(**permissions: str) -> Keys:
    """Return a key for each tenant, named as the tenant, with these permissions."""
    return Keys.parse(",".join(f"{name}:{sha256(name.encode()).hexdigest()}:{may}" for name, may in permissions.items()))


async def test_a_wish_is_accepted_and_can_be_looked_at(world: World) -> None:
    """202 with the request, and where to look at it."""
    async with world.client() as client:
        accepted = await client.post("/optimizations", json={**WISH, "priority": "high", "training_signals": [SIGNAL]})
        found = await client.get(accepted.headers["location"])
        listed = await client.get("/optimizations", params={"status": "pending"})

    assert accepted.status_code == 202
    assert found.json() == accepted.json()
    assert listed.json() == [accepted.json()]
    said = {"status": "pending", "priority": "high", "asked": 1, "signals": 1, "tenant": "local"}
    assert {name: accepted.json()[name] for name in said} == said


async def test_the_answer_tells_that_a_wish_has_joined_another(world: World) -> None:
    """The same id, asked for twice, and nothing is listed twice."""
    async with world.client() as client:
        first, second = [(await client.post("/optimizations", json=WISH)).json() for _ in range(2)]
        listed = (await client.get("/optimizations")).json()

    assert (second["request_id"], second["asked"]) == (first["request_id"], 2)
    assert listed == [second]


async def test_a_thousand_whole_signals_fit(world: World) -> None:
    """As many as the contract says, each with every field that it has."""
    whole = RoutingTrainingSignal.model_validate(SIGNAL).model_dump(mode="json")
    signals = [{**whole, "signal_id": str(UUID(int=number))} for number in range(MOST_SIGNALS)]

    async with world.client() as client:
        accepted = await client.post("/optimizations", json={**WISH, "training_signals": signals})

    assert (accepted.status_code, accepted.json().get("signals")) == (202, MOST_SIGNALS)


async def test_the_orchestrator_can_ask_for_itself(world: World) -> None:
    """It is no agent of the catalogue."""
    async with world.client() as client:
        assert (await client.post("/optimizations", json={**WISH, "agent_name": "orchestrator"})).status_code == 202


WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, [("agent_name", "missing"), ("signature_name", "missing")]),
    "an agent that is none": ({**WISH, "agent_name": "nobody"}, [("agent_name", "unknown_agent")]),
    "an empty agent": ({**WISH, "agent_name": ""}, [("agent_name", "string_too_short")]),
    "a signature that is none": ({**WISH, "signature_name": "poetry"}, [("signature_name", "enum")]),
    "a priority that is none": ({**WISH, "priority": "urgent"}, [("priority", "enum")]),
    "signals that are no list": ({**WISH, "training_signals": SIGNAL}, [("training_signals", "tuple_type")]),
    "too many signals": ({**WISH, "training_signals": [SIGNAL] * 1_001}, [("training_signals", "too_long")]),
    "an unknown field": ({**WISH, "deadline": 3}, [("deadline", "extra_forbidden")]),
    "wrong signals": (
        {**WISH, "training_signals": [SIGNAL, {**SIGNAL, "signal_id": "7"}, {**SIGNAL, "routing_confidence": 2}]},
        [("training_signals[1].signal_id", "uuid_parsing"), ("training_signals[2].routing_confidence", "less_than_equal")],
    ),
}


@pytest.mark.parametrize(("said", "errors"), WRONG.values(), ids=WRONG.keys())
async def test_a_wish_that_breaks_the_contract_is_refused_by_field(
    world: World, said: dict[str, Any], errors: list[tuple[str, str]]
) -> None:
    """400 with every broken field, and nothing is kept."""
    async with world.client() as client:
        response = await client.post("/optimizations", json=said)

    problem = assert_problem(response, 400, "invalid_input")
    assert [(e["field"], e["kind"]) for e in problem["errors"]] == errors
    assert world.store.wishes == {}


@pytest.mark.parametrize(("method", "path"), [("POST", "/optimizations"), ("GET", "/optimizations"), ("GET", f"/optimizations/{UNKNOWN}")])
async def test_a_key_needs_the_permission(world: World, method: str, path: str) -> None:
    """403 that names it, whatever else the key may do; a stranger's 401 comes first."""
    world.keys = keys_of(acme="tier:* models:*", umbrella="routers:optimize")
    async with world.client() as client:
        denied = await client.request(method, path, json=WISH if method == "POST" else None, headers={"X-API-Key": "acme"})
        allowed = await client.request(method, path, json=WISH if method == "POST" else None, headers={"X-API-Key": "umbrella"})
        unknown = await client.request(method, path, json=WISH if method == "POST" else None)

    assert "routers:optimize" in assert_problem(denied, 403, "permission_denied")["detail"]
    assert allowed.status_code in {200, 202, 404}
    assert unknown.status_code == 401


async def test_a_tenant_sees_only_its_own(world: World) -> None:
    """Another tenant's request is not found, not listed and not joined."""
    world.keys = keys_of(acme="routers:*", umbrella="routers:*")
    mine, theirs = {"X-API-Key": "acme"}, {"X-API-Key": "umbrella"}
    async with world.client() as client:
        accepted = await client.post("/optimizations", json=WISH, headers=mine)
        other = await client.post("/optimizations", json=WISH, headers=theirs)

        assert_problem(await client.get(accepted.headers["location"], headers=theirs), 404, "not_found")
        assert (await client.get("/optimizations", headers=theirs)).json() == [other.json()]
        assert (other.json()["asked"], other.json()["request_id"] != accepted.json()["request_id"]) == (1, True)


async def test_what_nobody_asked_for_is_not_found(world: World) -> None:
    """404 for an id that is unknown, 400 for one that is none."""
    async with world.client() as client:
        assert_problem(await client.get(f"/optimizations/{uuid4()}"), 404, "not_found")
        assert_problem(await client.get("/optimizations/7"), 400, "invalid_input")


async def test_a_wish_that_cannot_be_kept_is_not_accepted(world: World) -> None:
    """503, to be tried again."""
    world.store.available = False
    async with world.client() as client:
        assert_problem(await client.post("/optimizations", json=WISH), 503, "store_unavailable", retryable=True)
