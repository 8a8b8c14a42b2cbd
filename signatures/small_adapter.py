"""`SmallModelAdapter`: prompts and answers for a model of a few hundred million parameters on a few cores.

There a token of the prompt costs 6 ms and one of the answer 14 ms (SmolLM2-135M, one core), and two calls share 1.8 s. So a demonstration
takes one line, and the answer is the first output alone, as a JSON string: the label that was chosen, or the text that was asked for. What
else such a model could say is noise: it states the same confidence whatever the question and fills a list because it may (measured).
The other outputs get neutral values.
"""

import json

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from signatures.adapter import MAX_COMPLETION_CHARACTERS, CompactAdapter
from signatures.narrowing import allowed

UNSTATED_CONFIDENCE = 0.5
_QUOTE = '"'


class SmallModelAdapter(CompactAdapter):
    """Needs a server that takes a response schema and obeys it (llama.cpp compiles it into a grammar)."""

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return the instructions."""
        return " ".join(signature.instructions.split())

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, JsonValue]], inputs: dict[str, JsonValue]
    ) -> list[dict[str, str]]:
        """Return a system message and one user message: labels that nothing else shows, demonstrations, and the question last."""
        shown = [line for line in (_demo_line(signature, demo) for demo in demos) if line]
        given = [f"{name}: {inputs[name]}" for name in signature.input_fields if inputs.get(name)]
        unseen = [label for label in allowed(_answer(signature)[1].annotation) if not any(label in line for line in (*shown, *given))]
        answers = [f"Answers: {', '.join(unseen)}"] if unseen else []
        content = "\n".join((*answers, *shown, *given))
        return [{"role": "system", "content": self.format_system_message(signature)}, {"role": "user", "content": content}]

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, JsonValue]:
        """Parse the string.

        Raises:
            AdapterParseError: it is no JSON string, or no label that the question allows.
        """
        name, field = _answer(signature)
        text = completion[:MAX_COMPLETION_CHARACTERS].strip().removeprefix("```json").removesuffix("```").strip()
        if allowed(field.annotation) and text.startswith('"'):
            text = f'"{text.strip(_QUOTE)}"'  # the stop below takes the closing quote away
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, str):
            message = "The answer is no JSON string."
            raise AdapterParseError(adapter_name=type(self).__name__, signature=signature, lm_response=completion[:200], message=message)
        neutral = {other: _neutral(field) for other, field in signature.output_fields.items()}
        return super().parse(signature, json.dumps({**neutral, name: value}))

    def response_schema(self, signature: type[dspy.Signature]) -> dict[str, JsonValue]:
        """Return the JSON Schema of the string: a list of labels, or a bound on the length."""
        _, field = _answer(signature)
        labels = allowed(field.annotation)
        longest = next((mark.max_length for mark in field.metadata if hasattr(mark, "max_length")), MAX_COMPLETION_CHARACTERS)
        return {"enum": list(labels)} if labels else {"type": "string", "maxLength": longest}

    def _prepare_response_format(self, lm: dspy.BaseLM, lm_kwargs: dict[str, JsonValue], signature: type[dspy.Signature]) -> None:
        super()._prepare_response_format(lm, lm_kwargs, signature)
        if allowed(_answer(signature)[1].annotation):
            lm_kwargs["stop"] = [f"{_QUOTE}\n"]  # the grammar lets white space follow the label, and a model writes twenty tokens of it


def _answer(signature: type[dspy.Signature]) -> tuple[str, FieldInfo]:
    name = next(iter(signature.output_fields))
    return name, signature.output_fields[name]


def _neutral(field: FieldInfo) -> JsonValue:
    if field.annotation is float:
        return UNSTATED_CONFIDENCE
    return [] if str(field.annotation).startswith("list") else ""


def _demo_line(signature: type[dspy.Signature], demo: dict[str, JsonValue]) -> str:
    question, answer = demo.get(next(iter(signature.input_fields))), demo.get(_answer(signature)[0])
    return f"{question} => {json.dumps(answer)}" if question and answer else ""
