"""What a dispatch asks about: brands, regions, KPI, period and HCP, each checked against the data.

A name that the data do not have is a failure that says which names there are. What is not named is assumed, and said so.
"""

import re
from dataclasses import dataclass

import numpy as np

from service.agents.finding import AgentFailure
from service.agents.kpi import KPIS, Kpi, find_kpi, mentioned_kpi, normal_form
from service.agents.period import Period, parse_period
from service.agents.sample_data import Mask, Snapshot
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntitySource, EntityType

_EVERYWHERE = {"all", "all regions", "us", "usa", "national", "nationwide", "united states", "all brands", "portfolio"}
_REGION_CODES = {"ne": "northeast", "north east": "northeast", "mw": "midwest", "mid west": "midwest"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the data that a dispatch is about, and what had to be assumed."""

    brands: tuple[str, ...]
    regions: tuple[str, ...]
    mask: Mask
    label: str
    caveats: tuple[str, ...]
    brand_named: bool
    region_named: bool


def question_of(dispatch: AgentDispatch) -> str:
    """Return the text that is to be carried out, or an empty text: the request that a "yes" agrees to, or else the question itself."""
    return context_text(dispatch, "request") or context_text(dispatch, "raw_query")


def context_text(dispatch: AgentDispatch, key: str) -> str:
    """Return a text of the context; anything else there counts as absent."""
    value = dispatch.payload.context.get(key)
    return value.strip() if isinstance(value, str) else ""


def quoted(text: str) -> str:
    """Return a caller's text short enough, and free of control characters, to stand in a message."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[:200])
    short = " ".join(printable.split())
    return f"'{short[:60]}…'" if len(short) > 60 else f"'{short}'"


def resolve_scope(dispatch: AgentDispatch, data: Snapshot) -> Scope:
    """Return the brands and regions that the dispatch names, all of them where it names none."""
    caveats = _inferred_names(dispatch)
    all_brands, all_regions = tuple(dict.fromkeys(data.labels("brand").tolist())), tuple(sorted(set(data.labels("region").tolist())))
    brands, brand_note = _named(dispatch, EntityType.BRAND, all_brands)
    regions, region_note = _named(dispatch, EntityType.REGION, all_regions)
    caveats += [note for note in (brand_note, region_note) if note]
    mask = np.isin(data.labels("brand"), brands or all_brands) & np.isin(data.labels("region"), regions or all_regions)
    label = (
        f"{_join(brands) if brands else 'all brands'} in {_join(tuple(f'the {name}' for name in regions)) if regions else 'all regions'}"
    )
    return Scope(
        brands=brands or all_brands,
        regions=regions or all_regions,
        mask=mask,
        label=label,
        caveats=tuple(caveats),
        brand_named=bool(brands),
        region_named=bool(regions),
    )


def resolve_kpi(dispatch: AgentDispatch, default: str | None = "trx") -> tuple[Kpi | None, str | None]:
    """Return the KPI that the dispatch names (entity, else the question's text, else the default), and a caveat.

    The caveat says what was assumed, or which further KPIs were left out.

    Raises:
        AgentFailure: KPI entities are given, and the data have none of them.
    """
    named = entity_values(dispatch, EntityType.KPI)
    known = [kpi for value in named if (kpi := find_kpi(value)) is not None]
    if known:
        others = [value for value in named if find_kpi(value) is not known[0]]
        return known[0], f"Only {known[0].label} was looked at, not {_join(tuple(quoted(one) for one in others))}." if others else None
    if named:
        available = ", ".join(kpi.name for kpi in KPIS)
        raise AgentFailure("missing_data", f"The data have no KPI {quoted(named[0])}. Available: {available}.")
    if mentioned := mentioned_kpi(question_of(dispatch)):
        return mentioned, None
    if default is None:
        return None, None
    assumed = find_kpi(default)
    return assumed, f"No KPI was named; {assumed.label if assumed else default} was taken."


def resolve_period(dispatch: AgentDispatch, data: Snapshot) -> tuple[Period | None, str | None]:
    """Return the period that the dispatch names, if any, and a caveat when it was not understood.

    Raises:
        AgentFailure: The period lies outside the data.
    """
    for value in entity_values(dispatch, EntityType.TIME_PERIOD):
        period = parse_period(value, data.week_ends)
        if period is None:
            return None, f"The period {quoted(value)} was not understood; the default period was used."
        if period.length == 0:
            covered = f"{data.week_ends[0].isoformat()} to {data.week_ends[-1].isoformat()}"
            raise AgentFailure("missing_data", f"The data have no week in {quoted(value)}; they cover the weeks ending {covered}.")
        return period, None
    return None, None


def find_hcp(dispatch: AgentDispatch, data: Snapshot) -> int | None:
    """Return the row of the HCP that the dispatch names, or None when it names none.

    Raises:
        AgentFailure: No HCP has that id.
    """
    for value in entity_values(dispatch, EntityType.HCP_ID):
        digits = re.fullmatch(r"(?:hcp)? ?([0-9]{1,9})", normal_form(value))
        row = int(digits[1]) - 1 if digits else -1
        if not 0 <= row < len(data.hcps):
            first, last = data.hcps["hcp_id"].iloc[0], data.hcps["hcp_id"].iloc[-1]
            raise AgentFailure("unknown_entity", f"No HCP has the id {quoted(value)}. The ids run from {first} to {last}.")
        return row
    return None


def entity_values(dispatch: AgentDispatch, kind: EntityType) -> list[str]:
    """Return the values of the dispatch's entities of one type, in order."""
    return [entity.value for entity in dispatch.payload.entities if entity.type is kind]


def _named(dispatch: AgentDispatch, kind: EntityType, known: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    forms = {normal_form(name): name for name in known}
    found: list[str] = []
    for value in entity_values(dispatch, kind):
        form = normal_form(value)
        if form in _EVERYWHERE:
            return (), None
        name = forms.get(_REGION_CODES.get(form, form))
        if name is None:
            raise AgentFailure("unknown_entity", f"The data have no {kind.value} {quoted(value)}. Available: {', '.join(known)}.")
        found.append(name)
    if found:
        return tuple(dict.fromkeys(found)), None
    words = set(normal_form(question_of(dispatch)).split())
    mentioned = tuple(name for form, name in forms.items() if form in words)
    if mentioned:
        return mentioned, f"The {kind.value} {_join(mentioned)} was taken from the question's text."
    return (), f"No {kind.value} was named; all {len(known)} were taken: {', '.join(known)}."


def _inferred_names(dispatch: AgentDispatch) -> list[str]:
    kinds = {EntityType.BRAND, EntityType.REGION}
    return [
        f"The {entity.type.value} {quoted(entity.value)} was inferred, with confidence {min(1.0, max(0.0, entity.confidence)):.2f}."
        for entity in dispatch.payload.entities
        if entity.type in kinds and entity.source is EntitySource.INFERRED
    ]


def _join(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
