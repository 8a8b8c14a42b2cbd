"""What a question names, read on another route than the service's: plain regular expressions, the data's own names, and the calendar."""

import difflib
import re
from datetime import date, timedelta
from typing import Any

import numpy as np

from service.agents.sample_data import Snapshot

KPIS = {
    "trx": ("trx", None),
    "nrx": ("nrx", None),
    "market_share": ("trx", "market_trx"),
    "conversion_rate": ("conversions", "candidates"),
    "calls": ("calls", None),
    "emails": ("emails", None),
    "samples": ("samples", None),
}
"""Each KPI's weekly counts: a column, or one over another."""

BRAND_ALIASES = {
    "Kisqali": "ribociclib",
    "Fabhalta": "iptacopan",
    "Remibrutinib": "rhapsido",
    "Cosentyx": "secukinumab",
    "Entresto": "sacubitril",
    "Leqvio": "inclisiran",
}
REGION_ALIASES = {
    "Northeast": r"north[ -]?east|ne region",
    "Midwest": r"mid[ -]?west|mw region",
    "South": r"south(?![ -]?(?:east|west))(?:ern region)?",
    "West": r"(?<!south )(?<!south-)(?<!mid )(?<!mid-)(?<!north )(?<!north-)west(?:ern region| coast)?",
    "Southeast": r"south[ -]?east|se region",
    "Southwest": r"south[ -]?west|sw region",
}
KPI_WORDS = {
    "market_share": r"market[ _]?shares?|share of market|(?:our|their|the|kisqali|fabhalta|remibrutinib|likely q\d) share",
    "conversion_rate": r"conversions?(?:[ _]rates?)?",
    "nrx": r"nrxs?|new prescriptions?|new scripts",
    "trx": r"trxs?|total (?:prescriptions?|scripts)",
}
LEFT_OUT = (
    r"(?:not|no|except(?: for)?|excluding|without|outside|minus|besides|forget|ignore|other than|instead of|rather than)"
    r"(?: in| for)?(?: the)? "
)
MONTHS = "january february march april may june july august september october november december".split()
BRANDS_IN_DATA = ("Kisqali", "Fabhalta", "Remibrutinib")


def words_of(query: str) -> str:
    """Return the question in lower case with single blanks."""
    return " ".join(query.casefold().replace("’", "'").split())


def named_brands(query: str) -> list[str]:
    """Return the brands that the question names by brand or substance name."""
    return [name for name, alias in BRAND_ALIASES.items() if _names(rf"{name.casefold()}|{alias}", query)]


def named_regions(query: str) -> list[str]:
    """Return the regions that the question names."""
    return [name for name, pattern in REGION_ALIASES.items() if _names(pattern, query)]


def _names(pattern: str, query: str) -> bool:
    return any(
        re.search(rf"(?<!\w){LEFT_OUT}$", words_of(query)[: hit.start()]) is None
        for hit in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query))
    )


def named_outcome(query: str) -> str | None:
    """Return the one outcome that the question plainly names, or None where it names none or several."""
    found = [name for name, pattern in KPI_WORDS.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query))]
    return found[0] if len(found) == 1 else None


def check_scope(query: str, label: str, data: Snapshot) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Assert that a scope's label is what the question names, and return the rows of the HCPs that it means."""
    head, _, tail = label.partition(" in ")
    brands = [name for name in data.hcps["brand"].unique() if name in head]
    regions = [name for name in data.hcps["region"].unique() if re.search(rf"the {name}(?!\w)", tail)]
    assert (not brands) == (head == "all brands"), label
    assert (not regions) == tail.startswith("all regions"), label
    for said, kept, known in ((named_brands(query), brands, BRAND_ALIASES), (named_regions(query), regions, REGION_ALIASES)):
        if said:
            assert set(said) == set(kept), f"the question names {said}, the answer is for {label}"
        for name in kept:
            assert name in said or _resembles(name, query), f"{name} is not in the question; known are {list(known)}"
    rows = data.hcps["brand"].isin(brands or data.hcps["brand"].unique()) & data.hcps["region"].isin(
        regions or data.hcps["region"].unique()
    )
    return rows.to_numpy()


def _resembles(name: str, query: str) -> bool:
    return bool(difflib.get_close_matches(name.casefold(), re.findall(r"\w+", query.casefold()), cutoff=0.75))


def mentions(query: str, name: str) -> bool:
    """Whether the question holds a name that a message quotes: as it stands, by an alias, or with a slip."""
    plain = re.sub(r"[\W_]+", " ", name.casefold()).strip(" …")
    text = re.sub(r"[\W_]+", " ", query.casefold())
    patterns = [re.escape(plain), *(pattern for known, pattern in (BRAND_ALIASES | REGION_ALIASES).items() if known.casefold() == plain)]
    patterns += {
        "nbrx": ["nbrxs?", "new to brand"],
        "adherence": ["persisten"],
        "roi": ["return on", "payback"],
        "call frequency": ["visit freq"],
    }.get(plain, [])
    return any(re.search(rf"(?<!\w){pattern}", text) for pattern in patterns) or _resembles(name, query) or _said_period(plain, text)


def _said_period(plain: str, text: str) -> bool:
    number = re.search(r"20\d\d", plain)
    return number is not None and number[0][2:] in text


def check_unknown_name(query: str, message: str, data: Snapshot, measures: tuple[str, ...]) -> None:
    """Assert that a refused name stands in the question and is really neither a brand, a region, a place nor a measure of the data."""
    quoted = re.search(r"'([^']+)'", message)
    assert quoted, f"the refusal names nothing: {message}"
    name = quoted[1].rstrip("…")
    known = {str(one).casefold() for column in ("brand", "region", "specialty", "hcp_id", "setting") for one in data.hcps[column].unique()}
    assert name.casefold() not in known, f"refused although the data have it: {message}"
    assert re.sub(r"[\W_]+", "", name.casefold()) not in {re.sub(r"[\W_]+", "", one) for one in measures}, message
    assert mentions(query, name), f"refused for {name}, which the question does not name"
    assert re.search(r"Available:|ids run|only|known terms|cover the weeks", message), f"the refusal does not say what there is: {message}"


def check_period_is_absent(message: str, data: Snapshot) -> None:
    """Assert that no week of the data ends in the refused period."""
    said = re.search(r"no week in '([^']+)'", message)
    assert said, message
    window = calendar_window(said[1], data)
    assert window is None or window[0] == window[1], f"the data have weeks in {said[1]}"


def calendar_window(period: str, data: Snapshot) -> tuple[int, int] | None:
    """Return weeks (start, stop) of the data in a period entity; start = stop where it has none; None where it cannot be read here."""
    text = re.sub(r"[\W_]+", " ", period.casefold()).strip()
    last = data.week_ends[-1]
    if hit := re.fullmatch(r"(?:last|past|previous|trailing) (\d+|two|three|four|six|eight|twelve) (day|week|month|quarter|year)s?", text):
        count = {"two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "twelve": 12}.get(hit[1]) or int(hit[1])
        days = count * {"day": 1.0, "week": 7.0, "month": 52 * 7 / 12, "quarter": 91.0, "year": 364.0}[hit[2]]
        return max(0, len(data.week_ends) - max(1, round(days / 7))), len(data.week_ends)
    bounds = _calendar_bounds(text, last)
    if bounds is None:
        return None
    inside = [at for at, end in enumerate(data.week_ends) if bounds[0] <= end < bounds[1]]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _calendar_bounds(text: str, last: date) -> tuple[date, date] | None:
    if hit := re.fullmatch(r"20\d\d", text):
        return date(int(hit[0]), 1, 1), date(int(hit[0]) + 1, 1, 1)
    if hit := re.fullmatch(r"(last|previous|past|this|current) year", text):
        year = last.year - (hit[1] in {"last", "previous", "past"})
        return date(year, 1, 1), date(year + 1, 1, 1)
    if hit := re.fullmatch(r"(last|previous|past|this|current) (month|quarter)", text):
        size = 1 if hit[2] == "month" else 3
        first = date(last.year, (last.month - 1) // size * size + 1, 1)
        return (_earlier(first, size), first) if hit[1] in {"last", "previous", "past"} else (first, _earlier(first, -size))
    if hit := re.fullmatch(r"q([1-4])(?: (20\d\d))?", text):
        month = 3 * int(hit[1]) - 2
        first = date(int(hit[2]) if hit[2] else last.year - (month > last.month), month, 1)
        return first, _earlier(first, -3)
    if hit := re.fullmatch(r"(20\d\d) (\d\d)", text):
        first = date(int(hit[1]), int(hit[2]), 1)
        return first, _earlier(first, -1)
    if text in MONTHS:
        month = MONTHS.index(text) + 1
        first = date(last.year - (month > last.month), month, 1)
        return first, _earlier(first, -1)
    return None


def _earlier(first: date, months: int) -> date:
    number = first.year * 12 + first.month - 1 - months
    return date(number // 12, number % 12 + 1, 1)


def said_period(query: str) -> str | None:
    """Return the first past period that the question plainly names, in a form for `calendar_window`; None where it names none."""
    text = words_of(query)
    months = "|".join(name for name in MONTHS if name not in {"march", "may"})
    patterns = (
        r"(?:last|past|previous|trailing) (?:\d{1,3}|two|three|four|six|eight|twelve)[ -](?:day|week|month|quarter|year)s?",
        r"(?:last|past|previous|this|current) (?:month|quarter|year)",
        r"q[1-4] 20\d\d",
        r"q[1-4](?![\w-])",
        rf"(?:{months})(?:,? 20\d\d)?",
        r"(?:in|since|until) (?:march|may)(?:,? 20\d\d)?",
        r"(?<![\w$€£#.,/-])20[1-3]\d(?![\w%.,/-])",
    )
    hits = [hit for pattern in patterns if (hit := re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text))]
    if not hits:
        return None
    first = min(hits, key=lambda one: (one.start(), -one.end()))
    said = re.sub(r"^(?:in|since|until) ", "", first[0]).replace("-", " ")
    if hit := re.fullmatch(r"([a-z]+),? (20\d\d)", said):
        return f"{hit[2]} {MONTHS.index(hit[1]) + 1:02d}" if hit[1] in MONTHS else said
    return said


def next_weeks(data: Snapshot, count: int) -> list[str]:
    """Return the ends of the weeks that follow the data."""
    return [(data.week_ends[-1] + timedelta(days=7 * (at + 1))).isoformat() for at in range(count)]
