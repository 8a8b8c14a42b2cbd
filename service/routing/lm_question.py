"""What an LM is asked of a request: the shortlist with descriptions, and the nearest labelled requests. One for all who ask."""

from collections.abc import Iterable, Sequence

from service.catalog.model import Catalog
from service.contracts.lm import AgentOption, LabelledExample, LMQuestion
from service.contracts.model import JsonObject
from service.contracts.query import ConversationTurn, ParsedEntity
from service.routing.student import Example

EXAMPLES = 6


def ask_about(
    query: str,
    shortlist: Iterable[str],
    examples: Iterable[Example],
    catalog: Catalog,
    *,
    router_version: str,
    programs: JsonObject,
    history: Sequence[ConversationTurn] = (),
    entities: Sequence[ParsedEntity] = (),
) -> LMQuestion:
    """Return the question; the shortlist holds intents, the likeliest first, the examples are the nearest, the nearest first."""
    return LMQuestion(
        query=query,
        history=tuple(history),
        entities=tuple(entities),
        options=tuple(_option(catalog, intent) for intent in shortlist),
        examples=tuple(LabelledExample(text=e.text, intent=e.label, agent=catalog.intent[e.label].primary_agent) for e in examples),
        router_version=router_version,
        programs=programs,
    )


def _option(catalog: Catalog, intent: str) -> AgentOption:
    spec = catalog.intent[intent]
    return AgentOption(name=spec.primary_agent, intent=intent, description=spec.description)
