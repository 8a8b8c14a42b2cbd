"""How a signature becomes a prompt and an answer a prediction: DSPy's JSON adapter with fewer words, in two sizes.

The system message is the same for every question of a signature, so that an LM server can keep it in its prefix cache; the labels of one
question stand at the end of the user message. Where the LM takes a response schema, the answer is constrained to it.
"""

import json
import re
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic.fields import FieldInfo

from signatures.narrowing import allowed

MAX_COMPLETION_CHARACTERS = 20_000
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class CompactAdapter(dspy.JSONAdapter):  # type: ignore[misc]  # dspy is untyped
    """Short prompts for any model that follows instructions; the answer is a JSON object."""

    def __init__(self) -> None:
        super().__init__(use_native_function_calling=False)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return instructions, inputs and outputs. Labels are left out."""
        inputs = "\n".join(f"- {name}: {_desc(field)}" for name, field in signature.input_fields.items())
        outputs = "\n".join(f"- {name}: {_desc(field)}" for name, field in signature.output_fields.items())
        return (
            f"{' '.join(signature.instructions.split())}\n\nInputs, each after a marker [[ ## name ## ]]:\n{inputs}\n\n"
            f"Answer with one JSON object on one line, with these keys in this order:\n{outputs}"
        )

    def format_user_message_content(
        self, signature: type[dspy.Signature], inputs: dict[str, Any], prefix: str = "", suffix: str = "", main_request: bool = False
    ) -> str:
        """Return the inputs; an empty one is left out. The main request ends with the allowed labels."""
        given = [(name, str(inputs[name])) for name in signature.input_fields if inputs.get(name)]
        parts = [prefix, *(f"[[ ## {name} ## ]]\n{text}" for name, text in given)]
        if main_request:
            parts.append(self.user_message_output_requirements(signature))
        return "\n\n".join(part for part in (*parts, suffix) if part)

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """Return the labels that this question allows."""
        name, labels = _label_field(signature)
        return f"Answer in JSON. {name} is one of: {', '.join(labels)}." if labels else "Answer in JSON."

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        """Return a demonstration's answer on one line, the form that the model should copy."""
        values = {name: outputs.get(name, missing_field_message) for name in signature.output_fields}
        return json.dumps(values, ensure_ascii=False, default=str)

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Parse the answer.

        Raises:
            AdapterParseError: the text is too long, is no JSON object, lacks a field, breaks a field's type, or was cut off.
        """
        name, start = type(self).__name__, completion[:200]
        if len(completion) > MAX_COMPLETION_CHARACTERS:
            message = f"The answer has {len(completion)} characters, more than {MAX_COMPLETION_CHARACTERS}."
            raise AdapterParseError(adapter_name=name, signature=signature, lm_response=start, message=message)
        if not _label_field(signature)[1] and not _ends(completion):  # DSPy would close the object, and half an answer pass for a whole one
            message = "It ends before its object does."
            raise AdapterParseError(adapter_name=name, signature=signature, lm_response=start, message=message)
        try:
            fields: dict[str, Any] = super().parse(signature, completion)
        except RecursionError as exc:
            raise AdapterParseError(adapter_name=name, signature=signature, lm_response=start, message="It is nested too deeply.") from exc
        return fields

    def response_schema(self, signature: type[dspy.Signature]) -> dict[str, Any]:
        """Return the JSON Schema of the answer: types and labels only, because hosted APIs refuse bounds."""
        properties = {name: _schema(field) for name, field in signature.output_fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def _prepare_response_format(self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]) -> None:
        if "response_format" not in lm.supported_params:
            return
        if lm.supports_response_schema:
            named = {"name": "answer", "schema": self.response_schema(signature), "strict": True}
            lm_kwargs["response_format"] = {"type": "json_schema", "json_schema": named}
        else:
            lm_kwargs["response_format"] = {"type": "json_object"}


def _ends(completion: str) -> bool:
    """Say whether an answer's object comes to its end, by its braces outside of strings."""
    if completion.rstrip("` \t\r\n").endswith("}"):
        return True
    bare = _STRING.sub("", completion[completion.find("{") :])
    return '"' not in bare and "{" in bare and bare.count("{") <= bare.count("}")


def _label_field(signature: type[dspy.Signature]) -> tuple[str, tuple[str, ...]]:
    labelled = ((name, allowed(field.annotation)) for name, field in signature.output_fields.items())
    return next(((name, labels) for name, labels in labelled if labels), ("", ()))


def _schema(field: FieldInfo) -> dict[str, Any]:
    if field.annotation is float:
        return {"type": "number"}
    labels = list(allowed(field.annotation))
    text: dict[str, Any] = {"type": "string", "enum": labels} if labels else {"type": "string"}
    return {"type": "array", "items": text} if str(field.annotation).startswith("list") else text


def _desc(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["desc"]) if isinstance(extra, dict) else ""
