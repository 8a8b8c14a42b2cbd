"""Takes personal data out of texts before they become training data.

E-mail addresses, telephone, card and social security numbers and IP addresses (by datafog, which knows their forms), names after a title,
and identifiers that are known to belong to a person. A name without a title is not found: that takes a language model, and none comes with
Pointsman; whoever needs one scrubs what `pointsman signals export` writes. What is taken out leaves a mark of its kind, so that the text
can still be learned from.
"""

import os
import re
from collections.abc import Iterable

KINDS = ("EMAIL", "PHONE", "CREDIT_CARD", "SSN", "IP_ADDRESS")
LEAST_KNOWN = 4  # characters of an identifier that is looked for; shorter ones are also ordinary words
_MAY_HOLD = re.compile(r"@|\d(?:\D{0,3}\d){3}")  # every kind has one of these; most texts have neither, and looking closer takes 60 µs
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
        for identifier in known:
            if len(identifier) >= LEAST_KNOWN and identifier in text:
                text = text.replace(identifier, "[ID]")
                self.replaced += 1
        if _MAY_HOLD.search(text):
            found = self._scan(text, engine="regex", entity_types=list(KINDS)).entities
            if found:
                self.replaced += len(found)
                text = _SAME_MARK.sub(r"[\1]", self._redact(text, found).redacted_text)
        text, names = _NAMED.subn(r"\1[NAME]", text)
        self.replaced += names
        return text
