"""The validation table and every field rule, over HTTP: 400 by field, or repaired with a warning."""

import json
import re
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from pydantic import BaseModel

from service.catalog.model import Catalog
from service.contracts.query import (
    MAX_ENTITIES_READ,
    ConversationTurn,
    OrchestratorInput,
    ParsedEntity,
    ParsedQuery,
    Preferences,
)
from service.programs import Router
from tests.conftest import World
from tests.contract.validation_rows import ACCEPTED, BRAND, ENTITY, MISSING, NO_OBJECT, PATHS, REFUSED, TURN, WISHES, changed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def shared(catalog: Catalog, router: Router) -> World:
    """One world for the module: what is refused leaves no trace in it, and every accepted body has its own query id."""
    return World(catalog, router)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(shared: World) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the shared world."""
    async with shared.client() as opened:
        yield opened


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Post a body that must be accepted and return the answer."""
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def assert_refused(response: httpx.Response, expected: list[tuple[str, str]]) -> None:
    """Check that a response is a 400 problem that lists exactly these fields and kinds."""
    problem = response.json()
    assert response.status_code == 400, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["code"] == "invalid_input"
    assert problem["status"] == 400
    assert problem["request_id"] == response.headers["x-request-id"]
    assert [(e["field"], e["kind"]) for e in problem["errors"]] == expected
    assert all(e["message"] for e in problem["errors"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("field", "value", "kind"), [row[:3] for row in REFUSED], ids=[row[3] for row in REFUSED])
async def test_a_field_that_breaks_its_rule_is_refused_by_name(
    client: httpx.AsyncClient, shared: World, path: str, field: str, value: Any, kind: str
) -> None:
    """One broken field gives 400 and exactly that field; nothing is dispatched or stored."""
    before = len(shared.agents.sent), len(shared.store.receipts)

    response = await client.post(path, json=changed((field, value)))

    assert_refused(response, [(field, kind)])
    if kind != "extra_forbidden":
        assert field in response.json()["detail"]
    assert (len(shared.agents.sent), len(shared.store.receipts)) == before


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("field", "value"), ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_what_may_be_left_out_or_lies_on_a_limit_is_accepted_without_a_warning(
    client: httpx.AsyncClient, path: str, field: str, value: Any
) -> None:
    """The other side of every rule: nothing that the contract allows is refused, and nothing of it is repaired."""
    answer = await post(client, path, changed((field, value)))

    assert not {w["code"] for w in answer["warnings"]} & {"unknown_intent", "confidence_clamped", "entities_truncated"}


async def test_every_field_of_the_body_has_a_row() -> None:
    """A field that is added to the contract without a row in the table of refusals is named here."""
    listed = {re.sub(r"\[\d+\]", "", path) for path, *_ in REFUSED}

    assert _field_paths(OrchestratorInput) - listed == set()


def _field_paths(model: type[BaseModel], prefix: str = "") -> set[str]:
    parts = {"parsed_query": ParsedQuery, "entities": ParsedEntity, "conversation_history": ConversationTurn, "preferences": Preferences}
    paths = {f"{prefix}{name}" for name in model.model_fields}
    for name in model.model_fields.keys() & parts.keys():
        paths |= _field_paths(parts[name], f"{prefix}{name}.")
    return paths


@pytest.mark.parametrize("path", PATHS)
async def test_all_broken_fields_are_listed_at_once(client: httpx.AsyncClient, path: str) -> None:
    """A caller learns of every mistake from one answer, in the order of the contract."""
    broken = [
        ("parsed_query.query_id", "q-123", "uuid_parsing"),
        ("parsed_query.raw_query", None, "string_type"),
        (f"{ENTITY}.type", "colour", "enum"),
        (f"{ENTITY}.value", MISSING, "missing"),
        ("parsed_query.confidence", "high", "float_type"),
        ("parsed_query.timestamp", "2026-01-15T09:30:00", "value_error"),
        ("parsed_query.unheard_of", 1, "extra_forbidden"),
        ("user_id", "", "string_too_short"),
        ("session_id", MISSING, "missing"),
        (f"{TURN}.role", "robot", "literal_error"),
        (f"{WISHES}.max_latency_ms", 0, "greater_than_equal"),
        ("unheard_of", 1, "extra_forbidden"),
    ]

    response = await client.post(path, json=changed(*[(field, value) for field, value, _ in broken]))

    assert_refused(response, [(field, kind) for field, _, kind in broken])
    assert response.json()["detail"].startswith("12 fields broke the contract: parsed_query.query_id, ")


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT.keys())
async def test_a_body_that_is_no_object_is_refused_as_a_whole(client: httpx.AsyncClient, body: Any) -> None:
    """The field of such an error is called `body`."""
    response = await client.post("/orchestrate", content=json.dumps(body), headers={"content-type": "application/json"})

    assert_refused(response, [("body", "model_attributes_type")])


async def test_a_flood_of_broken_entities_is_listed_in_part(client: httpx.AsyncClient) -> None:
    """A hundred errors are shown, however many there are, and entities past a limit are not even checked."""
    response = await client.post("/route", json=changed(("parsed_query.entities", [1] * 200_000)))

    problem = response.json()
    assert response.status_code == 400
    assert len(problem["errors"]) == 100
    assert problem["detail"].startswith(f"{MAX_ENTITIES_READ} fields broke the contract")


TOO_MUCH = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")


NUMBERS = (
    "parsed_query.confidence",
    "parsed_query.context.kpi[2]",
    f"{ENTITY}.confidence",
    f"{WISHES}.required_confidence",
    f"{TURN}.unheard_of",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("literal", TOO_MUCH)
@pytest.mark.parametrize("field", NUMBERS)
async def test_numbers_that_are_not_finite_are_refused_wherever_they_stand(
    client: httpx.AsyncClient, path: str, field: str, literal: str
) -> None:
    """NaN and infinity are no JSON, and 1e999 is infinity: 400, even where the contract would take any value."""
    text = json.dumps(changed((field, "THE-NUMBER"))).replace('"THE-NUMBER"', literal)

    response = await client.post(path, content=text, headers={"content-type": "application/json"})

    assert_refused(response, [])
    assert "not valid JSON" in response.json()["detail"]


REPAIRED: dict[str, tuple[list[tuple[str, Any]], set[tuple[str, str]]]] = {
    "an unknown intent": ([("parsed_query.intent", "world_peace")], {("unknown_intent", "parsed_query.intent")}),
    "an intent in capitals": ([("parsed_query.intent", "GAP_ANALYSIS")], {("unknown_intent", "parsed_query.intent")}),
    "an empty intent": ([("parsed_query.intent", "")], {("unknown_intent", "parsed_query.intent")}),
    "an unknown intent at low confidence": (
        [("parsed_query.intent", "world_peace"), ("parsed_query.confidence", 0.1), ("parsed_query.ambiguity_flag", True)],
        {("unknown_intent", "parsed_query.intent")},
    ),
    "a confidence above 1": ([("parsed_query.confidence", 1.5)], {("confidence_clamped", "parsed_query.confidence")}),
    "a confidence just above 1": ([("parsed_query.confidence", 1.0000001)], {("confidence_clamped", "parsed_query.confidence")}),
    "a huge confidence": ([("parsed_query.confidence", 1e308)], {("confidence_clamped", "parsed_query.confidence")}),
    "a negative confidence": ([("parsed_query.confidence", -3)], {("confidence_clamped", "parsed_query.confidence")}),
    "an entity's confidence above 1": ([(f"{ENTITY}.confidence", 95)], {("confidence_clamped", f"{ENTITY}.confidence")}),
    "an entity's confidence below 0": ([(f"{ENTITY}.confidence", -0.5)], {("confidence_clamped", f"{ENTITY}.confidence")}),
    "21 entities": ([("parsed_query.entities", [dict(BRAND)] * 21)], {("entities_truncated", "parsed_query.entities")}),
    "2,000 entities": ([("parsed_query.entities", [dict(BRAND)] * 2_000)], {("entities_truncated", "parsed_query.entities")}),
    "all at once": (
        [
            ("parsed_query.intent", "world_peace"),
            ("parsed_query.confidence", 7),
            ("parsed_query.entities", [{**BRAND, "confidence": 2}] * 20 + [{**BRAND, "confidence": 3}]),
        ],
        {
            ("unknown_intent", "parsed_query.intent"),
            ("confidence_clamped", "parsed_query.confidence"),
            ("entities_truncated", "parsed_query.entities"),
            *{("confidence_clamped", f"parsed_query.entities[{i}].confidence") for i in range(20)},
        },
    ),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("changes", "warnings"), REPAIRED.values(), ids=REPAIRED.keys())
async def test_what_the_table_repairs_is_accepted_with_its_warnings(
    client: httpx.AsyncClient, path: str, changes: list[tuple[str, Any]], warnings: set[tuple[str, str]]
) -> None:
    """Exactly the warnings of the repairs, each with the field that was repaired."""
    answer = await post(client, path, changed(*changes))

    repairs = [(w["code"], w["field"]) for w in answer["warnings"] if w["field"] is not None]
    assert sorted(repairs) == sorted(warnings)
    assert all(w["message"] for w in answer["warnings"])


async def test_an_unknown_intent_goes_to_the_explainer(client: httpx.AsyncClient, shared: World) -> None:
    """The intent becomes `explanation` in the decision, the answer, the dispatch and the training signal, whatever the text says."""
    answer = await post(client, "/orchestrate", changed(("parsed_query.intent", "world_peace")))

    receipt = shared.store.receipts[UUID(answer["decision_id"])]
    assert (answer["intent"], answer["agents_dispatched"]) == ("explanation", ["explainer"])
    assert (receipt.decision.intent, receipt.decision.primary_agent) == ("explanation", "explainer")
    assert (receipt.signal.intent, receipt.signal.agents_selected) == ("explanation", ("explainer",))
    assert shared.agents.sent[-1].payload.intent == "explanation"


@pytest.mark.parametrize(("given", "used"), [(1.5, 1.0), (1e308, 1.0), (-3, 0.0)], ids=["above", "far above", "below"])
async def test_a_confidence_out_of_range_is_clamped_before_it_is_used(
    client: httpx.AsyncClient, shared: World, given: float, used: float
) -> None:
    """The receipt shows the clamped value; at 1 the caller's intent is taken with confidence 1, at 0 it is not taken at all."""
    answer = await post(client, "/orchestrate", changed(("parsed_query.confidence", given)))

    receipt = shared.store.receipts[UUID(answer["decision_id"])]
    assert receipt.stages["triage"]["caller_confidence"] == used
    assert (answer["rung"] == "caller") == (used == 1.0)
    assert receipt.decision.confidence == receipt.signal.routing_confidence
    if used == 1.0:
        assert (receipt.decision.intent, receipt.decision.confidence) == ("gap_analysis", 1.0)


async def test_the_first_twenty_entities_go_on_with_clamped_confidences(client: httpx.AsyncClient, shared: World) -> None:
    """Order is kept; receipt, dispatch and signal hold the same twenty repaired entities."""
    confidences = [-1.0, 0.25, 7.0] * 9
    entities = [{**BRAND, "value": f"brand-{i}", "confidence": c} for i, c in enumerate(confidences)]
    expected = [(f"brand-{i}", min(1.0, max(0.0, c))) for i, c in enumerate(confidences[:20])]

    answer = await post(client, "/orchestrate", changed(("parsed_query.entities", entities)))

    receipt = shared.store.receipts[UUID(answer["decision_id"])]
    assert [(e.value, e.confidence) for e in receipt.decision.entities] == expected
    assert [(e.value, e.confidence) for e in shared.agents.sent[-1].payload.entities] == expected
    assert [(e["value"], e["confidence"]) for e in receipt.stages["triage"]["entities"]] == expected
    assert receipt.signal.entities_extracted == tuple(f"brand:brand-{i}" for i in range(20))


async def test_the_stored_request_is_the_one_that_was_posted(client: httpx.AsyncClient, shared: World) -> None:
    """Repairs are recorded beside the request, never in it: posted again, it makes the same decision."""
    body = changed(("parsed_query.confidence", 1.5), ("parsed_query.intent", "world_peace"))

    answer = await post(client, "/orchestrate", deepcopy(body))

    stored = shared.store.receipts[UUID(answer["decision_id"])].request.model_dump(mode="json", exclude_unset=True)
    assert stored == body


@pytest.mark.parametrize("confidence", [0.7, 1.0])
async def test_every_intent_of_the_specification_is_taken_as_it_is(client: httpx.AsyncClient, catalog: Catalog, confidence: float) -> None:
    """All twelve are known, and go to the primary agent of the routing table without a warning."""
    assert len(catalog.intents) == 12

    for intent in catalog.intents:
        answer = await post(client, "/route", changed(("parsed_query.intent", intent.name), ("parsed_query.confidence", confidence)))

        assert (answer["intent"], answer["primary_agent"], answer["rung"]) == (intent.name, intent.primary_agent, "caller")
        assert (answer["confidence"], answer["warnings"]) == (confidence, [])
