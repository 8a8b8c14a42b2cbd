"""Finds numbers in a text that its sources do not hold. An LM that words findings may not add a figure of its own.

Formatting is free (`0.120` for `0.12`, `12%` for `0.12`, `1,200` for `1200`, `1.2 million` for `1,200,000`), so is the sign, which a text
often puts into a word. A percentage is covered by a percentage or a share, not by a count. Numbers in words ("doubled") are not found.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

_SCALES = {"k": 3, "thousand": 3, "m": 6, "mn": 6, "million": 6, "bn": 9, "billion": 9, "tn": 12, "trillion": 12}
_NUMBER = re.compile(
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d*\.?\d+)(?P<exponent>[eE][+-]?\d{1,3}\b)?"
    rf"(?:\s?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b)?"
    r"(?P<percent>\s*(?:%|per\s?cent\b|pct\b|percentage points?\b|pp\b))?",
    re.IGNORECASE,
)
# What makes a percentage of a number behind it: `uplift_pct: 12`
_LABEL = re.compile(r"(?<!\d)(?<!\d )(?:pct|percent|percentage)[\"']?\s?[:=]\s?[+-]?$", re.IGNORECASE)
_LABEL_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written; `scaled` is its value with its scale (`1.2 million`), if it has one."""

    written: str
    value: Decimal
    is_percent: bool
    scaled: Decimal


def foreign_numbers(text: str, sources: Iterable[str]) -> list[str]:
    """Return the numbers of the text, as written, that occur in no source."""
    plain, percents = set[Decimal](), set[Decimal]()
    for number in (number for source in sources for number in _numbers(source)):
        plain |= {number.value, number.scaled}  # `5 m` may be metres
        if number.is_percent:
            plain.add(number.value.scaleb(-2))
            percents.add(number.value)
    return [number.written for number in _numbers(text) if not _covered(number, plain, percents)]


def _covered(number: _Number, plain: set[Decimal], percents: set[Decimal]) -> bool:
    if number.is_percent:
        return number.value in percents or number.value.scaleb(-2) in plain
    return number.scaled in plain


def _numbers(text: str) -> list[_Number]:
    shown = "".join(sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")  # what shows
    found = []
    for match in _NUMBER.finditer(shown):
        value = Decimal(match["digits"].replace(",", "") + (match["exponent"] or ""))
        labelled = _LABEL.search(shown[max(0, match.start() - _LABEL_CHARACTERS) : match.start()]) is not None
        scaled = value.scaleb(_SCALES[match["scale"].lower()]) if match["scale"] else value
        found.append(_Number(match[0].strip(), value, match["percent"] is not None or labelled, scaled))
    return found
