"""Which brands and regions a request for a split is about, over what it is split, and whether the data can answer it at all."""

import re
from dataclasses import dataclass, replace

from service.agents.allocation.amounts import prepare
from service.agents.allocation.channel_data import CHANNELS, TIERS
from service.agents.allocation.request import BudgetRequest, Split, read_request, weeks_in
from service.agents.allocation.words import ABSENT_STAFF, channels_in, words_in
from service.agents.finding import AgentFailure
from service.agents.kpi import find_kpi, normal_form
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, entity_values, question_of, quoted, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

_ADJECTIVES = {"northeastern": "Northeast", "midwestern": "Midwest", "southern": "South", "western": "West"}
_ELSEWHERE = re.compile(
    r"\bother (?:\w+ )?(?:regions|areas|territories)\b|\belsewhere\b|\bacross (?:the )?regions\b|\bfrom whose\b|\bneighbou?rs\b|"
    r"\ball at the\b|\bredistribut\w+\b"
)
_SOURCE = re.compile(
    r"\b(?:gave up|give up|giving up|from|out of|instead of|drop|dropping|stop|without|away from)\b(?: \w+){0,4} "
    r"(?:tv|radio|print|congress|booths?|conferences?|webinars?|display|social)\b"
)
_ELSEWHERE_TO = re.compile(
    r"\bwhere (?:would|should|could|else|to put|do i put)\b.*\b(?:money|it|spend|budget|dollar)\b|\bacross all\b|\bbest home\b|"
    r"\ball (?:channels|tactics)\b"
)
"""The unmeasured thing is where the money comes from; where it may go is measured."""
_OWN_STAFF = "rep|reps|representative|representatives|field|sales force|email|emails|sample|samples|speaker|dinner|dinners|budget|spend"
_SHORTEST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with the scope it is about; `notes` say what was assumed."""

    request: BudgetRequest
    scope: Scope
    words: str
    notes: tuple[str, ...]


def resolve_request(dispatch: AgentDispatch, data: Snapshot) -> Asked:
    """Read the dispatch.

    Raises:
        AgentFailure: A brand or region is not in the data, or all that is to be split is something that the data do not have.
    """
    text = question_of(dispatch)
    scope = resolve_scope(dispatch, data)
    words = normal_form(prepare(text))
    request = read_request(text, (*scope.brands, *scope.regions))
    _refuse_absent(request, words)
    notes: list[str] = []
    scope, notes = _widen(scope, words, data, notes)
    count = re.search(r"\b(\d{1,2}) (?:\w+ )?regions\b", words)
    if count and int(count[1]) > len(scope.regions):
        notes.append(f"The question speaks of {count[1]} regions; the data have {len(scope.regions)}: {', '.join(scope.regions)}.")
    request = _with_entities(request, dispatch, notes)
    split = _usable_split(request, scope)
    if split != request.split:
        notes.append(f"There is only one {request.split} in play, so the split is over each {split}.")
    return Asked(replace(request, split=split), scope, words, tuple(notes))


def _refuse_absent(request: BudgetRequest, words: str) -> None:
    available = ", ".join(CHANNELS)
    staff = words_in(words, ABSENT_STAFF)
    if staff and not words_in(re.sub(rf"(?<!\w)(?:{ABSENT_STAFF})(?!\w)", " ", words), _OWN_STAFF):
        message = f"The data have no {quoted(staff[0])}: no hours, visits or effects of them. Measured are the channels {available}."
        raise AgentFailure("missing_data", message)
    others = [one for one in request.absent if one not in staff]
    measured = bool(channels_in(words)) or request.unit != "money" or request.mode != "flat" or request.wants_flat
    if others and not measured and not _SOURCE.search(words) and not _ELSEWHERE_TO.search(words):
        named = " and ".join(quoted(one) for one in others[:3])
        message = f"The data have no spending on or effect of {named}. Measured are the channels {available}."
        raise AgentFailure("missing_data", message)


def _widen(scope: Scope, words: str, data: Snapshot, notes: list[str]) -> tuple[Scope, list[str]]:
    """Add what resolve_scope cannot read: "western", "remi", and "the other regions"."""
    if not scope.brand_named:
        found = {
            brand: word
            for word in words.split()
            for brand in scope.brands
            if len(word) >= _SHORTEST_PREFIX and normal_form(brand).startswith(word)
        }
        if found:
            notes += [f"{quoted(word)} was read as {brand}." for brand, word in found.items()]
            scope = replace(scope, brands=tuple(found), brand_named=True, caveats=_without(scope.caveats, "No brand was named"))
    every = tuple(sorted(set(data.labels("region").tolist())))
    named = {region for adjective, region in _ADJECTIVES.items() if adjective in words.split()}
    said = {region for region in every if normal_form(region) in words.split()}
    if scope.region_named and _ELSEWHERE.search(words):
        notes.append("The other regions are part of the question, so all of them are in play.")
        scope = replace(scope, regions=every, region_named=False)
    elif (scope.region_named and (named | said) - set(scope.regions)) or (not scope.region_named and named):
        regions = tuple(sorted((set(scope.regions) if scope.region_named else set()) | named | said))
        scope = replace(scope, regions=regions, region_named=True, caveats=_without(scope.caveats, "No region was named"))
    brands = " and ".join(scope.brands) if scope.brand_named else "all brands"
    regions_label = " and ".join(f"the {one}" for one in scope.regions) if scope.region_named else "all regions"
    return replace(scope, label=f"{brands} in {regions_label}"), notes


def _without(caveats: tuple[str, ...], start: str) -> tuple[str, ...]:
    return tuple(one for one in caveats if not one.startswith(start))


def _with_entities(request: BudgetRequest, dispatch: AgentDispatch, notes: list[str]) -> BudgetRequest:
    """Take period and objective from the entities where the text has none."""
    if request.weeks is None:
        spans = [weeks for value in entity_values(dispatch, EntityType.TIME_PERIOD) if (weeks := weeks_in(normal_form(value))) is not None]
        request = replace(request, weeks=spans[0]) if spans else request
    for value in entity_values(dispatch, EntityType.KPI):
        kpi = find_kpi(value)
        if kpi is not None and kpi.name in {"trx", "nrx"}:
            request = request if request.objective else replace(request, objective=kpi.name)
        elif (kpi is None or kpi.is_outcome) and normal_form(value) not in request.unmeasured:
            notes.append(f"No experiment measured what spending does to {quoted(value)}.")
    if entity_values(dispatch, EntityType.HCP_ID):
        notes.append("The experiments measured regions and tiers, not single HCPs.")
    return request


def _usable_split(request: BudgetRequest, scope: Scope) -> Split:
    """Return the split that is asked, or the nearest that has more than one part."""
    parts = {
        "channel": len(request.channels) or len(CHANNELS),
        "region": len(scope.regions),
        "tier": len(TIERS),
        "brand": len(scope.brands),
    }
    others: dict[Split, tuple[Split, ...]] = {
        "region": ("brand", "channel"),
        "brand": ("channel", "region"),
        "channel": ("region", "brand"),
    }
    return next((split for split in (request.split, *others.get(request.split, ())) if parts[split] > 1), request.split)
