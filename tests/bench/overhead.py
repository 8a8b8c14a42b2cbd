"""What Pointsman costs a request, beside two other orchestrators: `make bench-dispatch`, on a quiet machine.

Agents answer at once, every commit is durable, the load is an open-loop Poisson process from a process of its own, questions have about
twenty tokens. Prints: the stages' times; latency at a steady rate, the systems in turn within one run; throughput at saturation. `bare`
encodes, calls an agent and commits, and nothing else: what the machine can do at the moment. The other orchestrators' models are scripted
and take no time, while Pointsman decides for real; so it is also shown with the caller's own intent, which it then takes as it is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from optimizers.dataset import read_rows
from service.catalog.loader import load_catalog
from service.routing.encoder import Encoder
from service.terminal import terminal
from tests.bench.systems import System, file_name, free_port, running, wait_for

ROOT = Path(__file__).parents[2]
TOKENS = (19, 21)
TWO_WORKERS = "pointsman, two workers"
OFFERED, STEP, KEPT = 20.0, 1.2, 0.97  # requests a second; the next is so much higher, until less than so much is answered in time
SETTLE_SECONDS = 45.0  # after its start the service loads MLflow in the background
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
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder, _agents() as agents:
        texts = _write_texts(Path(folder))
        systems = _systems(given, agents, folder)
        with running([s for s in systems if s.name != TWO_WORKERS], Path(folder)) as started:
            for rate in given.rates:
                _steady(started, texts, rate, given.seconds, given.rounds, Path(folder))
            for system in started:
                _saturate(system, texts, given.seconds)
        with running([s for s in systems if s.name == TWO_WORKERS], Path(folder)) as started:
            _saturate(started[0], texts, given.seconds)


def _systems(given: argparse.Namespace, agents: str, folder: str) -> list[System]:
    pointsman = {
        "POINTSMAN_AGENTS_BASE_URL": agents,
        "POINTSMAN_MLFLOW_URI": f"sqlite:///{given.state.resolve()}/mlflow.db",
        "POINTSMAN_LOG_LEVEL": "INFO",
    }
    serve = [sys.executable, "-m", "service.cli", "serve"]

    def ours(name: str, *more: str, intent: bool = False) -> System:
        port = free_port()
        database = {"POINTSMAN_DATABASE_URL": f"sqlite:///{folder}/{file_name(name)}.db"}
        return System(name, [*serve, "--port", str(port), *more], port, pointsman | database, intent, SETTLE_SECONDS)

    port = free_port()
    bare = System("bare", [sys.executable, "-m", "tests.bench.bare", str(port), agents, folder], port, {})
    systems = [bare, ours("pointsman"), ours("pointsman, caller's intent", intent=True), ours(TWO_WORKERS, "--workers", "2")]
    for kind, name in (("langgraph", "langgraph-supervisor"), ("squad", "agent-squad")) if given.peers else ():
        port = free_port()
        systems.append(
            System(name, [str(given.peers), str(ROOT / "tests/bench/orchestrators.py"), kind, str(port), agents, folder], port, {})
        )
    return systems


def _steady(systems: list[System], texts: Path, rate: float, seconds: float, rounds: int, folder: Path) -> None:
    log = folder / f"{file_name('pointsman')}.log"
    before = len(log.read_text().splitlines())
    times: dict[str, list[float]] = {s.name: [] for s in systems}
    for system in systems:
        _load(system, texts, 10.0, 5.0)
    for number in range(rounds):
        for system in systems:
            result = _load(system, texts, rate, seconds, seed=number)
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
    """Offer more and more, until too little of it is answered in time; print the most that was answered."""
    best, offered = 0.0, OFFERED
    while True:
        result = _load(system, texts, offered, seconds)
        good = sum(n for status, n in result["statuses"].items() if status.startswith("200")) / seconds
        best = max(best, min(good, result["answered"]))
        if min(good, result["answered"]) < KEPT * result["offered"]:
            break
        offered *= STEP
    console.print(f"{system.name}: saturated at {best:.0f} answers/s (offered {offered:.0f})")


def _load(system: System, texts: Path, rate: float, seconds: float, seed: int = 7) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.load", "--url", f"http://127.0.0.1:{system.port}/orchestrate", "--texts", str(texts)]
    command += ["--rate", str(rate), "--seconds", str(seconds), "--seed", str(seed), *(["--intent"] if system.intent else [])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout))


def _require_answers(system: System, result: dict[str, Any]) -> None:
    wrong = {status: n for status, n in result["statuses"].items() if not status.startswith("200")}
    if wrong:
        console.print(f"[yellow]{system.name}: not answered: {wrong}[/]")


def _write_texts(folder: Path) -> Path:
    """Write questions of about twenty tokens, of intents that change nothing."""
    catalog, encoder = load_catalog(), Encoder()
    rows = [r for r in read_rows(ROOT / "datasets/seed") if r.label in catalog.intent and catalog.is_reading(r.label)]
    chosen = [{"text": r.text, "intent": r.label} for r in rows if TOKENS[0] <= len(encoder.encode(r.text).tokens) + 2 <= TOKENS[1]]
    path = folder / "texts.json"
    path.write_text(json.dumps(chosen))
    return path


@contextmanager
def _agents() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.echo_agents", str(port)], cwd=ROOT)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
