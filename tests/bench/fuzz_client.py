"""Who sends the hostile requests of `tests.bench.fuzz`, and what every answer is held against."""

import asyncio
import contextlib
import json
import random
import re
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from service.connections import NO_HTTP
from service.contracts.problem import Problem
from service.errors import HeadTooLarge
from service.rollback import SECONDS as ROLLBACK_SECONDS
from service.workers import KEEP_ALIVE_SECONDS
from tests.bench.fuzz_bodies import changed, looked_up, question
from tests.bench.fuzz_wire import ATTACKS
from tests.contract.hostile import Hostile, assert_well_formed, encoded
from tests.contract.hostile_texts import KINDS
from tests.contract.raw_http import head, next_answer, parsed

AT_ONCE = 12  # far fewer than may wait, so that nothing is refused for want of room
BOUND = 30.0  # seconds for an answer, on a machine that does other things as well
QUIET = 0.4  # seconds after which a server that owes nothing has said all that it will
SLOW = 12  # clients of each kind that never end their request
BODY_BOUND, HEAD_BOUND = 15.0 + 10.0, KEEP_ALIVE_SECONDS + 10.0  # seconds until those are cut off
ANYWHERE = frozenset({200, 202, 400, 401, 404, 405, 408, 409, 413, 415, 431})
REFUSALS = frozenset({400, 431})  # of what cannot be read as a request
NO_PROBLEMS = {"/docs", "/openapi.json", "/metrics"}  # in whose answers nothing needs to be looked for
ROLLBACK = Hostile(path="/routers/rollback")


@dataclass
class Fuzzed:
    """What is known of the service, and what came of the requests."""

    port: int
    document: dict[str, Any]
    seed: int
    statuses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    sent: deque[bytes] = field(default_factory=lambda: deque(maxlen=300))
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=300))
    wishes: deque[str] = field(default_factory=lambda: deque(maxlen=300))
    slowest: float = 0.0
    shed: int = 0  # answered with a 503 that may be tried again, as it happens where the machine has no time

    async def one(self, number: int) -> None:
        """Make request `number`, send it, and take down what is wrong with the answer."""
        rng = random.Random(f"{self.seed}:{number}")
        kind = rng.choices(["hostile", "changed", "looked up", "again", "attack", "stream"], [30, 30, 8, 8, 19, 5])[0]
        started = time.monotonic()
        try:
            async with asyncio.timeout(BOUND) as bound:
                if kind == "attack":
                    kind = await self._attack(rng)
                elif kind == "stream":
                    await self._leave_stream(rng)
                else:
                    hostile = self._hostile(kind, rng)
                    if hostile is ROLLBACK:
                        bound.reschedule(asyncio.get_running_loop().time() + ROLLBACK_SECONDS + BOUND)
                    self._judge(hostile, await self._send(hostile))
        except TimeoutError:
            self.wrong.append(f"{number} ({kind}): no answer and no end within {time.monotonic() - started:.0f} s")
        except AssertionError as exc:
            self.wrong.append(f"{number} ({kind}): {str(exc)[:600]}")
        except Exception as exc:  # noqa: BLE001  (the edge of one request: whatever came back is a finding)
            self.wrong.append(f"{number} ({kind}): {type(exc).__name__}: {str(exc)[:300]}")
        self.kinds[kind] += 1
        self.slowest = max(self.slowest, time.monotonic() - started)

    def _hostile(self, kind: str, rng: random.Random) -> Hostile:
        if rng.random() < 1 / 4_000:
            return ROLLBACK  # each starts a process
        if kind == "changed":
            return changed(rng, list(self.decisions))
        if kind == "looked up":
            return looked_up(rng, list(self.decisions), list(self.wishes))
        if kind == "hostile" or not self.sent:
            return rng.choices(list(KINDS), list(KINDS.values()))[0](rng)
        body = rng.choice(self.sent)  # of a query_id that was used: the same again, or another question under it
        again = body if rng.random() < 0.4 else re.sub(rb'"raw_query": "[^"]*"', b'"raw_query": "@explainer what is that?"', body)
        return Hostile(again, path=rng.choice(["/orchestrate", "/orchestrate/stream"]))

    async def _send(self, hostile: Hostile) -> bytes:
        headers = hostile.headers if isinstance(hostile.headers, list) else [(n.encode(), v.encode()) for n, v in hostile.headers.items()]
        given = {name.lower() for name, _ in headers}
        lines = [f"{hostile.method} {_target(hostile)} HTTP/1.1".encode()]
        lines += [] if b"host" in given else [b"Host: localhost"]
        lines += [name + b": " + value for name, value in headers]
        lines += [f"Content-Length: {len(hostile.content)}".encode()] if hostile.content and b"content-length" not in given else []
        async with connected(self.port) as (reader, writer):
            with contextlib.suppress(ConnectionError):  # it may answer and close before it has read all
                writer.write(b"\r\n".join([*lines, b"", b""]) + hostile.content)
                await writer.drain()
            if hostile.method.upper() == "HEAD":
                return await reader.readuntil(b"\r\n\r\n")
            return await next_answer(reader)

    def _judge(self, hostile: Hostile, answer: bytes) -> None:
        assert answer, f"closed without an answer: {hostile.method} {hostile.path[:80]} {hostile.content[:200]!r}"
        status, headers, text = parsed(answer)
        route, allowed = self._documented(hostile)
        self.statuses[f"{route} {status}"] += 1
        if status == 503 and Problem.model_validate_json(text).retryable:
            self.shed += 1
            return
        if _unread(status, text):  # it came to no route
            allowed.add(status)
        assert status in allowed, f"{hostile.method} {hostile.path[:80]} {hostile.content[:300]!r} -> {status} {text[:300]}"
        if route not in NO_PROBLEMS or _unread(status, text):
            assert_well_formed(status, headers, text, head=hostile.method.upper() == "HEAD", statuses=allowed)
        if status == 200 and route == "/orchestrate":
            self._remember(text)
            self.sent.append(hostile.content)
        if status == 200 and route == "/orchestrate/stream" and "event: output" in text:
            told = json.loads(text.rpartition("event: output")[2].partition("data: ")[2].partition("\n")[0])
            self._remember(json.dumps(told["output"]))

        if status == 202 and route == "/optimizations":
            self.wishes.append(json.loads(text)["request_id"])

    def _documented(self, hostile: Hostile) -> tuple[str, set[int]]:
        path = unquote(_target(hostile).partition("?")[0])
        for template, methods in self.document["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                known = methods.get(hostile.method.lower()) if hostile.method.isupper() else None
                return template, {int(s) for s in known["responses"] if int(s) < 500} if known else {405}
        return "none", {200, 404, 405}

    def _remember(self, output: str) -> None:
        decision = json.loads(output)["decision_id"]
        self.answered.add(decision)
        self.decisions.append(decision)

    async def _attack(self, rng: random.Random) -> str:
        make = rng.choices(list(ATTACKS), list(ATTACKS.values()))[0]
        attack = make(rng)
        async with connected(self.port) as (reader, writer):
            with contextlib.suppress(ConnectionError):
                for part in attack.parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(attack.pause)
            count = 0
            with contextlib.suppress(ConnectionError, TimeoutError):
                while answer := await asyncio.wait_for(next_answer(reader), BOUND if attack.owed and count == 0 else QUIET):
                    count += 1
                    self._judge_bare(make.__name__, answer)
            assert count or not attack.owed, f"{make.__name__}: no answer: {b''.join(attack.parts)[:300]!r}"
            with contextlib.suppress(OSError):
                writer.write_eof()
                await reader.read()  # until it has closed, too
        return make.__name__

    def _judge_bare(self, kind: str, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 ") or b"\r\n\r\n" not in answer:
            return  # the rest of one that was cut off
        status, headers, text = parsed(answer)
        self.statuses[f"{kind} {status}"] += 1
        if status == 503 and Problem.model_validate_json(text).retryable:
            self.shed += 1
            return
        assert status in ANYWHERE, f"{kind}: {answer[:400]!r}"
        if status in REFUSALS or headers.get("content-type", "").startswith("application/"):
            assert_well_formed(status, headers, text, statuses=ANYWHERE)
        if status == 200 and '"agents_dispatched"' in text:
            self._remember(text)

    async def _leave_stream(self, rng: random.Random) -> None:
        body = encoded(question(rng))
        async with connected(self.port) as (reader, writer):
            writer.write(head(f"Content-Length: {len(body)}", target="POST /orchestrate/stream HTTP/1.1") + body)
            read = await asyncio.wait_for(reader.read(rng.choice([1, 100, 400, 2_000])), BOUND)
            assert read.startswith(b"H"), read[:100]
            self.statuses["stream left"] += 1

    async def run(self, first: int, last: int) -> None:
        """Make the requests from `first` to before `last`, some at a time."""
        numbers = iter(range(first, last))

        async def keep_on() -> None:
            for number in numbers:
                await self.one(number)

        await asyncio.gather(*(keep_on() for _ in range(AT_ONCE)))

    def unreached(self) -> list[str]:
        """Return the routes of which no request was answered well, so that nothing is known of them; to roll back there is nothing."""
        return [p for p in self.document["paths"] if p != ROLLBACK.path and not any(self.statuses[f"{p} {good}"] for good in (200, 202))]

    async def still_answers(self) -> bool:
        """Say whether a plain question is answered."""
        body = encoded({"parsed_query": {"query_id": str(uuid4()), "raw_query": "hello"}, "user_id": "u", "session_id": "s"})
        async with asyncio.timeout(BOUND), connected(self.port) as (reader, writer):
            writer.write(head(f"Content-Length: {len(body)}") + body)
            return parsed(await next_answer(reader))[0] == 200

    async def be_slow(self) -> None:
        """Begin requests that never end, and keep connections that ask nothing: each has to be cut off."""
        begun = [(b"GET /healthz HTT", HEAD_BOUND), (head("Content-Length: 1000") + b"{", BODY_BOUND), (b"", HEAD_BOUND)]
        begun.append((b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTT", HEAD_BOUND))

        async def wait(sent: bytes, bound: float) -> None:
            async with connected(self.port) as (reader, writer):
                writer.write(sent)
                try:
                    await asyncio.wait_for(reader.read(-1), bound)
                except TimeoutError:
                    self.wrong.append(f"a connection was kept for {bound:g} s that had sent {sent!r}")
                except ConnectionError:
                    pass

        await asyncio.gather(*(wait(*one) for one in begun for _ in range(SLOW)))


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection to the service, and close it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _unread(status: int, text: str) -> bool:
    """Say whether an answer tells that what was sent could not be read as a request."""
    if status not in REFUSALS or not text:
        return False
    problem = Problem.model_validate_json(text)
    return problem.code == HeadTooLarge.code or problem.detail == NO_HTTP


def _target(hostile: Hostile) -> str:
    return quote(hostile.path, safe="/%?=&;.:[]#", errors="surrogatepass")
