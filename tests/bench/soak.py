"""Half of saturation for half an hour: `python -m tests.bench.soak`, or `make soak`, on a quiet machine.

`pointsman serve` on a PostgreSQL of its own, agents that answer at once; questions, streams and feedback. Saturation is measured first,
unless `--rate` is given. What has to hold: from the fifth minute (or the first sixth of a shorter run) to the end the resident memory of
all its processes grows by less than 2 %, descriptors and threads do not become more, every request is answered, and every 200 has its row.
Exit code 1 where something does not.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from service.terminal import terminal
from tests.bench.offer import saturate, write_texts
from tests.bench.systems import ROOT, System, echo_agents, pointsman, running
from tests.bench.traffic import Traffic, document_of, percentiles, rows
from tests.bench.watching import MIB, Usage, usage
from tests.contract.postgres import controlled, new_database

STEP_SECONDS = 10.0  # of each step while saturation is looked for
WARM_MINUTES, WARM_SHARE = 5.0, 1 / 6
SAMPLES = 6  # a minute
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
            traffic, samples, before = asyncio.run(_run(service, rate, given.minutes, process.pid, database))
        stored = rows(database)
    wrong = [*_grown(samples, given.minutes), *_unanswered(traffic, stored, before)]
    for one in wrong:
        console.print(f"wrong: {one}", style="red", markup=False)
    console.print("all of it held" if not wrong else f"{len(wrong)} things did not hold")
    sys.exit(1 if wrong else 0)


async def _run(service: System, rate: float, minutes: float, pid: int, database: str) -> tuple[Traffic, list[Usage], int]:
    url, ended, before = f"http://127.0.0.1:{service.port}", asyncio.Event(), len(await asyncio.to_thread(rows, database))
    traffic, samples = Traffic(url, rate, await document_of(url), lm=False), list[Usage]()
    sending = asyncio.create_task(traffic.run(ended))
    while traffic.now < minutes * 60.0:
        await asyncio.sleep(60.0 / SAMPLES)
        samples.append(usage(pid))
        if len(samples) % SAMPLES == 0:
            last = [o for o in traffic.outcomes if o.started > traffic.now - 60.0]
            console.print(f"minute {len(samples) // SAMPLES}: {samples[-1]}; {len(last)} requests, {percentiles(last)}", style="dim")
    ended.set()
    await sending
    return traffic, samples, before


def _grown(samples: list[Usage], minutes: float) -> list[str]:
    """Compare the minute after the warm-up with the last one.

    Of memory the medians; of descriptors and threads the least, since more are in use whenever more requests happen to be under way.
    """
    warm = int(min(WARM_MINUTES, minutes * WARM_SHARE) * SAMPLES)
    first, last = samples[warm : warm + SAMPLES], samples[-SAMPLES:]
    wrong = []
    for name, most in (("resident", None), ("descriptors", MORE), ("threads", MORE)):
        middle = np.median if most is None else np.min
        then, now = (float(middle([getattr(one, name) for one in some])) for some in (first, last))
        unit = MIB if name == "resident" else 1
        console.print(f"{name}: {then / unit:.1f} after the warm-up, {now / unit:.1f} at the end ({now / then - 1:+.2%})")
        if now > then * (1 + GROWTH) if most is None else now > then + most:
            wrong.append(f"{name} grew")
    return wrong


def _unanswered(traffic: Traffic, stored: set[str], before: int) -> list[str]:
    answered = {o.decision for o in traffic.outcomes if o.decision is not None}
    said = Counter(f"{o.kind}: {o.said}" for o in traffic.outcomes)
    console.print(
        f"{len(traffic.outcomes)} requests, {percentiles(traffic.outcomes)}: " + ", ".join(f"{n} {what}" for what, n in said.items())
    )
    console.print(f"{len(answered)} decisions were answered; PostgreSQL holds {len(stored) - before} of this run")
    lost = [f"decision {one} was answered and has no row" for one in answered - stored]
    more = [] if len(stored) - before == len(answered) else ["the database holds decisions of this run that nobody was answered"]
    return [*lost, *more, *(f"{o.said} of a {o.kind} at {o.started:.0f} s" for o in traffic.outcomes if not o.normal)]


if __name__ == "__main__":
    main()
