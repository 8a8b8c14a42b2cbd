"""The OpenAPI document: its examples are true, its errors are those that happen, and a change of it is seen in a review."""

import asyncio
import difflib
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from service.access.keys import Keys
from service.access.limits import Limits
from service.access.stored_keys import StoredKeys
from service.api import examples, middleware
from service.contracts.access import ApiKey
from service.contracts.decision import RouteDecision
from service.contracts.optimization import OptimizationRequest, OptimizationWish
from service.contracts.output import OrchestratorOutput
from service.contracts.problem import Problem
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.contracts.surface import AgentListing, FeedbackReceipt, Health, IntentListing, Readiness, RolledBack
from service.errors import NothingToRollBack, RegistryUnavailable, StoreUnavailable
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


@pytest.fixture
def document(world: World) -> Document:
    """Give the document of the app."""
    return world.app().openapi()


def examples_of(content: Document) -> list[Any]:
    """Return the examples of one media type, given one at a time or by name."""
    return ([content["example"]] if "example" in content else []) + [e["value"] for e in content.get("examples", {}).values()]


def problems_with(example: Any, schema: Document, document: Document) -> list[str]:
    """Return what a JSON Schema of the document finds wrong with an example."""
    validator = Draft202012Validator({**schema, "components": document["components"]}, format_checker=FormatChecker())
    return [e.message for e in validator.iter_errors(example)]


def test_the_document_is_the_reviewed_one(document: Document) -> None:
    """A change of the surface is a change of the snapshot, to be read in the diff."""
    document["info"]["version"] = "of the release"
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


# Which errors each route can give, and how each is brought about.

Provoke = Callable[[World, httpx.AsyncClient, str, str], Awaitable[httpx.Response]]


ID = re.compile(r"{\w+}")


def concrete(path: str) -> str:
    """Return the path with an id in its place."""
    return ID.sub(str(uuid4()), path)


def valid_body(path: str) -> dict[str, Any]:
    """Return a body that the route takes."""
    others = {
        "/feedback": {"decision_id": str(uuid4()), "user_satisfaction": 4},
        "/optimizations": {"agent_name": "orchestrator", "signature_name": "routing"},
    }
    return others.get(path, body("@explainer hi"))


async def invalid(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Send what breaks the contract."""
    return await client.request(method, ID.sub("x", path), json={} if method == "post" else None)


async def unlisted(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask for a state that there is not."""
    return await client.request(method, path, params={"status": "forgotten"})


async def forbidden(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask with a key that names other permissions."""
    headers = {"X-API-Key": "key"}
    return await client.request(method, concrete(path), json=valid_body(path) if method == "post" else None, headers=headers)


async def stranger(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask without a key where keys are in use."""
    return await client.request(method, concrete(path), json=valid_body(path) if method == "post" else None)


async def limited(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Send one request more than the rate allows."""
    await client.get("/intents")
    return await client.request(method, concrete(path), json=valid_body(path) if method == "post" else None)


async def unread(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask while nobody can read the keys."""
    return await client.request(method, concrete(path))


async def unknown(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Name a decision that is not there."""
    return await client.request(method, concrete(path), json=valid_body(path) if method == "post" else None)


async def stalled(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Send the beginning of a body and no end."""

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    return await client.request(method, path, content=half(), headers={"content-type": "application/json"})


async def conflicting(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Use an id twice."""
    question = body("hello")
    await client.request(method, path, json=question)
    return await client.request(method, path, json={**question, "user_id": "another"})


async def large(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Send more than is read."""
    content = b" " * (world.settings.max_body_bytes + 1)
    return await client.request(method, path, content=content, headers={"content-type": "application/json"})


async def text(_: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Send JSON under another name."""
    return await client.request(method, path, content=json.dumps(valid_body(path)), headers={"content-type": "text/plain"})


async def storeless(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask while the store is away."""
    world.store.available = False
    return await client.request(method, concrete(path), json=valid_body(path) if method == "post" else None)


async def saturated(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Ask while every turn to decide is taken and as many wait as may."""
    async with AsyncExitStack() as taken:
        for _ in range(4):
            await taken.enter_async_context(world.deciding.hold())
        waiting = [asyncio.create_task(anext(aiter(_holding(world)))) for _ in range(64)]
        await asyncio.sleep(0)
        response = await client.request(method, path, json=valid_body(path))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return response


async def _holding(world: World) -> AsyncIterator[None]:
    async with world.deciding.hold():
        yield


async def nothing_before(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Go back where nothing was before."""
    world.roll_back = _hindered(NothingToRollBack("There is no earlier champion."))
    return await client.request(method, path)


async def without_registry(world: World, client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """Go back while the registry cannot be used."""
    world.roll_back = _hindered(RegistryUnavailable("It is away."))
    return await client.request(method, path)


def _hindered(error: Exception) -> Callable[[], Awaitable[RolledBack]]:
    async def fail() -> RolledBack:
        raise error

    return fail


POSTED: dict[str, Provoke] = {"400": invalid, "401": stranger, "429": limited, "408": stalled, "413": large, "415": text}
CAN_FAIL: dict[tuple[str, str], dict[str, Provoke]] = {
    ("post", "/orchestrate"): {**POSTED, "409": conflicting, "503": storeless},
    ("post", "/orchestrate/stream"): {**POSTED, "409": conflicting, "503": saturated},
    ("post", "/route"): {**POSTED, "503": saturated},
    ("post", "/feedback"): {**POSTED, "404": unknown, "503": storeless},
    ("get", "/decisions/{decision_id}"): {"400": invalid, "401": stranger, "429": limited, "404": unknown, "503": storeless},
    ("post", "/optimizations"): {**POSTED, "403": forbidden, "503": storeless},
    ("get", "/optimizations"): {"400": unlisted, "401": stranger, "429": limited, "403": forbidden, "503": storeless},
    ("get", "/optimizations/{request_id}"): {
        "400": invalid,
        "401": stranger,
        "429": limited,
        "403": forbidden,
        "404": unknown,
        "503": storeless,
    },
    ("post", "/routers/rollback"): {"401": stranger, "429": limited, "403": forbidden, "409": nothing_before, "503": without_registry},
    ("get", "/agents"): {"401": stranger, "429": limited, "503": unread},
    ("get", "/intents"): {"401": stranger, "429": limited, "503": unread},
    ("get", "/healthz"): {},
    ("get", "/readyz"): {"503": storeless},
    ("get", "/metrics"): {},
}


async def store_away() -> Mapping[str, ApiKey]:
    """Read no keys."""
    raise StoreUnavailable("It is away.")


FAILURES = [(method, path, status, provoke) for (method, path), ways in CAN_FAIL.items() for status, provoke in ways.items()]


@pytest.mark.parametrize(("method", "path"), CONTRACTS.keys(), ids=IDS)
def test_the_documented_errors_are_those_in_the_table(document: Document, method: str, path: str) -> None:
    """An error that is documented and cannot happen, or the other way round, is named here."""
    assert document["paths"][path][method]["responses"].keys() - GOOD == CAN_FAIL[method, path].keys()


@pytest.mark.parametrize(
    ("method", "path", "status", "provoke"), FAILURES, ids=[f"{method} {path} {status}" for method, path, status, _ in FAILURES]
)
async def test_every_documented_error_happens_as_documented(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, document: Document, method: str, path: str, status: str, provoke: Provoke
) -> None:
    """Status, media type, code and headers are those of the document."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.1)
    if provoke is stranger:
        world.keys = Keys.parse(f"acme:{'0' * 64}")
    if provoke is limited:
        world.limits = Limits(rate=1)
    if provoke is unread:
        world.stored = StoredKeys(store_away, tmp_path / "keys.json", "a database")
    if provoke is forbidden:
        world.keys = Keys.parse(f"acme:{sha256(b'key').hexdigest()}:tier:*")
    async with world.client() as client:
        response = await provoke(world, client, method, path)

    ((media_type, content),) = document["paths"][path][method]["responses"][status]["content"].items()
    assert (str(response.status_code), response.headers["content-type"]) == (status, media_type)
    assert problems_with(response.json(), content["schema"], document) == []
    if media_type == PROBLEM:
        assert response.json()["code"] in content["examples"]
