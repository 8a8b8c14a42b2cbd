"""What one hanging agent of sixteen costs the requests to the others: `python -m tests.bench.hanging`, on a quiet machine.

A hundred callers ask one after the other without a pause: six of them the agent that will hang, the others the fifteen others. The service
is a real process with its own catalogue, in which every agent has two seconds. Rounds without and with the hang take turns; prints the
others' latency in both, their ratio, and when the breaker opens and closes.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import aiohttp
import numpy as np
from rich.table import Table

from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from service.catalog.loader import load_catalog
from service.terminal import terminal
from tests.bench.systems import ROOT, System, aside, hasty_catalog, pointsman, running

CALLERS, OF_THE_STUCK = 100, 6
STUCK = "gap_analyzer"
TIMEOUT_MS = 2_000
HANGS = FaultPlan(faults=(PlannedFault(agent=STUCK, fault=Fault.HANG),))
console = terminal()


def main() -> None:
    """Start, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        asyncio.run(_measure(given, Path(folder)))


async def _measure(given: argparse.Namespace, folder: Path) -> None:
    async with FaultServer() as agents:
        system = _system(given.state, folder, agents.address)
        http = aiohttp.ClientSession(f"http://127.0.0.1:{system.port}", connector=aiohttp.TCPConnector(limit=0))
        async with aside(running([system], folder)), http:
            await _rounds(given, agents, http)


async def _rounds(given: argparse.Namespace, agents: FaultServer, http: aiohttp.ClientSession) -> None:
    idle, beside, wrong = list[float](), list[float](), Counter[str]()
    await _crowd(http, 3.0, wrong)  # warm
    for _ in range(given.rounds):
        idle += await _crowd(http, given.seconds, wrong)
        agents.follow(HANGS)
        started = time.monotonic()
        opening = asyncio.create_task(_until(http, started, "open", "half_open"))
        beside += await _crowd(http, given.seconds, wrong)
        opened = await opening
        agents.follow(FaultPlan())
        closed = await _until(http, time.monotonic(), "closed", ask=True)
        console.print(
            f"the breaker opened {opened:.1f} s after the agent had begun to hang, and closed {closed:.1f} s after it answered again"
        )
    table = Table(title=f"requests to the others, {given.rounds} rounds of {given.seconds:g} s in turn", title_justify="left")
    for column in ("", "answers", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right" if column else "left")
    for name, times in (("all agents answer", idle), (f"{STUCK} hangs", beside)):
        table.add_row(name, str(len(times)), *(f"{np.percentile(times, q) * 1_000:.0f}" for q in (50, 99)))
    console.print(table)
    console.print(f"p99 beside the hanging agent / p99 of an idle run: {np.percentile(beside, 99) / np.percentile(idle, 99):.2f}")
    console.print(f"other statuses of requests to the others: {dict(wrong) or 'none'}")


async def _crowd(http: aiohttp.ClientSession, seconds: float, wrong: Counter[str]) -> list[float]:
    """Ask for a while; return how long each request to the others took, in seconds."""
    until, taken = time.monotonic() + seconds, list[float]()
    catalog = load_catalog()
    names = itertools.cycle(a.name for a in catalog.agents if a.name != STUCK and a.idempotent)

    async def ask_others() -> None:
        while time.monotonic() < until:
            started = time.monotonic()
            status = await _ask(http, next(names))
            taken.append(time.monotonic() - started)
            if status != "success":
                wrong[status] += 1

    async def ask_the_stuck() -> None:
        while time.monotonic() < until:
            await _ask(http, STUCK)

    await asyncio.gather(*(ask_others() for _ in range(CALLERS - OF_THE_STUCK)), *(ask_the_stuck() for _ in range(OF_THE_STUCK)))
    return taken


async def _ask(http: aiohttp.ClientSession, agent: str) -> str:
    asked = {"parsed_query": {"query_id": str(uuid4()), "raw_query": f"@{agent} what is new?"}, "user_id": "bench", "session_id": "bench"}
    async with http.post("/orchestrate", json=asked) as response:
        answer = await response.json()
        return str(answer.get("code", answer["status"]))


async def _until(http: aiohttp.ClientSession, since: float, *states: str, ask: bool = False) -> float:
    """Wait until the breaker is in one of these states; return the seconds since."""
    async with asyncio.timeout(60):
        while True:
            async with http.get("/agents") as response:
                state = next(a["breaker"] for a in await response.json() if a["name"] == STUCK)
            if state in states:
                return time.monotonic() - since
            if ask:
                await _ask(http, STUCK)
            await asyncio.sleep(0.1)


def _system(state: Path, folder: Path, agents: str) -> System:
    catalog, database = str(hasty_catalog(folder, TIMEOUT_MS)), f"sqlite:///{folder}/bench.db"
    return pointsman("pointsman", state, agents, settle=30.0, catalog=catalog, database_url=database)


if __name__ == "__main__":
    main()
