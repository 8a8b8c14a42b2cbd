"""`SmallModelAdapter`: prompts and answers for a model of a few hundred million parameters on a few cores.

There a token of the prompt costs 6 ms and one of the answer 14 ms (SmolLM2-135M, one core), and two calls share 1.8 s. So demonstrations
take one line each, and the answer to a choice is one of a list of JSON arrays: the server's grammar then leaves no room for white space,
and the model writes no free text, which at this size is noise. Free text stays possible where a signature has no labels.
"""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import dspy
import json_repair
from dspy.utils.exceptions import AdapterParseError
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from signatures.adapter import MAX_COMPLETION_CHARACTERS, CompactAdapter
from signatures.narrowing import allowed

CONFIDENCES = [0.5, 0.8, 0.95]


class SmallModelAdapter(CompactAdapter):
    """Needs a server that takes a response schema and obeys it (llama.cpp)."""

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return the instructions and the form of the answer."""
        form = json.dumps([_form(name, field) for name, field in signature.output_fields.items()], separators=(",", ":"))
        return f"{' '.join(signature.instructions.split())}\nAnswer like {form}"

    def format(self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a system message and one user message: demonstrations, a line each, then the question."""
        shown = [line for line in (_demo_line(signature, demo) for demo in demos) if line]
        given = [f"{name}: {inputs[name]}" for name in signature.input_fields if inputs.get(name)]
        labels = dict.fromkeys(label for field in signature.output_fields.values() for label in allowed(field.annotation))
        unseen = [label for label in labels if not any(label in line for line in (*shown, *given))]
        ending = f"Other answers: {', '.join(unseen)}" if unseen else "Answer:"
        content = "\n".join((*shown, *given, ending))
        return [{"role": "system", "content": self.format_system_message(signature)}, {"role": "user", "content": content}]

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Parse the array, or an object with the fields' names.

        Raises:
            AdapterParseError: it is neither, or breaks a field's type.
        """
        values = json_repair.loads(completion) if len(completion) <= MAX_COMPLETION_CHARACTERS else None
        if isinstance(values, list) and len(values) == len(signature.output_fields):
            completion = json.dumps(dict(zip(signature.output_fields, values, strict=True)))
        elif not isinstance(values, dict):
            message = f"The answer is no array of {len(signature.output_fields)} values."
            raise AdapterParseError(adapter_name=type(self).__name__, signature=signature, lm_response=completion[:200], message=message)
        return super().parse(signature, completion)

    def response_schema(self, signature: type[dspy.Signature]) -> dict[str, Any]:
        """Return the JSON Schema of the array: a list of all answers for a choice, bounded texts otherwise."""
        fields = list(signature.output_fields.values())
        if any(allowed(field.annotation) for field in fields):
            return {"enum": [list(values) for values in product(*(_choices(field) for field in fields))]}
        items = [{"type": "string", "maxLength": _longest(field)} for field in fields]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _choices(field: FieldInfo) -> Sequence[JsonValue]:
    if field.annotation is float:
        return CONFIDENCES
    if str(field.annotation).startswith("list"):
        return [[]]  # a small model fills a list because it may, not because it should (measured)
    return list(allowed(field.annotation)) or [""]


def _form(name: str, field: FieldInfo) -> JsonValue:
    """Return what stands for the field in the form of the answer; a list's labels are left out, so that the form never changes."""
    if field.annotation is float:
        return CONFIDENCES[1]
    if str(field.annotation).startswith("list"):
        return []
    return "" if _longest(field) < 500 and not allowed(field.annotation) else name


def _longest(field: FieldInfo) -> int:
    return int(next((mark.max_length for mark in field.metadata if hasattr(mark, "max_length")), 1_000))


def _demo_line(signature: type[dspy.Signature], demo: dict[str, Any]) -> str:
    question = demo.get(next(iter(signature.input_fields)))
    answer = demo.get(next(iter(signature.output_fields)))
    return f"{question} => {answer}" if question and answer else ""
