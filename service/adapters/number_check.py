"""Finds numbers in a text that its sources do not hold. An LM that words findings may not add a figure of its own.

Formatting is free (`0.120` for `0.12`, `12%` for `0.12`, `1,200` for `1200`), so is the sign, which a text often puts into a word.
"""

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

_NUMBER = re.compile(
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d*\.?\d+)(?P<exponent>[eE][+-]?\d{1,3}\b)?(?P<percent>\s*(?:%|per\s?cent\b|pp\b))?"
)


def foreign_numbers(text: str, sources: Iterable[str]) -> list[str]:
    """Return the numbers of the text, as written, that occur in no source."""
    known: set[Decimal] = set()
    for source in sources:
        for value, percent, _ in _numbers(source):
            known.update({value, value.scaleb(-2)} if percent else {value})
    return [written for value, percent, written in _numbers(text) if not _covered(value, percent, known)]


def _covered(value: Decimal, percent: bool, known: set[Decimal]) -> bool:
    return value in known or (percent and value.scaleb(-2) in known)


def _numbers(text: str) -> list[tuple[Decimal, bool, str]]:
    found = []
    for match in _NUMBER.finditer(unicodedata.normalize("NFKC", text)):
        value = Decimal(match["digits"].replace(",", "") + (match["exponent"] or ""))
        found.append((value, match["percent"] is not None, match[0].strip()))
    return found
