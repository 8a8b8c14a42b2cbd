"""The real service on a real PostgreSQL that crashes under load and comes back."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import body
from tests.contract.postgres import Server, controlled, new_database
from tests.integration.conftest import Start

pytestmark = pytest.mark.timeout(600)
RATE, SECONDS = 20.0, 9.0  # requests a second; the database is away for the middle third
BACK_SECONDS = 30.0


@pytest.fixture
def crashing() -> Iterator[Server]:
    """A server that the test crashes."""
    with controlled() as one:
        yield one


def spooled(url: str) -> float:
    """Return how many decisions the service has in its spool."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10.0).text)
    return next(s.value for f in families for s in f.samples if s.name == "orchestrator_spooled")


async def test_every_answer_has_its_row_though_the_database_crashes_under_load(start_service: Start, crashing: Server) -> None:
    """No request fails, the service stays ready, and each decision that was answered is in PostgreSQL when it is back."""
    address = new_database(crashing.address)
    service = start_service(database_url=address)
    answers: list[httpx.Response] = []
    async with httpx.AsyncClient(timeout=20.0, limits=httpx.Limits(max_connections=None)) as client:

        async def ask(number: int) -> None:
            await asyncio.sleep(number / RATE)
            answers.append(await client.post(f"{service.url}/orchestrate", json=body("hello" if number % 4 else "which regions lag?")))

        asking = asyncio.gather(*(ask(number) for number in range(int(RATE * SECONDS))))
        await asyncio.sleep(SECONDS / 3)
        await asyncio.to_thread(crashing.crash)
        await asyncio.sleep(SECONDS / 3)
        ready, held = await client.get(f"{service.url}/readyz"), await asyncio.to_thread(spooled, service.url)
        await asyncio.to_thread(crashing.start)
        await asking
        limit = time.monotonic() + BACK_SECONDS
        while await asyncio.to_thread(spooled, service.url):
            assert time.monotonic() < limit, service.log
            await asyncio.sleep(0.2)

    with psycopg.connect(address) as connection:
        rows = {str(one) for (one,) in connection.execute("SELECT decision_id FROM decision JOIN signal USING (decision_id)").fetchall()}
    assert Counter(answer.status_code for answer in answers) == {200: int(RATE * SECONDS)}
    assert {answer.json()["decision_id"] for answer in answers} == rows
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert held > 0
    assert "store_away" in service.log
    assert "store_back" in service.log
