"""Hostile requests by kind: bodies that are wrong as JSON or in shape. Each maker takes a seeded generator."""

import json
import random
from collections.abc import Callable, Container
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx

from service.contracts.problem import Problem

SEED = 20_260_115


SECONDS = 10.0  # for one answer, on a machine that is busy with other tests


MARK = "Zq7xMark"  # in every text that is sent, so that an echo is seen


JSON = {"content-type": "application/json"}


FORMS = {200, 400, 401, 404, 405, 409, 413, 415}


def assert_well_formed(status: int, headers: httpx.Headers, text: str, *, head: bool = False, statuses: Container[int] = FORMS) -> None:
    """Check status and form: an error is a bounded problem that repeats nothing of what was sent in its detail."""
    assert status in statuses, text[:500]
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
