"""A real server on a socket that is lied to, trickled at and hung up on."""

import asyncio
import contextlib
import json
import random
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api import middleware
from service.catalog.model import Catalog
from service.contracts.problem import Problem
from service.programs import Router
from service.workers import serving
from tests.conftest import World
from tests.contract.hostile import SECONDS, SEED, assert_well_formed, encoded, full
from tests.contract.raw_http import chunked, exchange, head, next_answer, parsed

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Over a socket


HEAD_SECONDS = 2


@contextlib.contextmanager
def served(app: ASGIApp) -> Iterator[int]:
    """Serve an app in a thread as `pointsman serve` does, but with less patience; give the port."""
    running = uvicorn.Server(uvicorn.Config(app, port=0, **(serving(20) | {"timeout_keep_alive": HEAD_SECONDS})))
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield bound.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(20)
        bound.close()


@pytest.fixture(scope="module")
def server(catalog: Catalog, router: Router) -> Iterator[int]:
    """Give the port of a real server."""
    with served(World(catalog, router).app()) as port:
        yield port


def a_body() -> bytes:
    """Return a valid body with an id that nobody has used."""
    return encoded(full(random.Random()))


BODY = encoded(full(random.Random(SEED)))
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")

SPOKEN: dict[str, tuple[list[bytes], set[int]]] = {
    "chunks": ([head("Transfer-Encoding: chunked"), chunked(BODY[:10], BODY[10:]), b"0\r\n\r\n"], {200}),
    "chunks of one byte": (
        [head("Transfer-Encoding: chunked"), chunked(*(BODY[i : i + 1] for i in range(len(BODY)))), b"0\r\n\r\n"],
        {200},
    ),
    "chunks without end, too large": ([head("Transfer-Encoding: chunked"), *[chunked(b" " * 65_536)] * 20], {413}),
    "a length above the limit, and no body": ([head("Content-Length: 5000000000")], {413}),
    "a length of forty digits": ([head(f"Content-Length: {'9' * 40}")], {400, 413}),
    "a length just above the limit": ([head("Content-Length: 1000001")], {413}),
    "a length of zero before a body": ([head("Content-Length: 0"), BODY], {400}),
    "a length that is short": ([head("Content-Length: 10"), BODY], {400}),
    "a negative length": ([head("Content-Length: -5"), BODY], {400}),
    "a length in words": ([head("Content-Length: many"), BODY], {400}),
    "two lengths": ([head(f"Content-Length: {len(BODY)}", "Content-Length: 3"), BODY], {400}),
    "length and chunks": ([head("Content-Length: 3", "Transfer-Encoding: chunked"), chunked(BODY), b"0\r\n\r\n"], {200, 400}),
    "no length": ([head(), BODY], {400}),
    "a chunk size that is none": ([head("Transfer-Encoding: chunked"), b"zz\r\n", BODY], {400}),
    "another transfer encoding": ([head("Transfer-Encoding: gzip, chunked"), BODY], {400, 501}),
    "a thousand headers": ([head(*[f"X-{i}: y" for i in range(1_000)], f"Content-Length: {len(BODY)}"), BODY], {200, 400}),
    "a header of 60 kilobytes": ([head(f"X-A: {'y' * 60_000}", f"Content-Length: {len(BODY)}"), BODY], {200}),
    "a request id over two lines": ([head("X-Request-ID: a\r\n Set-Cookie: x=1", "Content-Length: 2"), b"{}"], {400}),
    "a request id with a bare newline": ([head("X-Request-ID: a\nSet-Cookie: x=1", "Content-Length: 2"), b"{}"], {400}),
    "a header without a colon": ([head("nonsense"), BODY], {400}),
    "no HTTP at all": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)], {400}),
    "a version that is none": ([head(target="POST /orchestrate HTTP/9.9"), BODY], {400, 505}),
    "a path with a raw NUL": ([head(target="GET /decisions/\x00 HTTP/1.1")], {400}),
    "a path out of the root": ([head(target="GET /../../etc/passwd HTTP/1.1")], {404}),
    "a whole address as path": ([head(target="GET http://evil.example/healthz HTTP/1.1")], {200, 400, 404}),
    "an expectation": ([head("Expect: 100-continue", f"Content-Length: {len(BODY)}"), BODY], {200}),
    "a tunnel": ([head(target="CONNECT localhost:8100 HTTP/1.1")], {400, 404, 405}),
    "trailers": ([head("Transfer-Encoding: chunked"), chunked(BODY), b"0\r\nX-Request-ID: mine\r\nX-A: b\r\n\r\n"], {200}),
    "an upgrade": ([head("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", target="GET /route HTTP/1.1")], {400, 405}),
}


@pytest.mark.parametrize(("parts", "statuses"), SPOKEN.values(), ids=SPOKEN.keys())
async def test_a_server_that_is_lied_to_answers_and_goes_on(server: int, parts: list[bytes], statuses: set[int]) -> None:
    """The expected answer, in form, also to what is no HTTP. The next caller is served."""
    fresh = [part.replace(BODY, a_body()) for part in parts]

    answer = await exchange(server, *fresh)
    after = await exchange(server, head(target="GET /healthz HTTP/1.1"))

    status, headers, text = parsed(answer)
    assert status in statuses, answer[:300]
    assert_well_formed(status, headers, text)
    assert b"Set-Cookie" not in answer
    assert parsed(after)[0] == 200


UPGRADES = {
    "HTTP/2, as Java's client asks unasked": H2C,
    "WebSocket": ("Connection: keep-alive, upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"),
    "something else": ("Upgrade: a, b/1", "Connection: UPGRADE"),
}


@pytest.mark.parametrize("pause", [0.0, 0.05])
@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("fields", UPGRADES.values(), ids=UPGRADES.keys())
async def test_a_wish_for_another_protocol_is_passed_over(server: int, fields: tuple[str, ...], in_chunks: bool, pause: float) -> None:
    """The body is read, in the packet of the head or later, and is no request of its own; the next request is answered after it."""
    hidden = head(target="GET /healthz HTTP/1.1")
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    try:
        for body in (a_body(), hidden):
            length = "Transfer-Encoding: chunked" if in_chunks else f"Content-Length: {len(body)}"
            writer.write(head(*fields, length))
            await asyncio.sleep(pause)
            writer.write(chunked(body) + b"0\r\n\r\n" if in_chunks else body)
        writer.write(head("Connection: close", *fields[1:], target="GET /intents HTTP/1.1"))
        answers = [parsed(await asyncio.wait_for(next_answer(reader), SECONDS)) for _ in range(3)]
        rest = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()

    assert [status for status, _, _ in answers] == [200, 400, 200]
    assert "causal_impact" in answers[2][2]
    assert rest == b""


async def test_after_a_tunnel_was_refused_nothing_is_a_request(server: int) -> None:
    """What a client sends into it is not for this service."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    try:
        writer.write(head(target="CONNECT localhost:8100 HTTP/1.1") + head(target="GET /healthz HTTP/1.1"))
        received = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()

    assert len(re.findall(rb"HTTP/1.1 \d", received)) == 1
    assert parsed(received)[0] in {400, 404, 405}


@pytest.mark.parametrize(("target", "status"), [("GET /healthz HTTP/1.1", 200), ("POST /orchestrate HTTP/1.1", 431)])
@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX: " + b"x" * 1_000_000, b"0\r\n" + b"X: x\r\n" * 200_000, b"1;" + b"x" * 1_000_000],
    ids=["a long trailer", "many trailers", "the extension of a chunk"],
)
async def test_what_is_around_a_body_has_a_bound(server: int, target: str, status: int, endless: bytes) -> None:
    """Trailers and the extensions of chunks (CVE-2024-22019) count like a head: the connection ends, and they are not kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    tracemalloc.start()
    try:
        writer.write(head("Transfer-Encoding: chunked", target=target) + chunked(a_body()) + endless)
        for _ in range(50):
            writer.write(endless[-1_000_000:])
            await writer.drain()
        held, _ = tracemalloc.get_traced_memory()
        answer = parsed(await asyncio.wait_for(next_answer(reader), SECONDS))
    finally:
        tracemalloc.stop()
        writer.close()

    assert answer[0] == status
    assert held < 10_000_000


async def test_a_trailer_is_no_header(server: int) -> None:
    """What comes after the body cannot name or identify the request, which began without it (RFC 9110, 6.5.1)."""
    trailers = b"0\r\nX-Request-ID: mine\r\nX-API-Key: mine\r\nOrigin: https://evil.example\r\n\r\n"

    answer = await exchange(server, head("Transfer-Encoding: chunked"), chunked(a_body()), trailers)

    status, headers, _ = parsed(answer)
    assert status == 200
    assert headers["x-request-id"] != "mine"


async def test_a_caller_that_hangs_up_is_forgotten(server: int) -> None:
    """Half a body and a closed connection: no answer is owed, nothing breaks, and a hundred of them cost nothing."""
    for _ in range(100):
        assert await exchange(server, head(f"Content-Length: {len(BODY)}"), BODY[:50], hang_up=True) == b""

    assert parsed(await exchange(server, head(target="GET /healthz HTTP/1.1")))[0] == 200


@pytest.mark.parametrize("line", ["X: " + "x" * 5_000_000, "\r\n".join(f"X-{n}: x" for n in range(20_000))], ids=["long", "many"])
async def test_a_head_without_end_is_refused_before_it_fills_the_memory(server: int, line: str) -> None:
    """Whoever sends it need not have a key. A head of 30 kB, which cookies can make, is taken."""
    answer = await exchange(server, head(line))
    normal = await exchange(server, head(f"Content-Length: {len(BODY)}", "X: " + "x" * 30_000), BODY)

    status, headers, text = parsed(answer)
    assert_well_formed(status, headers, text, statuses={431})
    assert json.loads(text)["code"] == "head_too_large"
    assert parsed(normal)[0] == 200


BROKEN = {
    "what is no HTTP": b"this is no request\r\n\r\n",
    "a request whose body breaks": head("Transfer-Encoding: chunked") + b"zz\r\n",
    "a head without end": head("X: " + "x" * 2_000_000)[:-2],
}


@pytest.mark.parametrize("after", [*BROKEN.values(), head(target="GET http://[ HTTP/1.1"), b"x" * 200_000])
async def test_what_cannot_be_read_is_refused_once_also_on_a_connection_that_was_in_use(server: int, after: bytes) -> None:
    """With one problem, and then the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    try:
        writer.write(head(target="GET /healthz HTTP/1.1"))
        before = parsed(await asyncio.wait_for(next_answer(reader), SECONDS))
        writer.write(after)
        status, headers, text = parsed(await asyncio.wait_for(next_answer(reader), SECONDS))
        rest = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()

    assert before[0] == 200
    assert_well_formed(status, headers, text, statuses={400, 431})
    assert headers["connection"] == "close"
    assert rest == b""


@pytest.mark.parametrize("several", [1, 3])
@pytest.mark.parametrize("after", BROKEN.values(), ids=BROKEN.keys())
async def test_what_cannot_be_read_takes_no_answer_from_those_before_it(server: int, after: bytes, several: int) -> None:
    """Answers come in the order of the requests (RFC 9112, 9.3.2): each gets its own, and then the connection ends."""
    asked = b"".join(head(f"Content-Length: {len(one)}") + one for one in (a_body() for _ in range(several)))
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    try:
        writer.write(asked + after)
        answers = [parsed(await asyncio.wait_for(next_answer(reader), SECONDS)) for _ in range(several)]
        rest = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()

    assert [status for status, _, _ in answers] == [200] * several
    assert [headers.get("connection") for _, headers, _ in answers] == [None] * (several - 1) + ["close"]
    assert len({json.loads(text)["decision_id"] for _, _, text in answers}) == several
    assert rest == b""


async def test_a_head_without_end_behind_a_request_is_not_kept() -> None:
    """While an answer is owed as well: what comes is dropped, however much it is, and the answer is the last one."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await asyncio.sleep(2.0)
            await PlainTextResponse("done")(scope, receive, send)

    with served(slow) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        tracemalloc.start()
        try:
            writer.write(head(target="GET / HTTP/1.1") + b"GET / HTTP/1.1\r\nX: ")
            for _ in range(50):
                writer.write(bytes(1_000_000).replace(b"\0", b"x"))
                await writer.drain()
            held, _ = tracemalloc.get_traced_memory()
            status, headers, text = parsed(await asyncio.wait_for(next_answer(reader), SECONDS))
        finally:
            tracemalloc.stop()
            writer.close()

    assert (status, headers["connection"], text) == (200, "close", "done")
    assert held < 10_000_000


async def test_a_body_that_trickles_is_cut_off(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """408 that may be tried again, at the time limit, though bytes keep coming; and the connection is closed."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.3)
    started = time.monotonic()

    answer = await exchange(server, head("Content-Length: 1000"), b" ", b" ", pause=0.1)

    status, headers, text = parsed(answer)
    assert (status, headers["content-type"], headers["connection"]) == (408, "application/problem+json", "close")
    assert Problem.model_validate_json(text).retryable
    assert 0.3 <= time.monotonic() - started < SECONDS


async def test_slow_bodies_do_not_hold_up_the_others(server: int) -> None:
    """Fifty callers that have sent half a body wait alone; a question in between is answered."""
    waiting = [await asyncio.open_connection("127.0.0.1", server) for _ in range(50)]
    try:
        for _, writer in waiting:
            writer.write(head("Content-Length: 1000") + b"{")

        body = a_body()
        answer = await exchange(server, head(f"Content-Length: {len(body)}"), body)

        assert parsed(answer)[0] == 200
    finally:
        for _, writer in waiting:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


NEVER_DONE = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "a head without its end": head(target="GET /healthz HTTP/1.1")[:-2],
    "the half of a second request": head(target="GET /healthz HTTP/1.1") + b"GET /hea",
    "a body that no route takes": head("Content-Length: 1000", target="POST /nowhere HTTP/1.1") + b"{",
}


@pytest.mark.parametrize("sent", NEVER_DONE.values(), ids=NEVER_DONE.keys())
async def test_a_request_that_never_comes_does_not_keep_its_connection(server: int, sent: bytes) -> None:
    """The connection is closed at the time at which an idle one would be, though bytes keep coming."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    started = time.monotonic()
    writer.write(sent)
    closing = asyncio.create_task(reader.read())
    try:
        while not closing.done():
            assert time.monotonic() - started < HEAD_SECONDS + SECONDS
            with contextlib.suppress(ConnectionError):
                writer.write(b"x" if sent else b"")
            await asyncio.wait({closing}, timeout=0.1)
        with contextlib.suppress(ConnectionError):
            await closing
    finally:
        writer.close()

    assert time.monotonic() - started > HEAD_SECONDS * 0.9
    assert parsed(await exchange(server, head(target="GET /healthz HTTP/1.1")))[0] == 200


async def test_who_sends_several_requests_at_once_and_leaves_is_no_error_of_the_service(server: int) -> None:
    """What was under way ends, and is not counted as what nobody foresaw, which would ring somebody up."""
    for _ in range(30):
        several = b"".join(head(f"Content-Length: {len(one)}") + one for one in (a_body(), a_body(), a_body()))
        _, writer = await asyncio.open_connection("127.0.0.1", server)
        writer.write(several)
        await asyncio.sleep(0.002)
        writer.close()
        await writer.wait_closed()
    await asyncio.sleep(0.5)

    told = parsed(await exchange(server, head(target="GET /metrics HTTP/1.1")))[2]

    assert re.findall(r'^orchestrator_problems_total\{.*code="internal_error".*$', told, re.M) == []
