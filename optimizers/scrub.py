"""Takes personal data out of texts before they become training data.

E-mail addresses, telephone, card and social security numbers and IP addresses (by datafog, which knows their forms), names after a title,
and identifiers that are known to belong to a person. A name without a title is not found: that takes a language model, and none comes with
Pointsman; whoever needs one scrubs what `pointsman signals export` writes. What is taken out leaves a mark of its kind, so that the text
can still be learned from.
"""

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

KINDS = ("EMAIL", "PHONE", "CREDIT_CARD", "SSN", "IP_ADDRESS")
LEAST_KNOWN = 4  # characters of an identifier that is looked for; shorter ones are also ordinary words
READ_AT_ONCE = 4_000  # characters; datafog takes longer to start than to read a text, and for many finds the square of their number
_APART = "\n\ue000\n"  # between texts that are read at once; nothing that is looked for reaches over it
_MAY_HOLD = re.compile(  # what every kind has one of; most texts have none, and need no closer look
    r"@|\d(?:[^\dA-Za-z]{0,3}\d){5}|\d\.\d{1,3}\.\d{1,3}\.\d"
)
_NAMED = re.compile(r"\b((?:[Dd]r|DR|[Pp]rof|[Mm]rs?|[Mm]s|[Mm]iss)\.? )((?:[A-Z][\w'-]+ ?){1,3}(?<! ))")
_SAME_MARK = re.compile(r"\[([A-Z_]+)_\d+\]")  # datafog numbers its marks; equal requests of two people must become equal texts


class Scrubber:
    """Replaces personal data by marks such as `[EMAIL]`, and counts them."""

    def __init__(self) -> None:
        os.environ.setdefault("DATAFOG_NO_TELEMETRY", "1")
        from datafog import redact, scan

        self._scan, self._redact = scan, redact
        self.replaced = 0

    def __call__(self, text: str, known: Iterable[str] = ()) -> str:
        """Return the text without personal data; `known` are identifiers that belong to the person who wrote it, or to another one."""
        return self.each([text], [known])[0]

    def each(self, texts: Sequence[str], known: Iterable[Iterable[str]]) -> list[str]:
        """Return texts without personal data, each with the identifiers that are known of it; many at once take far less time."""
        plain = [self._without(text, ids) for text, ids in zip(texts, known, strict=True)]
        times = Counter(plain)
        holding = {text for some in _portions([text for text in times if _MAY_HOLD.search(text)]) for text in self._holding(some)}
        clean = {text: self._marked(text, times[text], closer=text in holding) for text in times}
        return [clean[text] for text in plain]

    def _without(self, text: str, known: Iterable[str]) -> str:
        for identifier in known:
            if len(identifier) >= LEAST_KNOWN and identifier in text:
                text = text.replace(identifier, "[ID]")
                self.replaced += 1
        return text

    def _holding(self, texts: Sequence[str]) -> Iterator[str]:
        """Yield those of the texts in which datafog finds something."""
        starts = [0, *accumulate(len(text) + len(_APART) for text in texts)]
        found = self._scan(_APART.join(texts), engine="regex", entity_types=list(KINDS)).entities
        return (texts[at] for at in {bisect_right(starts, entity.start) - 1 for entity in found})

    def _marked(self, text: str, times: int, *, closer: bool) -> str:
        if closer:
            found = self._scan(text, engine="regex", entity_types=list(KINDS)).entities
            self.replaced += times * len(found)
            text = _SAME_MARK.sub(r"[\1]", self._redact(text, found).redacted_text)
        text, names = _NAMED.subn(r"\1[NAME]", text)
        self.replaced += times * names
        return text


def _portions(texts: Collection[str]) -> Iterator[list[str]]:
    """Yield texts in portions of `READ_AT_ONCE` characters, or of one longer text."""
    some: list[str] = []
    size = 0
    for text in texts:
        if some and size + len(text) > READ_AT_ONCE:
            yield some
            some, size = [], 0
        some.append(text)
        size += len(text)
    if some:
        yield some
