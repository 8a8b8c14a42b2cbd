"""What a request for a split asks: which resource, how much of it, for how long, over what, to what end, and within which limits.

It reads text only. Whatever the text leaves open is None or empty here; who plans assumes it, and says so.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from service.agents.allocation.amounts import Amount, prepare, read_amounts
from service.agents.allocation.words import (
    ABSENT_CHANNELS,
    ABSENT_PLACES,
    ABSENT_STAFF,
    ADD,
    AT_LEAST,
    AT_MOST,
    CHANNEL_LEVEL_WORDS,
    CHANNEL_WORDS,
    CUT,
    FLAT,
    MONEY_WORDS,
    OBJECTIVES,
    PERIODS,
    REGION_WORDS,
    SIZE,
    STAND_INS,
    TIER_WORDS,
    UNIT_WORDS,
    UNMEASURED_GOALS,
    UNTOUCHED,
    channels_in,
    words_in,
)
from service.agents.kpi import normal_form

Mode = Literal["flat", "total", "change", "ratio", "size"]
Split = Literal["channel", "region", "tier", "brand"]

WORKDAYS = 5
_WEEKS_IN = {"day": 1 / WORKDAYS, "week": 1.0, "wk": 1.0, "month": 52 / 12, "quarter": 13.0, "yr": 52.0, "year": 52.0}
_PAIR = re.compile(r"^\W*(?:\w+\W+){0,2}?(?:to|->|=>|→|down to)\W*$")
_OWN_WORDS = "budget|spend|spending|money|programme|program|programs|should|must|has|have|to|stay|stays|be|is|are|as|they|it"
_GOAL = re.compile(r"(?:more |higher |fewer )?(?:sales|trx|nrx|nbrx|growth|volume|lift|scripts|prescriptions|reach|roi)\b")
_GOAL_BEFORE = re.compile(r"\b(?:sell|grow|(?:sales|trx|nrx|nbrx|volume|scripts|growth|growing) by|lift of|growth of)$")
_BARE_ENDS = {
    "",
    "in",
    "total",
    "left",
    "only",
    "of",
    "available",
    "max",
    "and",
    "or",
    "to",
    "all",
    "altogether",
    "at",
    "until",
    "till",
    "this",
    "for",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """At least or at most so much for one channel, region or brand; a percentage is a part of the total."""

    name: str
    least: bool
    amount: Amount


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """What was read. `amount` is k$, units, or with mode `ratio` the new total over the old one; `unit` is `money`, a channel or `reps`."""

    mode: Mode
    amount: float
    said: str
    unit: str
    channels: tuple[str, ...]
    weeks: float | None
    split: Split
    objective: str
    limits: tuple[Limit, ...]
    untouched: tuple[str, ...]
    absent: tuple[str, ...]
    absent_places: tuple[str, ...]
    unmeasured: tuple[str, ...]
    stand_ins: tuple[str, ...]
    wants_flat: bool
    names_money: bool
    rate: Amount | None
    count: float
    """With mode `ratio` of "210 to 180": the new number; else 0."""


def read_request(text: str, names: tuple[str, ...]) -> BudgetRequest:
    """Read a question. `names` are the regions and brands of the data, for limits such as "at least 200k for the West"."""
    prepared = prepare(text)
    words = normal_form(prepared)
    amounts = read_amounts(prepared)
    limits, rest = _limits(prepared, amounts, names)
    mode, amount, said, unit, rate = _total(prepared, words, rest)
    pair = _pair(prepared, rest)
    untouched = _untouched(words)
    said_channels = channels_in(words)
    channels = (("calls",) if unit == "reps" else (unit,)) if unit not in {"money", ""} else said_channels
    if unit in {"money", ""} and all(_only_limited(one, words, limits, untouched) for one in channels):
        channels = ()
    if not unit:
        unit = _unit_without_number(words, channels)
    absent = tuple(dict.fromkeys(words_in(words, f"{ABSENT_STAFF}|{ABSENT_CHANNELS}")))
    if unit == "money" and len(channels) == 1 and words_in(words, ABSENT_CHANNELS):
        channels = ()  # what the other one returns is not known, so the named one is compared with all that are measured
    return BudgetRequest(
        mode=mode,
        amount=amount,
        said=said,
        unit=unit,
        channels=channels,
        weeks=_weeks(words, rest),
        split=_split(words, channels, unit),
        objective=next((name for name, forms in OBJECTIVES.items() if words_in(words, forms)), ""),
        limits=limits,
        untouched=untouched,
        absent=absent,
        absent_places=tuple(dict.fromkeys(words_in(words, ABSENT_PLACES))),
        unmeasured=tuple(dict.fromkeys(words_in(words, UNMEASURED_GOALS))),
        stand_ins=tuple(word for word in dict.fromkeys(words_in(words, "|".join(STAND_INS)))),
        wants_flat=FLAT.search(words) is not None,
        names_money=bool(words_in(words, MONEY_WORDS)) or any(one.kind == "money" for one in amounts),
        rate=rate,
        count=_size(pair[1], pair[0]) if pair else 0.0,
    )


def _total(text: str, words: str, amounts: list[Amount]) -> tuple[Mode, float, str, str, Amount | None]:
    """Return mode, amount, the words it was said in, the unit ("" when none is named) and a rate of visits a day, if any."""
    rates = [one for one in amounts if one.kind == "rate" and one.per in {"day", "week", "wk", "rep", "month"}]
    rate = next((one for one in rates if one.unit in {"calls", None}), None)
    if pair := _pair(text, amounts):
        old, new = pair
        return "ratio", _size(new, old) / _size(old, new), f"{old.said} to {new.said}", new.unit or old.unit or _unit_in(words), rate
    for one in amounts:
        is_goal = _GOAL.match(one.after) or _GOAL_BEFORE.search(one.before)
        if one.kind == "percent" and not is_goal and (direction := _direction(one)):
            return "ratio", max(0.0, 1.0 + direction * one.value / 100.0), f"{one.said}", "", rate
        if one.kind == "percent" and re.match(r"(?:of )?(?:the|my|our|its|this|that) (?:money|budget|spend)", one.after):
            return "ratio", one.value / 100.0, f"{one.said}", "", rate
    for kind in ("money", "count", "bare"):
        for one in amounts:
            unit = "money" if kind == "money" else one.unit or _unit_in(words)
            if one.kind != kind or not unit or (kind == "bare" and (one.value < 2 or one.after.partition(" ")[0] not in _BARE_ENDS)):
                continue
            direction = _direction(one)
            if direction:
                return "change", direction * one.value, one.said, unit, rate
            return "total", one.value, one.said, unit, rate
    if SIZE.search(words):
        return "size", 0.0, "", "reps" if words_in(words, UNIT_WORDS["reps"]) else "", rate
    return "flat", 0.0, "", "", rate


def _pair(text: str, amounts: list[Amount]) -> tuple[Amount, Amount] | None:
    """Return the old and the new amount of "from 210 to 180" or "60, down from 95"."""
    sized = [one for one in amounts if one.kind in {"money", "count", "bare"} and one.value > 0]
    for first, second in pairwise(sized):
        between = text[first.stop : second.start]
        if _PAIR.match(between) and (first.before.endswith("from") or "->" in between or "→" in between or "=>" in between):
            return first, second
        if re.search(r"\b(?:down|up) from\W*$|\binstead of\W*$", between):
            return second, first
    return None


def _size(amount: Amount, beside: Amount) -> float:
    """Return a value; in "80k units, down from 120k" the second is a count as well, whatever its own form says."""
    return amount.value * 1000.0 if amount.kind == "money" and beside.kind != "money" else amount.value


def _direction(amount: Amount) -> int:
    """Return -1 for a cut, 1 for an addition, 0 for neither; what stands next to the number decides."""
    if amount.negative:
        return -1
    if amount.after.startswith("left"):
        return 0
    cut, add = words_in(amount.before, CUT), words_in(amount.before, ADD)
    if cut or add:
        return -1 if amount.before.rfind(cut[-1] if cut else "\0") > amount.before.rfind(add[-1] if add else "\0") else 1
    if re.match(r"(?:\w+ ){0,3}?(?:out of|off|less|fewer)\b", amount.after):
        return -1
    if amount.unit == "reps" and re.match(r"(?:\w+ ){1,6}?(?:leave|leaving|leaves|quit|retire|resign|gone)\b", amount.after):
        return -1
    return 1 if re.match(r"(?:more|extra|additional|on top|new|vacant)\b", amount.after) else 0


def _limits(text: str, amounts: list[Amount], names: tuple[str, ...]) -> tuple[tuple[Limit, ...], list[Amount]]:
    """Return the limits on single channels, regions or brands, and the amounts that are none."""
    limits, rest = [], []
    for one in amounts:
        before = re.search(rf"\b({AT_LEAST}|{AT_MOST})(?: of)?$", one.before)
        after = re.match(rf"({AT_LEAST}|{AT_MOST})\b ?", one.after)
        found = before or after
        name = _named_beside(one, names, text) if found and one.kind in {"money", "percent", "count"} else None
        if found and name and name != one.unit:
            limits.append(Limit(name, re.fullmatch(AT_LEAST, found[1]) is not None, one))
        else:
            rest.append(one)
    return tuple(limits), rest


def _named_beside(amount: Amount, names: tuple[str, ...], text: str) -> str | None:
    """Return the channel, region or brand named after an amount ("for samples"), or right before its limit."""
    tail = re.split(r"[,.;]|\band\b", text[amount.stop :])[0]
    words = re.match(r"(?:\w+ ){0,2}?(?:on|in|into|for|to|of|goes to|min|max|minimum|maximum)? ?((?:\w+ ?){1,3})", normal_form(tail))
    head = re.sub(rf"\b(?:{AT_LEAST}|{AT_MOST})(?: of)?$", "", amount.before)
    following = words[1] if words else ""
    if channels := channels_in(following) or channels_in(" ".join(head.split()[-3:])):
        return channels[0]
    return next((name for name in names if words_in(following, normal_form(name))), None)


def _only_limited(channel: str, words: str, limits: tuple[Limit, ...], untouched: tuple[str, ...]) -> bool:
    """Return whether a channel is named for a limit only, so that the split is not over it alone."""
    said = len(words_in(words, CHANNEL_WORDS[channel]))
    return said <= sum(limit.name == channel for limit in limits) + (channel in untouched)


def _untouched(words: str) -> tuple[str, ...]:
    """Return the channels that are to stay as they are."""
    kept = []
    for channel, forms in CHANNEL_WORDS.items():
        if re.search(rf"(?<!\w)(?:{forms}) (?:{_OWN_WORDS} ){{0,3}}?(?:{UNTOUCHED})(?!\w)", words) or re.search(
            rf"(?:not touch|without touching|do not change|don t touch) (?:the )?(?:{forms})(?!\w)", words
        ):
            kept.append(channel)
    return tuple(kept)


def _unit_in(words: str) -> str:
    """Return what a number without a noun counts, by the nouns elsewhere: people first where the field force is meant."""
    if words_in(words, f"{UNIT_WORDS['reps']}|field force|sales force"):
        return "reps"
    return next((unit for unit in ("speaker", "samples", "calls", "emails") if words_in(words, UNIT_WORDS[unit])), "")


def _unit_without_number(words: str, channels: tuple[str, ...]) -> str:
    """Without a number: people where people are meant, the channel's own unit for a single channel, else money."""
    if channels == ("calls",) and words_in(words, f"{UNIT_WORDS['reps']}|field force|sales force"):
        return "reps"
    return channels[0] if len(channels) == 1 and not words_in(words, f"{MONEY_WORDS}|{ABSENT_CHANNELS}") else "money"


def _weeks(words: str, amounts: list[Amount]) -> float | None:
    for one in amounts:
        if one.kind == "count" and one.per in _WEEKS_IN:
            return _WEEKS_IN[one.per]
    return weeks_in(words)


def weeks_in(words: str) -> float | None:
    """Return the length in weeks of the period that a text in normal form names, or None."""
    return next((weeks for pattern, weeks in PERIODS if re.search(pattern, words)), None)


def _split(words: str, channels: tuple[str, ...], unit: str) -> Split:
    """Return over what the split is asked: channels where several are in play, else what the text names, else regions."""
    if words_in(words, r"tier|tiers|decile|deciles"):
        return "tier"
    one_channel = len(channels) == 1 or unit not in {"money", ""}
    if not one_channel and words_in(words, CHANNEL_LEVEL_WORDS) and not words_in(words, "region|regions"):
        return "channel"
    if len(channels) > 1:
        return "channel"
    if words_in(words, REGION_WORDS):
        return "region"
    if words_in(words, "brand|brands|portfolio"):
        return "brand"
    if words_in(words, TIER_WORDS) and unit != "reps":
        return "tier"
    return "region" if one_channel else "channel"
