"""Does it learn? A world of requests whose right agents the router is never told: `python -m tests.bench.learning_world --data FOLDER`.

CLINC150's 10 domains (or, with `--labels intents`, its 150 intents) are agents. The router starts from 5 examples an intent. Each round
sends 1,000 requests of the training split through the real service to real HTTP agents; an agent succeeds when it is the right one, with
5 % noise; users name the right agent on 20 % of the requests, a tenth of them wrongly. Then `optimize --signature routing` makes a
challenger of the log, and the court decides. Prints accuracy on the test split by round, beside what labels for the same requests would
give, and draws the curve.
"""

import argparse
import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import aiohttp
import numpy as np
import yaml
from aiohttp import web
from matplotlib.figure import Figure as Drawing

from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.student import fit
from service.adapters.mlflow_registry import MlflowRegistry
from service.routing.encoder import Encoder, Encoding
from service.routing.student import Student
from service.terminal import terminal
from signatures.artifact import STUDENT
from tests.bench.systems import ROOT, System, free_port, running

NOISE, FEEDBACK, WRONG = 0.05, 0.2, 0.1
AT_ONCE = 6
PER_SESSION = 5
console = terminal()


@dataclass(frozen=True, slots=True)
class World:
    """Requests with their right agents: the first examples, those that users will send, and the test."""

    first: tuple[Row, ...]
    sent: tuple[Row, ...]
    test: tuple[Row, ...]

    @property
    def labels(self) -> list[str]:
        """All agents."""
        return sorted({row.label for row in self.first})


def read_world(data: Path, labels: str, size: int, seed: int) -> World:
    """Read CLINC150; texts of the test and of the first examples are taken out of what users send."""

    def rows(name: str) -> list[dict[str, str]]:
        with gzip.open(data / "clinc150" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    train = rows("train")
    domain = {row["label"]: row["domain"] for row in train}
    named = {name: name if labels == "intents" else domain[name] for name in domain}
    first, test = ([Row(row["text"], named[row["label"]]) for row in rows(name)] for name in ("train_5shot", "test"))
    taken = {row.key for row in (*first, *test)}
    left = [Row(row["text"], named[row["label"]]) for row in train]
    left = [row for row in left if row.key not in taken]
    order = np.random.default_rng(seed).permutation(len(left))[:size]
    return World(tuple(first), tuple(left[i] for i in order), tuple(test))


class Agents:
    """HTTP agents that know which requests are theirs."""

    def __init__(self, world: World, seed: int) -> None:
        self._right = {row.text: row.label for row in world.sent}
        self._noise = np.random.default_rng(seed)
        self.asked: Counter[str] = Counter()

    def take_over(self, lost: str, gains: str) -> None:
        """From now on what was one agent's is another's."""
        self._right = taken_over(self._right, lost, gains)

    async def answer(self, request: web.Request) -> web.Response:
        """Succeed where it is the right agent, with noise."""
        name, dispatch = request.match_info["name"], (await request.json())["dispatch"]
        right = self._right.get(dispatch["payload"]["context"]["raw_query"]) == name
        succeeded = right != (self._noise.random() < NOISE)
        self.asked[f"{'right' if right else 'wrong'} agent"] += 1
        now = datetime.now(UTC).isoformat()
        handoff = {
            "dispatch_id": dispatch["dispatch_id"],
            "agent_id": name,
            "agent_tier": dispatch["target_tier"],
            "execution": {"status": "success" if succeeded else "failed", "started_at": now, "completed_at": now, "latency_ms": 1},
            "result": {"primary_output": {"said": "done"}, "confidence": 0.9, "evidence": ["It was done."]},
            "errors": {} if succeeded else {"error_type": "not_mine", "error_message": "That is not what I do."},
        }
        return web.json_response({"handoff": handoff})


def taken_over(right: Mapping[str, str], lost: str, gains: str) -> dict[str, str]:
    """Return the right label of each text when what was one label's is another's."""
    return {text: gains if label == lost else label for text, label in right.items()}


def write_catalog(folder: Path, labels: Sequence[str], port: int) -> None:
    """Write a catalogue in which every label is an intent with an agent of its own."""
    agents = [
        {
            "name": name,
            "tier": 3,
            "description": f"Sees to {words(name)}.",
            "urls": [f"http://127.0.0.1:{port}/agents/{name}"],
            "receives": ["raw_query"],
        }
        for name in labels
    ]
    intents = [{"name": n, "description": f"Requests about {words(n)}.", "wish": f"see to {words(n)}", "primary_agent": n} for n in labels]
    tiers = {3: {"timeout_ms": 20_000, "max_retries": 0, "fallback": "template"}}
    files = {
        "agents": {"default_agent": labels[0], "template_text": "Nobody could. Ask to {wishes}.", "tiers": tiers, "agents": agents},
        "intents": {"fallback_intent": labels[0], "intents": intents},
        "entities": {"terms": {}},
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def settle_in(folder: Path, world: World) -> dict[str, str]:
    """Write the first examples, and return the settings of a service that lives in a folder."""
    (folder / "seed.jsonl").write_text("\n".join(json.dumps({"text": r.text, "label": r.label}) for r in world.first))
    return {
        "PYTHONPATH": str(ROOT),
        "POINTSMAN_CATALOG": str(folder / "catalog"),
        "POINTSMAN_MLFLOW_URI": f"sqlite:///{folder}/mlruns/mlflow.db",
        "POINTSMAN_DATABASE_URL": f"sqlite:///{folder}/pointsman.db",
    }


def words(label: str) -> str:
    """Return a label in words."""
    return label.replace("_", " ")


async def send_round(url: str, rows: Sequence[Row], labels: Sequence[str], rng: np.random.Generator, began: int) -> Counter[str]:
    """Send requests, a few at once, and what users say of them; return how they ended."""
    ended: Counter[str] = Counter()
    plans = [(row, rng.random() < FEEDBACK, rng.random() < WRONG, int(rng.integers(len(labels) - 1))) for row in rows]
    room = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(url) as http:

        async def one(number: int, row: Row, speaks: bool, errs: bool, other: int) -> None:
            asked = {
                "parsed_query": {"query_id": str(uuid4()), "raw_query": row.text},
                "user_id": f"u-{(began + number) // 20}",
                "session_id": f"s-{(began + number) // PER_SESSION}",
            }
            async with room:
                async with http.post("/orchestrate", json=asked) as response:
                    answer = await response.json()
                ended[answer.get("action", str(response.status))] += 1
                if speaks and "decision_id" in answer:
                    said = [label for label in labels if label != row.label][other] if errs else row.label
                    async with http.post("/feedback", json={"decision_id": answer["decision_id"], "corrected_agent": said}) as response:
                        response.raise_for_status()

        await asyncio.gather(*(one(number, *plan) for number, plan in enumerate(plans)))
    return ended


def accuracy(student: Student, rows: Sequence[Row], encodings: Sequence[Encoding]) -> Figure:
    """Return the share of the test whose likeliest label is right."""
    right = sum(next(iter(read.probabilities)) == row.label for read, row in zip(student.read_all(encodings), rows, strict=True))
    return Figure.share(right, len(rows))


def optimize(folder: Path, environment: dict[str, str], *arguments: str) -> dict[str, object]:
    """Run the optimizer as an operator does, and return what it prints for programs."""
    command = [sys.executable, "-m", "optimizers.cli", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Read the arguments, run the world, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds clinc150/")
    parser.add_argument("--labels", choices=("domains", "intents"), default="domains")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=1_000, help="of each round")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--plot", type=Path, help="where to write the curve (SVG)")
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        curve = asyncio.run(_run(given, Path(folder)))
    if given.plot is not None:
        draw(curve, given.plot, given.labels)


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured after a round."""

    requests: int
    champion: Figure
    challenger: Figure
    supervised: Figure


async def _run(given: argparse.Namespace, folder: Path) -> list[Point]:
    world = read_world(given.data, given.labels, given.rounds * given.requests, given.seed)
    rng, encoder = np.random.default_rng(given.seed), Encoder(None, threads=os.cpu_count() or 1)
    encodings = encoder.encode_many([row.text for row in world.test])
    agents, port = Agents(world, given.seed), free_port()
    write_catalog(folder / "catalog", world.labels, port)
    environment = settle_in(folder, world)
    optimize(folder, environment, "--bootstrap", "--seed-set", str(folder / "seed.jsonl"))
    registry = MlflowRegistry(environment["POINTSMAN_MLFLOW_URI"])
    console.print(f"{len(world.labels)} agents, {len(world.first)} first examples: {_show(_champion(registry, encoder, world, encodings))}")
    curve: list[Point] = []
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_post("/agents/{name}", agents.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", port).start()
        for number in range(given.rounds):
            started = time.monotonic()
            rows = world.sent[number * given.requests : (number + 1) * given.requests]
            serving = free_port()
            command = [sys.executable, "-m", "service.cli", "serve", "--port", str(serving)]
            with running([System("pointsman", command, serving, environment, settle=0.0)], folder):
                ended = await send_round(f"http://127.0.0.1:{serving}", rows, world.labels, rng, number * given.requests)
            sent = time.monotonic()
            heard = await asyncio.to_thread(optimize, folder, environment, "--signature", "routing")
            known = world.sent[: (number + 1) * given.requests]
            supervised = await asyncio.to_thread(fit, [*world.first, *known], encoder)
            made = registry.version(str(heard["version"]))
            if made is None:
                raise SystemExit("the challenger is not in the registry")
            point = Point(
                requests=len(known),
                champion=_champion(registry, encoder, world, encodings),
                challenger=accuracy(Student.load(made.folder / STUDENT, encoder), world.test, encodings),
                supervised=accuracy(supervised.student, world.test, encodings),
            )
            curve.append(point)
            console.print(
                f"round {number + 1}: {dict(ended)}; {heard['ruling']}; champion {_show(point.champion)}, challenger "
                f"{_show(point.challenger)}, labels for all {_show(point.supervised)}, champion / that "
                f"{point.champion.value / point.supervised.value:.4f}; {sent - started:.0f} s to send, {time.monotonic() - sent:.0f} s on"
            )
            console.print(f"    {heard['reason']}", style="dim")
    return curve


def _champion(registry: MlflowRegistry, encoder: Encoder, world: World, encodings: Sequence[Encoding]) -> Figure:
    champion = registry.champion()
    if champion is None:
        raise SystemExit("there is no champion")
    return accuracy(Student.load(champion.folder / STUDENT, encoder), world.test, encodings)


def _show(figure: Figure) -> str:
    return f"{figure.value:.4f} ({figure.low:.3f} to {figure.high:.3f})"


def draw(curve: Sequence[Point], path: Path, labels: str) -> None:
    """Draw accuracy by requests, with 95 % intervals."""
    drawing = Drawing(figsize=(6.4, 4.2), layout="constrained")
    axes = drawing.subplots()
    at = [point.requests for point in curve]
    for name, color, style in (("supervised", "#9ca3af", "--"), ("challenger", "#93c5fd", ":"), ("champion", "#2563eb", "-")):
        figures = [getattr(point, name) for point in curve]
        label = {
            "supervised": "labels for the same requests",
            "challenger": "challenger",
            "champion": "champion: outcomes and some feedback",
        }[name]
        axes.plot(at, [f.value for f in figures], color=color, linestyle=style, marker="o", markersize=3, label=label)
        if name == "champion":
            axes.fill_between(at, [f.low for f in figures], [f.high for f in figures], color=color, alpha=0.15)
    axes.set(xlabel="requests", ylabel="accuracy on the test split", title=f"CLINC150, {labels} as agents")
    axes.legend(frameon=False, loc="lower right")
    drawing.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
