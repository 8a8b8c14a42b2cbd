"""One agent of sixteen hangs while a hundred requests are under way: the others answer as ever, and it is used again afterwards."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
from pydantic import AnyHttpUrl

from service.adapters.http_agents import HttpAgents
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from service.catalog.loader import load_catalog
from service.catalog.model import Catalog
from service.flows.breaker import BreakerState
from service.flows.slots import Slots
from service.settings import Settings
from tests.conftest import World, body

CATALOG = load_catalog()
STUCK = "gap_analyzer"
TIMEOUT = 1.0  # seconds of every agent; the tiers' own would take minutes
CROWD = 100
HANGS = FaultPlan(faults=(PlannedFault(agent=STUCK, fault=Fault.HANG),))


def _behind(server: FaultServer) -> Catalog:
    agents = tuple(
        agent.model_copy(update={"urls": (AnyHttpUrl(server.url(agent.name)),), "timeout_ms": int(TIMEOUT * 1_000), "required_output": ()})
        for agent in CATALOG.agents
    )
    return replace(CATALOG, agents=agents)


def _questions(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return agent and body, all agents in turn but those that have to be asked first."""
    names = [agent.name for agent in CATALOG.agents if agent.idempotent]
    for number in range(count):
        name = names[number % len(names)]
        yield name, body(f"@{name} what about number {number}?")


PATIENT = Settings(_env_file=None, decision_budget_ms=20_000)  # type: ignore[call-arg]  # pydantic-settings' own argument; a busy machine sheds nobody


async def _ask(client: httpx.AsyncClient, question: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any], float]:
    name, asked = question
    started = time.monotonic()
    response = await client.post("/orchestrate", json=asked, timeout=30.0)
    assert response.status_code == 200, response.text
    return name, response.json(), time.monotonic() - started


async def test_a_hanging_agent_takes_nobody_along_and_comes_back() -> None:
    """The others' answers are their own and quick; the breaker opens, so that nobody waits any more; it closes when the agent answers."""
    async with FaultServer(HANGS) as server:
        world = World(_behind(server), None, deciding=Slots(4, most_waiting=CROWD), settings=PATIENT)
        world.agents = client = HttpAgents()  # type: ignore[assignment]  # the real adapter in place of the fake
        stuck = world.catalog.agent[STUCK]
        async with world.client() as http:
            crowd = await asyncio.gather(*(_ask(http, question) for question in _questions(CROWD)))
            opened = world.health.state(stuck)
            late = [await _ask(http, (STUCK, body(f"@{STUCK} and now?"))) for _ in range(5)]
            server.follow(FaultPlan())
            async with asyncio.timeout(30):
                while world.health.state(stuck) is not BreakerState.CLOSED:
                    await _ask(http, (STUCK, body(f"@{STUCK} are you back?")))
                    await asyncio.sleep(0.2)
            _, back, _ = await _ask(http, (STUCK, body(f"@{STUCK} where is the gap?")))
        await client.close()

    for name, answer, _ in crowd:
        if name != STUCK:
            assert (answer["status"], answer["agents_dispatched"]) == ("success", [name])
    waited = [seconds for name, _, seconds in crowd if name == STUCK]
    others = [seconds for name, _, seconds in crowd if name != STUCK]
    assert min(waited) > TIMEOUT > max(others) / 10
    assert opened is not BreakerState.CLOSED
    assert all(answer["agents_dispatched"] == ["explainer"] and seconds < TIMEOUT for _, answer, seconds in late)
    assert (back["status"], back["agents_dispatched"]) == ("success", [STUCK])
    assert server.open_connections == 0
