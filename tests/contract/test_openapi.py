"""The OpenAPI document: its examples are true, its errors are those that happen, and a change of it is seen in a review."""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from service.api import examples
from service.contracts.decision import RouteDecision
from service.contracts.optimization import OptimizationRequest, OptimizationWish
from service.contracts.output import OrchestratorOutput
from service.contracts.problem import Problem
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.contracts.surface import AgentListing, FeedbackReceipt, Health, IntentListing, Readiness, RolledBack
from tests.conftest import World, body

SNAPSHOT = Path(__file__).with_name("openapi.json")
RENEW = "RENEW_SNAPSHOT=1 python -m pytest tests/contract/test_openapi.py"
PROBLEM = "application/problem+json"
Document = dict[str, Any]

# Each route with the contracts of what it takes and what it gives.
CONTRACTS: dict[tuple[str, str], tuple[type | None, type | None]] = {
    ("post", "/orchestrate"): (OrchestratorInput, OrchestratorOutput),
    ("post", "/orchestrate/stream"): (OrchestratorInput, None),
    ("post", "/route"): (OrchestratorInput, RouteDecision),
    ("post", "/feedback"): (Feedback, FeedbackReceipt),
    ("get", "/decisions/{decision_id}"): (None, Receipt),
    ("post", "/optimizations"): (OptimizationWish, OptimizationRequest),
    ("get", "/optimizations"): (None, OptimizationRequest),
    ("get", "/optimizations/{request_id}"): (None, OptimizationRequest),
    ("post", "/routers/rollback"): (None, RolledBack),
    ("get", "/agents"): (None, AgentListing),
    ("get", "/intents"): (None, IntentListing),
    ("get", "/healthz"): (None, Health),
    ("get", "/readyz"): (None, Readiness),
    ("get", "/metrics"): (None, None),
}
GOOD = {"200", "202"}
IDS = [f"{method} {path}" for method, path in CONTRACTS]


def examples_of(content: Document) -> list[Any]:
    """Return the examples of one media type, given one at a time or by name."""
    return ([content["example"]] if "example" in content else []) + [e["value"] for e in content.get("examples", {}).values()]


def problems_with(example: Any, schema: Document, document: Document) -> list[str]:
    """Return what a JSON Schema of the document finds wrong with an example."""
    validator = Draft202012Validator({**schema, "components": document["components"]}, format_checker=FormatChecker())
    return [e.message for e in validator.iter_errors(example)]


def test_the_document_is_the_reviewed_one(document: Document) -> None:
    """A change of the surface is a change of the snapshot, to be read in the diff."""
    document = {**document, "info": {**document["info"], "version": "of the release"}}
    now = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("RENEW_SNAPSHOT"):
        SNAPSHOT.write_text(now, encoding="utf-8")
    kept = SNAPSHOT.read_text(encoding="utf-8") if SNAPSHOT.exists() else ""

    change = list(difflib.unified_diff(kept.splitlines(), now.splitlines(), "tests/contract/openapi.json", "the app", n=2, lineterm=""))

    if change:
        shown = "\n".join(change[:80])
        pytest.fail(f"The OpenAPI document has changed. If that is meant, renew the snapshot with\n\n    {RENEW}\n\n{shown}", pytrace=False)


def test_every_route_is_in_the_table_of_this_file(document: Document) -> None:
    """No route goes unexamined below."""
    assert {(method, path) for path, operations in document["paths"].items() for method in operations} == CONTRACTS.keys()


def test_the_schemas_are_json_schemas_and_every_reference_leads_somewhere(document: Document) -> None:
    """The document can be used by a generator of clients: 3.1, valid schemas, unique operation ids, no dangling reference."""
    schemas = document["components"]["schemas"]
    operations = [o for path in document["paths"].values() for o in path.values()]

    assert document["openapi"].startswith("3.1")
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert not {f'"{word}":' for word in ("ge", "le", "gt", "lt")} & set(re.findall(r'"[a-z]+":', json.dumps(schemas)))  # not schema words
    assert len({o["operationId"] for o in operations}) == len(operations)
    assert all(o["summary"] and o["description"] and o["tags"] for o in operations)
    used = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert used == schemas.keys()


@pytest.mark.parametrize(("method", "path"), CONTRACTS.keys(), ids=IDS)
def test_every_route_shows_an_answer_that_its_contract_allows(document: Document, method: str, path: str) -> None:
    """The example passes the documented schema and the contract itself, and leaves no field out."""
    contract = CONTRACTS[method, path][1]
    (good,) = document["paths"][path][method]["responses"].keys() & GOOD
    (media_type, content), *others = document["paths"][path][method]["responses"][good]["content"].items()
    shown = examples_of(content)

    assert others == []
    assert shown
    if contract is None:
        assert media_type in {"text/plain", "text/event-stream"}
        return
    for example in shown:
        assert problems_with(example, content["schema"], document) == []
        for item in example if isinstance(example, list) else [example]:
            assert contract.model_validate_json(json.dumps(item)).model_dump(mode="json").keys() == item.keys()


@pytest.mark.parametrize(
    ("method", "path"), [k for k, (taken, _) in CONTRACTS.items() if taken], ids=[p for (_, p), (taken, _) in CONTRACTS.items() if taken]
)
def test_every_post_shows_bodies_that_its_contract_allows(document: Document, method: str, path: str) -> None:
    """At least two each, with a summary, valid by the documented schema and by the contract."""
    contract = CONTRACTS[method, path][0]
    content = document["paths"][path][method]["requestBody"]["content"]["application/json"]

    assert len(examples_of(content)) >= 2
    assert all(e["summary"] for e in content["examples"].values())
    for example in examples_of(content):
        assert problems_with(example, content["schema"], document) == []
        assert contract is not None
        contract.model_validate_json(json.dumps(example))


async def test_the_documented_questions_are_answered(world: World) -> None:
    """Each example body, posted as it is, gets 200; the one without a language layer goes where its example answer says."""
    async with world.client() as client:
        for name, example in examples.QUESTIONS.items():
            for path in ("/route", "/orchestrate"):
                response = await client.post(path, json=example["value"])

                assert response.status_code == 200, (name, path, response.text)
        plain = (await client.post("/route", json=examples.QUESTIONS["plain"]["value"])).json()

    assert (plain["intent"], plain["primary_agent"]) == (examples.DECISION["intent"], examples.DECISION["primary_agent"])


async def test_the_documented_feedback_is_merged(world: World) -> None:
    """Each example of feedback, on a decision that exists, gets 200."""
    async with world.client() as client:
        answer = (await client.post("/orchestrate", json=body())).json()
        for name, example in examples.FEEDBACK.items():
            said = {key: answer.get(key, value) for key, value in example["value"].items()}

            response = await client.post("/feedback", json=said)

            assert response.status_code == 200, (name, response.text)


async def test_the_documented_wishes_are_kept(world: World) -> None:
    """Each example, posted as it is, gets 202; the answer to the one with a signal is the example answer but for its id and time."""
    async with world.client() as client:
        for name, example in examples.WISHES.items():
            response = await client.post("/optimizations", json=example["value"])

            assert response.status_code == 202, (name, response.text)
    own = {"request_id", "created_at"}
    assert {k: v for k, v in response.json().items() if k not in own} == {k: v for k, v in examples.OPTIMIZATION.items() if k not in own}


async def test_the_listed_agent_and_intent_are_those_of_the_catalogue(world: World) -> None:
    """The examples of `/agents` and `/intents` are what the shipped catalogue really lists."""
    async with world.client() as client:
        agents, intents = (await client.get("/agents")).json(), (await client.get("/intents")).json()

    assert examples.AGENT in agents
    assert examples.INTENT in intents


def test_the_examples_tell_one_story() -> None:
    """The receipt holds the question, decision and answer that the other examples show, and its reward is the one of its signal."""
    receipt = Receipt.model_validate(examples.RECEIPT)

    assert receipt.decision == RouteDecision.model_validate(examples.DECISION)
    assert receipt.output == OrchestratorOutput.model_validate(examples.OUTPUT)
    assert receipt.decision.query_id == receipt.output.query_id == receipt.request.parsed_query.query_id
    assert receipt.signal.compute_reward() == pytest.approx(examples.RECEIPT["reward"], abs=0.01)


def test_every_problem_shown_is_one(document: Document) -> None:
    """Each documented error is problem+json only, with examples whose status is the one that they stand under."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status in GOOD or path == "/readyz":
                    continue
                assert list(response["content"]) == [PROBLEM], (path, status)
                content = response["content"][PROBLEM]
                assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
                assert examples_of(content)
                for example in examples_of(content):
                    assert problems_with(example, content["schema"], document) == []
                    assert Problem.model_validate(example).status == int(status)


def test_no_validation_error_of_the_framework_is_documented(document: Document) -> None:
    """Invalid input is 400; the 422 that FastAPI would add does not happen, so it is not in the document."""
    assert "422" not in json.dumps(document["paths"])
    assert not any("ValidationError" in name for name in document["components"]["schemas"])
