"""Five hundred hostile requests: a proper answer each, in time, without an echo, and without growing."""

import asyncio
import gc
import json
import random
import re
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from service.adapters.sql_store import SqlStore
from service.api import middleware
from service.catalog.model import Catalog
from service.programs import Router
from tests.conftest import World
from tests.contract.hostile import (
    SECONDS,
    SEED,
    Hostile,
    assert_well_formed,
    duplicate_keys,
    encoded,
    full,
    missing_and_extra,
    nested,
    oversized,
)
from tests.contract.hostile_texts import FLOODS, KINDS, flood, long_question

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(catalog: Catalog, router: Router, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of an app over the real store."""
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/pointsman.db")
    await store.open()
    try:
        async with World(catalog, router, store=store).client() as opened:
            yield opened
    finally:
        await store.close()


async def send(client: httpx.AsyncClient, hostile: Hostile) -> httpx.Response:
    """Send one request and check all that must hold of any answer."""
    url = httpx.URL("http://test").copy_with(raw_path=quote(hostile.path, safe="/%?=&;.:").encode())
    request = client.build_request(hostile.method, url, content=hostile.content, headers=hostile.headers)
    started = time.monotonic()
    response = await asyncio.wait_for(client.send(request), SECONDS * 2)
    assert time.monotonic() - started < SECONDS
    assert_well_formed(response.status_code, response.headers, response.text, head=hostile.method.upper() == "HEAD")
    return response


async def test_there_are_five_hundred() -> None:
    """The number that was promised, and each kind is really made in several ways."""
    assert sum(KINDS.values()) >= 500
    for kind, count in KINDS.items():
        rng = random.Random(SEED)
        made = [kind(rng) for _ in range(count)]
        assert len({(m.content, str(m.headers), m.path, m.method) for m in made}) > min(count, 12) / 2, kind.__name__


@pytest.mark.parametrize(("kind", "count"), KINDS.items(), ids=[kind.__name__ for kind in KINDS])
async def test_hostile_requests_get_a_proper_answer(
    client: httpx.AsyncClient, kind: Callable[[random.Random], Hostile], count: int
) -> None:
    """Each is answered in time and in form; one that is accepted is stored as it was sent and can be read again."""
    rng = random.Random(SEED)
    for number in range(count):
        hostile = kind(rng)
        try:
            response = await send(client, hostile)
            if response.status_code == 200 and hostile.path == "/orchestrate":
                await assert_stored(client, hostile, response.json())
        except AssertionError as exc:
            raise AssertionError(
                f"{kind.__name__} {number}: {hostile.method} {hostile.path[:80]} {hostile.content[:300]!r}\n{exc}"
            ) from exc

    assert (await client.get("/healthz")).status_code == 200


async def assert_stored(client: httpx.AsyncClient, hostile: Hostile, answer: dict[str, Any]) -> None:
    """Check that the receipt can be read, and that its request is what was sent, to the last character."""
    receipt = await client.get(f"/decisions/{answer['decision_id']}")
    sent = json.loads(hostile.content)

    assert receipt.status_code == 200, receipt.text[:500]
    stored = receipt.json()["request"]
    assert stored["parsed_query"]["raw_query"] == sent["parsed_query"]["raw_query"]
    assert stored["parsed_query"]["context"] == sent["parsed_query"].get("context")
    assert (stored["user_id"], stored["session_id"]) == (sent["user_id"], sent["session_id"])


async def test_memory_does_not_grow_with_hostile_requests(client: httpx.AsyncClient) -> None:
    """The kinds that are costly to refuse, sent again and again, leave nothing behind."""
    costly = (flood, oversized, nested, long_question, missing_and_extra, duplicate_keys)

    async def rounds(count: int) -> int:
        for _ in range(count):
            rng = random.Random(SEED)
            for kind in costly:
                for _ in range(3):
                    await send(client, kind(rng))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await rounds(1)  # fills what is filled once
    tracemalloc.start()
    try:
        first = await rounds(1)
        last = await rounds(2)
    finally:
        tracemalloc.stop()

    assert last - first < 500_000  # one round is several megabytes of bodies


@pytest.mark.parametrize("attack", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_broken_fields_is_not_worked_through(client: httpx.AsyncClient, attack: Callable[[dict[str, Any]], None]) -> None:
    """However many fields a body breaks, only so many are ever listed, so that nobody else has to wait for seconds."""
    body = full(random.Random(SEED))
    attack(body)
    started = time.process_time()

    response = await send(client, Hostile(encoded(body, separators=(",", ":")), path="/route"))

    assert time.process_time() - started < 3.0
    if response.status_code == 400:
        counted = re.match(r"(\d+) fields? broke", response.json()["detail"])
        assert counted is None or int(counted[1]) <= middleware.MAX_MEMBERS
