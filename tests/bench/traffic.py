"""A mixed open-loop load, seen from the client's side: questions, some for the LM, streams and feedback, each noted with what came of it.

Requests start when a Poisson process says, whether or not others have ended, and their time counts from that moment. `tests.bench.chaos`
and `tests.bench.soak` drive it.
"""

import asyncio
import json
import random
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import httpx
import numpy as np
import psycopg

PATHS = {"question": "/orchestrate", "lm": "/orchestrate", "stream": "/orchestrate/stream", "feedback": "/feedback"}
SHARES = {"question": 70, "lm": 10, "stream": 10, "feedback": 10}
SECONDS = 60.0  # for one answer
READ_ONLY = ("where are we leaving scripts on the table?", "has anything shifted since the model was trained?", "what is ATE?")
SETTLED = 2.0  # seconds that a decision is older when feedback is given on it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request: `started` in seconds of the run; `said` is the status and what the body says, or the error's name."""

    kind: str
    started: float
    seconds: float
    said: str
    decision: str | None = None
    documented: bool = True
    broken: bool = False  # the connection, not the answer
    by: str = ""  # the rung that decided

    @property
    def ended(self) -> float:
        """When it ended, in seconds of the run."""
        return self.started + self.seconds

    @property
    def normal(self) -> bool:
        """Say whether all went as it does on a good day."""
        by_whom = self.by == "lm" if self.kind == "lm" else self.by != "safe_default"
        return self.said in {"200 success", "200"} and by_whom


@dataclass
class Traffic:
    """The load on one service. `outcomes` grows as requests end."""

    url: str
    rate: float
    document: dict[str, Any]
    lm: bool
    seed: int = 1
    outcomes: list[Outcome] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    _rated: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=200))

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.begun

    async def run(self, until: asyncio.Event) -> None:
        """Send until the event is set, then wait for what is under way."""
        rng, under_way = random.Random(self.seed), set[asyncio.Task[None]]()
        kinds = {kind: share for kind, share in SHARES.items() if self.lm or kind != "lm"}
        limits = {"connector": aiohttp.TCPConnector(limit=0), "timeout": aiohttp.ClientTimeout(total=SECONDS)}
        async with aiohttp.ClientSession(self.url, **limits) as http:
            due = self.now
            while not until.is_set():
                due += rng.expovariate(self.rate)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - self.now)):
                        await until.wait()
                task = asyncio.create_task(self._one(http, rng.choices(list(kinds), list(kinds.values()))[0], due, rng.choice(READ_ONLY)))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)

    async def _one(self, http: aiohttp.ClientSession, kind: str, due: float, text: str) -> None:
        rated = self._rated[0] if self._rated and self._rated[0][0] < due - SETTLED else None
        if kind == "feedback" and rated is None:
            kind = "question"
        if kind == "feedback" and rated is not None:
            self._rated.popleft()
            body: dict[str, Any] = {"decision_id": rated[1], "user_satisfaction": 4}
        else:
            body = {"parsed_query": {"query_id": str(uuid4()), "raw_query": text}, "user_id": "load", "session_id": "load"}
            body |= {"preferences": {"rung": "lm"}} if kind == "lm" else {}
        try:
            async with http.post(PATHS[kind], json=body) as response:
                outcome = self._read(kind, due, response.status, response.content_type, await response.text())
        except (aiohttp.ClientError, TimeoutError) as exc:
            outcome = Outcome(kind, due, self.now - due, type(exc).__name__, broken=True)
        self.outcomes.append(outcome)
        if outcome.decision is not None:
            self._rated.append((outcome.ended, outcome.decision))

    def _read(self, kind: str, due: float, status: int, media_type: str, text: str) -> Outcome:
        seconds = self.now - due
        if kind == "stream" and status == 200:
            last = text.rpartition("\nevent: ")[2] if "\nevent: " in text else ""
            name, told = last.partition("\n")[0], json.loads(last.partition("data: ")[2].partition("\n")[0] or "{}")
            if name != "output":
                return Outcome(
                    kind, due, seconds, f"stream {told.get('problem', {}).get('code', 'broken off')}", documented=name == "problem"
                )
            answer = told["output"]
        else:
            answer = json.loads(text)
        if status == 200:
            said = f"200 {answer.get('status', '')}".strip()
            return Outcome(kind, due, seconds, said, answer["decision_id"] if kind != "feedback" else None, by=answer.get("rung", ""))
        known = self.document["paths"][PATHS[kind]]["post"]["responses"]
        documented = media_type == "application/problem+json" and str(status) in known
        return Outcome(kind, due, seconds, f"{status} {answer.get('code', '')}".strip(), documented=documented)


async def document_of(url: str) -> dict[str, Any]:
    """Return a service's OpenAPI document."""
    async with httpx.AsyncClient() as http:
        return dict((await http.get(f"{url}/openapi.json", timeout=SECONDS)).json())


def percentiles(outcomes: list[Outcome]) -> str:
    """Say the times of some requests in one line, in milliseconds."""
    p50, p95, p99 = np.percentile([o.seconds * 1_000 for o in outcomes] or [0.0], [50, 95, 99])
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms"


def rows(address: str) -> set[str]:
    """Return the decisions that PostgreSQL holds with their signals."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT decision_id FROM decision JOIN signal USING (decision_id)").fetchall()
    return {str(one) for (one,) in found}
