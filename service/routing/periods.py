"""One written form for the time periods that a text names, so that "q3-26" and "Q3 2026" are the same entity. Reads no clock."""

import re

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_QUARTER = re.compile(r"q([1-4])(?:[ /'-]?((?:20)?[0-9]{2}))?")
_YEAR_QUARTER = re.compile(r"(20[0-9]{2})[ /-]?q([1-4])")
_MONTH_YEAR = re.compile(r"([a-z]+),? (20[0-9]{2})")


def written_period(text: str) -> str:
    """Return a period in its one written form.

    Quarters become `Q3` or `Q3 2026`, a month with its year `2026-03`, a month alone `March`; anything else stays, in lower case with
    one blank between words. Nothing is added that the text does not say: `Q3` gets no year.
    """
    plain = " ".join(text.lower().split())
    if quarter := _QUARTER.fullmatch(plain):
        return f"Q{quarter[1]} 20{quarter[2][-2:]}" if quarter[2] else f"Q{quarter[1]}"
    if quarter := _YEAR_QUARTER.fullmatch(plain):
        return f"Q{quarter[2]} {quarter[1]}"
    if (month := _MONTH_YEAR.fullmatch(plain)) and month[1] in _MONTHS:
        return f"{month[2]}-{_MONTHS.index(month[1]) + 1:02d}"
    return plain.capitalize() if plain in _MONTHS else plain
