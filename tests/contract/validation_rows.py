"""Every field rule of the request body, as rows: what is refused, and what is accepted at the limits."""

import re
from typing import Any
from uuid import uuid4

from service.contracts.query import (
    MAX_HISTORY_TURNS,
    MAX_QUERY_CHARACTERS,
)

PATHS = ("/orchestrate", "/route")


MISSING = object()


BRAND = {"type": "brand", "value": "Kisqali", "confidence": 0.9, "source": "exact"}


def full() -> dict[str, Any]:
    """Return a body in which every field is given."""
    return {
        "parsed_query": {
            "query_id": str(uuid4()),
            "raw_query": "Where are we leaving Kisqali scripts on the table?",
            "intent": "gap_analysis",
            "entities": [dict(BRAND)],
            "confidence": 0.95,
            "ambiguity_flag": False,
            "context": {"kpi": ["TRx", None, 1.5]},
            "timestamp": "2026-01-15T09:30:00Z",
        },
        "user_id": "u-1",
        "session_id": "s-1",
        "conversation_history": [{"role": "user", "content": "Hello"}],
        "preferences": {
            "max_latency_ms": 30_000,
            "required_confidence": 0.5,
            "depth": "quick",
            "rung": None,
        },
    }


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """Return a full body with the values at some paths replaced or, for MISSING, taken out."""
    body = full()
    for path, value in changes:
        keys = [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", path.rstrip("]"))]
        place: Any = body
        for key in keys[:-1]:
            place = place[key]
        if value is MISSING:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
    return body


QUERY, ENTITY, TURN, WISHES = "parsed_query", "parsed_query.entities[0]", "conversation_history[0]", "preferences"


NO_OBJECT = {"null": None, "a list": [], "text": "x", "a number": 7, "true": True}


NO_NUMBER = {"null": None, "words": "high", "a number as text": "0.5", "NaN as text": "NaN", "true": True, "a list": [0.5], "an object": {}}


NO_TEXT = {"null": None, "a number": 7, "true": True, "a list": ["x"], "an object": {"x": 1}}


def rows(path: str, kind: str, values: dict[str, Any]) -> list[tuple[str, Any, str, str]]:
    """Return one row of the table for each value: where, what, the kind of error, the row's id."""
    return [(path, value, kind, f"{path} is {name}") for name, value in values.items()]


REFUSED = [
    *rows("parsed_query", "missing", {"missing": MISSING}),
    *rows("parsed_query", "model_attributes_type", NO_OBJECT),
    *rows("parsed_query.unheard_of", "extra_forbidden", {"unknown": 1}),
    *rows("parsed_query.query_id", "missing", {"missing": MISSING}),
    *rows("parsed_query.query_id", "uuid_type", {"null": None, "a number": 7, "a list": []}),
    *rows(
        "parsed_query.query_id",
        "uuid_parsing",
        {
            "empty": "",
            "of the specification's example": "q-123",
            "cut short": "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c1",
            "with a letter too many": "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c111",
            "not hexadecimal": "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c1g",
            "padded": " 3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11 ",
            "followed by NUL": "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11\x00",
        },
    ),
    *rows("parsed_query.raw_query", "missing", {"missing": MISSING}),
    *rows("parsed_query.raw_query", "string_type", NO_TEXT),
    *rows("parsed_query.raw_query", "string_too_long", {"too long": "x" * (MAX_QUERY_CHARACTERS + 1)}),
    *rows("parsed_query.intent", "string_type", {k: v for k, v in NO_TEXT.items() if k != "null"}),
    *rows("parsed_query.intent", "string_too_long", {"too long": "x" * 257}),
    *rows("parsed_query.entities", "tuple_type", {"text": "Kisqali", "an object": dict(BRAND), "a number": 7}),
    *rows("parsed_query.entities[0]", "model_attributes_type", NO_OBJECT),
    *rows(f"{ENTITY}.unheard_of", "extra_forbidden", {"unknown": 1}),
    *rows(f"{ENTITY}.type", "missing", {"missing": MISSING}),
    *rows(f"{ENTITY}.type", "enum", {"null": None, "unknown": "colour", "in capitals": "BRAND", "a number": 1, "a list": ["brand"]}),
    *rows(f"{ENTITY}.value", "missing", {"missing": MISSING}),
    *rows(f"{ENTITY}.value", "string_type", NO_TEXT),
    *rows(f"{ENTITY}.value", "string_too_short", {"empty": ""}),
    *rows(f"{ENTITY}.value", "string_too_long", {"too long": "x" * 513}),
    *rows(f"{ENTITY}.confidence", "float_type", NO_NUMBER),
    *rows(f"{ENTITY}.source", "enum", {"null": None, "unknown": "guess", "a number": 0}),
    *rows("parsed_query.confidence", "float_type", NO_NUMBER),
    *rows("parsed_query.ambiguity_flag", "bool_type", {"null": None, "words": "yes", "one": 1, "a list": [], "an object": {}}),
    *rows("parsed_query.context", "dict_type", {"a list": [], "text": "x", "a number": 7, "true": True}),
    *rows("parsed_query.timestamp", "datetime_type", {"null": None, "a list": [], "an object": {}}),
    *rows(
        "parsed_query.timestamp",
        "value_error",
        {"without a zone": "2026-01-15T09:30:00", "a date": "2026-01-15", "a number": 1_768_469_400, "true": True},
    ),
    *rows(
        "parsed_query.timestamp",
        "datetime_from_date_parsing",
        {
            "words": "yesterday",
            "empty": "",
            "a day that is none": "2026-02-30T00:00:00Z",
            "25 hours ahead": "2026-01-15T09:30:00+25:00",
        },
    ),
    *[
        row
        for name in ("user_id", "session_id")
        for row in (
            *rows(name, "missing", {"missing": MISSING}),
            *rows(name, "string_type", NO_TEXT),
            *rows(name, "string_too_short", {"empty": ""}),
            *rows(name, "string_too_long", {"too long": "x" * 257}),
        )
    ],
    *rows("conversation_history", "tuple_type", {"null": None, "text": "x", "an object": {}, "a number": 7}),
    *rows("conversation_history", "too_long", {"too long": [{"content": "x"}] * (MAX_HISTORY_TURNS + 1)}),
    *rows(TURN, "model_attributes_type", NO_OBJECT),
    *rows(f"{TURN}.role", "literal_error", {"null": None, "unknown": "robot", "a number": 1}),
    *rows(f"{TURN}.content", "string_type", NO_TEXT),
    *rows(f"{TURN}.content", "string_too_long", {"too long": "x" * (MAX_QUERY_CHARACTERS + 1)}),
    *rows("preferences", "model_attributes_type", {k: v for k, v in NO_OBJECT.items() if k != "null"}),
    *rows(f"{WISHES}.max_latency_ms", "greater_than_equal", {"zero": 0, "negative": -5}),
    *rows(f"{WISHES}.max_latency_ms", "less_than_equal", {"above an hour": 3_600_001}),
    *rows(f"{WISHES}.max_latency_ms", "int_from_float", {"a fraction": 1.5}),
    *rows(f"{WISHES}.max_latency_ms", "value_error", {"words": "soon", "a number as text": "5000", "true": True}),
    *rows(f"{WISHES}.max_latency_ms", "int_type", {"a list": [5_000], "an object": {}}),
    *rows(f"{WISHES}.required_confidence", "greater_than_equal", {"negative": -0.01}),
    *rows(f"{WISHES}.required_confidence", "less_than_equal", {"above 1": 1.01}),
    *rows(f"{WISHES}.required_confidence", "float_type", {name: v for name, v in NO_NUMBER.items() if name != "null"}),
    *rows(f"{WISHES}.depth", "enum", {"null": None, "unknown": "bottomless", "a number": 1}),
    *rows(f"{WISHES}.rung", "literal_error", {"unknown": "oracle", "a rung that nobody may ask for": "caller", "a number": 1}),
    *rows("unheard_of", "extra_forbidden", {"unknown": 1}),
]


ACCEPTED: dict[str, tuple[str, Any]] = {
    "query_id in capitals": ("parsed_query.query_id", "3F0D0C52-7A5E-4F0E-9A53-5D1B8F0E2C01"),
    "raw_query empty": ("parsed_query.raw_query", ""),
    "raw_query as long as may be": ("parsed_query.raw_query", "x" * MAX_QUERY_CHARACTERS),
    "intent missing": ("parsed_query.intent", MISSING),
    "intent null": ("parsed_query.intent", None),
    "entities missing": ("parsed_query.entities", MISSING),
    "entities null": ("parsed_query.entities", None),
    "entities none": ("parsed_query.entities", []),
    "entity value as long as may be": (f"{ENTITY}.value", "x" * 512),
    "entity confidence missing": (f"{ENTITY}.confidence", MISSING),
    "entity source missing": (f"{ENTITY}.source", MISSING),
    "confidence missing": ("parsed_query.confidence", MISSING),
    "confidence zero": ("parsed_query.confidence", 0),
    "confidence one": ("parsed_query.confidence", 1),
    "ambiguity_flag missing": ("parsed_query.ambiguity_flag", MISSING),
    "context missing": ("parsed_query.context", MISSING),
    "context null": ("parsed_query.context", None),
    "timestamp missing": ("parsed_query.timestamp", MISSING),
    "timestamp of another zone": ("parsed_query.timestamp", "2026-01-15T09:30:00.123456-08:00"),
    "history missing": ("conversation_history", MISSING),
    "history as long as may be": ("conversation_history", [{"content": "x"}] * MAX_HISTORY_TURNS),
    "history with a field of the caller's own": (f"{TURN}.unheard_of", {"a": 1}),
    "role missing": (f"{TURN}.role", MISSING),
    "content missing": (f"{TURN}.content", MISSING),
    "preferences missing": ("preferences", MISSING),
    "preferences null": ("preferences", None),
    "preferences none": ("preferences", {}),
    "an unknown preference": (f"{WISHES}.unheard_of", [1]),
    "max_latency_ms least": (f"{WISHES}.max_latency_ms", 1),
    "max_latency_ms most": (f"{WISHES}.max_latency_ms", 3_600_000),
    "max_latency_ms with a point": (f"{WISHES}.max_latency_ms", 5_000.0),
    "max_latency_ms null": (f"{WISHES}.max_latency_ms", None),
    "required_confidence null": (f"{WISHES}.required_confidence", None),
    "depth missing": (f"{WISHES}.depth", MISSING),
    "rung missing": (f"{WISHES}.rung", MISSING),
}
