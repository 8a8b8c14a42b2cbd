"""Every query of every panel and rule on a real Prometheus that watches real services under load: none errors, none is empty.

Two services: one process, and two worker processes behind one port. Real agents, of which one fails; an LM that fails now and then; a
candidate in the shadow; callers who are right, wrong, impatient and too many.
"""

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.conftest import body
from tests.integration.conftest import Program, free_port, gather_answers
from tests.ops.conftest import Prometheus, Watch
from tests.ops.lm_server import scripted_lm
from tests.ops.promql import ALERTS, EXPRESSIONS, PANELS, RECORDS, filled, operands, panel_queries, selectors

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router
LOAD_SECONDS = 120.0  # at most: it ends when every query tells something
LOOK_SECONDS = 2.0
CALLERS = 4
CROWD = 40  # callers at once, of whom only some find room
COMMITTED = "orchestrator_decision_seconds_count"
INTERVAL = "20s"  # what Grafana would put in place of $__rate_interval
TEXTS = [
    "where are we underperforming against potential",
    "what does the confidence interval in that report mean",
    "is anything down right now",
    "do the inputs still look like what the model was trained on",
    "what will TRx look like next quarter",
    "what is the weather in Basel",
]
SHOWN = [(title, filled(query, INTERVAL)) for title, query in panel_queries()]
RECORDED = list(RECORDS.items())
COMPARED = [(name, part) for name, rule in ALERTS.items() for part in operands(str(rule["expr"]))]
QUERIES = [*(query for _, query in SHOWN), *EXPRESSIONS.values()]
NAMED = [(text, f"count({text})") for text in sorted({one.text for query in QUERIES for one in selectors(query) if one.labels})]
FAULTS = "faults:\n  - {agent: gap_analyzer, fault: error_500}\n"
SHADOW = """
from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.router_source import note_candidate
from service.programs import Stage
from service.settings import Settings

registry = MlflowRegistry(Settings().mlflow_uri)
version = registry.register(registry.champion().folder, params={"job": "test"}, metrics={}, promote=False)
registry.try_out(version.number, Stage.SHADOW.value, 0.0)
note_candidate(registry.uri, version, Stage.SHADOW, 0.0)
"""


@pytest.fixture(scope="module")
def services(workplace: Path) -> Iterator[list[Program]]:
    """The services, with all that they need."""
    subprocess.run([sys.executable, "-c", SHADOW], cwd=workplace, check=True, capture_output=True, timeout=120)
    (workplace / "faults.yaml").write_text(FAULTS)
    agents, started = free_port(), list[Program]()
    with scripted_lm() as lm:
        settings = {"AGENTS_BASE_URL": f"http://127.0.0.1:{agents}", "LM": "openai/scripted", "LM_API_BASE": lm, "LM_API_KEY": "none"}
        settings |= {"LM_AUDIT": "1", "MAX_WAITING": "4", "DATABASE_URL": f"sqlite:///{workplace}/var/live.db"}
        environment = {f"POINTSMAN_{name}": value for name, value in settings.items()}
        try:
            faulty = ["agents", "--port", str(agents), "--faults", "faults.yaml"]
            started.append(Program(faulty, workplace, {}, f"http://127.0.0.1:{agents}/healthz"))
            for options in ([], ["--workers", "2"]):
                port = free_port()
                serve = ["serve", "--port", str(port), *options]
                started.append(Program(serve, workplace, environment, f"http://127.0.0.1:{port}/readyz"))
            yield started[1:]
        finally:
            for one in reversed(started):
                one.stop()


@pytest.fixture(scope="module")
def watched(services: list[Program], watch: Watch) -> Prometheus:
    """A Prometheus that has seen the services under load, to be asked as of then."""
    prometheus = watch(*(one.url.removeprefix("http://") for one in services))
    return asyncio.run(_load([one.url for one in services], prometheus))


async def _load(urls: list[str], prometheus: Prometheus) -> Prometheus:
    """Ask until every query tells something, or the time is up."""
    enough = asyncio.Event()
    async with httpx.AsyncClient(timeout=60.0, limits=httpx.Limits(max_connections=None)) as client, asyncio.TaskGroup() as load:
        for number in range(CALLERS):
            load.create_task(_call(client, urls[number % len(urls)], number, enough))
        for url in urls:
            load.create_task(_crowd(url, enough))
        seen = await asyncio.to_thread(_look, prometheus)
        enough.set()
    return seen


def _look(prometheus: Prometheus) -> Prometheus:
    """Return Prometheus as of the moment when every query told something, or of the last one."""
    limit, every = time.monotonic() + LOAD_SECONDS, [*SHOWN, *RECORDED, *COMPARED, *NAMED]
    missing = every
    while True:
        time.sleep(LOOK_SECONDS)
        now = replace(prometheus, at=time.time())
        missing = empty(now, missing) or empty(now, every)
        if time.monotonic() > limit or not missing:
            return now


async def _call(client: httpx.AsyncClient, url: str, first: int, enough: asyncio.Event) -> None:
    """Ask one thing after the other."""
    for number in count(first * 3):
        if enough.is_set():
            return
        with suppress(httpx.TransportError):  # on a starved machine uvicorn takes a worker for dead and starts another
            async for answer in _ask(client, url, number):
                assert answer.status_code in {200, 400, 503}, answer.text
        await asyncio.sleep(0.4)


async def _ask(client: httpx.AsyncClient, url: str, number: int) -> AsyncIterator[httpx.Response]:
    """Ask in one of many ways, in turn."""
    question, patient = body(TEXTS[number % len(TEXTS)]), {"max_latency_ms": 5_000}
    match number % 9:
        case 0:
            yield await client.post(f"{url}/orchestrate", json=question | {"preferences": patient | {"rung": "lm"}})
        case 1:
            yield await client.post(f"{url}/orchestrate", json=body("@gap_analyzer where do we lag?") | {"preferences": patient})
        case 2:
            yield await client.post(f"{url}/orchestrate/stream", json=question | {"preferences": patient})
        case 3:
            yield await client.post(f"{url}/orchestrate", json={"parsed_query": {}})
        case 4:
            yield await client.post(f"{url}/orchestrate", json=question | {"preferences": {"max_latency_ms": 1}})
        case 5:
            yield await client.post(f"{url}/route", json=question)
        case 6:
            yield await client.post(f"{url}/orchestrate", json=body("hello"))
        case _:
            answer = await client.post(f"{url}/orchestrate", json=question | {"preferences": patient})
            yield answer
            if answer.status_code == httpx.codes.OK:
                said = {"decision_id": answer.json()["decision_id"], "user_satisfaction": 4}
                yield await client.post(f"{url}/feedback", json=said)


async def _crowd(url: str, enough: asyncio.Event) -> None:
    """Come all at once, again and again: there is no room for all."""
    while not enough.is_set():
        await gather_answers(f"{url}/route", [body(TEXTS[number % len(TEXTS)]) for number in range(CROWD)])
        await asyncio.sleep(6.0)


def told(prometheus: Prometheus, query: str) -> list[float]:
    """Return the values of a query's samples, as far as they are numbers."""
    return [value for one in prometheus.query(query) if not math.isnan(value := float(one["value"][1]))]


def empty(prometheus: Prometheus, queries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the queries that tell nothing."""
    return [(name, query) for name, query in queries if not told(prometheus, query)]


def test_every_panel_has_something_to_show(watched: Prometheus) -> None:
    """Each query of each panel, as Grafana sends it."""
    assert len(SHOWN) >= len(PANELS) > 40
    assert empty(watched, SHOWN) == []


def test_every_rule_is_evaluated_and_records_something(watched: Prometheus) -> None:
    """Prometheus finds no error in any, and each record is there for the service by name."""
    rules = watched.rules()

    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    assert {rule["name"] for rule in rules} == {*RECORDS, *ALERTS}
    assert empty(watched, [(name, f'{name}{{job="pointsman"}}') for name in RECORDS]) == []
    assert empty(watched, RECORDED) == []


def test_what_every_alert_compares_is_there_while_it_is_silent(watched: Prometheus) -> None:
    """The query without its comparison: an alert on what does not exist would never fire."""
    assert {name for name, _ in COMPARED} == set(ALERTS)
    assert empty(watched, COMPARED) == []


def test_every_label_value_that_a_query_names_occurs(watched: Prometheus) -> None:
    """A value with a typing error selects nothing, and a rule that says 0 where nothing is would hide it."""
    assert len(NAMED) > 50
    assert empty(watched, NAMED) == []


def test_instances_and_worker_processes_are_told_as_one_service(watched: Prometheus, services: list[Program]) -> None:
    """Both instances are in the sums; all their processes serve one router, which was made a while ago."""
    counted = {one["metric"]["instance"]: float(one["value"][1]) for one in watched.query(f"sum by (instance) ({COMMITTED})")}
    (age,) = told(watched, "namespace_job:orchestrator_router_age_seconds:max")

    assert set(counted) == {one.url.removeprefix("http://") for one in services}
    assert min(counted.values()) > 0
    assert told(watched, f"sum({COMMITTED})") == [sum(counted.values())]
    assert told(watched, "namespace_job:orchestrator_router_versions:count") == [1.0]
    assert 0 < age < 3_600


def test_a_query_that_tells_nothing_is_found(watched: Prometheus) -> None:
    """The tests above can fail: on a label value that there is not, and on what is no number."""
    strange = [("typing error", 'orchestrator_decisions_total{rung="studnet"}'), ("no number", "0 / (orchestrator_router_loaded - 1)")]

    assert empty(watched, [*strange, ("fine", COMMITTED)]) == strange
