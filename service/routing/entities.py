"""Finds the catalogue's names, ids and time periods in a text. Code, not a model: it finds only what the text says, and never guesses.

Three ways, in this order of trust: the exact spelling of a value or alias, a pattern (both confidence 1.0), and a spelling with a slip
in a word that is no ordinary word (confidence = similarity). Time is linear in the text, of which the first 8,000 characters are read.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rapidfuzz.distance import OSA

from service.catalog.model import Catalog
from service.catalog.spelling import Word, gap_key, spelling_key, words_of
from service.contracts.query import EntitySource, EntityType, ParsedEntity
from service.routing.periods import written_period
from service.routing.typos import Speller, load_common_words

MAX_CHARACTERS = 8_000
MAX_ENTITIES = 20
_LONGEST_VALUE = 512
_LONGEST_LEAVING_OUT = 20  # characters of "rather than for the "
_LONGEST_GAP = 3  # words of one name stand close: "market - share" may be one, but not words with a paragraph between them
_SHORTEST_ORDINARY = 7  # a slip in a shorter ordinary word that is a name by itself (South, reach) is not corrected
_LEAVING_OUT = r"not|no|except(?: for)?|excluding|without|outside|minus|besides|forget|ignore|other than|instead of|rather than"
_LEFT_OUT = re.compile(rf"\b(?:{_LEAVING_OUT})(?: (?:in|for))?(?: the)?\s+$", re.IGNORECASE)
_BY_TRUST = {EntitySource.EXACT: 0, EntitySource.FUZZY: 1, EntitySource.INFERRED: 2}


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity and where the text says it: text[start:stop]."""

    entity: ParsedEntity
    start: int
    stop: int


class Gazetteer:
    """The catalogue's terms and patterns, compiled once; safe to share between threads."""

    def __init__(self, catalog: Catalog, *, common_words: Collection[str] | None = None) -> None:
        """Build the index.

        Args:
            catalog: whose terms and patterns to find.
            common_words: ordinary words that are never taken for misspellings; None is the encoder's vocabulary.

        Raises:
            ConfigurationError: The encoder's vocabulary cannot be read.
        """
        self._terms: dict[str, ParsedEntity] = {}
        self._longest: dict[str, int] = {}  # first word of a term → the most words that a term beginning so has
        known: set[str] = set()
        for term in catalog.terms:
            entity = ParsedEntity(type=term.type, value=term.value)
            for spelling in (term.value, *term.aliases):
                self._terms[spelling_key(spelling)] = entity
                words = [word.key for word in words_of(spelling)]
                known.update(words)
                self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))
        self._speller = Speller(known, load_common_words() if common_words is None else common_words)
        self._patterns = [(pattern.type, re.compile(pattern.expression, re.IGNORECASE)) for pattern in catalog.patterns]

    def extract(self, text: str) -> tuple[ParsedEntity, ...]:
        """Return the entities of a text in order of first mention, each once, at most 20, without those that it leaves out."""
        best: dict[tuple[EntityType, str], ParsedEntity] = {}
        for mention in self.mentions(text):
            if _LEFT_OUT.search(text, max(0, mention.start - _LONGEST_LEAVING_OUT), mention.start):
                continue
            entity = mention.entity
            key = (entity.type, entity.value)
            if key not in best or entity.confidence > best[key].confidence:
                best[key] = entity  # a surer mention later keeps the place in the order of the first one
        return tuple(best.values())[:MAX_ENTITIES]

    def mentions(self, text: str) -> list[Mention]:
        """Return every mention in order, repeated ones included, none overlapping: trusted before fuzzy, longer before shorter."""
        text = _head(text)
        found = [*self._pattern_mentions(text), *self._term_mentions(text)]
        found.sort(key=lambda m: (_BY_TRUST[m.entity.source], m.start - m.stop, m.start))
        taken = bytearray(len(text))
        kept: list[Mention] = []
        for mention in found:
            if taken.find(1, mention.start, mention.stop) < 0:
                taken[mention.start : mention.stop] = b"\1" * (mention.stop - mention.start)
                kept.append(mention)
        return sorted(kept, key=lambda m: m.start)

    def _pattern_mentions(self, text: str) -> Iterator[Mention]:
        for kind, pattern in self._patterns:
            entities: dict[str, ParsedEntity | None] = {}
            for found in pattern.finditer(text):
                said = found[0]
                if said not in entities:
                    value = _written(kind, said)
                    entities[said] = None if value is None else ParsedEntity(type=kind, value=value)
                if (entity := entities[said]) is not None:
                    yield Mention(entity, found.start(), found.end())

    def _term_mentions(self, text: str) -> Iterator[Mention]:
        words = words_of(text)
        meant: dict[str, str | None] = {}
        slips: dict[str, ParsedEntity] = {}
        for word in words:
            if word.key not in meant:
                meant[word.key] = self._speller.correct(word.key)
        for i, word in enumerate(words):
            first = meant[word.key] or word.key
            if first in self._longest:
                yield from self._terms_from(text, words[i : i + self._longest[first]], meant, slips)

    def _terms_from(self, text: str, words: list[Word], meant: dict[str, str | None], slips: dict[str, ParsedEntity]) -> Iterator[Mention]:
        """Yield the terms that begin with the first of `words`."""
        said = key = ""
        corrected = False
        for i, word in enumerate(words):
            if i > 0:
                gap = text[words[i - 1].stop : word.start]
                if len(gap) > _LONGEST_GAP:
                    return
                said, key = said + gap_key(gap), key + gap_key(gap)
            correction = meant[word.key]
            corrected = corrected or correction is not None
            said, key = said + word.key, key + (correction or word.key)
            entity = self._terms.get(key)
            if entity is None:
                continue
            if not corrected:
                yield Mention(entity, words[0].start, word.stop)
            elif i > 0 or len(key) >= _SHORTEST_ORDINARY or not self._speller.is_common(key):
                if said not in slips:
                    similarity = round(OSA.normalized_similarity(said, key), 4)
                    slips[said] = entity.model_copy(update={"confidence": similarity, "source": EntitySource.FUZZY})
                yield Mention(slips[said], words[0].start, word.stop)


def _head(text: str) -> str:
    """Return the part of a text that is read; a word at the cut is left out, for half of it could be another word."""
    if len(text) <= MAX_CHARACTERS:
        return text
    stop = MAX_CHARACTERS
    while stop > 0 and text[stop - 1].isalnum() and text[stop].isalnum():
        stop -= 1
    return text[:stop]


def _written(kind: EntityType, found: str) -> str | None:
    """Return a match in its one written form (ids in upper case with hyphens), or None where it is too long for a value."""
    value = written_period(found) if kind is EntityType.TIME_PERIOD else re.sub(r"[\s_-]+", "-", found.strip()).upper()
    return value if 0 < len(value) <= _LONGEST_VALUE else None
