"""Every route over HTTP: what it gives, how it fails, and that what is stored is enough to make a decision again."""

import asyncio
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.api import routes
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.lm import Finding, LMFailure
from service.contracts.receipt import Receipt
from service.errors import ErrorCode, StoreUnavailable
from service.keys import Keys
from service.ports import AgentFailure
from service.programs import Router
from tests.conftest import World, body
from tests.fakes import MemoryStore, ScriptedAgents, ScriptedPredictors, down

UNKNOWN = "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11"
CAUSAL = "@causal_impact did the rep visits lift Kisqali TRx?"


def assert_problem(response: httpx.Response, status: int, code: str, *, retryable: bool = False) -> dict[str, Any]:
    """Check that a response is the problem expected, complete by RFC 9457, and return it."""
    problem: dict[str, Any] = response.json()
    assert response.status_code == status, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["code"], problem["retryable"]) == (status, code, retryable)
    assert problem["type"] == f"urn:pointsman:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    assert ("retry-after" in response.headers) is retryable
    return problem


def two_tenants() -> Keys:
    """Return the keys of two tenants, each key being the tenant's name."""
    return Keys.parse(",".join(f"{tenant}:{sha256(tenant.encode()).hexdigest()}:tier:*" for tenant in ("acme", "umbrella")))


async def answered(client: httpx.AsyncClient, text: str = CAUSAL, **parsed: Any) -> dict[str, Any]:
    """Post a question that must be answered."""
    response = await client.post("/orchestrate", json=body(text, **parsed))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


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
    assert (decision["action"], decision["primary_agent"], decision["secondary_agents"]) == ("dispatch", "causal_impact", ["explainer"])
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
    assert receipt["stages"]["gate"]["chain"] == ["causal_impact", "explainer"]
    assert receipt["stages"]["dispatch"][0]["handoff"]["result"]["confidence"] == 0.9
    assert receipt["signal"]["agents_selected"] == ["causal_impact"]


@pytest.mark.parametrize(("path", "status"), [(UNKNOWN, 404), ("q-123", 400), ("%00", 400), (UNKNOWN + "0", 400)])
async def test_a_decision_that_is_none_is_a_problem(world: World, path: str, status: int) -> None:
    """404 for an id that is not stored, 400 for what is no id."""
    async with world.client() as client:
        response = await client.get(f"/decisions/{path}")

    problem = assert_problem(response, status, "not_found" if status == 404 else "invalid_input")
    assert [e["field"] for e in problem.get("errors", [])] == ([] if status == 404 else ["decision_id"])


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


# The catalogue: the specification's routing table and timeout table, written down once more.

ROUTING_TABLE = {
    "causal_impact": ("causal_impact", ["explainer"]),
    "gap_analysis": ("gap_analyzer", ["resource_optimizer"]),
    "heterogeneous": ("heterogeneous_optimizer", ["prediction_synthesizer"]),
    "experiment_design": ("experiment_designer", ["causal_impact"]),
    "prediction": ("prediction_synthesizer", ["explainer", "model_deployer"]),
    "explanation": ("explainer", []),
    "health_check": ("health_score", ["drift_monitor", "observability_connector"]),
    "drift_check": ("drift_monitor", ["health_score", "data_preparer"]),
    "resource_optimize": ("resource_optimizer", ["gap_analyzer"]),
    "ml_training": ("scope_definer", ["data_preparer", "model_selector", "model_trainer"]),
    "feature_analysis": ("feature_analyzer", ["explainer"]),
    "model_deploy": ("model_deployer", ["model_trainer"]),
}
TIER = {
    **dict.fromkeys(["causal_impact", "gap_analyzer", "heterogeneous_optimizer"], 2),
    **dict.fromkeys(["experiment_designer", "health_score", "drift_monitor", "observability_connector"], 3),
    **dict.fromkeys(["prediction_synthesizer", "resource_optimizer"], 4),
    "explainer": 5,
    **dict.fromkeys(["scope_definer", "data_preparer", "model_selector", "model_trainer", "feature_analyzer", "model_deployer"], 0),
}
TIMEOUTS = {2: (120_000, 2, "explainer"), 3: (60_000, 2, "health_score"), 4: (20_000, 3, "explainer"), 5: (180_000, 1, "template")}


async def test_the_intents_are_the_routing_table(world: World) -> None:
    """Every intent of the specification with its primary and supporting agents, and no other."""
    async with world.client() as client:
        listed = (await client.get("/intents")).json()

    assert {i["name"]: (i["primary_agent"], i["supporting_agents"]) for i in listed} == ROUTING_TABLE
    assert all(i["description"] for i in listed)


async def test_the_agents_are_those_of_the_tiers(world: World) -> None:
    """Tier, timeout, retries, fallback and priority by the specification; health_score falls back to the explainer, not to itself."""
    async with world.client() as client:
        listed = {a["name"]: a for a in (await client.get("/agents")).json()}

    assert {name: a["tier"] for name, a in listed.items()} == TIER
    for name, agent in listed.items():
        limits = (agent["timeout_ms"], agent["max_retries"], agent["fallback"])
        if agent["tier"] == 0:
            assert limits[1:] == (1, None), name
            assert agent["timeout_ms"] > 0
        else:
            assert limits == (TIMEOUTS[agent["tier"]] if name != "health_score" else (60_000, 2, "explainer")), name
        assert agent["priority"] == (1 if agent["critical_path"] else 2 + agent["tier"])
        assert agent["intents"] == [i for i, (primary, _) in ROUTING_TABLE.items() if primary == name]
        assert agent["available"] is True


async def test_an_agent_that_is_away_is_listed_as_such(world: World) -> None:
    """Availability is what the agents' client knows now."""
    world.agents.unavailable = {"drift_monitor"}
    async with world.client() as client:
        listed = (await client.get("/agents")).json()

    assert [a["name"] for a in listed if not a["available"]] == ["drift_monitor"]


# Operations


async def test_the_service_is_ready_with_a_router_and_a_store(world: World) -> None:
    """200, with the router's version, the rungs in use and what is missing for the LM rung."""
    async with world.client() as client:
        response = await client.get("/readyz")

    ready = response.json()
    assert response.status_code == 200
    assert (ready["ready"], ready["router_version"], ready["store"], ready["lm"]) == (True, "test", "ok", None)
    assert ready["rungs"] == ["rules", "student", "safe_default"]
    assert "POINTSMAN_LM" in ready["notes"][0]


async def test_without_a_router_the_service_is_alive_but_not_ready(world: World) -> None:
    """503 that says what to run; `/healthz` stays 200, and questions are answered by the safe default with a warning."""
    world.router = None
    async with world.client() as client:
        ready, health = await client.get("/readyz"), await client.get("/healthz")
        answer = await answered(client, "Did the rep visits lift Kisqali TRx?")

    assert (ready.status_code, ready.json()["ready"], ready.json()["router_version"]) == (503, False, None)
    assert ready.json()["rungs"] == ["rules", "safe_default"]
    assert "optimize --bootstrap" in ready.json()["notes"][0]
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert (answer["agents_dispatched"], answer["rung"], answer["router_version"]) == (["explainer"], "safe_default", "none")
    assert [w["code"] for w in answer["warnings"]] == ["no_router"]


async def test_with_a_broken_store_the_service_is_not_ready(world: World) -> None:
    """503 with the store's own words; alive all the same."""
    world.store.available = False
    async with world.client() as client:
        ready, health = await client.get("/readyz"), await client.get("/healthz")

    assert (ready.status_code, ready.json()["ready"], ready.json()["router_version"]) == (503, False, "test")
    assert "unavailable" in ready.json()["store"]
    assert health.status_code == 200


class SilentStore(MemoryStore):
    """A store that never answers."""

    async def ping(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()


async def test_a_probe_does_not_wait_for_a_store_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 within the probe's own limit."""
    monkeypatch.setattr(routes, "READY_SECONDS", 0.05)
    world.store = SilentStore()
    async with world.client() as client:
        ready = await asyncio.wait_for(client.get("/readyz"), 5)

    assert (ready.status_code, ready.json()["ready"], ready.json()["store"]) == (503, False, "does not answer")


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the metrics by name and labels, read by Prometheus' own parser."""
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(response.text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


async def test_the_metrics_tell_of_every_stage_agent_and_decision(world: World) -> None:
    """One question, one count in each series; all names begin with `orchestrator_`, and no label holds the question."""
    world.agents.script = {"causal_impact": [down()]}
    async with world.client() as client:
        before = await samples(client)

        await answered(client)
        after = await samples(client)

    def count(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert all(name.startswith("orchestrator_") for name, _ in after)
    assert count("orchestrator_decisions_total", action="dispatch", intent="causal_impact", agent="causal_impact", rung="rules") == 1
    assert count("orchestrator_request_seconds_count", status="partial") == 1
    assert count("orchestrator_agent_seconds_count", agent="causal_impact", outcome="agent_unavailable") == 1
    assert count("orchestrator_agent_seconds_count", agent="explainer", outcome="success") == 1
    assert count("orchestrator_warnings_total", code="agent_unavailable") == 1
    assert count("orchestrator_warnings_total", code="fallback_used") == 1
    for stage, outcome in (("triage", "ok"), ("intent", "ok"), ("routing", "rules"), ("gate", "dispatch"), ("dispatch", "answered")):
        assert count("orchestrator_stage_seconds_count", stage=stage, outcome=outcome) == 1, stage
    assert count("orchestrator_stage_seconds_count", stage="synthesis", outcome="partial") == 1
    assert count("orchestrator_stage_seconds_count", stage="commit", outcome="ok") == 1
    assert after["orchestrator_router_loaded", frozenset()] == 1.0
    assert not any("Kisqali" in value for _, labels in after for _, value in labels)


async def test_the_documentation_needs_no_network(world: World) -> None:
    """`/docs` names no address of another host, and everything that it loads comes from this service."""
    async with world.client() as client:
        page = await client.get("/docs")
        loaded = re.findall(r"""(?:src|href|url)["']?\s*[=:]\s*["']([^"']+)["']""", page.text)

        assert page.status_code == 200
        assert "//" not in re.sub(r"^\s*//.*$|<!--.*?-->", "", page.text, flags=re.MULTILINE)
        assert {name.rpartition("/")[2] for name in loaded} >= {"swagger-ui.css", "swagger-ui-bundle.js", "openapi.json"}
        for address in loaded:
            assert address.startswith("/")
            assert (await client.get(address)).status_code == 200, address


# Ids of requests


async def test_the_callers_request_id_comes_back(world: World) -> None:
    """In the header of every answer, and in the body of a problem."""
    async with world.client() as client:
        fine = await client.get("/healthz", headers={"X-Request-ID": "a.B:c_d-1"})
        bad = await client.get("/decisions/x", headers={"X-Request-ID": "a.B:c_d-1"})

    assert fine.headers["x-request-id"] == "a.B:c_d-1"
    assert bad.headers.get_list("x-request-id") == ["a.B:c_d-1"]
    assert bad.json()["request_id"] == "a.B:c_d-1"


@pytest.mark.parametrize(
    "given", ["", "a b", "a\tb", 'a"b', "a;b", "<script>", "ä", "a" * 129, "a,b", "../x", "%0d%0aSet-Cookie:x"], ids=repr
)
async def test_a_request_id_that_could_do_harm_is_replaced(world: World, given: str) -> None:
    """By a new one; what was sent is nowhere in the answer."""
    async with world.client() as client:
        response = await client.get("/decisions/x", headers=[(b"X-Request-ID", given.encode("latin-1"))])

    assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])
    assert response.json()["request_id"] == response.headers["x-request-id"]


# Failures behind a request


class CommitFails(MemoryStore):
    """A store that reads but does not write."""

    async def commit(self, receipt: Receipt) -> Receipt:
        """Fail."""
        raise StoreUnavailable("The disk is full.")


@pytest.mark.parametrize("text", [CAUSAL, "hello"], ids=["dispatched", "social"])
async def test_without_a_store_nothing_is_dispatched(world: World, text: str) -> None:
    """503 that may be retried; the agents were not asked and nothing is kept."""
    world.store.available = False
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body(text))

    assert_problem(response, 503, "store_unavailable", retryable=True)
    assert (world.agents.sent, world.store.receipts) == ([], {})


async def test_an_answer_that_cannot_be_kept_is_not_given(world: World) -> None:
    """A commit that fails is 503: neither the answer nor a half of the receipt is seen, and no decision is counted."""
    world.store = CommitFails()
    question = body(CAUSAL)
    async with world.client() as client:
        response = await client.post("/orchestrate", json=question)
        counted = {name for name, _ in await samples(client)}

        problem = assert_problem(response, 503, "store_unavailable", retryable=True)
        assert "finds 42" not in str(problem)
        assert world.store.receipts == {}
        said = {"query_id": question["parsed_query"]["query_id"], "user_satisfaction": 5}
        assert_problem(await client.post("/feedback", json=said), 404, "not_found")
    assert "orchestrator_decisions_total" not in counted


@pytest.mark.parametrize(
    ("method", "path", "payload"),
    [("GET", f"/decisions/{UNKNOWN}", None), ("POST", "/feedback", {"decision_id": UNKNOWN, "user_satisfaction": 4})],
    ids=["decision", "feedback"],
)
async def test_what_reads_the_store_says_so_when_it_is_away(world: World, method: str, path: str, payload: dict[str, Any] | None) -> None:
    """503 that may be retried, not 404: that something is not there cannot be said now."""
    world.store.available = False
    async with world.client() as client:
        assert_problem(await client.request(method, path, json=payload), 503, "store_unavailable", retryable=True)


class BrokenStudent:
    """A student that cannot read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, text: str) -> Any:
        """Fail."""
        raise self.error


ERRORS = [
    RuntimeError("secret words"),
    KeyError("x"),
    ValueError("x"),
    ZeroDivisionError(),
    RecursionError(),
    MemoryError(),
    TimeoutError(),
]


@pytest.mark.parametrize("path", ["/orchestrate", "/route"])
@pytest.mark.parametrize("error", ERRORS, ids=[type(e).__name__ for e in ERRORS])
async def test_when_routing_breaks_the_explainer_answers(world: World, error: Exception, path: str) -> None:
    """The contract's ROUTING_FAILED: the default agent, a warning, no trace of the error, and a receipt as for any other request."""
    assert world.router is not None
    world.router = replace(world.router, student=BrokenStudent(error))
    async with world.client() as client:
        response = await client.post(path, json=body())

    answer = response.json()
    assert response.status_code == 200
    assert [w["code"] for w in answer["warnings"]] == ["routing_failed"]
    assert (answer["intent"], answer["rung"], answer["router_version"]) == ("explanation", "safe_default", "test")
    assert "secret words" not in response.text
    if path == "/orchestrate":
        assert (answer["status"], answer["agents_dispatched"]) == ("success", ["explainer"])
        assert len(world.store.receipts) == 1
    else:
        assert answer["primary_agent"] == "explainer"


async def test_a_router_that_knows_other_intents_is_no_500(world: World, router: Router) -> None:
    """A student whose label the catalogue lacks breaks routing, not the service."""

    class Foreign(BrokenStudent):
        def read(self, text: str) -> Any:
            return type("Reading", (), {"probabilities": {"astrology": 0.99}, "oos_score": 0.0, "vector": None})()

        def nearest(self, vector: Any, count: int) -> list[Any]:
            return []

    world.router = replace(router, student=Foreign(RuntimeError()))
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body())

    assert response.status_code == 200
    assert "routing_failed" in [w["code"] for w in response.json()["warnings"]]


class BrokenComposer(ScriptedPredictors):
    """An LM rung with a bug: wording raises, which the port forbids."""

    async def compose(self, query: str, findings: Any, *, timeout: float) -> str | LMFailure:
        """Fail."""
        raise RuntimeError(f"secret words about {[f.summary for f in findings if isinstance(f, Finding)]}")


async def test_when_merging_breaks_the_results_are_returned_as_they_are(world: World) -> None:
    """The contract's SYNTHESIS_FAILED: partial, with a caveat, and what the agents brought is in the results."""
    world.predictors = BrokenComposer(LMFailure(reason="error", detail="x"))
    async with world.client() as client:
        answer = await answered(client)

    assert answer["status"] == "partial"
    assert [w["code"] for w in answer["warnings"]] == ["synthesis_failed"]
    assert answer["response_text"] == answer["warnings"][0]["message"]
    assert answer["response_confidence"] == 0.0
    assert answer["agents_dispatched"] == ["causal_impact"]
    assert answer["agent_results"][0]["result"]["primary_output"]["summary"] == "causal_impact finds 42."
    assert "secret words" not in str(answer)


AGENT_ENDS: dict[str, tuple[AgentFailure | HandoffStatus, str, list[str]]] = {
    "success": (HandoffStatus.SUCCESS, "success", []),
    "partial": (HandoffStatus.PARTIAL, "partial", []),
    "blocked": (HandoffStatus.BLOCKED, "failed", ["qc_gate_blocked"]),
    "failed": (HandoffStatus.FAILED, "partial", ["agent_error", "fallback_used"]),
    "down": (down(), "partial", ["agent_unavailable", "fallback_used"]),
    "late": (down(ErrorCode.AGENT_TIMEOUT), "partial", ["agent_timeout", "fallback_used"]),
}


@pytest.mark.parametrize(("end", "status", "codes"), AGENT_ENDS.values(), ids=AGENT_ENDS.keys())
async def test_however_an_agent_ends_there_is_an_answer(
    world: World, end: AgentFailure | HandoffStatus, status: str, codes: list[str]
) -> None:
    """200 with a status and a warning for each thing that went wrong; the explainer stands in, but not for a blocked gate."""
    world.agents.script = {"causal_impact": [end]}
    async with world.client() as client:
        answer = await answered(client)

    assert answer["status"] == status
    assert [w["code"] for w in answer["warnings"]] == codes
    assert answer["agents_dispatched"] == ["causal_impact", *(["explainer"] if "fallback_used" in codes else [])]


async def test_when_no_agent_is_left_a_fixed_text_stands_in(world: World) -> None:
    """The end of every chain of tiers 2 to 5: failed, with the template answer, still 200."""
    world.agents.unavailable = {"causal_impact", "explainer"}
    async with world.client() as client:
        answer = await answered(client)

    assert (answer["status"], answer["agents_dispatched"], answer["response_confidence"]) == ("failed", [], 0.0)
    assert answer["response_text"].startswith("No agent could answer this request")
    assert [w["code"] for w in answer["warnings"]] == ["agent_unavailable", "agent_unavailable", "template_answer"]


class BuggyAgents(ScriptedAgents):
    """An agent client with a bug."""

    async def send(self, agent: Agent, dispatch: AgentDispatch, *, timeout: float, deadline_ms: int) -> AgentHandoff | AgentFailure:
        """Fail."""
        raise RuntimeError("secret words")


async def test_what_nobody_foresaw_is_a_problem_without_a_traceback(world: World) -> None:
    """500 with the id to find it by in the log, and nothing of the error; nothing is kept."""
    world.agents = BuggyAgents()
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body(CAUSAL), headers={"X-Request-ID": "trace-1"})

    problem = assert_problem(response, 500, "internal_error")
    assert problem["request_id"] == "trace-1"
    assert not any(words in response.text for words in ("secret words", "Traceback", "RuntimeError", "rep visits"))
    assert world.store.receipts == {}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/nothing", 404, "not_found"),
        ("POST", "/orchestrate/", 404, "not_found"),
        ("GET", "/decisions", 404, "not_found"),
        ("GET", f"/decisions/{uuid4()}/", 404, "not_found"),
        ("GET", "/orchestrate", 405, "method_not_allowed"),
        ("PUT", "/orchestrate", 405, "method_not_allowed"),
        ("DELETE", f"/decisions/{uuid4()}", 405, "method_not_allowed"),
        ("POST", "/agents", 405, "method_not_allowed"),
        ("OPTIONS", "/route", 405, "method_not_allowed"),
    ],
)
async def test_what_there_is_not_is_a_problem_too(world: World, method: str, path: str, status: int, code: str) -> None:
    """Unknown paths are 404 and other methods 405 with `Allow`, whatever body they carry; no redirect, no echo of the path in the text."""
    async with world.client() as client:
        response = await client.request(method, path, content=b"x" if method == "POST" else None)

    problem = assert_problem(response, status, code)
    assert path.strip("/") == "" or path not in problem["detail"]
    assert ("allow" in response.headers) is (status == 405)
