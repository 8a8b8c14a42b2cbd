"""Hostile requests by kind: odd texts, floods, headers and addresses. Each maker takes a seeded generator."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.contract.hostile import (
    MARK,
    Hostile,
    bare_value,
    byte_order_mark,
    controls,
    duplicate_keys,
    encoded,
    full,
    in_every_text,
    junk,
    many_wrong_types,
    missing_and_extra,
    nested,
    odd_charset,
    odd_content_type,
    odd_number,
    oversized,
    surrogates,
    truncated,
    wrong_type,
)


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
"""Every kind, and how often it is tried where each is."""
