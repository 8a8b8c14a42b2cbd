"""Carryover: which entities of earlier utterances still hold for a follow-up ("and in May?"), known as slot carryover.

Rules on the text: what it names, leaves out, splits by or takes all of is not carried over. Pure.
"""

import re
from collections.abc import Sequence

from service.contracts.query import EntityType, ParsedEntity
from service.routing.entities import Mention

_EACH = r"(?:all|every|each|any|other|another|which|by|per|across|whole|entire)(?: of)?(?: the| our)?"
_TAKES_ALL = {
    EntityType.BRAND: rf"{_EACH} (?:brand|product|drug|portfolio)s?|competitors?|competition",
    EntityType.REGION: rf"{_EACH} (?:region|territor|area|state|market|countr|us|usa)\w*|nation\w*|\w+where|worldwide|global\w*",
    EntityType.TIME_PERIOD: rf"{_EACH} (?:time|week|month|quarter|year)s?|since|ever|so far|to date|the \w+ before|earlier|historical\w*",
}
_WHOLE = re.compile(r"\b(?:overall|everything|in total|in general|all of (?:it|them))\b", re.I)
_NO_NAME = r"(?:the|a|an|this|that|these|it|them|which|what|all|my|our|your|more|less|detail|total|general|me|us|you)\b"
_PLACED = re.compile(rf"\b(?:in|at|from|across) (?=[a-z])(?!{_NO_NAME})", re.I)  # "and in texas?": a place, unless it is a known entity
_ABOUT = re.compile(rf"\b(?:for|about|of|with) (?=[A-Za-z])(?![a-z-]+s\b)(?!(?i:{_NO_NAME}))")  # a place or a brand; not "for oncologists"
MOST_WORDS = 6  # of a follow-up that puts one name in place of another


def still_holding(text: str, mentions: Sequence[Mention], earlier: Sequence[ParsedEntity]) -> tuple[ParsedEntity, ...]:
    """Return the earlier entities that still hold.

    Args:
        text: the user's words.
        mentions: the entities in it, those that it leaves out ("not Kisqali") among them.
        earlier: one entity of each type at most.
    """
    gone = {mention.entity.type for mention in mentions}
    gone |= {kind for kind, said in _TAKES_ALL.items() if re.search(rf"\b(?:{said})\b", text, re.I)}
    if _WHOLE.search(text):
        gone |= {EntityType.BRAND, EntityType.REGION}
    known = {mention.start for mention in mentions}
    if len(text.split()) <= MOST_WORDS:
        if any(found.end() not in known for found in _PLACED.finditer(text)):
            gone.add(EntityType.REGION)
        if any(found.end() not in known for found in _ABOUT.finditer(text)):
            gone |= {EntityType.BRAND, EntityType.REGION}
    return tuple(entity for entity in earlier if entity.type not in gone)
