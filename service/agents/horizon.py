"""How far ahead a question looks: "by year end", "Q1", "in eighteen months", "feb march april". Dates only; it knows no KPI.

A month, quarter or season without a year is the next one that is not over; "next quarter" is the 13 weeks that follow.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

LONGEST_HORIZON = 26
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december")
_SEASONS = {"spring": (3, 3), "summer": (6, 3), "autumn": (9, 3), "fall": (9, 3), "winter": (12, 3)}
_SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
_NUMBERS = {word: at + 1 for at, word in enumerate(_SMALL.split())} | {"a": 1, "an": 1, "twenty four": 24, "couple of": 2, "few": 3}
_UNIT_WEEKS = {"day": 1 / 7, "week": 1.0, "wk": 1.0, "month": 52 / 12, "quarter": 13.0, "year": 52.0}
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}) (?P<unit>day|week|wk|month|quarter|year)s?"
_AHEAD = re.compile(rf"\b(?:next|coming|following|over|within|in|for|another|rolling)(?: the)?(?: next| coming| following)? {_COUNT}\b")
_FROM_NOW = re.compile(rf"\b{_COUNT} (?:from now|out|ahead|later)\b")
_MONTH_NAMES = "|".join((*_LONG, *(name for name in _MONTHS if name not in {"may", "mar"}), "sept"))
_MONTH = re.compile(rf"\b(?P<name>{_MONTH_NAMES})\b(?: (?P<year>20\d\d))?")
_WRITTEN_MONTH = re.compile(r"\b(?P<year>20\d\d) (?P<number>0[1-9]|1[0-2])\b")
_QUARTER = re.compile(r"\bq(?P<number>[1-4])\b(?: (?P<year>20\d\d))?")
_YEAR = re.compile(r"\b(?P<year>20\d\d)\b")
_RUNNING = re.compile(r"\b(?:this|current) (?P<unit>month|quarter|year)\b")
_NEXT = re.compile(r"\b(?:next|coming) (?P<unit>week|month|quarter|year)(?:s\b|\b)(?! end)")
_YEAR_END = re.compile(r"\b(?:year end|end of (?:the |this )?year|years end|x ?mas|christmas|holidays?|holiday season|closes the year)\b")
_SEASON = re.compile(rf"\b(?:by|until|through|this|next|before|of|in) (?:the )?(?P<name>{'|'.join(_SEASONS)})\b")
_AGO = re.compile(r"\b(?:last|past|previous) (?:\w+ )?\w+\b")


@dataclass(frozen=True, slots=True)
class Horizon:
    """Weeks ahead of the data's end: `weeks` to be forecast, of which the question asks for those from `first` on.

    `asked` is the number of weeks that the question reaches ahead, more than `weeks` where that is too far.
    """

    first: int
    weeks: int
    asked: int
    begins: date | None = None

    @property
    def share(self) -> float:
        """The part of the way ahead that is forecast."""
        return min(1.0, self.weeks / self.asked)


def find_horizon(text: str, last: date) -> Horizon | None:
    """Return how far a text in normal form looks beyond the week that ends on `last`, or None where it names nothing to come."""
    plain = _AGO.sub(" ", text)
    spoken = [(_number(hit["count"]), hit["unit"]) for pattern in (_AHEAD, _FROM_NOW) for hit in pattern.finditer(plain)]
    counted = [max(1, round(count * _UNIT_WEEKS[unit])) for count, unit in (*spoken, *((1, hit["unit"]) for hit in _NEXT.finditer(plain)))]
    if counted:
        return _horizon(0, max(counted), None)
    spans = [(begin, end) for begin, end in _spans(plain, last) if end > last + timedelta(days=7)]
    if not spans:
        return None
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    return _horizon(max(0, _whole_weeks(last, begin - timedelta(days=1))), max(1, _whole_weeks(last, end - timedelta(days=1))), begin)


def _horizon(first: int, asked: int, begins: date | None) -> Horizon:
    weeks = min(LONGEST_HORIZON, asked)
    return Horizon(first if first < weeks else weeks - 1, weeks, asked, begins)


def _whole_weeks(last: date, until: date) -> int:
    """Return how many weeks after `last` end on or before `until`."""
    return (until - last).days // 7


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text]


def _spans(text: str, last: date) -> Iterator[tuple[date, date]]:
    """Yield (first day, day after the last) of every calendar period that the text names."""
    for hit in _WRITTEN_MONTH.finditer(text):
        yield _months(int(hit["year"]), int(hit["number"]), 1)
    for hit in _MONTH.finditer(text):
        number = next(at for at, name in enumerate(_MONTHS, start=1) if hit["name"].startswith(name))
        yield _next(hit["year"], number, 1, last)
    for hit in _QUARTER.finditer(text):
        yield _next(hit["year"], 3 * int(hit["number"]) - 2, 3, last)
    for hit in _SEASON.finditer(text):
        yield _next(None, *_SEASONS[hit["name"]], last)
    for hit in _RUNNING.finditer(text):
        size = {"month": 1, "quarter": 3, "year": 12}[hit["unit"]]
        yield _months(last.year, (last.month - 1) // size * size + 1, size)
    if _YEAR_END.search(text):
        yield _months((last + timedelta(days=8)).year, 12, 1)
    alone = _YEAR.findall(_MONTH.sub(" ", _QUARTER.sub(" ", _WRITTEN_MONTH.sub(" ", text))))
    for year in alone:
        yield _months(int(year), 1, 12)


def _next(year: str | None, month: int, count: int, last: date) -> tuple[date, date]:
    if year:
        return _months(int(year), month, count)
    span = _months(last.year - 1, month, count)
    while span[1] <= last + timedelta(days=7):
        span = _months(span[0].year + 1, month, count)
    return span


def _months(year: int, month: int, count: int) -> tuple[date, date]:
    first, after = year * 12 + month - 1, year * 12 + month - 1 + count
    return date(first // 12, first % 12 + 1, 1), date(after // 12, after % 12 + 1, 1)
