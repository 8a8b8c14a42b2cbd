"""The inputs of a training table: which there are, what people call them, and which a phrase means. It knows no dispatch."""

import re
from types import MappingProxyType

from service.agents.kpi import normal_form

WINDOWS = (4, 13, 26)
"""Sums over the last 4, 13 and 26 weeks, about 30, 90 and 180 days."""
MEASURES = ("trx", "nrx", "market_trx", "calls", "emails", "samples", "speaker_events", "candidates", "conversions")
NUMBERS = ("decile", "potential", "panel_size", "digital_affinity", "academic")
LABELS = ("region", "specialty", "brand")
"""Labels become one column a value but the first (Hastie et al. 2009, 9.2.4); a label with one value becomes none."""
FLAGS = ("call_programme", "email_campaign", "speaker_programme", "sample_programme")

_DAYS = MappingProxyType({4: (28, 30, 31), 13: (84, 90, 91, 92), 26: (180, 182, 183)})
_MONTHS = MappingProxyType({1: 4, 3: 13, 6: 26})

_WORDS = MappingProxyType(
    {
        "trx": r"trx|total prescriptions|(?:past |own |total )?(?:prescriptions|prescribing|scripts|rx)|past (?:volume|sales)|prior "
        r"(?:volume|sales)|history|volume",
        "nrx": r"nrx|nbrx|new prescriptions|new scripts",
        "market_trx": r"market|market trx|market volume|competitors?",
        "calls": r"calls?|call (?:count|activity|volume|frequency|recency|metrics)|(?:rep )?visits?|visit frequency|detailing|details|"
        r"field force|reps",
        "emails": r"e ?mails?|e ?mail (?:clicks|opens|sends|recency|volume)|digital touches|clicks|opens",
        "samples": r"samples?|sample drops|sampling",
        "speaker_events": r"speaker (?:events?|attendance|bureau)|events?|dinners?",
        "candidates": r"candidates?|patients who could start",
        "conversions": r"(?:past |earlier |previous )conversions?|conversions? history",
        "decile": r"deciles?|tiers?",
        "potential": r"(?:territory |market )?potential",
        "panel_size": r"panel(?: size)?|patient panel|practice size",
        "digital_affinity": r"digital affinity|digital(?: score)?",
        "academic": r"academic|setting|practice type|community",
        "region": r"regions?|geography|territory|region columns",
        "specialty": r"special(?:ty|ties|ity|ities)|prescriber type",
        "brand": r"brand (?:columns?|labels?|dumm(?:y|ies)|names?)",
        "call_programme": r"call programmes?|call programs?",
        "email_campaign": r"e ?mail campaigns?",
        "speaker_programme": r"speaker programmes?|speaker programs?|speaker",
        "sample_programme": r"sample programmes?|sample programs?",
    }
)
ABSENT = (
    r"payers?|payor|copay|lab|labs|lab data|zip|zip codes?|zips|ages?|gender|sex|ethnicit\w*|race|racial|income|education|claims|"
    r"formulary|weather|holidays?|"
    r"affiliations?|hub|enrol\w*|call notes?|notes|sentiment|tenure|website|web|portal|logins?|social media|telehealth|prices?|"
    r"publications?|"
    r"citations?|referrals?|pharmac\w*|specialty pharmacy|webinars?|opens?|clicks|rep id|impressions?|media|tv|paid search|competitor "
    r"launch|staff turnover|"
    r"free text|embeddings?|refund\w*|honorari\w*|fill|fills|loyalty|quota\w*|thumbs|feedback|inventory|rebates?|prior auth\w*|language"
)
"""Words for data that people often have and the sample lacks."""
PROTECTED = r"ages?|gender|sex|ethnicit\w*|race|racial|income|education"


def all_inputs(history_weeks: int) -> tuple[str, ...]:
    """Return every input that a history of so many weeks allows, in the order of the table's columns."""
    sums = [f"{measure}_{weeks}w" for measure in MEASURES for weeks in WINDOWS if weeks <= history_weeks]
    return (*sums, *NUMBERS, *FLAGS, *LABELS)


def find_inputs(phrase: str, among: tuple[str, ...]) -> tuple[str, ...]:
    """Return the inputs that a phrase means ('calls', 'trx_90d', 'call_count', 'region columns'), or none.

    A span in days, weeks or months picks the window; without one, all windows of the measure are meant.
    """
    text = normal_form(phrase.replace("_", " "))
    if normal_form(phrase) in among or text.replace(" ", "_") in among:
        return (text.replace(" ", "_"),)
    weeks = _window(text)
    bare = re.sub(
        r"\b(?:\d{1,3} ?(?:d|days?|w|weeks?|wk|m|months?|mo)|q|columns?|fields?|inputs?|features?|variables?|block|data)\b", " ", text
    )
    bare = " ".join(bare.split())
    whole = [name for name, words in _WORDS.items() if re.fullmatch(words, bare)]
    partial = [name for name, words in _WORDS.items() if re.search(rf"\b(?:{words})\b", bare)]
    names = whole or partial
    found = [one for one in among for name in names if one == name or (name in MEASURES and re.fullmatch(rf"{name}_\d+w", one))]
    if weeks is not None and (timed := [one for one in found if one.endswith(f"_{weeks}w")]):
        return tuple(timed)
    return tuple(dict.fromkeys(found))


def mentioned_inputs(text: str, among: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return each word of a text that means inputs, with the inputs, in the order of the text.

    Words that lie inside a longer hit do not count on their own.
    """
    form = normal_form(text.replace("_", " "))
    hits: list[tuple[int, int, str]] = []
    for words in _WORDS.values():
        span = r"(?: (?:last )?\d{1,3} ?(?:d|days?|w|weeks?|m|months?|mo)\b)?"
        hits += [(found.start(), found.end(), found[0]) for found in re.finditer(rf"\b(?:{words})\b{span}", form)]
    hits = [hit for hit in hits if not any(o[0] <= hit[0] and hit[1] <= o[1] and (o[1] - o[0]) > (hit[1] - hit[0]) for o in hits)]
    found = {word: find_inputs(word, among) for _, _, word in sorted(set(hits))}
    return {word: names for word, names in found.items() if names}


def absent_data(text: str) -> tuple[str, ...]:
    """Return the words of a text that name data which the sample lacks, in order."""
    return tuple(dict.fromkeys(found[0] for found in re.finditer(rf"\b(?:{ABSENT})\b", normal_form(text.replace("_", " ")))))


def written(name: str) -> str:
    """Return a column's name in words: `calls_4w` as 'calls of the last 4 weeks'."""
    found = re.fullmatch(r"(.+)_(\d+)w", name)
    return f"{found[1].replace('_', ' ')} of the last {found[2]} weeks" if found else name.replace("_", " ")


def base_input(column: str) -> str:
    """Return the input that a column belongs to: `region=South` belongs to `region`."""
    return column.split("=", 1)[0]


def _window(text: str) -> int | None:
    if found := re.search(r"\b(\d{1,3}) ?(?:d|days?)\b", text):
        return next((weeks for weeks, days in _DAYS.items() if int(found[1]) in days), None)
    if found := re.search(r"\b(\d{1,2}) ?(?:w|wk|weeks?)\b", text):
        return int(found[1]) if int(found[1]) in WINDOWS else None
    if found := re.search(r"\b(\d{1,2}) ?(?:m|mo|months?)\b", text):
        return _MONTHS.get(int(found[1]))
    return None
