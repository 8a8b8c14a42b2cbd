"""The weeks that a request for a model names: 'the last twelve months', '2022-24', 'since 2025', 'through September'."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.period import Period, parse_period

_UNITS = {
    name: value
    for value, name in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
        "nineteen".split()
    )
}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_WEEKS = {"day": 1 / 7, "week": 1.0, "month": 52 / 12, "quarter": 13.0, "year": 52.0, "mo": 52 / 12, "mth": 52 / 12, "yr": 52.0, "wk": 1.0}
_UNIT = r"(day|week|month|quarter|year|mo|mth|yr|wk)s?"
_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|"
    r"dec(?:ember)?)"
)
_STUFF = r"(?:data|history|scripts?|claims|records?|prescriptions|sales|actuals|visits|outcomes|orders|calls|trx)"


@dataclass(frozen=True, slots=True)
class Window:
    """Weeks start to stop (exclusive), the words that named them (None: assumed), and a caveat."""

    start: int
    stop: int
    words: str | None
    caveat: str | None = None


def replace_number_words(text: str) -> str:
    """Return a normal text with 'twenty four' as 24."""
    words: list[str] = []
    for word in text.split():
        if word in _UNITS and words and words[-1] in {str(tens) for tens in _TENS.values()} and 0 < _UNITS[word] < 10:
            words[-1] = str(int(words[-1]) + _UNITS[word])
        else:
            words.append(str(_UNITS[word]) if word in _UNITS else str(_TENS[word]) if word in _TENS else word)
    return " ".join(words)


def read_window(question: str, week_ends: tuple[date, ...], default: int) -> Window:
    """Return the weeks that a question names for training, the last `default` weeks where it names none.

    Raises:
        AgentFailure: The data have no week in the named window.
    """
    text = replace_number_words(normal_form(question.replace("+", " plus ")))
    found = _length(text) or _calendar(text, week_ends[-1])
    if found is None:
        unread = re.search(rf"\b(?:{_MONTH}|summer|winter|spring|autumn)\b(?: \w+)? {_STUFF}\b", text)
        lead = f"'{unread[0]}' was not read as a training window" if unread else "No training window was named"
        weeks = min(default, len(week_ends))
        return Window(len(week_ends) - weeks, len(week_ends), None, f"{lead}; the last {weeks} weeks were taken.")
    words, first, last = found
    if isinstance(first, int):
        start = max(0, len(week_ends) - first)
        short = f"'{words}' asks for {first} weeks; the data have {len(week_ends)}." if first > len(week_ends) else None
        return Window(start, len(week_ends), words, short)
    inside = [week for week, end in enumerate(week_ends) if first <= end <= (last or date.max)]
    covered = f"{week_ends[0].isoformat()} to {week_ends[-1].isoformat()}"
    if not inside:
        raise AgentFailure("missing_data", f"The data have no week in '{words}'; they cover the weeks ending {covered}.")
    asked_before = first > date.min and first < week_ends[0] - timedelta(days=6)
    asked_after = last is not None and last > week_ends[-1] + timedelta(days=6)
    cut = f"The data cover only a part of '{words}': the weeks ending {covered}." if asked_before or asked_after else None
    return Window(inside[0], inside[-1] + 1, words, cut)


Found = tuple[str, date | int, date | None]


def _length(text: str) -> Found | None:
    """Spans that end with the data: 'last 12 months', '24 months of scripts', '6 mo instead of 24'."""
    patterns = (
        rf"\b(?:last|past|previous|recent|latest|newest|trailing|prior) (\d{{1,3}}) {_UNIT}\b",
        rf"\b(\d{{1,3}}) (?:full )?{_UNIT} (?:of|worth of) (?:\w+ ){{0,2}}?{_STUFF}\b",
        rf"\bwindow (?:of )?(\d{{1,3}}) {_UNIT}\b",
        rf"\b(\d{{1,3}}) {_UNIT} (?:instead of|window of data)\b",
        r"\b(?:on|use|only|over) (\d{1,3}) (mth|month|mo)s?\b",
    )
    for pattern in patterns:
        if found := re.search(pattern, text):
            return found[0], max(1, round(int(found[1]) * _WEEKS[found[2]])), None
    return None


def _calendar(text: str, last: date) -> Found | None:
    if found := re.search(r"\b(20\d\d) (0[1-9]|1[0-2]) (?:to|until|through|thru) (20\d\d) (0[1-9]|1[0-2])\b", text):
        return found[0], date(int(found[1]), int(found[2]), 1), _month_end(int(found[3]), int(found[4]))
    if found := re.search(r"\b(20\d\d) (?:to |until |through |thru |and )?((?:20)?\d\d)\b(?! (?:trials|folds|trees|hcps|rows))", text):
        until = int(found[2]) if len(found[2]) == 4 else 2000 + int(found[2])
        if int(found[1]) <= until <= 2099:
            return found[0], date(int(found[1]), 1, 1), date(until, 12, 31)
    if found := re.search(r"\b(?:until|till|through|thru|up to|to) (20\d\d) (0[1-9]|1[0-2]) (0[1-9]|[12]\d|3[01])\b", text):
        return found[0], date.min, _day(int(found[1]), int(found[2]), int(found[3]))
    if found := re.search(r"\b(?:until|till|through|thru|up to) (20\d\d) (0[1-9]|1[0-2])\b", text):
        return found[0], date.min, _month_end(int(found[1]), int(found[2]))
    if found := re.search(rf"\b(?:until|till|through|thru|up to) (?:the end of )?{_MONTH}\b(?: (20\d\d))?", text):
        year, month = _year_month(found[1], found[2], last)
        return found[0], date.min, _month_end(year, month)
    if re.search(r"\b(?:until|till|through|thru|up to) yesterday\b", text):
        return None
    if found := re.search(
        r"\b(since|from|post|after) (?:the |mid |early |late )?(20\d\d)\b|\b(20\d\d) (plus|onwards?|on|and later)\b", text
    ):
        year = int(found[2] or found[3]) + (1 if found[1] in {"after", "post"} else 0)
        return found[0], date(year, 1, 1), None
    if found := re.search(rf"\b(?:since|from) {_MONTH}\b(?: (20\d\d))?", text):
        year, month = _year_month(found[1], found[2], last)
        return found[0], date(year, month, 1), None
    return _named(text, last)


def _named(text: str, last: date) -> Found | None:
    """A period with a name of its own: 'last quarter only', 'this year's data', 'the 2024 table', 'q3 actuals'."""
    patterns = (
        r"\b((?:last|this|previous|current|past) (?:quarter|year|month)) (?:s )?(?:\w+ )?(?:only|data|actuals|numbers|outcomes|claims|"
        r"scripts|alone)\b",
        r"\b(?:on|from|of|over) (?:the )?((?:last|this|previous|current|past|recent) (?:quarter|year|month))\b",
        r"\b(?:on|with|over|the) (?:the )?(20\d\d) (?:data|table|cohort|claims|campaign log|figures|numbers|records)\b",
        r"\b(20\d\d) (?:data|table|cohort|claims|figures|numbers|records|campaign log)\b",
        r"\b(q[1-4](?: 20\d\d)?) (?:actuals|data|only|numbers)\b",
        r"\b(ytd)\b",
    )
    weeks = tuple(last - timedelta(weeks=back) for back in range(519, -1, -1))
    for pattern in patterns:
        if (found := re.search(pattern, text)) and (period := parse_period(found[1].replace("recent", "last"), weeks)):
            return _as_dates(found[1], period, weeks)
    return None


def _as_dates(words: str, period: Period, weeks: tuple[date, ...]) -> Found:
    if period.length == 0:
        year = re.search(r"20\d\d", words)
        first = date(int(year[0]), 1, 1) if year else date.max
        return words, first, date(first.year, 12, 31)
    return words, weeks[period.start], weeks[period.stop - 1]


def _year_month(word: str, year: str | None, last: date) -> tuple[int, int]:
    month = next(number for number, name in enumerate(_MONTHS, start=1) if name.startswith(word[:3]))
    return (int(year) if year else last.year if month <= last.month else last.year - 1), month


def _month_end(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)


def _day(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:  # 31 April
        return _month_end(year, month)
