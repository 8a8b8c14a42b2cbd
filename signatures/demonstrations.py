"""Demonstrations for one question: the optimized ones, then the nearest labelled examples, the nearest last.

Of the optimized ones those are shown whose label the question allows: the others would teach an answer that is not to be given. Every
demonstration is complete and short: a gap is filled from the label, and the agents' descriptions, which only the question itself needs,
are left out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from service.contracts.lm import LabelledExample
from signatures.intent import SUB_INTENT_CHARACTERS
from signatures.quoting import quote
from signatures.routing import RATIONALE_CHARACTERS

STATED_CONFIDENCE = 0.9

Demo = dict[str, Any]


def intent_demos(
    stored: Iterable[Mapping[str, Any]], examples: Sequence[LabelledExample], allowed: Collection[str], characters: int
) -> list[Demo]:
    """Return demonstrations for `IntentClassification`; a text takes at most `characters`."""
    stored = [demo for demo in stored if demo.get("intent") in allowed]
    labelled = [{"query": example.text, "intent": example.intent} for example in reversed(examples)]
    return [_intent_demo(demo, characters) for demo in (*stored, *labelled) if demo.get("intent") and demo.get("query")]


def routing_demos(
    stored: Iterable[Mapping[str, Any]], examples: Sequence[LabelledExample], allowed: Collection[str], characters: int
) -> list[Demo]:
    """Return demonstrations for `AgentRouting`; a text takes at most `characters`."""
    stored = [demo for demo in stored if demo.get("primary_agent") in allowed]
    labelled = [{"query": e.text, "query_pattern": e.intent, "primary_agent": e.agent} for e in reversed(examples)]
    return [_routing_demo(demo, characters) for demo in (*stored, *labelled) if demo.get("primary_agent") and demo.get("query")]


def _intent_demo(demo: Mapping[str, Any], characters: int) -> Demo:
    words = str(demo["intent"]).replace("_", " ")
    return {
        "query": quote(str(demo["query"]), characters),
        "conversation_context": str(demo.get("conversation_context") or ""),
        "intent": demo["intent"],
        "sub_intent": str(demo.get("sub_intent") or words)[:SUB_INTENT_CHARACTERS],
        "confidence": demo.get("confidence", STATED_CONFIDENCE),
    }


def _routing_demo(demo: Mapping[str, Any], characters: int) -> Demo:
    pattern = str(demo.get("query_pattern") or "")
    reason = str(demo.get("routing_rationale") or f"asks for {(pattern or str(demo['primary_agent'])).replace('_', ' ')}")
    return {
        "query": quote(str(demo["query"]), characters),
        "query_pattern": pattern,
        "entities": str(demo.get("entities") or ""),
        "available_agents": "",
        "primary_agent": demo["primary_agent"],
        "secondary_agents": list(demo.get("secondary_agents") or ()),
        "routing_confidence": demo.get("routing_confidence", STATED_CONFIDENCE),
        "routing_rationale": reason[:RATIONALE_CHARACTERS],
    }
