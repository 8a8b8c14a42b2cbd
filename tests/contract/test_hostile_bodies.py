"""Five hundred hostile requests, made with a fixed seed, and a server that is lied to: never a 5xx, always an answer, in time and in form.

Most go to the app in this process, over the real store on SQLite, so that what is accepted must also survive being stored and read.
What only a socket can show goes to a real server on a free port.
"""

import asyncio
import contextlib
import gc
import json
import random
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
import uvicorn

from service.adapters.sql_store import SqlStore
from service.api import middleware
from service.catalog.model import Catalog
from service.contracts.problem import Problem
from service.programs import Router
from tests.conftest import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEED = 20_260_115
SECONDS = 10.0  # for one answer, on a machine that is busy with other tests
MARK = "Zq7xMark"  # in every text that is sent, so that an echo is seen
JSON = {"content-type": "application/json"}
FORMS = {200, 400, 401, 404, 405, 409, 413, 415}


@dataclass
class Hostile:
    """One request."""

    content: bytes = b""
    headers: dict[str, str] | list[tuple[bytes, bytes]] = field(default_factory=lambda: dict(JSON))
    path: str = "/orchestrate"
    method: str = "POST"


def full(rng: random.Random) -> dict[str, Any]:
    """Return a complete, valid body with a query id of its own and the mark in every text."""
    return {
        "parsed_query": {
            "query_id": str(UUID(int=rng.getrandbits(128))),
            "raw_query": f"Where are we leaving {MARK} scripts on the table?",
            "intent": f"{MARK}_intent",
            "entities": [{"type": "brand", "value": f"{MARK} brand", "confidence": 0.9, "source": "exact"}],
            "confidence": 0.95,
            "ambiguity_flag": False,
            "context": {f"{MARK} key": [f"{MARK} value", None, 1.5, {"x": True}]},
            "timestamp": "2026-01-15T09:30:00Z",
        },
        "user_id": f"{MARK} user",
        "session_id": f"{MARK} session",
        "conversation_history": [{"role": "user", "content": f"{MARK} said"}],
        "preferences": {"max_latency_ms": 30_000, "required_confidence": 0.5, "depth": "quick", "agent": f"{MARK} agent"},
    }


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container with every key of it, at any depth."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += [(value, key), *places(inner)]
    return found


def in_every_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text but the ids and names of a closed set changed."""
    if isinstance(value, dict):
        kept = {"query_id", "timestamp", "type", "source", "role", "depth"}
        return {k: v if k in kept else in_every_text(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [in_every_text(v, change) for v in value]
    return change(value) if isinstance(value, str) else value


def encoded(value: Any, **how: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, **how).encode()


JUNK: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 10**400, -0.0, 1e308, 5e-324, "", " ", MARK, "null", "0", "true", "NaN", "{}", [], {}, [[]], [None]),
    *(
        [{}],
        {"": ""},
        {"$ref": "#"},
        {"__proto__": MARK},
        [MARK] * 50,
        {MARK: {MARK: MARK}},
        "x" * 5_000,
        "\x00",
        "☃",
        "1" * 400,
        [0] * 500,
    ),
]


def junk(rng: random.Random) -> Any:
    """Return a value that hardly any field takes."""
    return deepcopy(rng.choice(JUNK))


def wrong_type(rng: random.Random, times: int = 1) -> Hostile:
    """Put values of another type in a random place, or in several."""
    body = full(rng)
    for _ in range(times):
        container, key = rng.choice(places(body))
        container[key] = junk(rng)
    return Hostile(encoded(body), path=rng.choice(["/orchestrate", "/route"]))


def many_wrong_types(rng: random.Random) -> Hostile:
    """The same in up to eight places."""
    return wrong_type(rng, rng.randint(2, 8))


def missing_and_extra(rng: random.Random) -> Hostile:
    """Leave fields out and add unknown ones, some with very long names."""
    body = full(rng)
    for _ in range(rng.randint(1, 6)):
        container, key = rng.choice(places(body))
        if isinstance(container, dict) and rng.random() < 0.5:
            container.pop(key, None)
        elif isinstance(container, dict):
            container[rng.choice([f"{MARK} field", MARK * 2_000, "", "\x00", "__class__", "parsed_query"])] = junk(rng)
    return Hostile(encoded(body))


def nested(rng: random.Random) -> Hostile:
    """Nest far deeper than any reader likes, closed and unclosed."""
    depth = rng.choice([10, 100, 150, 190, 195, 197, 198, 199, 200, 201, 255, 300, 1_000, 10_000, 100_000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
    deep = opening * depth + "1" + closing * (depth if rng.random() < 0.8 else 0)
    body = full(rng)
    container, key = rng.choice(
        [(body["parsed_query"], "context"), (body["parsed_query"]["context"], "x"), (body, MARK), (body, "preferences")]
    )
    container[key] = "THE-NEST"
    return Hostile(encoded(body).replace(b'"THE-NEST"', deep.encode()) if rng.random() < 0.8 else deep.encode())


NUMBERS = ["NaN", "-NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "9" * 300, "9" * 4_299, "9" * 4_301, "9" * 200_000, "-0"]
NUMBERS += ["0." + "1" * 100_000, "1e+0000000308", "1E400", "0x10", "+1", "01", ".5", "1.", "1e", "1_000", "٣", "1e2147483648", "--1"]


def odd_number(rng: random.Random) -> Hostile:
    """Write a number that is none, or too much."""
    body = full(rng)
    container, key = rng.choice(places(body))
    container[key] = "THE-NUMBER"
    return Hostile(encoded(body).replace(b'"THE-NUMBER"', rng.choice(NUMBERS).encode()))


def oversized(rng: random.Random) -> Hostile:
    """Send more than is read."""
    size = rng.choice([1_000_001, 1_200_000, 2_000_000])
    if rng.random() < 0.5:
        return Hostile(rng.choice([b" ", b"[", b"1", b'{"a":', b"\x00", b'"']) * size)
    body = full(rng)
    body["parsed_query"]["context"] = {MARK: "x" * size}
    return Hostile(encoded(body))


def surrogates(rng: random.Random) -> Hostile:
    """Put a half of a surrogate pair in every text or in a name."""
    lone = rng.choice(["\\ud800", "\\udfff", "\\ud83d", "\\ude00\\ud83d", "\\uD800\\uD800", "\\ud800x"])
    body = in_every_text(full(rng), lambda text: f"{text}THE-SURROGATE")
    if rng.random() < 0.5:
        one = rng.choice(places(full(rng)))[1]
        body = {**full(rng), "preferences": {f"{one}THE-SURROGATE": 1}}
    return Hostile(encoded(body).replace(b"THE-SURROGATE", lone.encode()))


CONTROLS = [
    "\x00",
    "\x00" * 50,
    "\x01",
    "\x07",
    "\x08",
    "\x0b",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\r\n",
    "\t",
    "\ufffe",
    "\uffff",
    "\u2028",
    "\x1a",
    "\\",
]


def controls(rng: random.Random) -> Hostile:
    """Put control characters in every text, escaped or raw."""
    control = rng.choice(CONTROLS)
    where = rng.choice([lambda t: control + t, lambda t: t + control, lambda t: control, lambda t: control.join(t)])
    raw = rng.random() < 0.2  # unescaped inside a string, which JSON forbids below U+0020
    body = encoded(in_every_text(full(rng), where), ensure_ascii=rng.random() < 0.5)
    return Hostile(body.replace(b"\\u0000", b"\x00").replace(b"\\n", b"\n") if raw else body)


ODD_TYPES = [
    "",
    "text/plain",
    "application/xml",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonx",
]
ODD_TYPES += [
    "application/json;" * 50,
    "application/vnd.api+json",
    "APPLICATION/JSON",
    'application/json; charset="',
    "application/json; =;;;",
]
ODD_TYPES += [
    f"text/{MARK}",
    "application/",
    "+json",
    "application/+json",
    "json",
    "*/*",
    "application/json, text/plain",
    "a" * 5_000,
    "\xff/\xfe",
]


def odd_content_type(rng: random.Random) -> Hostile:
    """Name no content type, another, several or nonsense."""
    kind = rng.choice(ODD_TYPES)
    headers = [] if kind == "" and rng.random() < 0.5 else [(b"content-type", kind.encode("latin-1"))]
    if rng.random() < 0.2:
        headers.append((b"content-type", b"application/json"))
    return Hostile(encoded(full(rng)), headers, rng.choice(["/orchestrate", "/route", "/feedback"]))


CHARSETS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "cp037", "latin-1", "utf-8-sig", "shift_jis", "utf-8"]


def odd_charset(rng: random.Random) -> Hostile:
    """Encode in one character set and announce another."""
    text = json.dumps(in_every_text(full(rng), lambda t: f"{t} é"), ensure_ascii=False)
    announced = rng.choice([*CHARSETS, "unheard-of", "rot13", "base64", "", "\xff"])
    return Hostile(
        text.encode(rng.choice(CHARSETS), "replace"), [(b"content-type", f"application/json; charset={announced}".encode("latin-1"))]
    )


def truncated(rng: random.Random) -> Hostile:
    """Cut at a random byte."""
    whole = encoded(full(rng), ensure_ascii=False)
    return Hostile(whole[: rng.randrange(len(whole))] + rng.choice([b"", b"", b"}", b'"', b"\\", b"\xf0\x9f", b",", b"]"]))


def byte_order_mark(rng: random.Random) -> Hostile:
    """Put a byte order mark before or after."""
    mark = rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf" * 2, b"\x00\x00\xfe\xff", b"\xe2\x80\x8b"])
    return Hostile(rng.choice([lambda b: mark + b, lambda b: b + mark])(encoded(full(rng))))


def duplicate_keys(rng: random.Random) -> Hostile:
    """Name a field twice."""
    body = encoded(full(rng)).decode()
    again = rng.choice(
        [
            '"user_id": null, "user_id": "u",',
            f'"user_id": "{MARK}",',
            '"parsed_query": 1,',
            f'"parsed_query": {{"query_id": "{MARK}"}},',
            '"a": 1, "a": 2,',
            '"a": 1,' * 20_000,
        ]
    )
    late = rng.random() < 0.5
    return Hostile((body[:-1] + ", " + again.rstrip(",") + "}" if late else "{" + again + body[1:]).encode())


SCALARS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**300,
    "",
    MARK,
    [],
    [[]],
    [{}],
    [1] * 1_000,
    {},
    {"parsed_query": None},
    [None, MARK],
]


def bare_value(rng: random.Random) -> Hostile:
    """Send a value that is no object, or an empty one."""
    return Hostile(encoded(rng.choice(SCALARS)), path=rng.choice(["/orchestrate", "/route", "/feedback"]))


def invalid_utf8(rng: random.Random) -> Hostile:
    """Put bytes that are no UTF-8 in random places."""
    whole = bytearray(encoded(full(rng), ensure_ascii=False))
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(whole))
        whole[at:at] = rng.choice(
            [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xf8\x88\x80\x80\x80"]
        )
    return Hostile(bytes(whole))


ODD_TEXT = [
    "\u202e",
    "\u2066\u2069",
    "\u200b" * 30,
    "\u200f",
    "😀" * 20,
    "👨‍👩‍👧‍👦",
    "Z̷̢̛͎a̶̡l̸̡g̵o" + "\u0301" * 200,
    "ﷺ",
    "𝓚𝓲𝓼𝓺𝓪𝓵𝓲",
    "İıẞ",
    "\U0010ffff",
]
ODD_TEXT += [
    "\u0600" * 10,
    "كيسكالي",
    "千" * 100,
    "\ufeff",
    "\u00ad",
    "ᅠ",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "<script>alert(1)</script>",
    "'; DROP TABLE decision; --",
    "{{7*7}}${7*7}",
    "%s%n%x",
]


def odd_text(rng: random.Random) -> Hostile:
    """Put direction marks, joined emoji, combining marks and other people's injections in every text."""
    odd = rng.choice(ODD_TEXT)
    where = rng.choice([lambda t: odd + t, lambda t: t + odd, lambda t: odd, lambda t: odd.join(t.split())])
    return Hostile(encoded(in_every_text(full(rng), where), ensure_ascii=rng.random() < 0.5))


LONG = [
    "a",
    " ",
    "a ",
    "\n",
    "😀",
    "@",
    "@a ",
    "Kisqali ",
    "kisqal ",
    "HCP-1",
    "2026-01-",
    "1",
    "Q1 2025 ",
    "last month ",
    "!?",
    "\u0301",
    "-",
    "hi ",
    "aA0_-./",
]


def long_question(rng: random.Random) -> Hostile:
    """Ask with as many characters as may be, or one more."""
    body, piece = full(rng), rng.choice(LONG)
    body["parsed_query"]["raw_query"] = (piece * 100_000)[: rng.choice([99_999, 100_000, 100_001])]
    del body["parsed_query"]["intent"]
    if rng.random() < 0.7:
        del body["parsed_query"]["entities"]
    return Hostile(encoded(body, ensure_ascii=False), path=rng.choice(["/orchestrate", "/route"]))


def noise(rng: random.Random) -> Hostile:
    """Send random bytes."""
    return Hostile(rng.randbytes(rng.choice([0, 1, 2, 10, 1_000, 100_000])), path=rng.choice(["/orchestrate", "/route", "/feedback"]))


def random_value(rng: random.Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    if depth > 5 or rng.random() < 0.3:
        return junk(rng)
    if rng.random() < 0.5:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 5))]
    names = ["parsed_query", "query_id", "entities", "user_id", "decision_id", MARK, "", "preferences", "raw_query", "corrected_agent"]
    return {rng.choice(names): random_value(rng, depth + 1) for _ in range(rng.randint(0, 6))}


def random_json(rng: random.Random) -> Hostile:
    """Send any JSON at all."""
    return Hostile(encoded(random_value(rng)), path=rng.choice(["/orchestrate", "/route", "/feedback"]))


def odd_feedback(rng: random.Random) -> Hostile:
    """Rate with nonsense."""
    said: dict[str, Any] = {"decision_id": str(UUID(int=rng.getrandbits(128))), "user_satisfaction": 4, "corrected_agent": "explainer"}
    said[rng.choice([*said, "query_id", "answer_quality", "was_rerouted", f"{MARK} field"])] = junk(rng)
    return Hostile(encoded(said), path="/feedback")


FLOODS: dict[str, Callable[[dict[str, Any]], None]] = {
    "entities of numbers": lambda b: b["parsed_query"].update(entities=[1] * 300_000),
    "empty entities": lambda b: b["parsed_query"].update(entities=[{}] * 200_000),
    "valid entities": lambda b: b["parsed_query"].update(entities=[{"type": "brand", "value": "x"}] * 20_000),
    "entities of unknown fields": lambda b: b["parsed_query"].update(entities=[{f"k{i}": 1 for i in range(400)}] * 20),
    "fields of the query": lambda b: b["parsed_query"].update({f"k{i}": 1 for i in range(80_000)}),
    "fields of the body": lambda b: b.update({f"k{i}": 1 for i in range(9_000)}),
    "a very long name": lambda b: b["parsed_query"].update({MARK * 60_000: 1}),
    "turns of numbers": lambda b: b.update(conversation_history=[1] * 300_000),
    "turns of nonsense": lambda b: b.update(conversation_history=[{"role": MARK, "content": 1}] * 15_000),
    "values in the context": lambda b: b["parsed_query"].update(context={MARK: list(range(100_000))}),
    "members of the context": lambda b: b["parsed_query"].update(context={str(i): {} for i in range(80_000)}),
    "lists as the question": lambda b: b["parsed_query"].update(raw_query=[[]] * 200_000),
    "unknown wishes": lambda b: b["preferences"].update({f"k{i}": 1 for i in range(80_000)}),
}


def flood(rng: random.Random) -> Hostile:
    """Send as many fields, entities, turns or values as a megabyte holds."""
    body = full(rng)
    rng.choice(list(FLOODS.values()))(body)
    return Hostile(encoded(body, separators=(",", ":")), path=rng.choice(["/orchestrate", "/route"]))


def nearly_json(rng: random.Random) -> Hostile:
    """Send what other languages take for JSON."""
    text = encoded(full(rng)).decode()
    return Hostile(
        rng.choice(
            [
                text.replace('"', "'"),
                text[:-1] + ",}",
                f"// {MARK}\n{text}",
                f"{text} {text}",
                f"{text}\x00",
                f"/* {MARK} */{text}",
                text.replace("true", "True").replace("false", "False").replace("null", "None"),
                text.replace(":", "="),
                f")]}}',\n{text}",
                "\n" * 10_000 + text + "\t" * 10_000,
                text.replace('"user_id"', "user_id"),
                "",
                " ",
            ]
        ).encode()
    )


ODD_HEADERS: list[list[tuple[bytes, bytes]]] = [
    *(
        [(b"x-request-id", v)]
        for v in (b"a\r\nSet-Cookie: x=1", b"a\nb", b"\x00", b"\xff" * 50, b"%0d%0aX: y", b"a" * 10_000, b"${jndi:x}", b"")
    ),
    *(
        [(b"authorization", v)]
        for v in (b"Bearer", b"Bearer " + b"x" * 50_000, b"Basic !!!", b"\xff\xfe", b"Bearer \x00", b"bearer  a b c")
    ),
    *([(b"x-api-key", v)] for v in (b"", b"\xff", b"\x00", b"k" * 50_000)),
    *([(b"host", v)] for v in (b"[", b"[::1", b"a b", b"evil/", b"a#b", b"a?b", b"", b"\xff", b"@", b"x" * 5_000)),
    *([(b"content-length", v)] for v in (b"-1", b"abc", b"9" * 40, b"\xb2", b"1e9", b"0x10", b"")),
    [(b"x-a", b"b")] * 2_000,
    [(f"x-{i}".encode(), b"b" * 100) for i in range(1_000)],
    [(b"x-forwarded-for", b"1.1.1.1," * 1_000), (b"x-forwarded-host", b"evil"), (b"x-http-method-override", b"DELETE")],
    [(b"accept", b"application/xml"), (b"accept-charset", b"utf-7"), (b"expect", b"200-maybe"), (b"content-encoding", b"gzip")],
    [(b"cookie", b"a=b; " * 3_000), (b"range", b"bytes=0-1"), (b"if-none-match", b"*"), (b"upgrade", b"websocket")],
]


def odd_headers(rng: random.Random) -> Hostile:
    """Send odd, huge and very many headers."""
    return Hostile(encoded(full(rng)), [(b"content-type", b"application/json"), *rng.choice(ODD_HEADERS)])


PATHS = [
    "/",
    "//",
    "/orchestrate/",
    "/ORCHESTRATE",
    "/../etc/passwd",
    "/..%2f..%2fetc%2fpasswd",
    "/static-offline-docs/../../../etc/passwd",
]
PATHS += [
    "/static-offline-docs/%2e%2e/%2e%2e/etc/passwd",
    "/static-offline-docs/..%5c..%5cx",
    f"/{MARK}",
    f"/decisions/{MARK}",
    "/decisions/",
]
PATHS += [
    "/decisions/%00",
    "/decisions/%ff%fe",
    "/decisions/..%2f..",
    "/decisions/1' OR '1'='1",
    "/decisions/" + "a" * 50_000,
    "/%",
    "/%zz",
    "/\\x",
]
PATHS += [
    "/decisions/3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11%0a",
    "/route?" + "a=b&" * 5_000,
    "/orchestrate#x",
    "/orchestrate;x=y",
    "/agents/../route",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 200]


def odd_address(rng: random.Random) -> Hostile:
    """Ask for what is not there, in ways that are not allowed."""
    known = ["/orchestrate", "/route", "/feedback", "/agents", "/metrics", "/healthz", "/docs", "/openapi.json"]
    anywhere = rng.random() < 0.6
    method = rng.choice(METHODS) if not anywhere or rng.random() < 0.5 else "GET"
    path = rng.choice(PATHS) if anywhere else rng.choice(known)
    return Hostile(b"" if method in {"GET", "HEAD"} else encoded(full(rng)), path=path, method=method)


KINDS: dict[Callable[[random.Random], Hostile], int] = {
    wrong_type: 60,
    many_wrong_types: 40,
    missing_and_extra: 30,
    nested: 30,
    odd_number: 40,
    oversized: 10,
    surrogates: 15,
    controls: 35,
    odd_content_type: 25,
    odd_charset: 20,
    truncated: 30,
    byte_order_mark: 8,
    duplicate_keys: 12,
    bare_value: 15,
    invalid_utf8: 20,
    odd_text: 30,
    long_question: 12,
    noise: 10,
    random_json: 20,
    odd_feedback: 15,
    flood: 13,
    nearly_json: 15,
    odd_headers: 20,
    odd_address: 35,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(catalog: Catalog, router: Router, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of an app over the real store."""
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/pointsman.db")
    await store.open()
    try:
        async with World(catalog, router, store=store).client() as opened:
            yield opened
    finally:
        await store.close()


async def send(client: httpx.AsyncClient, hostile: Hostile) -> httpx.Response:
    """Send one request and check all that must hold of any answer."""
    url = httpx.URL("http://test").copy_with(raw_path=quote(hostile.path, safe="/%?=&;.:").encode())
    request = client.build_request(hostile.method, url, content=hostile.content, headers=hostile.headers)
    started = time.monotonic()
    response = await asyncio.wait_for(client.send(request), SECONDS * 2)
    assert time.monotonic() - started < SECONDS
    assert_well_formed(response.status_code, response.headers, response.text, head=hostile.method.upper() == "HEAD")
    return response


def assert_well_formed(status: int, headers: httpx.Headers, text: str, *, head: bool = False) -> None:
    """Check status and form: an error is a bounded problem that repeats nothing of what was sent in its detail."""
    assert status in FORMS, text[:500]
    assert len(headers.get_list("x-request-id")) == 1
    assert headers["x-request-id"].isprintable()
    assert "set-cookie" not in headers
    if status >= 400 and not head:
        assert headers["content-type"] == "application/problem+json"
        problem = Problem.model_validate_json(text)
        assert problem.status == status
        assert problem.request_id == headers["x-request-id"]
        assert MARK not in problem.detail
        assert len(problem.detail) < 1_000
        assert len(text) < 100_000 + 3 * len(problem.instance or "")
        assert not any(word in text for word in ("Traceback", 'File "', "pydantic", "sqlite", "site-packages"))


async def test_there_are_five_hundred() -> None:
    """The number that was promised, and each kind is really made in several ways."""
    assert sum(KINDS.values()) >= 500
    for kind, count in KINDS.items():
        rng = random.Random(SEED)
        made = [kind(rng) for _ in range(count)]
        assert len({(m.content, str(m.headers), m.path, m.method) for m in made}) > min(count, 12) / 2, kind.__name__


@pytest.mark.parametrize(("kind", "count"), KINDS.items(), ids=[kind.__name__ for kind in KINDS])
async def test_hostile_requests_get_a_proper_answer(
    client: httpx.AsyncClient, kind: Callable[[random.Random], Hostile], count: int
) -> None:
    """Each is answered in time and in form; one that is accepted is stored as it was sent and can be read again."""
    rng = random.Random(SEED)
    for number in range(count):
        hostile = kind(rng)
        try:
            response = await send(client, hostile)
            if response.status_code == 200 and hostile.path == "/orchestrate":
                await assert_stored(client, hostile, response.json())
        except AssertionError as exc:
            raise AssertionError(
                f"{kind.__name__} {number}: {hostile.method} {hostile.path[:80]} {hostile.content[:300]!r}\n{exc}"
            ) from exc

    assert (await client.get("/healthz")).status_code == 200


async def assert_stored(client: httpx.AsyncClient, hostile: Hostile, answer: dict[str, Any]) -> None:
    """Check that the receipt can be read, and that its request is what was sent, to the last character."""
    receipt = await client.get(f"/decisions/{answer['decision_id']}")
    sent = json.loads(hostile.content)

    assert receipt.status_code == 200, receipt.text[:500]
    stored = receipt.json()["request"]
    assert stored["parsed_query"]["raw_query"] == sent["parsed_query"]["raw_query"]
    assert stored["parsed_query"]["context"] == sent["parsed_query"].get("context")
    assert (stored["user_id"], stored["session_id"]) == (sent["user_id"], sent["session_id"])


async def test_memory_does_not_grow_with_hostile_requests(client: httpx.AsyncClient) -> None:
    """The kinds that are costly to refuse, sent again and again, leave nothing behind."""
    costly = (flood, oversized, nested, long_question, missing_and_extra, duplicate_keys)

    async def rounds(count: int) -> int:
        for _ in range(count):
            rng = random.Random(SEED)
            for kind in costly:
                for _ in range(3):
                    await send(client, kind(rng))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await rounds(1)  # fills what is filled once
    tracemalloc.start()
    try:
        first = await rounds(1)
        last = await rounds(2)
    finally:
        tracemalloc.stop()

    assert last - first < 500_000  # one round is several megabytes of bodies


@pytest.mark.parametrize("attack", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_broken_fields_is_not_worked_through(client: httpx.AsyncClient, attack: Callable[[dict[str, Any]], None]) -> None:
    """However many fields a body breaks, only so many are ever listed, so that nobody else has to wait for seconds."""
    body = full(random.Random(SEED))
    attack(body)
    started = time.process_time()

    response = await send(client, Hostile(encoded(body, separators=(",", ":")), path="/route"))

    assert time.process_time() - started < 3.0
    if response.status_code == 400:
        counted = re.match(r"(\d+) fields? broke", response.json()["detail"])
        assert counted is None or int(counted[1]) <= middleware.MAX_MEMBERS


# Over a socket


@pytest.fixture(scope="module")
def server(catalog: Catalog, router: Router) -> Iterator[int]:
    """Give the port of a real server in a thread."""
    config = uvicorn.Config(World(catalog, router).app(), host="127.0.0.1", port=0, log_config=None, access_log=False)
    running = uvicorn.Server(config)
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


async def exchange(port: int, *parts: bytes, hang_up: bool = False, pause: float = 0.0) -> bytes:
    """Send parts over one connection and return all that comes back until the server has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        for part in parts if pause else [b"".join(parts)]:  # in one piece: what arrives after a server has closed can cost its answer
            with contextlib.suppress(ConnectionError):
                writer.write(part)
                await writer.drain()
            await asyncio.sleep(pause)
        if hang_up:
            writer.write_eof()
        received = b""
        with contextlib.suppress(ConnectionError):
            received = await asyncio.wait_for(first_answer(reader), SECONDS)
        return received
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def first_answer(reader: asyncio.StreamReader) -> bytes:
    """Return the first answer whole, or nothing where the connection was closed without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as exc:
        return exc.partial
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    if lengths:
        return head + await reader.readexactly(int(lengths[0]))
    if b"chunked" not in head.lower():
        return head + await reader.read()
    size, _, rest = (await reader.readuntil(b"0\r\n\r\n")).partition(b"\r\n")  # the server's own answers are one chunk
    return head + rest[: int(size, 16)]


def parsed(answer: bytes) -> tuple[int, httpx.Headers, str]:
    """Take an HTTP answer apart."""
    head, _, content = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    pairs = [line.partition(b": ")[::2] for line in lines]
    return int(status.split(b" ")[1]), httpx.Headers([(k, v) for k, v in pairs]), content.decode()


def head(*lines: str, target: str = "POST /orchestrate HTTP/1.1") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([target, "Host: test", "Content-Type: application/json", *lines, "", ""]).encode("latin-1")


def a_body() -> bytes:
    """Return a valid body with an id that nobody has used."""
    return encoded(full(random.Random()))


def chunked(*chunks: bytes) -> bytes:
    """Return a body in chunks, but for the last one."""
    return b"".join(f"{len(c):x}\r\n".encode() + c + b"\r\n" for c in chunks)


BODY = encoded(full(random.Random(SEED)))
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
    "an upgrade": ([head("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", target="GET /route HTTP/1.1")], {400, 405}),
}


@pytest.mark.parametrize(("parts", "statuses"), SPOKEN.values(), ids=SPOKEN.keys())
async def test_a_server_that_is_lied_to_answers_and_goes_on(server: int, parts: list[bytes], statuses: set[int]) -> None:
    """The expected answer, in form; what is no HTTP is refused by the server itself, in one line of text. The next caller is served."""
    fresh = [part.replace(BODY, a_body()) for part in parts]

    answer = await exchange(server, *fresh)
    after = await exchange(server, head(target="GET /healthz HTTP/1.1"))

    status, headers, text = parsed(answer)
    assert status in statuses, answer[:300]
    if headers.get("content-type", "").startswith("text/plain"):
        assert (status, text) == (400, "Invalid HTTP request received.")
    else:
        assert_well_formed(status, headers, text)
    assert b"Set-Cookie" not in answer
    assert parsed(after)[0] == 200


async def test_a_caller_that_hangs_up_is_forgotten(server: int) -> None:
    """Half a body and a closed connection: no answer is owed, nothing breaks, and a hundred of them cost nothing."""
    for _ in range(100):
        assert await exchange(server, head(f"Content-Length: {len(BODY)}"), BODY[:50], hang_up=True) == b""

    assert parsed(await exchange(server, head(target="GET /healthz HTTP/1.1")))[0] == 200


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
