"""The shape of the three files, and what is said when a file breaks it.

A shape is a frozen pydantic model; its errors become sentences with the line of the value. How names refer to each other is in checks.py.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, StringConstraints, ValidationError
from pydantic_core import ErrorDetails
from rapidfuzz import fuzz, process

from service.catalog.model import Agent, Intent, Name, Spelling, Tier
from service.catalog.source import Document, NodePath
from service.contracts.model import Contract
from service.contracts.query import EntityType

Shape = TypeVar("Shape", bound=Contract)
TierKey = Literal["0", "1", "2", "3", "4", "5"]


class AgentsFile(Contract):
    """agents.yaml."""

    default_agent: Name
    template_text: Annotated[str, StringConstraints(min_length=1)]
    tiers: Annotated[dict[TierKey, Tier], Field(min_length=1)]
    agents: Annotated[tuple[Agent, ...], Field(min_length=1)]


class IntentsFile(Contract):
    """intents.yaml."""

    fallback_intent: Name
    intents: Annotated[tuple[Intent, ...], Field(min_length=1)]


class TermEntry(Contract):
    """One name under its entity type."""

    value: Spelling
    aliases: tuple[Spelling, ...] = ()


class EntitiesFile(Contract):
    """entities.yaml."""

    terms: dict[EntityType, Annotated[tuple[TermEntry, ...], Field(min_length=1)]] = Field(default_factory=dict)
    patterns: dict[EntityType, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)


_PARTS: Mapping[str | int, type[BaseModel]] = {"agents": Agent, "tiers": Tier, "intents": Intent, "terms": TermEntry}


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put it in quotes)",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "url_type": "an http or https address",
    "url_parsing": "an http or https address",
}


_FORMS: Mapping[str | int, str] = {
    "receives": "raw_query, request, user_id, session_id, conversation_history, entities, entities.TYPE, context or context.KEY",
    "inputs": "an earlier agent and a field of its primary_output, such as data_preparer.dataset",
    "gate": "a field of the agent's own primary_output, such as qc_report.passed",
    "env": "the name of an environment variable, such as INVOICE_AGENT_KEY",
    "header": "the name of an HTTP header, such as Authorization",
    "commands": "a verb in its base form, in lower case",
}


def parse_file(document: Document, shape: type[Shape], data: JsonValue) -> Shape | None:
    """Return the data in their shape, or None after reporting every value that does not fit."""
    if data is None:
        return None
    try:
        return shape.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = tuple(step for step in detail["loc"] if step != "[key]")
            document.report(path, _sentence(shape, path, detail))
    return None


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, or what is known where none is near."""
    near = process.extractOne(name, known, scorer=fuzz.ratio, score_cutoff=60)
    if near is not None:
        return f"Did you mean '{near[0]}'?"
    return f"Known: {', '.join(known[:20])}{', …' if len(known) > 20 else ''}." if known else "None is known."


def _sentence(shape: type[BaseModel], path: NodePath, detail: ErrorDetails) -> str:
    names = [str(step) for step in path if isinstance(step, str)]
    name, kind, limits = names[-1] if names else "file", detail["type"], detail.get("ctx", {})
    part = _PARTS.get(path[0], shape) if len(path) > 1 else shape
    shown = (
        repr(detail["input"])
        if isinstance(detail["input"], str | int | float | bool | None)
        else "a mapping"
        if isinstance(detail["input"], dict)
        else "a list"
    )
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    if kind.startswith("url") and "@" in shown:
        shown = "an address with a user name or password"  # which must not reach a log
    if kind == "extra_forbidden":
        return f"unknown field '{name}'. {did_you_mean(name, list(part.model_fields))}"
    if kind == "missing":
        hint = " (its tier has no default)" if path[0] == "agents" and name == "timeout_ms" else ""
        return f"the field '{name}' is missing{hint}; add it."
    if kind == "too_short":
        return f"'{name}' is an empty list; give it at least {limits.get('min_length', 1)} entry, or remove it."
    if kind == "string_pattern_mismatch" and (form := next((_FORMS[step] for step in path if step in _FORMS), None)):
        return f"'{name}' is {shown}; it must be {form}."
    if kind == "string_pattern_mismatch":
        return f"'{name}' is {shown}; a name has lower-case letters, digits and _ only, begins with a letter and has at most 64 characters."
    if kind == "url_scheme":
        return f"{shown} is not an http or https address; use one."
    if kind in _WANTED:
        return f"'{name}' is {shown}; it must be {_WANTED[kind]}."
    reason = detail["msg"].replace("Input should", "it must").replace("String should", "it must").replace("URL", "the address")
    return f"'{name}' is {shown}; {reason}."
