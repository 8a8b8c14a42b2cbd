"""Which programme, outcome, HCPs and dimensions a question of responders is about, and which of these the data do not have."""

import re
from dataclasses import dataclass, replace

import numpy as np

from service.agents.finding import AgentFailure
from service.agents.kpi import Kpi, normal_form
from service.agents.programme import PROGRAMMES, Programme, resolve_outcome, resolve_treatment
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, context_text, entity_values, question_of, quoted, resolve_scope
from service.agents.subgroups.words import (
    ABSENT_BRANDS,
    ABSENT_DIMENSIONS,
    ABSENT_PROGRAMMES,
    ABSENT_REGIONS,
    ABSENT_SPECIALISTS,
    DIMENSION_WORDS,
    DOSE_WORDS,
    GENERIC_WORDS,
    HARM_WORDS,
    PROGRAMME_WORDS,
    SORTING_WORDS,
    SPECIALISTS,
    STAND_INS,
)
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType, ParsedEntity

_CLAIM = re.compile(r"([+-]|minus )?(\d{1,3}(?:\.\d)?) ?(?:%|percent|per cent)")
_AVERAGE = re.compile(r"overall|average|averaged|mean|total|lift|gave|national", re.IGNORECASE)
_COMPARED = r"differ\w*|carries|same|only|rest|others?|everywhere|elsewhere|than|vs|versus|too|equal\w*"
_TREATMENT_KPIS = {"call frequency", "call volume", "calls", "reach", "engagement"}
_NEW_TO_BRAND = {"nbrx", "new to brand prescriptions"}


@dataclass(frozen=True, slots=True)
class Treatment:
    """The programme that is measured, what the question calls it, and how near the two are (1: the same; 0.5: a stand-in)."""

    programme: Programme
    asked: str
    nearness: float | None
    caveat: str | None

    @property
    def is_stand_in(self) -> bool:
        """Whether the programme only stands in for what was asked."""
        return self.nearness is not None and self.nearness < 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured. `dimensions` is empty where the question names none: then all are screened."""

    treatment: Treatment
    kpi: Kpi
    outcome_name: str
    scope: Scope
    dimensions: tuple[str, ...]
    absent: tuple[tuple[str, tuple[str, ...]], ...]
    single_deciles: bool
    sorts_hcps: bool
    asks_harm: bool
    asks_dose: bool
    claimed_percent: float | None
    coverage: float
    caveats: tuple[str, ...]


def read_request(dispatch: AgentDispatch, data: Snapshot) -> Request:
    """Return what the dispatch asks for.

    Raises:
        AgentFailure: The programme, outcome, brand, region or specialty is not in the data, and nothing stands in for it.
    """
    text = normal_form(question_of(dispatch))
    _refuse_absent_names(dispatch, data, text)
    treatment, rest = _read_treatment(dispatch, text)
    cleaned, outcome_note = _without_treatment_kpis(dispatch)
    kpi, outcome_name, outcome_caveat = resolve_outcome(cleaned)
    absent = tuple((name, nearest) for pattern, name, nearest in ABSENT_DIMENSIONS if _found(pattern, rest))
    if {"the patients' age", "age"} <= {name for name, _ in absent}:
        absent = tuple(one for one in absent if one[0] != "age")
    dimensions = [name for name, pattern in DIMENSION_WORDS.items() if _found(pattern, rest)]
    scope, compared = _read_scope(cleaned, data, rest, dimensions)
    dimensions += [name for name in compared if name not in dimensions]
    scope, specialists, missing = _read_specialists(scope, data, rest, dimensions)
    dimensions += [name for name in specialists if name not in dimensions]
    absent = (*absent, *((name, ("specialty",)) for name in missing))
    parts = [1.0] * len(dimensions) + [0.0] * len(absent) + ([] if treatment.nearness is None else [treatment.nearness])
    caveats = [*scope.caveats, *(note for note in (treatment.caveat, outcome_note, outcome_caveat) if note)]
    return Request(
        treatment=treatment,
        kpi=kpi,
        outcome_name=outcome_name,
        scope=scope,
        dimensions=tuple(dimensions),
        absent=absent,
        single_deciles=_found(r"(?:by|per|each|which|every|in) deciles?|deciles", rest),
        sorts_hcps=_found(SORTING_WORDS, rest),
        asks_harm=_found(HARM_WORDS, rest),
        asks_dose=_found(DOSE_WORDS, text),
        claimed_percent=_read_claim(question_of(dispatch)),
        coverage=float(np.mean(parts)) if parts else 1.0,
        caveats=(*caveats, *_readings(rest, dimensions)),
    )


def _found(pattern: str, text: str) -> bool:
    return _whole(pattern).search(text) is not None


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^ ])(?:{pattern})(?![^ ])")


def _refuse_absent_names(dispatch: AgentDispatch, data: Snapshot, text: str) -> None:
    """Refuse brands and regions that only the text names; those of the entities are checked with the scope."""
    for kind, pattern in ((EntityType.BRAND, ABSENT_BRANDS), (EntityType.REGION, ABSENT_REGIONS)):
        known = tuple(sorted(set(data.labels(kind.value).tolist())))
        hit = None if entity_values(dispatch, kind) else _whole(pattern).search(text)
        if hit and not any(normal_form(name) in text.split() for name in known):
            raise AgentFailure("unknown_entity", f"The data have no {kind.value} {quoted(hit[0])}. Available: {', '.join(known)}.")


def _read_treatment(dispatch: AgentDispatch, text: str) -> tuple[Treatment, str]:
    """Return the treatment, and the text without the words that name it, so that they are not taken for dimensions.

    The programme named first is taken, be it in the data, a near relative or absent; promotion in general only where nothing else
    is named. A longer name hides the shorter one in it: "nurse calls" are no calls.
    """
    if context_text(dispatch, "treatment"):
        programme, asked, caveat = resolve_treatment(dispatch)
        return Treatment(programme, asked, 1.0, caveat), text
    by_name = {one.name: one for one in PROGRAMMES}
    spans = [(hit, 0, name, name) for name, pattern in PROGRAMME_WORDS.items() for hit in _whole(pattern).finditer(text)]
    spans += [(hit, 1, name, asked) for pattern, asked, name in STAND_INS for hit in _whole(pattern).finditer(text)]
    spans += [(hit, 2, "", asked) for pattern, asked in ABSENT_PROGRAMMES for hit in _whole(pattern).finditer(text)]
    spans += [(hit, 3, PROGRAMMES[0].name, "promotion in general") for hit in _whole(GENERIC_WORDS).finditer(text)]
    spans = [one for one in spans if not any(_hides(other[0], one[0]) for other in spans)]
    if not spans:
        programme, asked, caveat = PROGRAMMES[0], PROGRAMMES[0].name, f"No treatment was named; the {PROGRAMMES[0].label} was taken."
        return Treatment(programme, asked, None, caveat), text
    hit, rank, name, asked = min(spans, key=lambda one: (one[1] == 3, one[0].start()))
    rest = text
    for one in spans:
        if one[1] < 3:
            rest = rest.replace(one[0][0], " ")
    rest = " ".join(rest.split())
    if rank == 2:
        available = ", ".join(one.name for one in PROGRAMMES)
        raise AgentFailure(
            "missing_data",
            f"The data have no {asked} ({quoted(hit[0])}), so the response to it cannot be measured. Available: {available}.",
        )
    return Treatment(by_name[name], name if rank == 0 else asked, 1.0 if rank == 0 else 0.5, _treatment_caveat(spans, rank, name)), rest


def _hides(longer: re.Match[str], shorter: re.Match[str]) -> bool:
    overlaps = longer.start() < shorter.end() and shorter.start() < longer.end()
    return overlaps and len(longer[0]) > len(shorter[0])


def _treatment_caveat(spans: list[tuple[re.Match[str], int, str, str]], rank: int, name: str) -> str | None:
    labels = {one.name: one.label for one in PROGRAMMES}
    others = sorted({labels.get(one[2], one[3]) for one in spans if one[1] < 3 and one[2] != name})
    left_out = f"Only the {labels[name]} was looked at, not: {', '.join(others)}." if others else None
    if rank == 0:
        return left_out
    asked = next(one[3] for one in spans if one[1] == rank and one[2] == name)
    nearest = f"the {labels[name]} is the nearest that they have"
    stand_in = f"The data have no {asked} of that name; {nearest}, and another programme may work otherwise."
    return f"{stand_in} {left_out}" if left_out else stand_in


def _without_treatment_kpis(dispatch: AgentDispatch) -> tuple[AgentDispatch, str | None]:
    """Return the dispatch without KPI entities that name a treatment, NBRx read as NRx, and what that means."""
    note, kept = None, list[ParsedEntity]()
    for entity in dispatch.payload.entities:
        form = normal_form(entity.value)
        if entity.type is EntityType.KPI and form in _TREATMENT_KPIS:
            continue
        if entity.type is EntityType.KPI and form in _NEW_TO_BRAND:
            note = "The data do not have NBRx; NRx, the nearest, were taken."
            kept.append(entity.model_copy(update={"value": "nrx"}))
        else:
            kept.append(entity)
    payload = dispatch.payload.model_copy(update={"entities": tuple(kept)})
    return dispatch.model_copy(update={"payload": payload}), note


def _read_scope(dispatch: AgentDispatch, data: Snapshot, text: str, dimensions: list[str]) -> tuple[Scope, list[str]]:
    """Return the scope, and which of region and brand are compared rather than filtered by."""
    scope = resolve_scope(dispatch, data)
    compared = []
    if scope.brand_named and len(scope.brands) > 1:
        compared.append("brand")
    if scope.region_named and len(scope.regions) > 1:
        compared.append("region")
    elif scope.region_named and ("region" in dimensions or (not dimensions and _found(_COMPARED, text))):
        compared.append("region")
        others = tuple(entity for entity in dispatch.payload.entities if entity.type is not EntityType.REGION)
        everywhere = (*others, ParsedEntity(type=EntityType.REGION, value="all regions"))
        payload = dispatch.payload.model_copy(update={"entities": everywhere})
        named = scope.regions[0]
        scope = resolve_scope(dispatch.model_copy(update={"payload": payload}), data)
        scope = replace(scope, caveats=(*scope.caveats, f"The {named} is compared with the other regions."))
    return scope, compared


def _read_specialists(scope: Scope, data: Snapshot, text: str, dimensions: list[str]) -> tuple[Scope, list[str], list[str]]:
    """Return the scope of the named specialists (all where they are compared), the dimension if so, and specialists without data.

    Raises:
        AgentFailure: Only specialists are named that the data do not have.
    """
    named = [name for name, pattern in SPECIALISTS.items() if _found(pattern, text)]
    missing = sorted({hit[0] for hit in _whole(ABSENT_SPECIALISTS).finditer(text)})
    known = sorted(set(data.labels("specialty")[scope.mask].tolist()))
    if missing and not named:
        raise AgentFailure("unknown_entity", f"The data have no {quoted(missing[0])}. Specialties of {scope.label}: {', '.join(known)}.")
    present = [name for name in named if name in known]
    if named and not present:
        raise AgentFailure(
            "unknown_entity", f"In {scope.label} nobody's specialty is {' or '.join(named)}. Specialties there: {', '.join(known)}."
        )
    words = {hit[0] for name in present for hit in _whole(SPECIALISTS[name]).finditer(text)}
    if not present or "specialty" in dimensions or (not dimensions and _found(_COMPARED, text)):
        return scope, ["specialty"] if present and "specialty" not in dimensions else [], missing
    if len(words) > 1 and len(present) > 1:
        mask = scope.mask & np.isin(data.labels("specialty"), present)
        return replace(scope, mask=mask, label=f"{' and '.join(present)}, {scope.label}"), ["specialty"], missing
    mask = scope.mask & np.isin(data.labels("specialty"), present)
    return replace(scope, mask=mask, label=f"{' and '.join(present)}, {scope.label}"), [], missing


def _read_claim(question: str) -> float | None:
    """Return the average effect in per cent that the question itself states, if it does."""
    if not _AVERAGE.search(question[:4_000]):
        return None
    hit = _CLAIM.search(question[:4_000])
    return None if hit is None else float(hit[2]) * (-1.0 if hit[1] in {"-", "minus "} else 1.0)


def _readings(text: str, dimensions: list[str]) -> list[str]:
    """Return how words were read that only come near to a dimension of the data."""
    found = []
    if "panel_size" in dimensions and _found(
        r"practice sizes?|\w+ (?:\w+ )?(?:offices?|practices?|hospitals?|clinics?|accounts?|groups?)|solo", text
    ):
        found.append("The data do not have the size of a practice, office or hospital; the HCP's panel size, in thirds, stands for it.")
    if "setting" in dimensions and _found(r"hospitals?|offices?(?: based)?|private \w+|teaching|universit\w+", text):
        found.append("The data know two settings, academic and community; hospital, office and private practice are not told apart.")
    if "decile" in dimensions and _found(r"tiers?|quintiles?|volume bands?", text):
        found.append("The data have no tiers; deciles of potential, in bands, were taken.")
    if "region" in dimensions and _found(r"territor\w+|districts?|states?|neighbou?rhoods?", text):
        found.append("The data have nothing finer than four regions.")
    return found
