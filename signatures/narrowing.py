"""Signatures for one question: the label fields take a `Literal` of the labels that the question allows.

A narrowed signature keeps the instructions and descriptions of the one it is made from, so an optimized prompt survives it, and says of
users' text that it is data, whatever an optimizer left out. Building a class takes milliseconds and shortlists repeat, hence the cache.
"""

from functools import lru_cache
from typing import Any, Literal, get_args, get_origin

import dspy

from signatures.fields import FieldSpec
from signatures.instructions import guarded

LABEL_FIELDS = {"intent": False, "primary_agent": False, "secondary_agents": True}  # name: is it a list?


def narrow(signature: type[dspy.Signature], labels: tuple[str, ...]) -> type[dspy.Signature]:
    """Return the signature with every label field limited to `labels`.

    Raises:
        ValueError: there are no labels.
    """
    if not labels:
        raise ValueError("a question needs at least one label")
    state = signature.dump_state()
    wording = (state["instructions"], *(part for field in state["fields"] for part in (field["prefix"], field["description"])))
    return _narrow(_Key(signature, wording), tuple(dict.fromkeys(labels)))


class _Key:
    """Identifies a signature by its wording and structure, so that equal ones loaded twice share an entry."""

    def __init__(self, signature: type[dspy.Signature], wording: tuple[str, ...]) -> None:
        self.signature = signature
        self._identity = (wording, describe(signature))

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


@lru_cache(maxsize=512)
def _narrow(key: _Key, labels: tuple[str, ...]) -> type[dspy.Signature]:
    signature: Any = key.signature
    signature = signature.with_instructions(guarded(signature.instructions, signature.output_fields))
    label: Any = Literal[labels]
    for name, several in LABEL_FIELDS.items():
        if name in signature.output_fields:
            signature = signature.with_updated_fields(name, type_=list[label] if several else label)
    return signature  # type: ignore[no-any-return]  # dspy is untyped


def allowed(annotation: object) -> tuple[str, ...]:
    """Return the labels that a field's type allows, or () when it is not limited to labels."""
    if get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def describe(signature: type[dspy.Signature]) -> tuple[FieldSpec, ...]:
    """Return the fields of a signature class in the form of `signatures.fields`."""
    inputs = [FieldSpec(name, "input", _written(field.annotation)) for name, field in signature.input_fields.items()]
    outputs = [FieldSpec(name, "output", _written(field.annotation)) for name, field in signature.output_fields.items()]
    return (*inputs, *outputs)


def _written(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) and get_origin(annotation) is None else str(annotation)
