"""The numbers of a request: money in k$, percentages, counts of visits, events, boxes or people, and rates such as 8 visits a day.

It knows numbers and the words next to them, no data and no dispatch.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from service.agents.allocation.words import UNIT_WORDS, words_in
from service.agents.kpi import LONGEST_SEARCHED_TEXT, normal_form

Kind = Literal["money", "percent", "count", "rate", "bare"]

LARGEST_AMOUNT = 1e9
"""k$ or units; whatever is larger is read as this."""
SMALLEST_TOTAL_WITH_PERIOD = 100.0
"""`1100 calls a quarter` is a total, `six visits a quarter` a rate for one doctor."""
NEAR_BEFORE, NEAR_AFTER = 8, 8
_UNITS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
)
_TENS = {name: 10 * (at + 2) for at, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())}
_SMALL = {name: at + 1 for at, name in enumerate(_UNITS)} | {"dozen": 12}
_NUMBER_WORD = re.compile(
    rf"(?<![\w-])(?:(?P<tens>{'|'.join(_TENS)})(?:[ -](?P<ones>{'|'.join(_UNITS[:9])}))?|(?P<small>{'|'.join(_SMALL)}))"
    r"(?P<times> hundred)?(?!\w)"
)
_FRACTIONS = {
    r"\b(?:a|one) third(?= of\b)|\bby a third\b": "33.3 %",
    r"\bhalf (?:of )?(?=(?:the|my|our|its|this|that) (?:money|budget|spend))": "50 % ",
}
_SCALE = {"k": 1.0, "thousand": 1.0, "grand": 1.0, "bn": 1e6, "billion": 1e6}
_MILLIONS = "m|mm|mn|mio|mil|mill|million|millions"
_NUMBER = re.compile(
    r"(?<![\w.,/:])(?P<sign>[-−+])? ?(?P<front>us\$|\$|€|usd|eur)? ?"
    r"(?P<number>\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d{1,12}(?:[.,]\d{1,3})?)"
    rf" ?(?P<scale>k|thousand|grand|bn|billion|{_MILLIONS})?(?![\w:/])"
    r" ?(?P<back>%|percent\b|per cent\b|pct\b|\$|€|usd\b|eur\b|dollars\b|bucks\b)?"
)
_RATE = re.compile(
    r"^(?:\w+ ){0,2}?(?:a|an|per|each|by|every) (?:rep )?(?:per )?(day|week|wk|month|quarter|year|rep|doctor|doc|target|hcp|account)\b"
)
_RATE_SLASH = re.compile(r"^\s*\w*\s*/\s*(day|week|wk|month|quarter|yr|year|rep)\b")
_ENDS = {"and", "or", "but", "to", "for", "in", "between", "on", "across", "over", "from", "at", "with", "which", "how"}
_NO_AMOUNT_BEFORE = re.compile(r"\b(?:deciles?(?: \d+ (?:to|and|through))?|tiers?|top|past about|hcp|saturates? at(?: around| about)?)$")


@dataclass(frozen=True, slots=True)
class Amount:
    """One number. Money is in k$, percentages in per cent. `unit` is a channel or `reps`; `before` and `after` are nearby words."""

    value: float
    kind: Kind
    unit: str | None
    negative: bool
    before: str
    after: str
    said: str
    start: int
    stop: int
    per: str | None = None

    @property
    def near(self) -> str:
        """The words on both sides."""
        return f"{self.before} | {self.after}"


def prepare(text: str) -> str:
    """Return the text in lower case, with number words as digits and fractions as percentages."""
    folded = " ".join(unicodedata.normalize("NFKC", text[:LONGEST_SEARCHED_TEXT]).casefold().split())
    for pattern, digits in _FRACTIONS.items():
        folded = re.sub(pattern, digits, folded)
    return _NUMBER_WORD.sub(_digits, folded)


def read_amounts(prepared: str) -> list[Amount]:
    """Return the amounts of a prepared text, in order. Years, times of day, deciles and ratios such as 80/20 are none."""
    return [amount for found in _NUMBER.finditer(prepared) if (amount := _amount(prepared, found)) is not None]


def _amount(text: str, found: re.Match[str]) -> Amount | None:
    before = " ".join(normal_form(text[: found.start()]).split()[-NEAR_BEFORE:])
    rest = re.split(r"[.;?!](?:\s|$)", text[found.end() :])[0]
    after = " ".join(normal_form(rest).split()[:NEAR_AFTER])
    value = _value(found["number"])
    scaled = found["scale"] is not None
    bare_year = not scaled and not found["front"] and not found["back"] and re.fullmatch(r"(?:19|20)\d\d", found["number"]) is not None
    if _NO_AMOUNT_BEFORE.search(before) or text[found.end() : found.end() + 1] in {"/", ":"} or bare_year:
        return None
    percent = found["back"] in {"%", "percent", "per cent", "pct"}
    currency = found["front"] is not None or (found["back"] is not None and not percent)
    unit = None if percent or currency else _unit(after)
    rate = _RATE.match(after) or _RATE_SLASH.match(rest)
    thousands = value * (1000.0 if scaled and found["scale"] not in _SCALE else _SCALE.get(found["scale"] or "", 0.001))
    kind: Kind = "percent" if percent else "money" if currency or (scaled and unit is None) else "count" if unit else "bare"
    if rate and not currency and not percent and not (unit and value >= SMALLEST_TOTAL_WITH_PERIOD):
        kind = "rate"
    amount = value if percent or kind == "rate" else thousands if kind == "money" else thousands * 1000.0
    return Amount(
        value=round(min(amount, LARGEST_AMOUNT), 6),
        kind=kind,
        unit=unit,
        negative=found["sign"] in {"-", "−"},
        before=before,
        after=after,
        said=found[0].strip(),
        start=found.start(),
        stop=found.end(),
        per=rate[1] if rate else None,
    )


def _unit(after: str) -> str | None:
    """Return what the nearest noun within three words counts; people go before visits, as `sales reps` ends in reps."""
    words = after.split()[:3]
    for length in range(1, len(words) + 1):
        nearby = " ".join(words[:length])
        for unit in ("reps", *(name for name in UNIT_WORDS if name != "reps")):
            if words_in(nearby, UNIT_WORDS[unit]):
                return unit
        if words[length - 1] in _ENDS or words[length - 1].isdigit():
            return None
    return None


def _value(number: str) -> float:
    plain = re.sub(r"(?<=\d)[,' ](?=\d{3}(?:\D|$))", "", number)
    return float(plain.replace(",", "."))


def _digits(found: re.Match[str]) -> str:
    value = _SMALL[found["small"]] if found["small"] else _TENS[found["tens"]] + (_SMALL[found["ones"]] if found["ones"] else 0)
    return str(value * (100 if found["times"] else 1))
