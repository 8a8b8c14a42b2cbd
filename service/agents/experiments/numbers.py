"""The numbers of a request for an experiment: counts of units, weeks, per cents, alpha, power, ICC. Text in, numbers out."""

import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

LONGEST_TEXT = 4_000
_WORDS = MappingProxyType(
    {
        "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
        "twelve": 12, "fifteen": 15, "eighteen": 18, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "eighty": 80,
    }
)  # fmt: skip
_UNIT_WEEKS = MappingProxyType({"day": 1 / 7, "week": 1.0, "month": 52 / 12, "quarter": 13.0, "year": 52.0})
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|march|april|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?"
    r"|dec(?:ember)?|christmas)"
)
_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"
_CALENDAR = r"(?<!next )(?<!coming )(?<!last )"


@dataclass(frozen=True, slots=True)
class Change:
    """An effect that is wanted: in the metric's unit (`relative` False; rates as fractions) or as a part of the baseline."""

    value: float
    relative: bool
    in_points: bool = False


def plain_numbers(text: str) -> str:
    """Return the text in lower case with numbers in one form: `1,200` and `1.2k` as 1200, `six` as 6, `per cent` as %, points as pp."""
    words = unicodedata.normalize("NFKC", text[:LONGEST_TEXT]).casefold()
    words = re.sub(r"(?<=\d),(?=\d{3}\b)", "", words)
    words = re.sub(r"[\"'{}\[\]():=?!;]+", " ", words)
    words = re.sub(r"\b(\d+(?:\.\d+)?) ?k\b", lambda hit: f"{float(hit[1]) * 1000:.0f}", words)
    words = re.sub(rf"\b({'|'.join(_WORDS)})\b", lambda hit: str(_WORDS[hit[1]]), words)
    words = re.sub(r" ?(?:per ?cent(?:age)? points?|% ?points?|-?points?\b|\bpts?\b|\bpp\b|(?<=\d)pp\b)", " pp", words)
    words = re.sub(r" ?(?:per ?cent|pct)\b", "%", words)
    words = re.sub(r"\bwks?\b", "weeks", words)
    return " ".join(re.sub(r"[,](?!\d)|(?<!\d)[.](?!\d)|[.](?= |$)", " ", words).split())


def find_weeks(text: str) -> float | None:
    """Return the length that the text gives to the test, in weeks."""
    for hit in re.finditer(rf"{_NUMBER}[ -](day|week|month|quarter|year)s?\b(?! (?:\w+ )?week)", text):
        before = text[max(0, hit.start() - 22) : hit.start()]
        if not re.search(r"last $|past $|every $|lag by|week $|after $", before):
            return min(520.0, max(1 / 7, float(hit[1]) * _UNIT_WEEKS[hit[2]]))
    if re.search(r"\bhalf (?:a )?year\b", text):
        return 26.0
    whole = re.search(r"\b(?:for|over|of|in|only) (?:a|the entire(?: launch)?|the whole) (month|quarter|year)\b", text)
    return _UNIT_WEEKS[whole[1]] if whole else None


def find_deadline(text: str, last_week: date) -> tuple[str, int] | None:
    """Return the month (or Christmas) by which an answer is wanted, and the whole weeks from the data's end, or the named start, to it."""
    hit = re.search(rf"\b(?:by|until|before) ({_MONTH})\b", text)
    if hit is None:
        return None
    end = _day_of(hit[1], last_week)
    start = re.search(rf"\b(?:from|starting|starts?|begins?|beginning|launch)(?: in| from)? ({_MONTH})\b", text)
    begin = _day_of(start[1], last_week) if start else last_week
    if begin >= end:
        end = end.replace(year=end.year + 1)
    return hit[1], (end - begin).days // 7


def find_alpha(text: str) -> float | None:
    """Return the significance level, if one in (0, 0.5) is given."""
    hit = re.search(rf"(?:alpha|significance(?: level)?)(?: of| at| is)? {_NUMBER} ?(%?)", text)
    value = None if hit is None else _fraction(float(hit[1]), percent=bool(hit[2]))
    return value if value is not None and 0.0 < value < 0.5 else None


def find_power(text: str) -> float | None:
    """Return the power wanted, if one in (0.5, 1) is given."""
    hit = re.search(rf"\b{_NUMBER} ?%? power\b|\bpower(?: of| at| is|ed at)? {_NUMBER} ?%?|\bgo {_NUMBER}\b", text)
    value = None if hit is None else _fraction(float(hit[1] or hit[2] or hit[3]), percent=False)
    return value if value is not None and 0.5 < value < 1.0 else None


def find_icc(text: str) -> float | None:
    """Return the intra-cluster correlation, if one in [0, 1) is given."""
    hit = re.search(rf"\bicc(?: is| of| around| about| roughly)* {_NUMBER}", text)
    return float(hit[1]) if hit and float(hit[1]) < 1.0 else None


def find_baseline(text: str) -> tuple[float, float | None] | None:
    """Return the baseline of a rate as a fraction, and where the text says it the target."""
    hit = re.search(rf"\bfrom {_NUMBER} ?%? to {_NUMBER} ?%?", text)
    if hit and not re.search(r"reps?|weeks?", text[hit.end() : hit.end() + 8]):
        return _pair(float(hit[1]), float(hit[2]))
    first = re.search(rf"\bbase(?:line)?(?: ?rate| conv\w*| open rate| refill\w*)*(?: is| of| at)? {_NUMBER} ?(%?)", text)
    if first is None:
        return None
    rest = text[first.end() : first.end() + 60]
    second = re.search(
        rf"(?:hop\w+|want\w*|aim\w*|expect\w*|target\w*|goal)(?: for| to see| to get| of| at| is| to)* {_NUMBER} ?%?(?! ?pp)", rest
    )
    if second:
        return _pair(float(first[1]), float(second[1]))
    value = _fraction(float(first[1]), percent=bool(first[2]))
    return (value, None) if 0.0 < value < 1.0 else None


def find_change(text: str, baseline: float | None) -> Change | None:
    """Return the effect wanted; points are absolute, a per cent is a part of the baseline."""
    hit = re.search(rf"{_NUMBER} pp\b", text)
    if hit:
        return Change(float(hit[1]) / 100.0, relative=False, in_points=True)
    hit = re.search(rf"\b(?:mde|margin)(?: of| is)? {_NUMBER} ?(%?)", text)
    if hit and not re.match(r" ?(?:territor|site|week|clinic|district|rep|hcp|doc)", text[hit.end() :]):
        value = float(hit[1])
        return Change(value if value < 0.5 and not hit[2] else value / 100.0, relative=baseline is None and bool(hit[2]))
    nouns = r"lift|bump|increase|difference|uplift|improvement|gain|change|drop|effect|reduction|rise"
    hit = re.search(rf"{_NUMBER} ?% (?:\w+ )?(?:{nouns})\b", text) or re.search(
        rf"\b(?:detect|see|spot|pick up|expect\w*|(?:{nouns}) of)(?: an?| at least)? {_NUMBER} ?%", text
    )
    return Change(float(hit[1]) / 100.0, relative=True) if hit else None


def find_spread(text: str) -> tuple[float, float | None] | None:
    """Return a standard deviation that is given, and a difference in the same unit."""
    hit = re.search(rf"\b(?:sd|standard deviation)(?: is| of)? {_NUMBER}", text)
    if hit is None or float(hit[1]) <= 0:
        return None
    change = re.search(rf"\bdiff(?:erence)?(?: is| of)? {_NUMBER}", text)
    return float(hit[1]), float(change[1]) if change else None


def find_shares(text: str) -> tuple[float, ...]:
    """Return the shares that are spoken of, as fractions: `5 or 10 %`, `10%`, `a random third`."""
    hit = re.search(rf"{_NUMBER} ?%? (?:or|vs|versus|to) {_NUMBER} ?%", text)
    found = (
        [hit[1], hit[2]]
        if hit
        else [one[1] for one in re.finditer(rf"{_NUMBER} ?%(?! ?(?:power|lift|bump|increase|difference|alpha|pp))", text)]
    )
    shares = [float(one) / 100.0 for one in found]
    shares += [
        share
        for word, share in (("third", 1 / 3), ("quarter of", 0.25), ("half of", 0.5))
        if re.search(rf"\b(?:a|random|one) {word}\b", text)
    ]
    return tuple(dict.fromkeys(share for share in shares if 0.0 < share <= 0.5))[:4]


def find_dropout(text: str) -> float | None:
    """Return the share of units that will be lost."""
    hit = re.search(
        rf"(?:drop ?out|attrition|loss)(?: is| of| about| around)* {_NUMBER} ?%|{_NUMBER} ?% (?:of \w+ )?(?:drop|are lost)", text
    )
    share = float(hit[1] or hit[2]) / 100.0 if hit else None
    return share if share is not None and share < 0.9 else None


def find_looks(text: str) -> int | None:
    """Return the number of looks at the data, if it is given."""
    hit = re.search(r"\b(\d{1,2}) (?:interim )?(?:looks?|analyses|peeks)\b", text)
    return min(20, max(1, int(hit[1]))) if hit else None


def _fraction(value: float, *, percent: bool) -> float:
    return value / 100.0 if percent or value >= 1.0 else value


def _pair(first: float, second: float) -> tuple[float, float] | None:
    percent = max(first, second) >= 1.0
    low, high = (_fraction(one, percent=percent) for one in (first, second))
    return (low, high) if 0.0 < low < 1.0 and 0.0 < high < 1.0 and low != high else None


def _day_of(name: str, after: date) -> date:
    month, day = (12, 24) if name == "christmas" else (_MONTHS.index(name[:3]) + 1, 1)
    found = date(after.year, month, day)
    return found if found > after else found.replace(year=after.year + 1)
