"""The faults that are no proper HTTP: what they do to the connection, in the order of `kinds.py`."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from service.agents.faults.answers import ANSWERS
from service.agents.faults.handoffs import plain_handoff
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import PlannedFault
from service.agents.faults.wire import Answer, Connection
from service.agents.finding import Run
from service.contracts.model import JsonObject

SLOW_SECONDS = 30.0  # of a slow fault whose entry does not say
CHUNKED = ("Transfer-Encoding", "chunked")
GZIP = ("Content-Encoding", "gzip")
FLOOD_BYTES = 65_536
HUGE_LENGTH = 10**12
BOMB_MEMBERS, BOMB_MEMBER_BYTES = 100, 10 * 2**20  # 1 GB when unpacked, 1 MB on the wire


@dataclass(frozen=True, slots=True)
class Exchange:
    """One dispatch that meets a fault.

    `output` is that of an answer that is made up; `right_answer` asks the agent behind, if there is one.
    """

    connection: Connection
    planned: PlannedFault
    run: Run
    output: JsonObject
    right_answer: Callable[[], Awaitable[Answer]]

    @property
    def seconds(self) -> float:
        """How long a slow fault takes."""
        return SLOW_SECONDS if self.planned.seconds is None else self.planned.seconds


Act = Callable[[Exchange], Awaitable[None]]


async def act_out(exchange: Exchange) -> None:
    """Do to the client what the plan's entry says.

    Raises:
        ConnectionError: the client has broken the connection.
    """
    fault = exchange.planned.fault
    if fault in ANSWERS:
        right = plain_handoff(exchange.run, exchange.output)
        await exchange.connection.respond(ANSWERS[fault](exchange.planned, exchange.run, right))
    else:
        await ACTS[fault](exchange)


async def _refuse(exchange: Exchange) -> None:
    exchange.connection.reset()


async def _hang_up(exchange: Exchange) -> None:
    exchange.connection.close()


async def _hang(exchange: Exchange) -> None:
    await _silence(exchange)


async def _late_answer(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await asyncio.sleep(exchange.seconds)
    await exchange.connection.respond(answer)


async def _slow_headers(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.drip(answer.sized_head(), exchange.seconds)
    await exchange.connection.write(answer.body)
    exchange.connection.go_on()


async def _slow_body(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.write(answer.sized_head())
    await exchange.connection.drip(answer.body, exchange.seconds)
    exchange.connection.go_on()


async def _stalled_body(exchange: Exchange) -> None:
    await _begin(exchange)
    await _silence(exchange)


async def _cut_connection(exchange: Exchange) -> None:
    await _begin(exchange)
    exchange.connection.close()


async def _reset_in_body(exchange: Exchange) -> None:
    await _begin(exchange)
    exchange.connection.reset()


async def _closed_after_answer(exchange: Exchange) -> None:
    await exchange.connection.write((await exchange.right_answer()).whole())
    exchange.connection.close()


async def _not_http(exchange: Exchange) -> None:
    await exchange.connection.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    exchange.connection.close()


async def _endless_headers(exchange: Exchange) -> None:
    await exchange.connection.write(b"HTTP/1.1 200 OK\r\n")
    await _flood(exchange.connection, b"X-Filler: " + b"x" * 1_000 + b"\r\n")


async def _truncated_chunks(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.write(answer.head(CHUNKED) + _chunk(answer.body))  # but not the empty chunk that ends a body
    exchange.connection.close()


async def _broken_chunks(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.write(answer.head(CHUNKED) + b"zz\r\n" + answer.body + b"\r\n0\r\n\r\n")
    exchange.connection.close()


async def _short_length(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.write(answer.head(("Content-Length", str(len(answer.body) // 2))) + answer.body)
    exchange.connection.go_on()


async def _two_answers(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    second = ANSWERS[Fault.WRONG_DISPATCH_ID](exchange.planned, exchange.run, plain_handoff(exchange.run, exchange.output))
    await exchange.connection.write(answer.whole() + second.whole())
    exchange.connection.go_on()


async def _interim_answer(exchange: Exchange) -> None:
    await exchange.connection.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
    await exchange.connection.respond(await exchange.right_answer())


async def _huge_body(exchange: Exchange) -> None:
    heads: dict[Literal["chunked", "length", "close"], tuple[tuple[str, str], bytes]] = {
        "chunked": (CHUNKED, _chunk(b"x" * FLOOD_BYTES)),
        "length": (("Content-Length", str(HUGE_LENGTH)), b"x" * FLOOD_BYTES),
        "close": (("Connection", "close"), b"x" * FLOOD_BYTES),
    }
    header, piece = heads[exchange.planned.framing]
    await exchange.connection.write(Answer(b"").head(header))
    await _flood(exchange.connection, piece)


async def _gzip_unasked(exchange: Exchange) -> None:
    answer = await exchange.right_answer()
    await exchange.connection.respond(replace(answer, body=gzip.compress(answer.body), headers=(*answer.headers, GZIP)))


async def _gzip_bomb(exchange: Exchange) -> None:
    await exchange.connection.respond(replace(Answer(_bomb()), headers=(*Answer(b"").headers, GZIP)))


ACTS: dict[Fault, Act] = {
    Fault.REFUSE: _refuse,
    Fault.HANG_UP: _hang_up,
    Fault.HANG: _hang,
    Fault.LATE_ANSWER: _late_answer,
    Fault.SLOW_HEADERS: _slow_headers,
    Fault.SLOW_BODY: _slow_body,
    Fault.STALLED_BODY: _stalled_body,
    Fault.CUT_CONNECTION: _cut_connection,
    Fault.RESET_IN_BODY: _reset_in_body,
    Fault.CLOSED_AFTER_ANSWER: _closed_after_answer,
    Fault.NOT_HTTP: _not_http,
    Fault.ENDLESS_HEADERS: _endless_headers,
    Fault.TRUNCATED_CHUNKS: _truncated_chunks,
    Fault.BROKEN_CHUNKS: _broken_chunks,
    Fault.SHORT_LENGTH: _short_length,
    Fault.TWO_ANSWERS: _two_answers,
    Fault.INTERIM_ANSWER: _interim_answer,
    Fault.HUGE_BODY: _huge_body,
    Fault.GZIP_UNASKED: _gzip_unasked,
    Fault.GZIP_BOMB: _gzip_bomb,
}


async def _begin(exchange: Exchange) -> None:
    """Send the head, which promises the whole body, and half of the body."""
    answer = await exchange.right_answer()
    await exchange.connection.write(answer.sized_head() + answer.body[: len(answer.body) // 2])


async def _silence(exchange: Exchange) -> None:
    """Say nothing more, for the entry's time or until the client leaves; then close."""
    if exchange.planned.seconds is None:
        await asyncio.Event().wait()
    else:
        await asyncio.sleep(exchange.planned.seconds)
    exchange.connection.close()


async def _flood(connection: Connection, piece: bytes) -> None:
    """Write the same bytes until the client leaves, which cancels this."""
    while True:
        await connection.write(piece)
        await asyncio.sleep(0)  # a client that reads as fast as this writes must not keep the others waiting


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@cache
def _bomb() -> bytes:
    """Return spaces, packed. A gzip file may consist of several in a row, so one is packed and repeated."""
    return gzip.compress(b" " * BOMB_MEMBER_BYTES) * BOMB_MEMBERS
