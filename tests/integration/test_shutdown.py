"""The service is told to end while an agent hangs: its callers are told, and what had come is stored."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.workers import GRACE_SECONDS
from tests.conftest import body
from tests.integration.conftest import Start

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router


def test_what_is_under_way_at_the_end_is_answered_and_stored(start_service: Start, hanging_port: int, tmp_path: Path) -> None:
    """A problem in place of an empty reply, for a plain request and for a stream; both have a receipt with the code `cancelled`."""
    database = tmp_path / "end.db"
    service = start_service(agents_base_url=f"http://127.0.0.1:{hanging_port}", database_url=f"sqlite:///{database}")

    def post(path: str) -> httpx.Response:
        return httpx.post(f"{service.url}{path}", json=body("@causal_impact Did the visits lift TRx?"), timeout=GRACE_SECONDS + 30.0)

    with ThreadPoolExecutor(2) as threads:
        plain, stream = (threads.submit(post, path) for path in ("/orchestrate", "/orchestrate/stream"))
        time.sleep(2.0)
        service.process.terminate()
        service.process.wait(GRACE_SECONDS + 20)

    answered, told = plain.result(), stream.result().text
    assert (answered.status_code, answered.json()["code"], answered.json()["retryable"]) == (503, "shutting_down", True)
    assert [line for line in told.splitlines() if line.startswith("event: ")] == ["event: decision", "event: agent_start", "event: problem"]
    with sqlite3.connect(database) as connection:
        stored = connection.execute("select json_extract(output, '$.warnings[0].code') from decision").fetchall()
    assert stored == [("cancelled",), ("cancelled",)]
