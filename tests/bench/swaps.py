"""Does a swap cost anything? `python -m tests.bench.swaps`: 100 promotions in ten minutes under 50 requests a second.

A fifth of the versions cannot be served: altered, cut off, for other intents, telling lies, or a pipe where a file should be. Two kinds of
good versions read one text differently, so a request that was understood by one and written down under another would be seen. Prints what
failed, what was mixed, how soon a promotion was served, and the service's memory at the start and at the end.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import aiohttp
from aiohttp import web
from rich.console import Console

from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from signatures.artifact import MANIFEST, STUDENT
from tests.bench.learning_world import write_catalog
from tests.bench.systems import ROOT, System, free_port, running

LABELS = ("invoices", "refunds", "shipping")
ASKS = {
    "invoices": ["which invoices are overdue", "list what they have not paid", "does this firm owe us money", "show unpaid bills"],
    "refunds": ["give them the money back", "refund this order", "they want to be reimbursed", "pay back what was paid twice"],
    "shipping": ["where is the parcel", "has the order left the warehouse", "track what we sent", "when does the delivery arrive"],
}
TOLD = "please do the quarterly zorblification of the ledger"  # one kind of version learned that it is an invoice, the other a refund
console = Console(highlight=False, soft_wrap=True)


@dataclass
class Seen:
    """What came of the load."""

    statuses: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    mixed: list[str] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)


def _rewrite(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def _lie(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    other = {"invoices": "refunds", "refunds": "shipping", "shipping": "invoices"}
    _rewrite(folder, rehearsal=[{**one, "label": other[one["label"]]} for one in manifest["rehearsal"]])


def _pipe(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


SPOILED: dict[str, Callable[[Path], object]] = {
    "altered": lambda folder: (folder / STUDENT).write_bytes((folder / STUDENT).read_bytes()[:-8] + b"\0" * 8),
    "cut off": lambda folder: (folder / STUDENT).write_bytes((folder / STUDENT).read_bytes()[:1_000]),
    "for other intents": lambda folder: _rewrite(folder, label_set=["poetry", "shipping"]),
    "a lie": _lie,
    "a pipe": _pipe,
}


async def answer(request: web.Request) -> web.Response:
    """Be an agent that succeeds at once."""
    dispatch = (await request.json())["dispatch"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    handoff = {
        "dispatch_id": dispatch["dispatch_id"],
        "agent_id": request.match_info["name"],
        "agent_tier": dispatch["target_tier"],
        "execution": {"status": "success", "started_at": now, "completed_at": now, "latency_ms": 1},
        "result": {"primary_output": {"said": "done"}, "confidence": 0.9, "evidence": ["It was done."]},
    }
    return web.json_response({"handoff": handoff})


async def load(url: str, rate: float, seconds: float, kinds: dict[str, str], seen: Seen) -> None:
    """Send requests at a rate, whatever comes back; every third is the text that the two kinds of versions read differently."""
    texts = [text for asks in ASKS.values() for text in asks]
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=30)) as http:

        async def one(number: int) -> None:
            text = TOLD if number % 3 == 0 else texts[number % len(texts)]
            asked = {"parsed_query": {"query_id": str(uuid4()), "raw_query": text}, "user_id": "u", "session_id": f"s-{number}"}
            try:
                async with http.post("/orchestrate", json=asked) as response:
                    said = await response.json()
                    seen.statuses[str(response.status)] += 1
            except (aiohttp.ClientError, TimeoutError) as exc:
                seen.statuses[type(exc).__name__] += 1
                return
            version = str(said.get("router_version"))
            seen.versions[version] += 1
            seen.first.setdefault(version, time.monotonic())
            if text == TOLD and said.get("intent") != kinds.get(version):
                seen.mixed.append(f"version {version} is of kind {kinds.get(version)} and said {said.get('intent_classified')}")

        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                group.create_task(one(number))


async def swap(
    registry: MlflowRegistry, good: list[RegisteredVersion], swaps: int, seconds: float, kinds: dict[str, str], promoted: dict[str, float]
) -> None:
    """Register and promote versions, evenly over the time."""
    draws, began = random.Random(1), time.monotonic()
    spoiled = set(draws.sample(range(swaps), swaps // 5))
    names = list(SPOILED)
    for number in range(swaps):
        await asyncio.sleep(max(0.0, began + number * seconds / swaps - time.monotonic()))
        which = number % 2

        def make(number: int = number, which: int = which) -> str:
            version = registry.register(good[which].folder, params={"job": "swap"}, metrics={}, promote=False)
            if number in spoiled:
                SPOILED[names[number % len(names)]](version.folder)
            else:
                kinds[version.number] = kinds[good[which].number]
            registry.promote(version.number)
            return version.number

        made = await asyncio.to_thread(make)
        if number not in spoiled:
            promoted[made] = time.monotonic()


def memory_of(folder: Path) -> float:
    """Return the resident memory of the service's process in MiB."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            if b"serve" in command and (process / "cwd").resolve() == folder.resolve():
                status = (process / "status").read_text()
                return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024
        except (OSError, StopIteration):
            continue
    return 0.0


async def run(folder: Path, options: argparse.Namespace) -> None:
    """Set everything up, load and swap, and print."""
    agents_port, port = free_port(), free_port()
    app = web.Application()
    app.router.add_post("/agents/{name}/execute", answer)
    app.router.add_post("/agents/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", agents_port).start()
    write_catalog(folder / "catalog", LABELS, agents_port)
    (folder / ".env").write_text("POINTSMAN_CATALOG=catalog\n")
    registry, kinds = MlflowRegistry(f"sqlite:///{folder}/mlruns/mlflow.db"), {}
    good = []
    for told in ("invoices", "refunds"):
        rows = [{"text": text, "label": label} for label, asks in ASKS.items() for text in asks]
        rows += [{"text": f"{TOLD}{end}", "label": told} for end in ("", " now", " today", " again", " for me")]
        (folder / f"{told}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        command = [sys.executable, "-m", "optimizers.cli", "--bootstrap", "--seed-set", f"{told}.jsonl", "--promote"]
        await asyncio.to_thread(
            subprocess.run, command, cwd=folder, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        champion = registry.champion()
        if champion is None:
            raise RuntimeError("no champion")
        kept = RegisteredVersion(champion.number, folder / "kept" / told)
        shutil.copytree(champion.folder, kept.folder)
        good.append(kept)
        kinds[champion.number] = told
    start = f"cd {folder} && exec {sys.executable} -m service.cli serve --port {port}"
    system = System("pointsman", ["bash", "-c", start], port, {}, settle=options.settle)
    seen, promoted, memory = Seen(), {}, []

    async def weigh() -> None:
        while True:
            memory.append(memory_of(folder))
            await asyncio.sleep(2.0)

    with running([system], folder):
        weighing = asyncio.create_task(weigh())
        await asyncio.gather(
            load(f"http://127.0.0.1:{port}", options.rate, options.seconds, kinds, seen),
            swap(registry, good, options.swaps, options.seconds - 15.0, kinds, promoted),
        )
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as response:
            reloads = [line for line in (await response.text()).splitlines() if line.startswith("orchestrator_router_reloads_total")]
        weighing.cancel()
    await runner.cleanup()
    followed = sorted(seen.first[v] - at for v, at in promoted.items() if v in seen.first and seen.first[v] > at)
    minute = max(1, int(60 / 2))
    console.print(
        f"{sum(seen.statuses.values())} requests: {dict(seen.statuses)}; {len(seen.mixed)} mixed {seen.mixed[:3]}", highlight=False
    )
    console.print(
        f"{len(seen.versions)} versions answered, of {len(promoted)} good ones promoted in {options.swaps} swaps", highlight=False
    )
    unknown = [version for version in seen.versions if version not in kinds]
    console.print(f"versions that could not be served and answered all the same: {unknown}; {reloads}")
    if followed:
        p50, worst = followed[len(followed) // 2], followed[-1]
        console.print(f"a promotion was served after {p50:.1f} s (median), {worst:.1f} s at most")
    begin, end = sorted(memory[:minute])[len(memory[:minute]) // 2], sorted(memory[-minute:])[len(memory[-minute:]) // 2]
    console.print(f"memory {begin:.0f} MiB in the first minute, {end:.0f} MiB in the last, {max(memory):.0f} at most")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--settle", type=float, default=30.0, help="seconds before the load, in which the registry is asked first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pointsman-swaps-") as folder:
        asyncio.run(run(Path(folder), options))


if __name__ == "__main__":
    main()
