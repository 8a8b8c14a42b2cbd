"""Every query of every panel and rule on a real Prometheus that watches real services under load: none errors, none is empty.

Two services: one process, and two worker processes behind one port. Real agents, of which one fails; an LM that fails now and then; a
candidate in the shadow; callers who are right, wrong, impatient and too many.
"""

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import body
from tests.integration.conftest import Program, free_port
from tests.ops.conftest import Prometheus, Watch
from tests.ops.lm_server import scripted_lm
from tests.ops.promql import ALERTS, PANELS, RECORDS, filled, operands, panel_queries, selectors

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router
LOAD_SECONDS = 25.0
CALLERS = 4
CROWD = 40  # callers at once, of whom only some find room
SETTLE_SECONDS = 20.0  # for what is counted after an answer, and for rules that read other rules
INTERVAL = "15s"  # what Grafana would put in place of $__rate_interval
TEXTS = [
    "where are we underperforming against potential",
    "what does the confidence interval in that report mean",
    "is anything down right now",
    "do the inputs still look like what the model was trained on",
    "what will TRx look like next quarter",
    "what is the weather in Basel",
]
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
    """A Prometheus that has seen the services under load."""
    prometheus = watch(*(one.url.removeprefix("http://") for one in services))
    asyncio.run(_load([one.url for one in services]))
    return prometheus


async def _load(urls: list[str]) -> None:
    """Ask for a while, and end with a crowd."""
    async with httpx.AsyncClient(timeout=30.0, limits=httpx.Limits(max_connections=None)) as client:
        until = time.monotonic() + LOAD_SECONDS
        callers = [_call(client, urls[number % len(urls)], number, until) for number in range(CALLERS)]
        await asyncio.gather(*callers, *(_crowd(client, url, until) for url in urls))


async def _call(client: httpx.AsyncClient, url: str, first: int, until: float) -> None:
    """Ask one thing after the other."""
    for number in count(first * 3):
        if time.monotonic() > until:
            return
        async for answer in _ask(client, url, number):
            assert answer.status_code in {200, 400, 503}, answer.text
        await asyncio.sleep(0.1)


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


async def _crowd(client: httpx.AsyncClient, url: str, until: float) -> None:
    """Come all at once, again and again: there is no room for all."""
    while time.monotonic() < until:
        await asyncio.gather(*(client.post(f"{url}/route", json=body(TEXTS[n % len(TEXTS)])) for n in range(CROWD)))
        await asyncio.sleep(4.0)


def told(prometheus: Prometheus, query: str) -> list[dict[str, Any]]:
    """Return the samples of a query that are numbers, as soon as there are some; what never has any is empty."""
    limit = time.monotonic() + SETTLE_SECONDS
    while True:
        found = [one for one in prometheus.query(query) if not math.isnan(float(one["value"][1]))]
        if found or time.monotonic() > limit:
            return found
        time.sleep(0.5)


def empty(prometheus: Prometheus, queries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the queries that tell nothing."""
    return [(name, query) for name, query in queries if not told(prometheus, query)]


def test_every_panel_has_something_to_show(watched: Prometheus) -> None:
    """Each query of each panel, as Grafana sends it."""
    queries = [(title, filled(query, INTERVAL)) for title, query in panel_queries()]

    assert len(queries) >= len(PANELS) > 40
    assert empty(watched, queries) == []


def test_every_rule_is_evaluated_and_records_something(watched: Prometheus) -> None:
    """Prometheus finds no error in any, and each record is there for the service by name."""
    rules = watched.rules()

    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    assert {rule["name"] for rule in rules} == {*RECORDS, *ALERTS}
    assert empty(watched, [(name, f'{name}{{job="pointsman"}}') for name in RECORDS]) == []
    assert empty(watched, list(RECORDS.items())) == []


def test_what_every_alert_compares_is_there_while_it_is_silent(watched: Prometheus) -> None:
    """The query without its comparison: an alert on what does not exist would never fire."""
    assert empty(watched, [(name, part) for name, rule in ALERTS.items() for part in operands(str(rule["expr"]))]) == []


def test_every_label_value_that_a_query_names_occurs(watched: Prometheus) -> None:
    """A value with a typing error selects nothing, and a rule that says 0 where nothing is would hide it."""
    queries = [*(filled(query, INTERVAL) for _, query in panel_queries()), *RECORDS.values(), *(str(r["expr"]) for r in ALERTS.values())]
    named = sorted({one.text for query in queries for one in selectors(query) if one.labels})

    assert len(named) > 50
    assert empty(watched, [(text, f"count({text})") for text in named]) == []


def test_instances_and_worker_processes_are_told_as_one_service(watched: Prometheus, services: list[Program]) -> None:
    """Both instances are in the sums, and those with several processes tell the same as one would."""
    counted = watched.query("sum by (instance) (orchestrator_decision_seconds_count)")
    whole = watched.query("sum(orchestrator_decision_seconds_count)")

    assert {one["metric"]["instance"] for one in counted} == {one.url.removeprefix("http://") for one in services}
    assert all(float(one["value"][1]) > 0 for one in counted)
    assert float(whole[0]["value"][1]) == pytest.approx(sum(float(one["value"][1]) for one in counted), abs=50)
    assert told(watched, "namespace_job:orchestrator_router_versions:count")[0]["value"][1] == "1"
    assert json.dumps(told(watched, "namespace_job:orchestrator_router_age_seconds:max"))
