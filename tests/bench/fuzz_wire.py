"""Attacks below HTTP's surface: what is written to the socket, by kind. Each maker takes a seeded generator.

The kinds are those of RFC 9112's security section, of the HTTP Garden's findings, and of public bugs of httptools, uvicorn, gunicorn, Kong
and Traffic Server: two framings at once, sizes with rubbish, several requests in one packet, methods and targets that nobody takes, bodies
that were packed, and clients that leave.
"""

import gzip
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.fuzz_bodies import question
from tests.contract.hostile import encoded
from tests.contract.raw_http import chunked, head

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: smuggled\r\n\r\n"


CODINGS = ["chunked", " chunked", "chunked ", "Chunked", "chunked,", ",chunked", "chunked, identity", "identity, chunked", "xchunked"]
CODINGS += ["\x0bchunked", "chunked\t", "gzip, chunked", "chunked, chunked", '"chunked"', "ch\x00unked", "cow"]
TARGETS = ["/", "*", "http://evil.example/orchestrate", "evil.example:443", "//evil/route", "/%2e%2e/%2e%2e/etc/passwd", "/route%00"]
TARGETS += [
    "/👽",
    "/" + "a" * 70_000,
    "/route?" + "a=b&" * 9_000,
    "/../route",
    "/route/../../x",
    "\\route",
    "/route#x",
    "?",
    "",
    "/%c0%af..",
]
TARGETS += ["/%c0%af..", "/route;a=b", "/route%0d%0aX:y", "/orchestrate", "/healthz"]
METHODS = ["GET", "POST", "OPTIONS", "CONNECT", "TRACE", "PATCH", "QUERY", "FOO", "get", "G\x00T", "", "X" * 9_000, "PRI", "SOURCE"]
VERSIONS = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "HTTP/1.", "http/1.1", "", "ICY/1.0", "HTTP/1.1 x"]
LINES = [
    ": x",
    "A",
    "A:",
    "A : b",
    "A\x00: b",
    "A: b\x00c",
    "A: b\r\n c",
    "A: b\nC: d",
    "A: b\rC: d",
    "(A): b",
    "é: ü",
    "A: " + "b" * 70_000,
]
LINES += ["B: c\r\n" * 3_000, "Host: b", "Host: ", "Host: 1234:5678::1:80", "Connection: Content-Length", "Connection: close, keep-alive"]
LINES += ["Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk", "Expect: 100-continue", "Expect: nonsense"]
LINES += ["Upgrade: websocket\r\nConnection: Upgrade", "Content-Encoding: gzip", "Accept-Encoding: zstd;q=NaN", "Range: bytes=0-"]
LINES += ["X-Forwarded-For: 127.0.0.1, ::1", "Forwarded: for=x", "traceparent: 00-0-0-0", "traceparent: " + "f" * 5_000]
LINES += [
    "tracestate: " + "a=b," * 999,
    "Authorization: Bearer " + "x" * 9_000,
    "X-HTTP-Method-Override: DELETE",
    "Content-Type: text/html",
]
LINES += ["Content-Type: text/html", "A: " + "b" * 70_000, "Cookie: " + "a=b; " * 3_000]


@dataclass(frozen=True, slots=True)
class Attack:
    """What is written, in how many pieces with a pause between them; `owed`: a proper server has to say something to it."""

    parts: tuple[bytes, ...]
    owed: bool = True
    pause: float = 0.0


def _body(rng: random.Random) -> bytes:
    return encoded(question(rng))


def _posted(rng: random.Random, *lines: str) -> bytes:
    body = _body(rng)
    return head(f"Content-Length: {len(body)}", *lines) + body


def two_framings(rng: random.Random) -> Attack:
    """Announce a length and chunks, in the spellings that one reader takes and the next does not."""
    body = _body(rng)
    coding = rng.choice(CODINGS)
    name = rng.choice(["Transfer-Encoding", "transfer-encoding", "Transfer-Encoding ", "Transfer_Encoding", "X: y\nTransfer-Encoding"])
    length = rng.choice([str(len(body)), "0", "3", "99999", "+5", "-1", "0x10", "5 5", "5, 5", "1e2", ""])
    lines = [f"Content-Length: {length}", f"{name}: {coding}"]
    rng.shuffle(lines)
    framed = rng.choice([body, chunked(body) + b"0\r\n\r\n", b"0\r\n\r\n" + SMUGGLED, body + SMUGGLED])
    return Attack((head(*lines) + framed,), owed=False)


def two_lengths(rng: random.Random) -> Attack:
    """Announce two lengths that differ."""
    body = _body(rng)
    return Attack((head(f"Content-Length: {len(body)}", f"Content-Length: {rng.choice([0, 3, len(body) + 9])}") + body + SMUGGLED,))


def bad_chunks(rng: random.Random) -> Attack:
    """Write chunk sizes and ends that are none."""
    body = _body(rng)
    size = rng.choice(["zz", "-1", "0x5", "ffffffffffffffff", "fffffffffffffffff", "5;" + "a" * 20_000, " 5", "5 ", "", "5\n", "٣"])
    broken = rng.choice(
        [
            f"{size}\r\n".encode() + body,
            f"{len(body):x}\r\n".encode() + body + b"XX0\r\n\r\n",
            f"{len(body):x}\n".encode() + body + b"\n0\n\n",
            chunked(body) + b"0\r\nTrailer: x\r\nContent-Length: 5\r\n\r\n",
            chunked(body) + b"0\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
            chunked(body) + b"0\r\nX: " + b"y" * 200_000,
            f"{len(body):x};{'a' * 200_000}".encode(),
            chunked(*(body[i : i + 1] for i in range(len(body)))) + b"0\r\n\r\n",
        ]
    )
    return Attack((head("Transfer-Encoding: chunked") + broken,), owed=False)


def a_wish_for_another_protocol(rng: random.Random) -> Attack:
    """Ask for another protocol with a body, which is to be read all the same, in the packet of its head or later."""
    body = _body(rng)
    lines = [
        f"Upgrade: {rng.choice(['h2c', 'websocket', 'a, b/1'])}",
        rng.choice(["Connection: Upgrade, HTTP2-Settings", "Connection: upgrade"]),
    ]
    begun = head(*lines, f"Content-Length: {len(body)}")
    return Attack(rng.choice([(begun + body,), (begun, body), (begun + body + SMUGGLED,)]), pause=0.02)


def several_at_once(rng: random.Random) -> Attack:
    """Send several requests in one packet, some of them broken."""
    some = [_posted(rng) if rng.random() < 0.5 else b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" for _ in range(rng.randint(2, 12))]
    if rng.random() < 0.3:
        some[rng.randrange(len(some))] = rng.choice([b"\r\n\r\n", b"GET\r\n\r\n", b"\x00", b"GET / HTTP/1.1\r\n\r\n" * 5])
    return Attack((b"".join(some),))


def odd_request_line(rng: random.Random) -> Attack:
    """Begin with what is no request line, or one that hardly anyone sends."""
    target, method, version = rng.choice(TARGETS), rng.choice(METHODS), rng.choice(VERSIONS)
    return Attack((f"{method} {target} {version}\r\nHost: a\r\n\r\n".encode(),), owed=False)


def odd_header_lines(rng: random.Random) -> Attack:
    """Write header lines that are folded, empty, huge, unnamed or cut by a NUL."""
    line = rng.choice(LINES)
    return Attack((_posted(rng, line),), owed=False)


def packed(rng: random.Random) -> Attack:
    """Pack the body, announced or not: nobody unpacks it."""
    body = _body(rng)
    bomb = gzip.compress(b" " * 10**6)
    kinds = [("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("br", b"\x0b\x02\x80abc\x03"), ("gzip", bomb)]
    coding, content = rng.choice(kinds)
    lines = [f"Content-Encoding: {coding}"] if rng.random() < 0.8 else []
    return Attack((head(f"Content-Length: {len(content)}", *lines) + content,))


def flipped(rng: random.Random) -> Attack:
    """Turn, cut and double bytes of a proper request."""
    sent = bytearray(_posted(rng))
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(min(len(sent), rng.choice([30, 120, 10**6])))
        sent[at : at + rng.choice([0, 1, 1, 4])] = rng.choice([rng.randbytes(1), rng.randbytes(4), b"", b"\r\n", b"\x00", b" "])
    return Attack((bytes(sent),), owed=False)


def another_protocol(rng: random.Random) -> Attack:
    """Speak something else."""
    said = [H2_PREFACE, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"SSH-2.0-x\r\n", b"*1\r\n$4\r\nPING\r\n"]
    return Attack((rng.choice([*said, b"\x00" * 5_000, rng.randbytes(2_000), b"EHLO a\r\n", b"\r\n" * 3_000, b"a" * 200_000]),), owed=False)


def in_pieces(rng: random.Random) -> Attack:
    """Write a proper request in small pieces."""
    sent = _posted(rng)
    cuts = sorted(rng.sample(range(1, len(sent)), rng.randint(1, 6)))
    return Attack(tuple(sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)), pause=0.02)


def left_half_way(rng: random.Random) -> Attack:
    """Leave in the middle of the head or of the body."""
    sent = _posted(rng)
    return Attack((sent[: rng.randrange(len(sent))],), owed=False)


ATTACKS: dict[Callable[[random.Random], Attack], int] = {
    two_framings: 4,
    a_wish_for_another_protocol: 2,
    two_lengths: 2,
    bad_chunks: 3,
    several_at_once: 4,
    odd_request_line: 4,
    odd_header_lines: 5,
    packed: 2,
    flipped: 6,
    another_protocol: 2,
    in_pieces: 2,
    left_half_way: 4,
}
"""Every attack, and how often it comes."""
