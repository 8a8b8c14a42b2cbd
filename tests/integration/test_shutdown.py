"""The service is told to end (SIGTERM) while requests are in every state: what was accepted is answered, and has its row."""

import asyncio
import json
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from tests.conftest import body
from tests.integration.conftest import Program, Start

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router
SLOW_SECONDS = 3.0  # an agent's
LOCKED_SECONDS = 1.5  # the database's
CALLERS = 8  # at once, each with connections of its own, that are kept
GRACE_SECONDS = 20  # the default
DOCUMENTED = {"shutting_down", "saturated", "store_unavailable"}


class Load:
    """Callers who ask without a pause until the service refuses them. Each keeps its connection as long as the service lets it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[httpx.Response] = []
        self.broken: list[str] = []

    async def ask(self) -> None:
        """Ask until nobody listens any more."""
        async with httpx.AsyncClient(timeout=GRACE_SECONDS + 10.0) as client:
            for number in range(100_000):
                try:
                    question = body("hello" if number % 3 else "which regions lag behind?")
                    self.answers.append(await client.post(f"{self.url}/orchestrate", json=question))
                except httpx.ConnectError:
                    return
                except httpx.TransportError as exc:
                    self.broken.append(repr(exc))


async def half_sent(url: str, question: dict[str, Any], go_on: asyncio.Event | None) -> bytes:
    """Send the first half of a request, the rest when told to or never, and return what comes back."""
    text = json.dumps(question).encode()
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = f"POST /orchestrate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text[: len(text) // 2])
    await writer.drain()
    if go_on is not None:
        await go_on.wait()
        writer.write(text[len(text) // 2 :])
    answer = await reader.read()
    writer.close()
    return answer


async def idle(url: str, ending: asyncio.Event) -> list[httpx.Response]:
    """Use a connection, let it be, and use it once more after the service was told to end; it is not there later."""
    async with httpx.AsyncClient(timeout=GRACE_SECONDS, limits=httpx.Limits(max_connections=1)) as client:
        first = await client.post(f"{url}/orchestrate", json=body("hello"))
        await ending.wait()
        await asyncio.sleep(0.3)
        return [first, await client.post(f"{url}/orchestrate", json=body("hello"))]


def lock(database: Path, locked: threading.Event) -> None:
    """Keep everybody from writing for a while."""
    with sqlite3.connect(database, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        locked.set()
        time.sleep(LOCKED_SECONDS)
        connection.execute("COMMIT")


def stored(database: Path) -> set[str]:
    """Return the queries that have a row each for decision and signal."""
    with sqlite3.connect(database) as connection:
        return {one for (one,) in connection.execute("select query_id from decision join signal using (decision_id)")}


async def end_under_load(service: Program, database: Path) -> tuple[list[httpx.Response], list[str], str, bytes, float]:
    """Put requests into every state and tell the service to end: answers, broken connections, the stream, the half-sent one, seconds."""
    load, ending, locked = Load(service.url), asyncio.Event(), threading.Event()
    async with asyncio.TaskGroup() as group, httpx.AsyncClient(timeout=GRACE_SECONDS + 10.0) as client:
        asks = "@gap_analyzer where is the gap?"
        slow = [group.create_task(client.post(f"{service.url}/orchestrate", json=body(asks))) for _ in range(3)]
        stream = group.create_task(client.post(f"{service.url}/orchestrate/stream", json=body(asks)))
        half = group.create_task(half_sent(service.url, body("hello"), ending))
        waiting = group.create_task(idle(service.url, ending))
        for _ in range(CALLERS):
            group.create_task(load.ask())
        await asyncio.sleep(1.5)
        locking = group.create_task(asyncio.to_thread(lock, database, locked))
        await asyncio.to_thread(locked.wait)
        started = time.monotonic()
        service.process.terminate()
        ending.set()
        await asyncio.to_thread(service.process.wait, GRACE_SECONDS + 5)
        seconds = time.monotonic() - started
        await locking
    answers = [*load.answers, *(await waiting), *(task.result() for task in slow)]
    return answers, load.broken, stream.result().text, half.result(), seconds


@pytest.mark.parametrize("workers", [1, 2])
async def test_whatever_was_accepted_is_answered_when_the_service_ends(start_service: Start, tmp_path: Path, workers: int) -> None:
    """Deciding, waiting for an agent, in commit, streaming, idle, half sent: 200 or a documented 503, a row for each 200, exit code 0."""
    database = tmp_path / "end.db"
    late = PlannedFault.model_validate({"agent": "gap_analyzer", "fault": "late_answer", "seconds": SLOW_SECONDS})
    plan = FaultPlan(faults=(late,))
    async with FaultServer(plan) as agents:
        settings = {"agents_base_url": f"http://127.0.0.1:{agents.port}", "database_url": f"sqlite:///{database}"}
        service = await asyncio.to_thread(start_service, "--workers", str(workers), **settings)
        answers, broken, stream, half, seconds = await end_under_load(service, database)

    assert broken == []
    assert (service.process.returncode, seconds < GRACE_SECONDS) == (0, True), service.log
    told = Counter((a.status_code, a.json().get("code")) for a in answers)
    assert {status for status, _ in told} <= {200, 503}
    assert {code for status, code in told if status == 503} <= DOCUMENTED
    assert told[200, None] > CALLERS, told
    assert [line for line in stream.splitlines() if line.startswith("event: ")][-1] == "event: output"
    head, _, said = half.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in head.lower()
    accepted = {a.json()["query_id"] for a in answers if a.status_code == 200} | {json.loads(said)["query_id"]}
    assert accepted <= stored(database)


def test_what_is_under_way_at_the_end_is_answered_and_stored(start_service: Start, hanging_port: int, tmp_path: Path) -> None:
    """A problem in place of an empty reply, for a plain request and for a stream; both have a receipt with the code `cancelled`."""
    database = tmp_path / "end.db"
    service = start_service(agents_base_url=f"http://127.0.0.1:{hanging_port}", database_url=f"sqlite:///{database}")

    def post(path: str) -> httpx.Response:
        return httpx.post(f"{service.url}{path}", json=body("@causal_impact Did the visits lift TRx?"), timeout=GRACE_SECONDS + 30.0)

    with ThreadPoolExecutor(3) as threads:
        plain, stream = (threads.submit(post, path) for path in ("/orchestrate", "/orchestrate/stream"))
        never = threads.submit(asyncio.run, half_sent(service.url, body("hello"), None))
        time.sleep(2.0)
        service.process.terminate()
        service.process.wait(GRACE_SECONDS + 20)

    answered, told = plain.result(), stream.result().text
    assert (answered.status_code, answered.json()["code"], answered.json()["retryable"]) == (503, "shutting_down", True)
    assert [line for line in told.splitlines() if line.startswith("event: ")] == ["event: decision", "event: agent_start", "event: problem"]
    assert never.result().startswith(b"HTTP/1.1 408")
    assert service.process.returncode == 0
    assert "Exception in ASGI application" not in service.log
    with sqlite3.connect(database) as connection:
        stored = connection.execute("select json_extract(output, '$.warnings[0].code') from decision").fetchall()
    assert stored == [("cancelled",), ("cancelled",)]


def test_the_time_for_what_is_under_way_can_be_set(start_service: Start, hanging_port: int, tmp_path: Path) -> None:
    """A second: what is not done by then is told so."""
    settings = {"agents_base_url": f"http://127.0.0.1:{hanging_port}", "database_url": f"sqlite:///{tmp_path}/end.db", "grace_seconds": "1"}
    service = start_service(**settings)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(httpx.post, f"{service.url}/orchestrate", json=body("@causal_impact Did the visits lift TRx?"), timeout=60.0)
        time.sleep(1.0)
        started = time.monotonic()
        service.process.terminate()
        service.process.wait(GRACE_SECONDS)

    assert asked.result().json()["code"] == "shutting_down"
    assert time.monotonic() - started < GRACE_SECONDS / 2
