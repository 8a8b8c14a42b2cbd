"""Which errors each route can give, and that each happens as the OpenAPI document has it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from service.access.keys import Keys, digest_of
from service.access.limits import Limits
from service.access.stored_keys import StoredKeys
from service.api import middleware
from service.contracts.access import ApiKey
from service.contracts.surface import RolledBack
from service.errors import NothingToRollBack, RegistryUnavailable, StoreUnavailable
from tests.conftest import World, body
from tests.contract.test_openapi import CONTRACTS, GOOD, IDS, PROBLEM, problems_with

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
LOOKED: dict[str, Provoke] = {"400": invalid, "401": stranger, "404": unknown, "429": limited, "503": storeless}
CAN_FAIL: dict[tuple[str, str], dict[str, Provoke]] = {
    ("post", "/orchestrate"): {**POSTED, "409": conflicting, "503": storeless},
    ("post", "/orchestrate/stream"): {**POSTED, "409": conflicting, "503": saturated},
    ("post", "/route"): {**POSTED, "503": saturated},
    ("post", "/feedback"): {**POSTED, "404": unknown, "503": storeless},
    ("get", "/decisions/{decision_id}"): LOOKED,
    ("post", "/optimizations"): {**POSTED, "403": forbidden, "503": storeless},
    ("get", "/optimizations"): {"400": unlisted, "401": stranger, "429": limited, "403": forbidden, "503": storeless},
    ("get", "/optimizations/{request_id}"): {**LOOKED, "403": forbidden},
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


def arrange(world: World, provoke: Provoke, folder: Path) -> None:
    """Change what has to be so before the app is opened."""
    if provoke is stranger:
        world.keys = Keys.parse(f"acme:{'0' * 64}")
    elif provoke is forbidden:
        world.keys = Keys.parse(f"acme:{digest_of('key')}:tier:*")
    elif provoke is limited:
        world.limits = Limits(rate=1)
    elif provoke is unread:
        world.stored = StoredKeys(store_away, folder / "keys.json", "a database")


@pytest.mark.parametrize(("method", "path"), CONTRACTS.keys(), ids=IDS)
def test_the_documented_errors_are_those_in_the_table(document: dict[str, Any], method: str, path: str) -> None:
    """An error that is documented and cannot happen, or the other way round, is named here."""
    assert document["paths"][path][method]["responses"].keys() - GOOD == CAN_FAIL[method, path].keys()


@pytest.mark.parametrize(
    ("method", "path", "status", "provoke"), FAILURES, ids=[f"{method} {path} {status}" for method, path, status, _ in FAILURES]
)
async def test_every_documented_error_happens_as_documented(
    world: World,
    document: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    method: str,
    path: str,
    status: str,
    provoke: Provoke,
) -> None:
    """Status, media type, code and headers are those of the document."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.1)
    arrange(world, provoke, tmp_path)
    async with world.client() as client:
        response = await provoke(world, client, method, path)

    ((media_type, content),) = document["paths"][path][method]["responses"][status]["content"].items()
    assert (str(response.status_code), response.headers["content-type"]) == (status, media_type)
    assert problems_with(response.json(), content["schema"], document) == []
    if media_type == PROBLEM:
        assert response.json()["code"] in content["examples"]
