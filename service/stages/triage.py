"""Triage: repair what the validation table repairs, find the entities, and answer what needs no model. Pure; knows no HTTP."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.catalog.model import Catalog
from service.contracts.notice import Notice
from service.contracts.query import ConversationTurn, EntitySource, EntityType, OrchestratorInput, ParsedEntity, Preferences
from service.routing.carryover import still_holding
from service.routing.entities import Gazetteer
from service.routing.history import UTTERANCES
from service.routing.replies import QUESTION, ask, choose, place_of

MAX_ENTITIES = 20
MAX_SOCIAL_WORDS = 8
MOST_EARLIER = 500  # characters of an earlier utterance that are searched for entities
_SOCIAL_OPENERS = frozenset(
    "hi hello hey hiya morning afternoon evening thanks thank thx ty cheers bye goodbye ok okay great perfect awesome".split()
)
_SOCIAL_WORDS = _SOCIAL_OPENERS | frozenset("good there all team everyone so much very a lot again for your the help you day see".split())
_WORD = re.compile(r"[^\W\d_]+")
_EXPLICIT_AGENT = re.compile(r"^\s*@([A-Za-z][A-Za-z0-9_]{0,63})[:,]?(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be decided.

    Attributes:
        text: the question, stripped.
        caller_intent: the caller's intent where it is known to the catalogue, with the caller's confidence in it.
        ambiguous: the caller flags its intent as ambiguous.
        unknown_intent: the caller's intent is unknown, and the catalogue's fallback stands in.
        offered: intents that the service itself asked about just before, in the order of its question.
        chosen: the one that the text chooses of those.
        placed: it does so by its place, such as "the second".
        earlier_entities: those of the latest utterances that still hold, one of each type, where the caller gave none.
        social: the text is a greeting, thanks or a farewell only.
        empty: the text holds no letter or digit.
        explicit_agent: the agent that the text names behind a leading `@`, or None.
    """

    text: str
    history: tuple[ConversationTurn, ...]
    preferences: Preferences
    entities: tuple[ParsedEntity, ...]
    caller_intent: str | None
    caller_confidence: float
    ambiguous: bool
    unknown_intent: bool
    social: bool
    empty: bool
    explicit_agent: str | None
    warnings: tuple[Notice, ...]
    offered: tuple[str, ...] = ()
    chosen: str | None = None
    placed: bool = False
    earlier_entities: tuple[ParsedEntity, ...] = ()


class Triage:
    """Input → `Admitted`."""

    def __init__(self, *, catalog: Catalog, gazetteer: Gazetteer) -> None:
        self._catalog = catalog
        self._gazetteer = gazetteer

    def __call__(self, request: OrchestratorInput) -> Admitted:
        """Apply the validation table and the rules."""
        query, warnings = request.parsed_query, list[Notice]()
        text = query.raw_query.strip()
        entities = self._repair_entities(query.entities, text, warnings)
        intent, unknown = self._repair_intent(query.intent, warnings)
        confidence = _clamp(query.confidence, "parsed_query.confidence", warnings)
        named = _EXPLICIT_AGENT.match(text)
        agent = named.group(1).lower() if named else None
        if agent is not None and agent not in self._catalog.agent:
            warnings.append(Notice(code="unknown_agent", message=f"There is no agent {agent!r}; the question is routed by its text."))
            agent = None
        answer = _last_answer(request.conversation_history)
        offered = self._offered(answer)
        place = place_of(text, len(offered))
        chosen = place if place is not None else choose(text, [f"{self._catalog.intent[name].wish} {name}" for name in offered])
        return Admitted(
            text=text,
            history=request.conversation_history,
            preferences=request.preferences or Preferences(),
            entities=entities,
            caller_intent=intent,
            caller_confidence=confidence,
            ambiguous=query.ambiguity_flag,
            unknown_intent=unknown,
            social=_is_social(text) and "?" not in answer,  # "ok" may answer a question
            empty=not any(c.isalnum() for c in text),
            explicit_agent=agent,
            warnings=tuple(warnings),
            offered=offered,
            chosen=offered[chosen] if chosen is not None else None,
            placed=place is not None,
            earlier_entities=self._earlier_entities(text, request.conversation_history) if query.entities is None else (),
        )

    def _offered(self, answer: str) -> tuple[str, ...]:
        start = answer.rfind(QUESTION)
        places = {intent.name: answer.find(intent.wish, start) if start >= 0 else start for intent in self._catalog.intents}
        named = sorted((name for name, place in places.items() if place >= 0), key=lambda name: places[name])
        asked = bool(named) and answer.rstrip().endswith(ask([self._catalog.intent[name].wish for name in named]))
        return tuple(named) if asked else ()

    def _earlier_entities(self, text: str, history: Sequence[ConversationTurn]) -> tuple[ParsedEntity, ...]:
        """Return the latest entity of each type that was said and still holds, as inferred ones."""
        latest: dict[EntityType, ParsedEntity] = {}
        for turn in reversed(history[-UTTERANCES:]):
            for entity in self._gazetteer.extract(turn.content[:MOST_EARLIER]):
                latest.setdefault(entity.type, entity.model_copy(update={"source": EntitySource.INFERRED}))
        return still_holding(text, self._gazetteer.mentions(text), tuple(latest.values())) if latest else ()

    def _repair_entities(self, given: tuple[ParsedEntity, ...] | None, text: str, warnings: list[Notice]) -> tuple[ParsedEntity, ...]:
        if given is None:
            return self._gazetteer.extract(text)
        if len(given) > MAX_ENTITIES:
            message = f"More than {MAX_ENTITIES} entities were given; the first {MAX_ENTITIES} are used."
            warnings.append(Notice(code="entities_truncated", message=message, field="parsed_query.entities"))
        return tuple(
            entity.model_copy(update={"confidence": _clamp(entity.confidence, f"parsed_query.entities[{i}].confidence", warnings)})
            for i, entity in enumerate(given[:MAX_ENTITIES])
        )

    def _repair_intent(self, intent: str | None, warnings: list[Notice]) -> tuple[str | None, bool]:
        if intent is None or intent in self._catalog.intent:
            return intent, False
        message = f"The intent {intent[:64]!r} is unknown; {self._catalog.fallback_intent!r} is used."
        warnings.append(Notice(code="unknown_intent", message=message, field="parsed_query.intent"))
        return self._catalog.fallback_intent, True


def _is_social(text: str) -> bool:
    """Say whether a short text holds greeting, thanks or farewell and nothing else."""
    if len(text) > 100:
        return False
    words = _WORD.findall(text.lower())
    known = all(w in _SOCIAL_WORDS for w in words) and not any(c.isdigit() for c in text)
    return known and len(words) <= MAX_SOCIAL_WORDS and any(w in _SOCIAL_OPENERS for w in words)


def _last_answer(history: Sequence[ConversationTurn]) -> str:
    spoken = [turn for turn in history if turn.role != "system" and turn.content.strip()]
    return spoken[-1].content if spoken and spoken[-1].role == "assistant" else ""


def _clamp(value: float, field: str, warnings: list[Notice]) -> float:
    clamped = min(1.0, max(0.0, value))
    if clamped != value:
        warnings.append(Notice(code="confidence_clamped", message=f"{value:g} is outside of 0 to 1; {clamped:g} is used.", field=field))
    return clamped
