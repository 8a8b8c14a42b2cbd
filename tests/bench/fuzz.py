"""50,000 hostile requests to a real service: `python -m tests.bench.fuzz`, or `make fuzz`.

The agents misbehave, too: each of their faults strikes one dispatch in 300. Request N of a seed is always made in the same way, but for the
ids that earlier answers brought. What has to hold: no 5xx (few requests are sent at a time, so there is room for each), statuses that
the OpenAPI document names, problems in form, an answer or an end of the connection to everything in time, the same memory and
descriptors at the end as after the warm-up, and a row for every 200. Exit code 1 where something does not.
"""

import argparse
import asyncio
import contextlib
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from service.agents.faults.kinds import Fault
from service.agents.faults.plan import EVERY_AGENT, FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from service.terminal import terminal
from tests.bench.fuzz_client import Fuzzed
from tests.bench.systems import ROOT, aside, file_name, hasty_catalog, pointsman, running
from tests.bench.watching import Usage, left_open, usage

WARM = 20_000  # requests; by then what has a bound (series of metrics, pages, remembered texts) is filled: measured, at 18,000
TIMEOUT_MS = 400  # of every agent
GROWTH, MORE_DESCRIPTORS = 0.02, 3
CALM = 10.0  # seconds until what was left behind has ended; the longest are idle connections to agents, 8 s
SHOWN = 40  # of what is wrong
SHOWN_EVERY = 5_000  # requests
console = terminal()


def main() -> None:
    """Start, send, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        wrong = asyncio.run(_fuzz(given, Path(folder)))
    for one in wrong[:SHOWN]:
        console.print(f"wrong: {one}", style="red", markup=False)
    console.print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    sys.exit(1 if wrong else 0)


async def _fuzz(given: argparse.Namespace, folder: Path) -> list[str]:
    database, warm = folder / "fuzz.db", min(WARM, given.requests * 2 // 5)
    async with FaultServer(plan=_plan()) as agents:
        catalog = str(hasty_catalog(folder, TIMEOUT_MS))
        service = pointsman(
            "fuzzed", given.state, agents.address, catalog=catalog, database_url=f"sqlite:///{database}", log_level="WARNING"
        )
        async with aside(running([service], folder)) as (process,):
            document = httpx.get(f"http://127.0.0.1:{service.port}/openapi.json").json()
            fuzzed = Fuzzed(service.port, document, given.seed)
            started = time.monotonic()
            await fuzzed.run(0, warm)
            await asyncio.sleep(CALM)
            before = usage(process.pid)
            slow = asyncio.create_task(fuzzed.be_slow())
            for first in range(warm, given.requests, SHOWN_EVERY):
                await fuzzed.run(first, min(first + SHOWN_EVERY, given.requests))
                console.print(f"{first + SHOWN_EVERY} requests, {len(fuzzed.wrong)} wrong; {usage(process.pid)}", style="dim")
            await slow
            seconds = time.monotonic() - started
            await asyncio.sleep(CALM)
            after = usage(process.pid)
            if fuzzed.shed:
                fuzzed.wrong.append(f"{fuzzed.shed} requests got 503, though few were sent at a time")
            fuzzed.wrong += [f"no request to {path} was answered well" for path in fuzzed.unreached()]
            if not await fuzzed.still_answers():
                fuzzed.wrong.append("a plain question is not answered any more")
    log = (folder / f"{file_name(service.name)}.log").read_text(errors="replace")
    console.print(
        f"{given.requests} requests in {seconds:.0f} s, seed {given.seed}; the slowest took {fuzzed.slowest:.1f} s, {fuzzed.shed} shed"
    )
    _tell(fuzzed, agents)
    return [*fuzzed.wrong, *_grown(before, after), *_lost(fuzzed.answered, database), *_unforeseen(log)]


def _plan() -> FaultPlan:
    more = {Fault.HTTP_STATUS: {"status": 418}}
    return FaultPlan(faults=tuple(PlannedFault(agent=EVERY_AGENT, fault=fault, share=1 / 300, **more.get(fault, {})) for fault in Fault))


def _tell(fuzzed: Fuzzed, agents: FaultServer) -> None:
    console.print("kinds: " + ", ".join(f"{kind} {count}" for kind, count in sorted(fuzzed.kinds.items())))
    totals = Counter[str]()
    for name, count in fuzzed.statuses.items():
        totals[name.rpartition(" ")[2]] += count
    console.print("answers by status: " + ", ".join(f"{status} {count}" for status, count in sorted(totals.items())))
    console.print("of routes: " + ", ".join(f"{name} {count}" for name, count in sorted(fuzzed.statuses.items()) if name.startswith("/")))
    struck = Counter(one.fault for one in agents.received if one.fault is not None)
    console.print(
        f"dispatches: {agents.counts.total()}; of the last {len(agents.received)}, {struck.total()} met one of {len(struck)} faults"
    )


def _grown(before: Usage, after: Usage) -> list[str]:
    console.print(f"after the warm-up: {before}")
    console.print(f"at the end:        {after} ({after.resident / before.resident - 1:+.1%} of memory)")
    wrong = [] if after.resident <= before.resident * (1 + GROWTH) else [f"memory grew by more than {GROWTH:.0%}"]
    return [*wrong, *left_open(before, after, MORE_DESCRIPTORS)]


def _lost(answered: set[str], database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT decision_id FROM decision JOIN signal USING (decision_id)").fetchall()
    rows = {str(one).replace("-", "") for (one,) in found}
    console.print(f"{len(answered)} decisions were answered; the database holds {len(rows)}")
    return [f"decision {one} was answered and has no row" for one in answered if one.replace("-", "") not in rows]


def _unforeseen(log: str) -> list[str]:
    console.print(f"the log has {len(log.splitlines())} lines")
    found = [line for line in log.splitlines() if re.search(r"unforeseen_error|Traceback|never awaited", line)]
    return [f"the log says: {line[:150]} ... {line[-350:]}" for line in found]


if __name__ == "__main__":
    main()
