"""Does the student take over from an LM, and give back what drifts? `python -m tests.bench.distillation --data FOLDER`.

CLINC150's 10 domains are agents; an LM behind the OpenAI protocol knows the right one but for 3 %. The router starts from 5 examples an
intent. Each round sends 1,000 requests through the real service, which asks the LM what its student is unsure of; nobody says anything of
the answers. Then `optimize --signature routing --optimizer student` learns from what the LM decided and from what came of it. Prints by
round the share answered without the LM and how much of it is right. At the end one agent's requests become another's, and it is counted
how many requests it takes until the service asks the LM again.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import aiohttp
import numpy as np
from aiohttp import web
from rich.console import Console

from optimizers.dataset import Row
from optimizers.evaluate import Figure
from service.adapters.region_log import RegionLog
from service.routing.regions import total
from signatures.quoting import quote
from tests.bench.learning_world import AT_ONCE, PER_SESSION, Agents, World, optimize, read_world, settle_in, taken_over, write_catalog
from tests.bench.systems import ROOT, System, free_port, running

ERRS = 0.03  # of the LM
LOST, GAINS = "banking", "credit_cards"  # after the drift the second sees to what was the first one's
PATIENCE = 600.0  # seconds in which a region has to be given back
console = Console(highlight=False, soft_wrap=True)


class Oracle:
    """An LM that knows whose request a text is, nearly always."""

    def __init__(self, right: dict[str, str], seed: int) -> None:
        self._right, self._draws = right, np.random.default_rng(seed)
        self.asked = 0

    def take_over(self, lost: str, gains: str) -> None:
        """From now on what was one agent's is another's."""
        self._right = taken_over(self._right, lost, gains)

    async def complete(self, request: web.Request) -> web.Response:
        """Answer as DSPy's JSON adapter wants it."""
        asked = await request.json()
        self.asked += 1
        content = self._choose("\n".join(one["content"] for one in asked["messages"] if one["role"] == "user"))
        message = {"role": "assistant", "content": json.dumps(content)}
        used = {"prompt_tokens": 400, "completion_tokens": 30, "total_tokens": 430}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"], "choices": [choice], "usage": used}
        )

    def _choose(self, prompt: str) -> dict[str, object]:
        said, _, allowed = prompt.rpartition(" is one of: ")
        if not said:
            return {"response_text": "It was done."}  # it is asked to put the agents' answers into words
        labels = allowed.strip().rstrip(".").split(", ")
        text = said.rpartition("[[ ## query ## ]]\n")[2].partition("\n\n")[0]
        right = self._right.get(text.strip(), labels[0])
        label = right if right in labels and self._draws.random() >= ERRS else labels[int(self._draws.integers(len(labels)))]
        if said.split()[-1] == "intent":
            return {"intent": label, "sub_intent": "that", "confidence": 0.9}
        return {"primary_agent": label, "secondary_agents": [], "routing_confidence": 0.9, "routing_rationale": "it fits"}


async def send(http: aiohttp.ClientSession, rows: Sequence[Row], began: int) -> list[tuple[str, str, bool]]:
    """Send requests, a few at once; return for each its right label, the rung that decided, and whether it decided rightly."""
    room, seen = asyncio.Semaphore(AT_ONCE), list[tuple[str, str, bool]]()

    async def one(number: int, row: Row) -> None:
        asked = {
            "parsed_query": {"query_id": str(uuid4()), "raw_query": row.text},
            "user_id": f"u-{(began + number) // 20}",
            "session_id": f"s-{(began + number) // PER_SESSION}",
        }
        async with room, http.post("/orchestrate", json=asked) as response:
            answer = await response.json()
        if answer.get("action") == "dispatch":
            seen.append((row.label, answer["rung"], answer["intent"] == row.label))
        else:
            seen.append((row.label, str(answer.get("action")), False))

    await asyncio.gather(*(one(number, row) for number, row in enumerate(rows)))
    return seen


def told(seen: Sequence[tuple[str, str, bool]]) -> str:
    """Say what a round came to."""
    of = {rung: [right for _, by, right in seen if by == rung] for rung in ("student", "lm")}
    decided = len(of["student"]) + len(of["lm"])
    local = Figure.share(len(of["student"]), decided)
    parts = [f"{local.value:.1%} of {decided} without the LM ({local.low:.1%} to {local.high:.1%})"]
    for rung, rights in of.items():
        figure = Figure.share(sum(rights), len(rights))
        parts.append(f"{rung} right {figure.value:.1%} ({figure.low:.1%} to {figure.high:.1%})" if rights else f"{rung} never")
    others = Counter(by for _, by, _ in seen if by not in of)
    return "; ".join(parts) + (f"; {dict(others)}" if others else "")


async def run(given: argparse.Namespace, folder: Path) -> None:
    """Set the world up, send rounds, learn, let it drift, and print."""
    world = read_world(given.data, "domains", (given.rounds + 3) * given.requests, given.seed)
    agents, oracle = Agents(world, given.seed), Oracle({quote(row.text, 2_000): row.label for row in world.sent}, given.seed)
    port, serving = free_port(), free_port()
    write_catalog(folder / "catalog", world.labels, port)
    environment = settle_in(folder, world)
    with_lm = {
        "POINTSMAN_LM": "openai/oracle",
        "POINTSMAN_LM_API_BASE": f"http://127.0.0.1:{port}/v1",
        "POINTSMAN_LM_API_KEY": "none",
        "POINTSMAN_LM_AUDIT": str(given.audit),
    }
    optimize(folder, environment, "--bootstrap", "--seed-set", str(folder / "seed.jsonl"))
    log = RegionLog(environment["POINTSMAN_DATABASE_URL"])
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_post("/agents/{name}", agents.answer)
        app.router.add_post("/v1/chat/completions", oracle.complete)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", port).start()
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(serving)]
        with running([System("pointsman", command, serving, environment | with_lm, settle=0.0)], folder):
            async with aiohttp.ClientSession(f"http://127.0.0.1:{serving}") as http:
                for number in range(given.rounds):
                    rows = world.sent[number * given.requests : (number + 1) * given.requests]
                    console.print(f"round {number + 1}: {told(await send(http, rows, number * given.requests))}")
                    wish = ("--signature", "routing", "--optimizer", "student")
                    heard = await asyncio.to_thread(optimize, folder, environment, *wish)
                    console.print(f"    {oracle.asked} calls of the LM so far; {heard['ruling']}: {heard['reason']}", style="dim")
                    await asyncio.sleep(10.0)
                await drift(http, log, world, agents, oracle, given)
        shown = [sys.executable, "-m", "service.cli", "routers", "regions"]
        done = subprocess.run(shown, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
        console.print(done.stdout + done.stderr)


async def drift(
    http: aiohttp.ClientSession, log: RegionLog, world: World, agents: Agents, oracle: Oracle, given: argparse.Namespace
) -> None:
    """Make one agent's requests another's, and send until the LM is asked about them again."""
    left = [Row(row.text, GAINS if row.label == LOST else row.label) for row in world.sent[given.rounds * given.requests :]]
    agents.take_over(LOST, GAINS)
    oracle.take_over(LOST, GAINS)
    theirs = {row.text for row in world.sent if row.label == LOST}
    began, sent, before = time.monotonic(), 0, Counter[str]()
    while time.monotonic() - began < PATIENCE:
        rows = [left[(sent + i) % len(left)] for i in range(100)]
        seen = await send(http, rows, 1_000_000 + sent)
        sent += len(rows)
        version = (await (await http.get("/readyz")).json()).get("router_version")
        given_back = log.given_back(str(version)) if version else {}
        if LOST in given_back:
            whole = total(log.tallies(str(version)))
            console.print(
                f"drift: {LOST} was given back after {sent} requests, {time.monotonic() - began:.0f} s; {whole.audited} audits in all; "
                f"others given back: {sorted(set(given_back) - {LOST})}"
            )
            break
        before.update(by for label, by, right in seen if label == GAINS and not right)
    else:
        console.print(f"drift: nothing was given back in {sent} requests")
        return
    await asyncio.sleep(10.0)
    rows = [row for row in left if row.text in theirs][:100]
    seen = await send(http, rows, 2_000_000)
    console.print(f"their requests before that, wrong by: {dict(before)}; afterwards: {told(seen)}")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds clinc150/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_000, help="of each round")
    parser.add_argument("--audit", type=float, default=0.1, help="share of what the student answered that the LM reads as well")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        asyncio.run(run(given, Path(folder)))


if __name__ == "__main__":
    main()
