"""Time periods in words ("last quarter", "Q3 2026", "past 8 weeks") as weeks of the data."""

import re
from dataclasses import dataclass
from datetime import date

from service.agents.kpi import normal_form

_UNIT_WEEKS = {"day": 1 / 7, "week": 1.0, "month": 52 / 12, "quarter": 13.0, "year": 52.0}
_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_NUMBER_WORDS = {"two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "twelve": 12}
_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]
_SPAN = re.compile(
    r"^(?:the )?(last|past|previous|recent|trailing|next|coming|this|current)(?: (\d{1,3}|[a-z]+))? (day|week|month|quarter|year)s?$"
)
_QUARTER = re.compile(r"^(?:q([1-4])(?: (20\d{2}|\d{2}))?|(20\d{2}) q([1-4]))$")
_MONTH = re.compile(r"^(20\d{2}) (0[1-9]|1[0-2])$")
_NAMED_MONTH = re.compile(rf"^({'|'.join(_MONTHS)})(?: (20\d{{2}}))?$")
_YEAR = re.compile(r"^(20\d{2})$")
_AHEAD = {"next", "coming"}
_RUNNING = {"this", "current"}


@dataclass(frozen=True, slots=True)
class Period:
    """Weeks start to stop (exclusive) of the data, or with `ahead` that many weeks after its end."""

    label: str
    start: int
    stop: int
    ahead: bool = False

    @property
    def length(self) -> int:
        """The number of weeks."""
        return self.stop - self.start


def parse_period(text: str, week_ends: tuple[date, ...]) -> Period | None:
    """Return the period that a text names, or None when it is not understood.

    A calendar period that has no week in the data comes back with length 0.
    """
    words = normal_form(text)
    last = week_ends[-1]
    if span := _SPAN.match(words):
        return _span(text, span, week_ends)
    if words in {"ytd", "year to date"}:
        return _months(text, last.year, 1, 12, week_ends)
    if quarter := _QUARTER.match(words):
        first_month = 3 * int(quarter[1] or quarter[4]) - 2
        said = quarter[2] or quarter[3]
        year = 2000 + int(said) % 1000 if said else _latest_year(first_month, last)
        return _months(text, year, first_month, 3, week_ends)
    if month := _MONTH.match(words):
        return _months(text, int(month[1]), int(month[2]), 1, week_ends)
    if month := _NAMED_MONTH.match(words):
        number = _MONTHS.index(month[1]) + 1
        return _months(text, int(month[2]) if month[2] else _latest_year(number, last), number, 1, week_ends)
    if year_said := _YEAR.match(words):
        return _months(text, int(year_said[1]), 1, 12, week_ends)
    return None


def _span(text: str, found: re.Match[str], week_ends: tuple[date, ...]) -> Period | None:
    """A number of units counts back from the end; a single month, quarter or year is the calendar's."""
    direction, number, unit = found[1], found[2], found[3]
    if number is not None and not number.isdigit() and number not in _NUMBER_WORDS:
        return None
    weeks = len(week_ends)
    count = 1 if number is None else int(number) if number.isdigit() else _NUMBER_WORDS[number]
    length = max(1, round(count * _UNIT_WEEKS[unit]))
    if direction in _AHEAD:
        return Period(text, weeks, weeks + length, ahead=True)
    if number is None and unit in _UNIT_MONTHS and direction != "trailing":
        size = _UNIT_MONTHS[unit]
        month = week_ends[-1].year * 12 + week_ends[-1].month - 1
        first = month // size * size - (0 if direction in _RUNNING else size)
        return _months(text, first // 12, first % 12 + 1, size, week_ends)
    return Period(text, max(0, weeks - length), weeks)


def _latest_year(month: int, last: date) -> int:
    return last.year if month <= last.month else last.year - 1


def _months(text: str, year: int, month: int, count: int, week_ends: tuple[date, ...]) -> Period:
    """Return the weeks that end in `count` months from the given one on."""
    after = year * 12 + month - 1 + count
    first, following = date(year, month, 1), date(after // 12, after % 12 + 1, 1)
    inside = [week for week, end in enumerate(week_ends) if first <= end < following]
    return Period(text, inside[0], inside[-1] + 1) if inside else Period(text, 0, 0)
