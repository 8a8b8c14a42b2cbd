"""The fields of every signature as a plain table, and their fingerprint.

Imports no DSPy, so that the server can check a router version in milliseconds; a test holds the table against the signature classes.

The fingerprint covers what a saved program state depends on (names, order, direction and types), not the wording: DSPy loads a state by
position and without complaint, so a state of other fields must be refused before it is loaded.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a signature. `type` is the Python type as it is written in the source."""

    name: str
    direction: Literal["input", "output"]
    type: str


def _inputs(*names: str) -> tuple[FieldSpec, ...]:
    return tuple(FieldSpec(name, "input", "str") for name in names)


SIGNATURE_FIELDS: dict[str, tuple[FieldSpec, ...]] = {
    "intent": (
        *_inputs("query", "conversation_context"),
        FieldSpec("intent", "output", "str"),
        FieldSpec("sub_intent", "output", "str"),
        FieldSpec("confidence", "output", "float"),
    ),
    "routing": (
        *_inputs("query", "query_pattern", "entities", "available_agents"),
        FieldSpec("primary_agent", "output", "str"),
        FieldSpec("secondary_agents", "output", "list[str]"),
        FieldSpec("routing_confidence", "output", "float"),
        FieldSpec("routing_rationale", "output", "str"),
    ),
    "synthesis": (
        *_inputs("query", "findings"),
        FieldSpec("response_text", "output", "str"),
    ),
}


def fingerprint(fields: Sequence[FieldSpec]) -> str:
    """Return the SHA-256 over names, order, directions and types, in hexadecimal."""
    plain = [[field.name, field.direction, field.type] for field in fields]
    return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()


def expected_fingerprints() -> dict[str, str]:
    """Return the fingerprint of every signature of this version of the code, by signature name."""
    return {name: fingerprint(fields) for name, fields in SIGNATURE_FIELDS.items()}
