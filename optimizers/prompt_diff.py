"""Two states of an LM's programs as a diff that people can read: instructions in sentences as they are served, demonstrations in lines."""

import difflib
import re
from collections.abc import Iterator, Mapping

from service.contracts.model import JsonObject

SENTENCE = re.compile(r"(?<=[.!?:])\s+")


def diff_programs(before: Mapping[str, JsonObject], after: Mapping[str, JsonObject]) -> list[str]:
    """Return the lines of a unified diff of all programs that differ; none where none does."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = (list(_lines(name, states.get(name))) for states in (before, after))
        lines += difflib.unified_diff(old, new, f"{name} before", f"{name} after", lineterm="", n=2)
    return lines


def _lines(name: str, state: JsonObject | None) -> Iterator[str]:
    if state is None:
        return
    from signatures.instructions import ANSWERS, guarded  # DSPy takes a second to import

    signature, demos = state.get("signature"), state.get("demos")
    if isinstance(signature, dict):
        said = guarded(str(signature.get("instructions", "")), {ANSWERS.get(name, ""): None})  # as it is served
        yield from (part for part in SENTENCE.split(" ".join(said.split())) if part)
    if state.get("examples") is not None:
        yield f"Shows the {state['examples']} nearest examples at most."
    if state.get("first_reading"):
        yield "Shows the likeliest option so far as one more example."
    for demo in demos if isinstance(demos, list) else ():
        if isinstance(demo, dict):
            yield " | ".join(
                f"{name}: {' '.join(str(value).split())}" for name, value in sorted(demo.items()) if value not in ("", [], None)
            )
