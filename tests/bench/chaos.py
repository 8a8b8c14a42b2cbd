"""SIGKILL in turns of a worker, PostgreSQL, the agents and the LM, under load: `python -m tests.bench.chaos`, or `make chaos`.

`pointsman serve --workers 2` on a PostgreSQL of its own, agents that answer at once and a scripted LM, each a process of its own. What has
to hold, from the client's side: every 200 has its row at the end, every error is a documented problem, nothing is abnormal later than 5 s
after what was killed is back. A worker that is killed takes the requests with it that it was at: their connections break, and they alone;
these are counted apart. Exit code 1 where something does not hold.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from service.terminal import terminal
from tests.bench.systems import ROOT, System, free_port, launched, pointsman, running, wait_for
from tests.bench.traffic import Outcome, Traffic, document_of, percentiles, rows
from tests.bench.watching import family
from tests.contract.postgres import Server, controlled, new_database

WORKERS = 2
CALM, AWAY = 12.0, 8.0  # seconds before a part is killed, and until it is started again
RECOVERY = 5.0  # seconds
AT_ONCE = 1.0  # seconds after a worker's end in which the connections that it had break
DRAIN = 60.0  # seconds for the spool at the end
console = terminal()


@dataclass(frozen=True, slots=True)
class Fall:
    """One part's fall: when it was killed and when it was back, in seconds of the run."""

    part: str
    killed: float
    back: float


class Program:
    """A program that can be killed and started again at its port."""

    def __init__(self, module: str, folder: Path) -> None:
        self.port = free_port()
        self._module, self._folder = module, folder
        self._stack = ExitStack()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        system = System(self._module.rpartition(".")[2], [sys.executable, "-m", self._module, str(self.port)], self.port, {})
        self.process = self._stack.enter_context(launched(system, self._folder))
        wait_for(self.port)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it for good."""
        self._stack.close()


def main() -> None:
    """Start everything, kill in turns, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=25.0, help="requests a second: about a third of saturation")
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name, controlled() as postgres, ExitStack() as stack:
        folder = Path(name)
        agents, model = Program("tests.bench.echo_agents", folder), Program("tests.bench.scripted_model", folder)
        for program in (agents, model):
            stack.callback(program.stop)
            program.start()
        settings = {
            "database_url": new_database(postgres.address),
            "lm": "openai/scripted",
            "lm_api_base": f"http://127.0.0.1:{model.port}/v1",
            "lm_api_key": "none",
        }
        service = pointsman("chaos", given.state, f"http://127.0.0.1:{agents.port}", "--workers", str(WORKERS), **settings)
        (process,) = stack.enter_context(running([service], folder))
        parts = {
            "worker": _worker(process.pid, service.port),
            "postgres": (lambda: kill_postgres(postgres), postgres.start),
            "agents": (agents.kill, agents.start),
            "lm": (model.kill, model.start),
        }
        wrong = asyncio.run(_run(given, service, settings["database_url"], parts))
    for one in wrong:
        console.print(f"wrong: {one}", style="red", markup=False)
    console.print("all of it held" if not wrong else f"{len(wrong)} things did not hold")
    sys.exit(1 if wrong else 0)


Part = tuple[Callable[[], None], Callable[[], None]]  # how it is killed and how it comes back


def kill_postgres(server: Server) -> None:
    """Kill every process of a PostgreSQL."""
    for pid in reversed(family(server.pid)):
        os.kill(pid, signal.SIGKILL)


def _workers(pid: int) -> list[int]:
    return [child for child in family(pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _worker(pid: int, port: int) -> Part:
    fallen: list[int] = []

    def kill() -> None:
        fallen.append(_workers(pid)[0])
        os.kill(fallen[-1], signal.SIGKILL)

    def wait_for_another() -> None:
        """It is replaced by itself: wait until its successor has opened the socket that they share, as the metrics tell."""
        limit = time.monotonic() + 60.0
        while len([one for one in _workers(pid) if one not in fallen]) < WORKERS:
            if time.monotonic() > limit:
                raise RuntimeError("the worker was not replaced")
            time.sleep(0.1)

    return kill, wait_for_another


async def _run(given: argparse.Namespace, service: System, database: str, parts: dict[str, Part]) -> list[str]:
    url, ended = f"http://127.0.0.1:{service.port}", asyncio.Event()
    traffic = Traffic(url, given.rate, await document_of(url), lm=True)
    sending = asyncio.create_task(traffic.run(ended))
    falls: list[Fall] = []
    while traffic.now < given.minutes * 60.0 - CALM - AWAY:
        for part, (kill, bring_back) in parts.items():
            await asyncio.sleep(CALM)
            await asyncio.to_thread(kill)
            killed = traffic.now
            await asyncio.sleep(0.0 if part == "worker" else AWAY)
            await asyncio.to_thread(bring_back)
            falls.append(Fall(part, killed, traffic.now))
            console.print(f"{killed:6.1f} s {part} killed, back at {falls[-1].back:6.1f} s; {len(traffic.outcomes)} requests", style="dim")
    await asyncio.sleep(CALM)
    ended.set()
    await sending
    await asyncio.to_thread(_drain, url)
    answered = {o.decision for o in traffic.outcomes if o.decision is not None}
    stored = await asyncio.to_thread(rows, database)
    console.print(f"{len(traffic.outcomes)} requests at {given.rate:g}/s in {traffic.now:.0f} s, {percentiles(traffic.outcomes)}")
    console.print(f"{len(answered)} decisions were answered; PostgreSQL holds {len(stored)}")
    lost = [f"decision {one} was answered and has no row" for one in answered - stored]
    return [*lost, *_judge(traffic.outcomes, falls)]


def _drain(url: str) -> None:
    """Wait until no worker has anything in the spool."""
    limit = time.monotonic() + DRAIN
    empty = 0
    while empty < 5 and time.monotonic() < limit:
        families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10.0).text)
        held = sum(s.value for f in families for s in f.samples if s.name == "orchestrator_spooled")
        empty = empty + 1 if held == 0 else 0
        time.sleep(1.0)


def _judge(outcomes: list[Outcome], falls: list[Fall]) -> list[str]:
    """Print what was abnormal in the time of each fall, and say what should not have been."""
    table = Table(title="the falls, and what was not as on a good day", title_justify="left")
    for column in ("killed at", "part", "away s", "not normal until the next", "normal", "last abnormal after the return, s"):
        table.add_column(column)
    wrong = [f"{o.said} of a {o.kind} at {o.started:.1f} s is not documented" for o in outcomes if not o.documented]
    ends = [*(fall.killed for fall in falls[1:]), float("inf")]
    before = [o for o in outcomes if not falls or o.ended < falls[0].killed]
    wrong += [f"{o.said} of a {o.kind} at {o.started:.1f} s, before anything was killed" for o in before if not o.normal]
    for fall, end in zip(falls, ends, strict=True):
        inside = [o for o in outcomes if fall.killed <= o.ended < end]
        abnormal = [o for o in inside if not o.normal]
        broken = [o for o in abnormal if o.broken]
        late = max((o.started - fall.back for o in abnormal), default=0.0)
        said = Counter(f"{o.kind}: {o.said}{' by ' + o.by if o.kind == 'lm' and o.by else ''}" for o in abnormal)
        told = ", ".join(f"{count} {what}" for what, count in said.most_common(6))
        row = (f"{fall.killed:.1f}", fall.part, f"{fall.back - fall.killed:.1f}", told or "nothing")
        table.add_row(*row, str(len(inside) - len(abnormal)), f"{max(late, 0.0):.1f}")
        if late > RECOVERY:
            wrong.append(f"{fall.part}, killed at {fall.killed:.1f} s: still abnormal {late:.1f} s after its return")
        if fall.part != "worker":
            wrong += [f"{fall.part}: the connection of a {o.kind} broke at {o.ended:.1f} s ({o.said})" for o in broken]
        else:
            console.print(f"{fall.killed:6.1f} s: {len(broken)} connections broke with the worker that was killed", style="dim")
            wrong += [
                f"a connection broke {o.ended - fall.killed:.1f} s after a worker's end" for o in broken if o.ended > fall.killed + AT_ONCE
            ]
    console.print(table)
    return wrong


if __name__ == "__main__":
    main()
