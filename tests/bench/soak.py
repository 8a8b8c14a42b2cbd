"""Half of saturation for half an hour: `python -m tests.bench.soak`, or `make soak`, on a quiet machine.

`pointsman serve` on a PostgreSQL of its own, agents that answer at once; questions, streams and feedback. Saturation is measured first,
unless `--rate` is given. The load pauses after five minutes (or the first sixth of a shorter run) and at the end. What has to hold from
the pause to the end: the resident memory of all its processes, under load, grows by less than 2 %; descriptors and threads, at rest, do
not become more; every request is answered, and every 200 has its row. Exit code 1 where something does not.

Descriptors are counted at rest because under load they are as many as connections were once needed at the same time: each pool
takes its oldest connection first, so that none is idle for long enough to be closed.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.terminal import terminal
from tests.bench.offer import saturate, write_texts
from tests.bench.systems import ROOT, System, echo_agents, pointsman, running
from tests.bench.traffic import Outcome, Traffic, document_of, percentiles, rows
from tests.bench.watching import MIB, Usage, left_open, usage
from tests.contract.postgres import controlled, new_database

STEP_SECONDS = 10.0  # of each step while saturation is looked for
WARM_MINUTES, WARM_SHARE = 5.0, 1 / 6
SAMPLES = 6  # a minute
REST_SECONDS = 10.0  # more than the 8 s that a connection to an agent is idle at most
GROWTH, MORE = 0.02, 3  # of memory; descriptors or threads
console = terminal()


def main() -> None:
    """Start, load, watch, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, help="requests a second; default: half of the saturation that is measured first")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name, controlled() as postgres, echo_agents(Path(name)) as agents:
        folder, database = Path(name), new_database(postgres.address)
        service = pointsman("soak", given.state, agents, "--workers", str(given.workers), database_url=database)
        with running([service], folder) as (process,):
            rate = given.rate or saturate(service, write_texts(folder), STEP_SECONDS)[0] / 2
            console.print(f"{rate:.0f} requests/s for {given.minutes:g} minutes")
            before = len(rows(database))
            warm = min(WARM_MINUTES, given.minutes * WARM_SHARE)
            parts = asyncio.run(_run(service, rate, (warm, given.minutes - warm), process.pid))
        stored = rows(database)
    wrong = [*_grown(*parts), *_unanswered([outcome for part in parts for outcome in part.outcomes], stored, before)]
    for one in wrong:
        console.print(f"wrong: {one}", style="red", markup=False)
    console.print("all of it held" if not wrong else f"{len(wrong)} things did not hold")
    sys.exit(1 if wrong else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """Some minutes of load: what came of the requests, what the service used meanwhile, and at rest afterwards."""

    outcomes: list[Outcome]
    under_load: list[Usage]
    at_rest: Usage


async def _run(service: System, rate: float, minutes: tuple[float, ...], pid: int) -> list[Part]:
    url, parts = f"http://127.0.0.1:{service.port}", list[Part]()
    document = await document_of(url)
    for many in minutes:
        traffic, samples, ended = Traffic(url, rate, document, lm=False), list[Usage](), asyncio.Event()
        sending = asyncio.create_task(traffic.run(ended))
        while traffic.now < many * 60.0:
            await asyncio.sleep(60.0 / SAMPLES)
            samples.append(usage(pid))
            if len(samples) % SAMPLES == 0:
                last = [o for o in traffic.outcomes if o.started > traffic.now - 60.0]
                console.print(f"minute {len(samples) // SAMPLES}: {samples[-1]}; {len(last)} requests, {percentiles(last)}", style="dim")
        ended.set()
        await sending
        await asyncio.sleep(REST_SECONDS)
        parts.append(Part(traffic.outcomes, samples, usage(pid)))
    return parts


def _grown(warm: Part, soaked: Part) -> list[str]:
    """Compare the memory of the last minute of both parts (the medians), and what is there at rest after each."""
    then, now = (float(np.median([one.resident for one in part.under_load[-SAMPLES:]])) for part in (warm, soaked))
    console.print(f"resident: {then / MIB:.1f} MiB after the warm-up, {now / MIB:.1f} at the end ({now / then - 1:+.2%})")
    wrong = ["resident memory grew"] if now > then * (1 + GROWTH) else []
    console.print(f"at rest after the warm-up: {warm.at_rest}")
    console.print(f"at rest at the end:        {soaked.at_rest}")
    wrong += left_open(warm.at_rest, soaked.at_rest, MORE)
    wrong += ["threads became more"] if soaked.at_rest.threads > warm.at_rest.threads + MORE else []
    return wrong


def _unanswered(outcomes: list[Outcome], stored: set[str], before: int) -> list[str]:
    answered = {o.decision for o in outcomes if o.decision is not None}
    said = Counter(f"{o.kind}: {o.said}" for o in outcomes)
    console.print(f"{len(outcomes)} requests, {percentiles(outcomes)}: " + ", ".join(f"{n} {what}" for what, n in said.items()))
    console.print(f"{len(answered)} decisions were answered; PostgreSQL holds {len(stored) - before} of this run")
    lost = [f"decision {one} was answered and has no row" for one in answered - stored]
    more = [] if len(stored) - before == len(answered) else ["the database holds decisions of this run that nobody was answered"]
    return [*lost, *more, *(f"{o.said} of a {o.kind} at {o.started:.0f} s" for o in outcomes if not o.normal)]


if __name__ == "__main__":
    main()
