"""What Pointsman costs a request, beside two other orchestrators: `make bench-dispatch`, on a quiet machine.

Agents answer at once, every commit is durable, the load is an open-loop Poisson process from a process of its own, questions have about
twenty tokens. Prints: the stages' times; latency at a steady rate, the systems in turn within one run; throughput at saturation. `bare`
encodes, calls an agent and commits, and nothing else: what the machine can do at the moment. The other orchestrators' models are scripted
and take no time, while Pointsman decides for real; so it is also shown with the caller's own intent, which it then takes as it is.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from service.terminal import terminal
from tests.bench.offer import offer, saturate, write_texts
from tests.bench.systems import System, echo_agents, file_name, free_port, pointsman, running

ROOT = Path(__file__).parents[2]
TWO_WORKERS = "pointsman, two workers"
console = terminal()


def main() -> None:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[5.0, 50.0], help="requests a second; at a low one nobody queues")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="the Python of the environment with tests/bench/orchestrators.txt")
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name, echo_agents(Path(name)) as agents:
        folder = Path(name)
        texts = write_texts(folder)
        *first, two_workers = sorted(_systems(given, agents, folder), key=lambda s: s.name == TWO_WORKERS)
        with running(first, folder):
            for rate in given.rates:
                _steady(first, texts, rate, given.seconds, given.rounds, folder)
            for system in first:
                _saturate(system, texts, given.seconds)
        with running([two_workers], folder):
            _saturate(two_workers, texts, given.seconds)


def _systems(given: argparse.Namespace, agents: str, folder: Path) -> list[System]:
    def ours(name: str, *more: str, body: str = "question") -> System:
        return pointsman(name, given.state, agents, *more, body=body, database_url=f"sqlite:///{folder}/{file_name(name)}.db")

    port = free_port()
    bare = System("bare", [sys.executable, "-m", "tests.bench.bare", str(port), agents, str(folder)], port, {})
    systems = [bare, ours("pointsman"), ours("pointsman, caller's intent", body="parsed_question"), ours(TWO_WORKERS, "--workers", "2")]
    for kind, name in (("langgraph", "langgraph-supervisor"), ("squad", "agent-squad")) if given.peers else ():
        port = free_port()
        command = [str(given.peers.absolute()), str(ROOT / "tests/bench/orchestrators.py"), kind, str(port), agents, str(folder)]
        systems.append(System(name, command, port, {}))
    return systems


def _steady(systems: list[System], texts: Path, rate: float, seconds: float, rounds: int, folder: Path) -> None:
    log = folder / f"{file_name('pointsman')}.log"
    before = len(log.read_text().splitlines())
    times: dict[str, list[float]] = {s.name: [] for s in systems}
    for system in systems:
        offer(system, texts, 10.0, 5.0)
    for number in range(rounds):
        for system in systems:
            result = offer(system, texts, rate, seconds, seed=number)
            _require_answers(system, result)
            times[system.name] += result["milliseconds"]
    ours = np.percentile(times["pointsman"], [50, 99])
    table = Table(
        title=f"Whole request at {rate:g} requests/s, {rounds} rounds of {seconds:g} s in turn, milliseconds", title_justify="left"
    )
    for column in ("", "p50", "p90", "p99", "p50 / pointsman's", "p99 / pointsman's"):
        table.add_column(column, justify="right" if column else "left")
    for name, values in times.items():
        p50, p90, p99 = np.percentile(values, [50, 90, 99])
        table.add_row(name, f"{p50:.1f}", f"{p90:.1f}", f"{p99:.1f}", f"{p50 / ours[0]:.2f}", f"{p99 / ours[1]:.2f}")
    console.print(table)
    _stages(log.read_text().splitlines()[before:])


def _stages(log: list[str]) -> None:
    """Print the decision's time, from the service's own log of the steady rounds."""
    lines = [json.loads(line) for line in log if '"event": "request"' in line]
    decided = [sum(line["timings_ms"].values()) for line in lines if line["rung"] == "student"]
    p50, p99 = np.percentile(decided, [50, 99])
    console.print(f"Decision (triage, intent, routing), {len(decided)} by the student: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def _saturate(system: System, texts: Path, seconds: float) -> None:
    best, offered = saturate(system, texts, seconds)
    console.print(f"{system.name}: saturated at {best:.0f} answers/s (offered {offered:.0f})")


def _require_answers(system: System, result: dict[str, Any]) -> None:
    wrong = {status: n for status, n in result["statuses"].items() if not status.startswith("200")}
    if wrong:
        console.print(f"[yellow]{system.name}: not answered: {wrong}[/]")


if __name__ == "__main__":
    main()
