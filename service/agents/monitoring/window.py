"""Which time a question about the platform is about: "last hour", "since noon", "yesterday", "uptime for aug", in UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from service.agents.allocation.amounts import prepare

DEFAULT_HOURS = 1.0
LONGEST_DAYS = 400
SHORTEST_SECONDS = 60.0
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH_NAME = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|"
    r"dec(?:ember)?)"
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_UNIT_SECONDS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "d": 86400, "day": 86400}
_UNIT_SECONDS |= {"wk": 7 * 86400, "week": 7 * 86400, "month": 30 * 86400, "quarter": 91 * 86400, "year": 365 * 86400}
_SPAN = re.compile(
    r"\b(?:last|past|previous|trailing|for|in|over)(?: the)?(?: last| past)? (?:(?P<count>\d{1,4}) ?)?"
    r"(?P<unit>sec(?:ond)?|min(?:ute)?|hr|hour|day|wk|week|month|quarter|year|h|d)s?\b"
)
_CLOCK = re.compile(r"\b(?:since|after|from|at|before|by) (?:about |around )?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?\b")
_SINCE_MONTH = re.compile(rf"\b(?:uptime|for|in|during|month of|over|of) {_MONTH_NAME}\b(?! i\b)")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time that ends now or before. `assumed` when the question names none."""

    label: str
    start: datetime
    end: datetime
    assumed: bool = False

    @property
    def seconds(self) -> float:
        """The length, at least a minute."""
        return max(SHORTEST_SECONDS, (self.end - self.start).total_seconds())

    def ends_now(self, now: datetime) -> bool:
        """Whether the window reaches up to now."""
        return (now - self.end).total_seconds() < SHORTEST_SECONDS


def read_window(text: str, now: datetime) -> Window:
    """Return the window that a question names, one hour up to now where it names none."""
    words = prepare(text).replace("'", " ").replace("’", " ")
    found = _day(words, now) or _span(words, now) or _clock(words, now) or _month(words, now)
    if found is None:
        return Window("the last hour", now - timedelta(hours=DEFAULT_HOURS), now, assumed=True)
    label, start, end = found
    start = max(start, now - timedelta(days=LONGEST_DAYS))
    return Window(label, min(start, now - timedelta(seconds=SHORTEST_SECONDS)), min(max(end, start), now))


def _day(words: str, now: datetime) -> tuple[str, datetime, datetime] | None:
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if re.search(r"\b(?:last night|last nights|overnight|overnite|nightly|of the night)\b", words):
        return "last night (18:00 to 8:00 UTC)", midnight - timedelta(hours=6), min(midnight + timedelta(hours=8), now)
    if re.search(r"\bsince yesterday\b", words):
        return "since yesterday", midnight - timedelta(days=1), now
    if re.search(r"\byesterday\b", words):
        return "yesterday (UTC)", midnight - timedelta(days=1), midnight
    if re.search(r"\bweekend\b", words):
        monday = midnight - timedelta(days=midnight.weekday())
        return "the weekend (UTC)", monday - timedelta(days=2), now if midnight.weekday() >= 5 else monday
    if re.search(r"\b(?:since noon|this afternoon)\b", words):
        noon = midnight + timedelta(hours=12)
        return "since noon (UTC)", noon if noon < now else noon - timedelta(days=1), now
    if re.search(r"\b(?:this morning|since morning)\b", words):
        morning = midnight + timedelta(hours=6)
        return "since 6:00 UTC", morning if morning < now else morning - timedelta(days=1), now
    if re.search(r"\b(?:right now|rn|at the moment|currently|at present|current)\b", words):
        return "the last 15 minutes", now - timedelta(minutes=15), now
    for at, day in enumerate(_DAYS):
        if re.search(rf"\bsince {day}\b", words):
            back = (midnight.weekday() - at) % 7 or 7
            return f"since {day.capitalize()} (UTC)", midnight - timedelta(days=back), now
    return _calendar(words, midnight, now)


def _calendar(words: str, midnight: datetime, now: datetime) -> tuple[str, datetime, datetime] | None:
    if re.search(r"\bthis (?:week|wk)\b", words):
        return "this week (UTC)", midnight - timedelta(days=midnight.weekday()), now
    if re.search(r"\bthis month\b", words):
        return "this month (UTC)", midnight.replace(day=1), now
    if re.search(r"\b(?:this|the) quarter\b", words):
        return "this quarter (UTC)", midnight.replace(month=(midnight.month - 1) // 3 * 3 + 1, day=1), now
    if re.search(r"\btoday\b", words):
        return "today (UTC)", midnight, now
    return None


def _span(words: str, now: datetime) -> tuple[str, datetime, datetime] | None:
    found = _SPAN.search(words)
    if found is None or (found["count"] is None and not re.search(r"\b(?:last|past|previous|trailing)\b", found[0])):
        return None
    count, unit = int(found["count"] or 1), found["unit"]
    seconds = max(1, count) * _UNIT_SECONDS[unit]
    label = f"the last {count} {unit}s" if count != 1 else f"the last {unit}"
    return label, now - timedelta(seconds=min(seconds, LONGEST_DAYS * 86400)), now


def _clock(words: str, now: datetime) -> tuple[str, datetime, datetime] | None:
    found = re.search(r"\bsince\b", words) and _CLOCK.search(words)
    if not found:
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"] and 1 <= hour <= 12:
        hour = hour % 12 + (12 if found["half"] == "pm" else 0)
    if hour > 23 or minute > 59:
        return None
    start = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return f"since {hour}:{minute:02d} UTC", start if start < now else start - timedelta(days=1), now


def _month(words: str, now: datetime) -> tuple[str, datetime, datetime] | None:
    found = _SINCE_MONTH.search(words)
    if found is None:
        return None
    month = _MONTHS.index(found["month"][:3]) + 1
    today = now.astimezone(UTC)
    year = today.year if month <= today.month else today.year - 1
    start = datetime(year, month, 1, tzinfo=UTC)
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return f"{start:%B %Y} (UTC)", start, min(following, now)
