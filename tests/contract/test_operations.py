"""Listing, probing, metrics, documentation and request ids."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.access.stored_keys import StoredKeys
from service.api import routes
from service.contracts.access import ApiKey
from service.errors import StoreUnavailable
from tests.conftest import World
from tests.contract.asking import answered
from tests.fakes import MemoryStore, down, take_away

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
    """Availability is what its circuit breaker says now."""
    take_away(world.health, world.catalog.agent["drift_monitor"])
    async with world.client() as client:
        listed = (await client.get("/agents")).json()

    assert [(a["name"], a["breaker"]) for a in listed if not a["available"]] == [("drift_monitor", "open")]


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


async def test_intents_without_labelled_requests_are_noted(world: World) -> None:
    """Ready all the same: they are told by their descriptions; none is noted where each has some."""
    known = world.catalog.intents[0]
    async with world.client() as client:
        covered = (await client.get("/readyz")).json()
    world.catalog = replace(world.catalog, intents=(*world.catalog.intents, known.model_copy(update={"name": "shipping"})))

    async with world.client() as client:
        ready = (await client.get("/readyz")).json()

    assert ready["ready"]
    assert ready["notes"][:-1] == covered["notes"]
    assert ready["notes"][-1].endswith("shipping.")


async def test_without_a_router_the_service_is_alive_but_not_ready(world: World) -> None:
    """503 that says what to run; `/healthz` stays 200, and questions are answered by the safe default with a warning."""
    world.router = None
    async with world.client() as client:
        ready, health = await client.get("/readyz"), await client.get("/healthz")
        answer = await answered(client, "Did the rep visits lift Kisqali TRx?")

    assert (ready.status_code, ready.json()["ready"], ready.json()["router_version"]) == (503, False, None)
    assert ready.json()["rungs"] == ["rules", "safe_default"]
    assert "pointsman doctor" in ready.json()["notes"][0]
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


async def test_while_nobody_knows_who_may_come_in_the_service_is_not_ready(world: World, tmp_path: Path) -> None:
    """Every request would be refused: no load balancer should send one."""

    async def away() -> dict[str, ApiKey]:
        raise StoreUnavailable("The database is away.")

    world.stored = StoredKeys(away, tmp_path / "keys.json", "db")
    await world.stored.open()
    async with world.client() as client:
        ready, asked = await client.get("/readyz"), await client.get("/agents")

    assert (ready.status_code, asked.status_code) == (503, 503)
    assert "API keys cannot be read" in ready.json()["store"]


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
    decided = {"action": "dispatch", "intent": "causal_impact", "agent": "causal_impact", "rung": "rules", "version": "test"}
    assert count("orchestrator_decisions_total", **decided) == 1
    assert count("orchestrator_decision_seconds_count", rung="rules") == 1
    assert count("orchestrator_fallbacks_total", agent="causal_impact", reason="agent_unavailable") == 1
    assert count("orchestrator_responses_total", method="POST", route="/orchestrate", status="200") == 1
    assert count("orchestrator_signals_total", rewarded="no") == 1  # that an agent is away says nothing about the choice
    assert after["orchestrator_router_version", frozenset({"version": "test"}.items())] == 1.0
    assert count("orchestrator_request_seconds_count", status="partial") == 1
    assert count("orchestrator_agent_seconds_count", agent="causal_impact", outcome="agent_unavailable", attempt="first") == 1
    assert count("orchestrator_agent_seconds_count", agent="explainer", outcome="success", attempt="first") == 1
    assert after["orchestrator_agent_breaker", frozenset({"agent": "explainer", "state": "closed"}.items())] == 1.0
    assert count("orchestrator_warnings_total", code="agent_unavailable") == 1
    assert count("orchestrator_warnings_total", code="fallback_used") == 1
    for stage, outcome in (("triage", "ok"), ("intent", "ok"), ("routing", "rules"), ("gate", "dispatch"), ("dispatch", "answered")):
        assert count("orchestrator_stage_seconds_count", stage=stage, outcome=outcome) == 1, stage
    assert count("orchestrator_stage_seconds_count", stage="synthesis", outcome="partial") == 1
    assert count("orchestrator_stage_seconds_count", stage="commit", outcome="ok") == 1
    assert after["orchestrator_router_loaded", frozenset()] == 1.0
    assert not any("Kisqali" in value for _, labels in after for _, value in labels)


async def test_every_answer_is_counted_by_its_route_and_a_problem_by_its_code(world: World) -> None:
    """Nobody makes up a series: what no route takes is counted as such, and a method that there is not as another."""
    async with world.client() as client:
        before = await samples(client)
        await client.post("/orchestrate", json={"parsed_query": {}})
        await client.post("/orchestrate", content=b"x" * 2_000_000, headers={"Content-Type": "application/json"})
        await client.get("/decisions/6b8d1f3e-52c0-4a7e-9d35-0c1f7a94e2b6")
        await client.get("/no/such/place")
        await client.request("BREW", "/orchestrate")
        after = await samples(client)

    def count(name: str, **labels: str) -> float:
        key = (f"orchestrator_{name}_total", frozenset(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert count("responses", method="POST", route="/orchestrate", status="400") == 1
    assert count("problems", route="/orchestrate", code="invalid_input") == 1
    assert count("problems", route="none", code="body_too_large") == 1  # refused before any route was looked for
    assert count("problems", route="/decisions/{decision_id}", code="not_found") == 1
    assert count("responses", method="GET", route="none", status="404") == 1
    assert [dict(labels)["status"] for (name, labels) in after if name.endswith("_total") and ("method", "other") in labels] == ["405"]


async def test_what_nobody_foresaw_is_counted_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert on 500 would see nothing otherwise."""

    async def break_down(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.store, "by_decision", break_down)
    async with world.client() as client:
        answer = await client.get("/decisions/6b8d1f3e-52c0-4a7e-9d35-0c1f7a94e2b6")
        after = await samples(client)

    labels = frozenset({"method": "GET", "route": "/decisions/{decision_id}", "status": "500"}.items())
    assert answer.status_code == 500
    assert after["orchestrator_responses_total", labels] == 1.0
    problem = frozenset({"route": "/decisions/{decision_id}", "code": answer.json()["code"]}.items())
    assert after["orchestrator_problems_total", problem] == 1.0


TEXT, OPEN = "text/plain", "application/openmetrics-text"
PARAMETERS = ["version=abc", "version=x.y.z", "version=", "version=999.9", "version=-1", "version=1.0.0.0.0", "version=\xe9"]
PARAMETERS += ["escaping=zzz", "q=abc", "=;=", f"version={'9' * 5_000}"]
ACCEPTED = {
    **{f"{kind}; {odd}": kind for kind in (TEXT, OPEN) for odd in PARAMETERS},
    f"{OPEN}; version=1.0.0; escaping=allow-utf-8; q=0.6, {OPEN}; version=0.0.1; q=0.5, {TEXT}; version=0.0.4; q=0.2": OPEN,
    "Application/OpenMetrics-Text": OPEN,
    f"{TEXT}; version=1.0.0; escaping=allow-utf-8": TEXT,
    "text/html, application/json;q=0.9": TEXT,
    "*/*": TEXT,
    "": TEXT,
    "\xff\xfe;,;=,": TEXT,
    "text/plain," * 2_000: TEXT,
}


@pytest.mark.parametrize(("accept", "kind"), ACCEPTED.items(), ids=[ascii(a[:60]) for a in ACCEPTED])
async def test_whatever_is_accepted_there_are_metrics(world: World, accept: str, kind: str) -> None:
    """In one of two formats, and nothing of what was asked for comes back."""
    async with world.client() as client:
        response = await client.get("/metrics", headers=[(b"Accept", accept.encode("latin-1")), (b"Accept", b"a/b; version=c")])

    assert response.status_code == 200
    assert re.fullmatch(rf"{kind}; version=[01]\.0\.[04]; charset=utf-8", response.headers["content-type"])
    assert "orchestrator_router_loaded 1.0" in response.text


async def test_feedback_is_counted_by_what_it_tells(world: World) -> None:
    """Each kind once; what is not known to the service is not counted."""
    async with world.client() as client:
        output = await answered(client)
        feedback = {"decision_id": output["decision_id"], "user_satisfaction": 4, "corrected_agent": "explainer"}
        assert (await client.post("/feedback", json=feedback)).status_code == 200
        assert (await client.post("/feedback", json=feedback | {"decision_id": output["query_id"]})).status_code == 404
        after = await samples(client)

    told = {dict(labels)["kind"]: value for (name, labels), value in after.items() if name == "orchestrator_feedback_total"}
    assert told == {"user_satisfaction": 1.0, "corrected_agent": 1.0}
    assert after["orchestrator_signals_total", frozenset({"rewarded": "yes"}.items())] == 1.0
    assert after["orchestrator_reward_count", frozenset()] == 1.0
    assert after["orchestrator_confidence_count", frozenset({"outcome": "answered"}.items())] == 1.0


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
