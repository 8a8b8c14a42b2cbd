"""An open-loop load generator, in a process of its own: requests start when a Poisson process says, whether or not others have ended.

Each request's time counts from the moment at which it should have started, so that a service that stalls cannot hide it ("coordinated
omission"; Tene 2013). Prints one JSON object. `tests.bench.offer` starts it.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import uuid4

import aiohttp
import numpy as np

from service.catalog.loader import load_catalog
from service.flows.work import build_dispatch
from tests.unit.turns import some_work

Maker = Callable[[dict[str, str], str], dict[str, object]]


def question(text: dict[str, str], session: str) -> dict[str, object]:
    """Return the body of a caller without a language layer."""
    query = {"query_id": str(uuid4()), "raw_query": text["text"]}
    return {"parsed_query": query, "user_id": "bench", "session_id": session}


def parsed_question(text: dict[str, str], session: str) -> dict[str, object]:
    """Return the body of a caller with a language layer of its own."""
    query = {"query_id": str(uuid4()), "raw_query": text["text"], "intent": text["intent"], "confidence": 0.95, "entities": []}
    return {"parsed_query": query, "user_id": "bench", "session_id": session}


def chat(text: dict[str, str], session: str) -> dict[str, object]:
    """Return the body of a chat completion."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text["text"]}], "user": session}


@cache
def _dispatched() -> dict[str, object]:
    agent = load_catalog().agent["explainer"]
    return {"dispatch": build_dispatch(agent, some_work(), 30.0, uuid4()).model_dump(mode="json")}


def dispatch(text: dict[str, str], session: str) -> dict[str, object]:
    """Return what the service sends an agent."""
    return _dispatched()


BODIES: dict[str, Maker] = {made.__name__: made for made in (question, parsed_question, chat, dispatch)}


async def run(url: str, texts: list[dict[str, str]], rate: float, seconds: float, seed: int, *, make: Maker) -> dict[str, object]:
    """Send `rate` requests a second for `seconds`; return the times in milliseconds, the statuses and the throughput."""
    random = np.random.default_rng(seed)
    starts = np.cumsum(random.exponential(1.0 / rate, size=int(rate * seconds * 1.5) + 10))
    starts = starts[starts < seconds]
    times, statuses = np.zeros(len(starts)), Counter[str]()
    ended = np.zeros(len(starts))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        begun = time.perf_counter() + 0.1

        async def one(number: int) -> None:
            await asyncio.sleep(max(0.0, begun + starts[number] - time.perf_counter()))
            body = make(texts[number % len(texts)], f"s-{number}")
            try:
                async with session.post(url, json=body) as response:
                    answer = await response.read()
                    statuses[f"{response.status} {json.loads(answer).get('status', '')}".strip()] += 1
            except (aiohttp.ClientError, TimeoutError) as exc:
                statuses[type(exc).__name__] += 1
            ended[number] = time.perf_counter() - begun
            times[number] = (ended[number] - starts[number]) * 1_000

        await asyncio.gather(*(one(number) for number in range(len(starts))))
    inside = int(np.sum(ended <= seconds))
    return {"milliseconds": times.round(3).tolist(), "statuses": statuses, "offered": len(starts) / seconds, "answered": inside / seconds}


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="a JSON list of {text, intent}")
    parser.add_argument("--rate", type=float, required=True, help="requests a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--body", choices=BODIES, default=question.__name__, help="what is sent")
    given = parser.parse_args()
    texts = json.loads(given.texts.read_text())
    result = asyncio.run(run(given.url, texts, given.rate, given.seconds, given.seed, make=BODIES[given.body]))
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
