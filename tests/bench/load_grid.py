"""Throughput and latency under load, beside LiteLLM's proxy in the same run: `make bench-load`, on a quiet machine.

The service on SQLite and on PostgreSQL, with one worker and with two, in front of agents that answer at once; LiteLLM's proxy with one
worker and with two, in front of a model that answers at once. The load generator is a process of its own, open-loop, and asks agent and
model directly, too: what a system adds is its time less that. Systems take turns within every round. What the two kinds of system do for a
request is not the same (docs/benchmarks.md says what); what is compared is what stands between a caller and the answer. Like for like is
the caller who names the intent, as a caller of LiteLLM's names the model. In further rows the service has to read the question; it asks
for one thing, as a completion is one call of one model, and in the last row it has clauses that may ask for several.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from service.terminal import terminal
from tests.bench.offer import offer, saturate, write_texts
from tests.bench.systems import ROOT, System, echo_agents, free_port, launched, pointsman, running, wait_for
from tests.contract.postgres import controlled, new_database

CHAT = "/v1/chat/completions"
CONFIG = """
model_list:
  - model_name: scripted
    litellm_params: {{model: openai/scripted, api_base: "{address}/v1", api_key: none}}
litellm_settings: {{telemetry: false}}
"""
KEYLESS = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"  # on loopback the service has no keys either
console = terminal()


def main() -> None:
    """Start everything, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 30.0], help="requests a second, all below saturation")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--litellm", type=Path, help="the Python of the environment with tests/bench/litellm.txt")
    parser.add_argument("--state", type=Path, default=ROOT / "mlruns", help="the MLflow store with a champion")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name, controlled() as postgres, ExitStack() as stack:
        folder = Path(name)
        agents = stack.enter_context(echo_agents(folder))
        model = System("the model directly", [sys.executable, "-m", "tests.bench.scripted_model"], free_port(), {}, "chat", CHAT)
        model.command.append(str(model.port))
        stack.enter_context(launched(model, folder))
        wait_for(model.port)
        agent = System("an agent directly", [], int(agents.rpartition(":")[2]), {}, "dispatch", "/agents/explainer")
        ours = [system for workers in (1, 2) for system in _ours(given.state, agents, folder, workers, postgres.address)]
        peers = [_litellm(given.litellm.absolute(), folder, model.port, workers) for workers in (1, 2)] if given.litellm is not None else []
        stack.enter_context(running([*ours, *peers], folder))
        named = [replace(system, name=f"{system.name}: intent named", body="parsed_question") for system in ours]
        asked = [replace(system, name=f"{system.name}: question") for system in ours]
        compound = replace(ours[0], name=f"{ours[0].name}: question with clauses")
        behind = {system.name: agent for system in (*named, *asked, compound)} | {peer.name: model for peer in peers}
        turns = [agent, model, *named, *peers, *asked, compound]
        texts = dict.fromkeys((turn.name for turn in turns), write_texts(folder, clauses=False))
        texts[compound.name] = write_texts(folder, clauses=True)
        for rate in given.rates:
            _steady(turns, behind, texts, rate, given)
        _saturated([*named, *peers, *asked], texts, given.seconds / 2)


def _ours(state: Path, agents: str, folder: Path, workers: int, server: str) -> list[System]:
    option, said = ("--workers", str(workers)), "1 worker" if workers == 1 else f"{workers} workers"
    sqlite = f"sqlite:///{folder}/{workers}.db"
    return [
        pointsman(f"pointsman, {name}, {said}", state, agents, *option, database_url=database)
        for name, database in (("SQLite", sqlite), ("PostgreSQL", new_database(server)))
    ]


def _litellm(python: Path, folder: Path, model: int, workers: int) -> System:
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(CONFIG.format(address=f"http://127.0.0.1:{model}"))
    command = [str(python.parent / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "true", "LITELLM_LOG": "ERROR", "PYTHONPATH": "", KEYLESS: "true"}
    said = "1 worker" if workers == 1 else f"{workers} workers"
    command += ["--num_workers", str(workers)]
    return System(f"LiteLLM's proxy, {said}", command, port, quiet, "chat", CHAT, probe="/health/liveliness")


def _steady(turns: list[System], behind: dict[str, System], texts: dict[str, Path], rate: float, given: argparse.Namespace) -> None:
    """Measure all in turns at one rate, and print how long they took and what each added to what lies behind it."""
    times: dict[str, list[float]] = {system.name: [] for system in turns}
    for system in turns:
        offer(system, texts[system.name], 10.0, 5.0)
    for number in range(given.rounds):
        console.print(f"{rate:g} requests/s, round {number + 1} of {given.rounds}: {len(turns)} turns of {given.seconds:g} s")
        for system in turns:
            result = offer(system, texts[system.name], rate, given.seconds, seed=number)
            _require_answers(system, result)
            times[system.name] += result["milliseconds"]
    table = Table(title=f"{rate:g} requests/s, {given.rounds} rounds of {given.seconds:g} s in turn, milliseconds", title_justify="left")
    for column in ("", "p50", "p95", "p99", "added at p50", "added at p99"):
        table.add_column(column, justify="right" if column else "left")
    for name, values in times.items():
        p50, p95, p99 = np.percentile(values, [50, 95, 99])
        row = [name, f"{p50:.1f}", f"{p95:.1f}", f"{p99:.1f}"]
        if name in behind:
            direct = np.percentile(times[behind[name].name], [50, 99])
            row += [f"{p50 - direct[0]:.1f}", f"{p99 - direct[1]:.1f}"]
        table.add_row(*row)
    console.print(table)


def _saturated(turns: list[System], texts: dict[str, Path], seconds: float) -> None:
    for system in turns:
        best, offered = saturate(system, texts[system.name], seconds)
        console.print(f"{system.name}: saturated at {best:.0f} answers/s (offered {offered:.0f})")


def _require_answers(system: System, result: dict[str, Any]) -> None:
    wrong = {status: n for status, n in result["statuses"].items() if not status.startswith("200")}
    if wrong:
        console.print(f"[yellow]{system.name}: not answered: {wrong}[/]")


if __name__ == "__main__":
    main()
