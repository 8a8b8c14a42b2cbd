"""Carryover: which entities of earlier utterances still hold for a follow-up ("and in May?"), known as slot carryover.

Rules on the text: what it names, leaves out, or takes all of is not carried over. Pure.
"""

import re
from collections.abc import Sequence

from service.contracts.query import EntityType, ParsedEntity
from service.routing.entities import Mention

_NAMED = {
    EntityType.BRAND: re.compile(r"\b(?:all|every|each|any|other|another|which) (?:of )?(?:the |our )?(?:brand|product|drug)s?\b", re.I),
    EntityType.REGION: re.compile(
        r"\b(?:all|every|each|any|other|another|which) (?:of )?(?:the |our )?(?:region|territor|area|state|market)\w*"
        r"|\b(?:nation\w*|countr(?:y|ies)|everywhere|elsewhere|worldwide)\b",
        re.I,
    ),
}
_WHOLE = re.compile(r"\b(?:overall|everything|in total|all of (?:it|them))\b", re.I)
_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-z]{2,}")  # "and for Texas?": not the first word, no abbreviation


def still_holding(text: str, mentions: Sequence[Mention], earlier: Sequence[ParsedEntity]) -> tuple[ParsedEntity, ...]:
    """Return the earlier entities that still hold.

    Args:
        text: the user's words.
        mentions: the entities in it, those that it leaves out ("not Kisqali") among them.
        earlier: one entity of each type at most.
    """
    mentioned = {mention.entity.type for mention in mentions}
    unknown = any(all(not m.start <= name.start() < m.stop for m in mentions) for name in _NAME.finditer(text))
    if unknown or _WHOLE.search(text):  # a name that is not known may be a place or a brand
        mentioned |= set(_NAMED)
    return tuple(e for e in earlier if e.type not in mentioned and not (e.type in _NAMED and _NAMED[e.type].search(text)))
