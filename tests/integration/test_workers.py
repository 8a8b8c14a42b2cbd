"""Several real worker processes behind one port: one page of metrics, whichever is asked, before and after one of them is killed."""

import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import body
from tests.integration.conftest import Program, Start

pytestmark = pytest.mark.timeout(600)
REQUESTS = 30
SCRAPES = 12


def committed(url: str) -> float:
    """Return how many decisions the metrics tell, from a connection of its own."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10.0).text)
    return sum(s.value for f in families for s in f.samples if s.name == "orchestrator_decisions_total")


def greet(url: str, times: int) -> None:
    """Post greetings, each by a connection of its own; they need no agent."""
    for _ in range(times):
        assert httpx.post(f"{url}/orchestrate", json=body("hello"), timeout=20.0).status_code == 200


def workers(service: Program) -> list[int]:
    """Return the processes that serve: children of the one that was started which run the multiprocessing target."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_whichever_worker_is_asked_the_counts_are_those_of_all(start_service: Start, tmp_path: Path) -> None:
    """Also after one was killed: what it had counted is not lost, and its successor counts on."""
    service = start_service("--workers", "2", database_url=f"sqlite:///{tmp_path}/workers.db")
    greet(service.url, REQUESTS)
    counted = {committed(service.url) for _ in range(SCRAPES)}
    before = workers(service)

    os.kill(before[0], signal.SIGKILL)
    limit = time.monotonic() + 60
    while set(workers(service)) == set(before) or len(workers(service)) < 2:
        assert time.monotonic() < limit, service.log
        time.sleep(0.1)
    greet(service.url, REQUESTS)
    later = {committed(service.url) for _ in range(SCRAPES)}

    assert len(before) == 2
    assert counted == {REQUESTS}
    assert later == {2 * REQUESTS}
    page = httpx.get(f"{service.url}/metrics", timeout=10.0).text
    while "orchestrator_router_loaded 1.0" not in page:  # the successor has no router yet
        assert time.monotonic() < limit, page
        time.sleep(0.1)
        page = httpx.get(f"{service.url}/metrics", timeout=10.0).text
    assert re.findall(r'^orchestrator_router_version\{version="(\d+)"\} 1\.0$', page, re.M)
