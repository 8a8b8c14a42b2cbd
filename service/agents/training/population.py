"""Whose rows a model is trained on: brands, regions, specialties and settings that a request names, checked against the data."""

import re
from dataclasses import dataclass

import numpy as np

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.sample_data import Mask, Snapshot
from service.agents.scope import entity_values, question_of, quoted, resolve_scope
from service.agents.training.scope import TrainingScope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

FOREIGN_BRANDS = frozenset({"cosentyx", "entresto", "leqvio", "pluvicto", "xolair", "ibrance", "secukinumab", "sacubitril", "inclisiran"})
"""Brands that people name and the sample lacks; the caller's gazetteer may not have marked them."""
_SPECIALTIES = (
    (r"oncolog\w*|gyn ?onc\w*", ("Medical Oncology", "Gynecologic Oncology")),
    (r"h(?:a?e|ae)matolog\w*", ("Hematology",)),
    (r"nephrolog\w*", ("Nephrology",)),
    (r"derm|derms|dermatolog\w*", ("Dermatology",)),
    (r"allerg\w*|immunolog\w*", ("Allergy and Immunology",)),
)
_ABSENT_GROUPS = (
    r"cardiolog\w*|rheumatolog\w*|rheum|neurolog\w*|urolog\w*|pa?ediatric\w*|endocrinolog\w*|primary care|nurse practitioners?|nps|"
    r"pharmac(?:y|ies)|"
    r"transplant cent\w*|rural|germans?|germany|vets?|stores?|county|counties|zip level|account level|district level"
)
_SETTINGS = {"academic": r"academic|teaching hospitals?", "community": r"community|private practices?"}


@dataclass(frozen=True, slots=True)
class Population:
    """The HCPs of a request; the names are those of the data."""

    brands: tuple[str, ...]
    regions: tuple[str, ...]
    specialties: tuple[str, ...]
    settings: tuple[str, ...]
    brand_named: bool
    region_named: bool
    caveats: tuple[str, ...]


def resolve_population(dispatch: AgentDispatch, data: Snapshot) -> Population:
    """Return whom a request is about.

    A name that the data lack is a caveat beside one that they have, and a failure alone.

    Raises:
        AgentFailure: The data have none of the named brands, regions or groups.
    """
    text = f" {normal_form(question_of(dispatch))} "
    kept, caveats = _known_entities(dispatch, data, text)
    scope = resolve_scope(kept, data)
    specialties = tuple(name for pattern, names in _SPECIALTIES if re.search(rf"\b(?:{pattern})\b", text) for name in names)
    settings = tuple(name for name, pattern in _SETTINGS.items() if re.search(rf"\b(?:{pattern})\b", text))
    if absent := re.search(rf"\b(?:{_ABSENT_GROUPS})\b", text):
        known = ", ".join(sorted(set(data.labels("specialty").tolist())))
        if not specialties and not settings and not scope.brand_named:
            raise AgentFailure("unknown_entity", f"The data have no group '{absent[0]}'. They are HCPs of these specialties: {known}.")
        caveats.append(f"The data have no group '{absent[0]}'; it was not set apart.")
    if len(settings) > 1:
        caveats.append("Academic and community practices are both named: one model is trained on both, with the setting among its inputs.")
        settings = ()
    inside = scope.mask & _among(data, "specialty", specialties) & _among(data, "setting", settings)
    if not inside.any():
        who = ", ".join((*specialties, *settings))
        raise AgentFailure(
            "unknown_entity", f"{scope.label} has no HCPs of {who}. Specialties there: {_values(data, 'specialty', scope.mask)}."
        )
    brands = tuple(name for name in scope.brands if (inside & (data.labels("brand") == name)).any())
    if specialties and not scope.brand_named:
        scope_caveats = [note for note in scope.caveats if not note.startswith("No brand was named")]
        caveats.append(f"No brand was named; {', '.join(specialties)} belong to {', '.join(brands)}.")
    else:
        scope_caveats = list(scope.caveats)
    named = scope.brand_named or bool(specialties)
    return Population(brands, scope.regions, specialties, settings, named, scope.region_named, (*scope_caveats, *caveats))


def population_mask(scope: TrainingScope, data: Snapshot) -> Mask:
    """Return who belongs to a scope's population.

    Raises:
        AgentFailure: A name of the scope is not in the data (`invalid_input`).
    """
    mask = np.ones(len(data.hcps), dtype=bool)
    for column, wanted in (
        ("brand", scope.brands),
        ("region", scope.regions),
        ("specialty", scope.specialties),
        ("setting", scope.settings),
    ):
        known = set(data.labels(column).tolist())
        if unknown := [name for name in wanted if name not in known]:
            raise AgentFailure(
                "invalid_input", f"The scope names the {column} {quoted(unknown[0])}; the data have {', '.join(sorted(known))}."
            )
        mask &= _among(data, column, wanted)
    return mask


def _known_entities(dispatch: AgentDispatch, data: Snapshot, text: str) -> tuple[AgentDispatch, list[str]]:
    """Return the dispatch without the unknown brands and regions that stand beside known ones, and a caveat for each."""
    dropped: list[str] = []
    caveats: list[str] = []
    for kind in (EntityType.BRAND, EntityType.REGION):
        known = {normal_form(name) for name in data.labels(kind.value).tolist()}
        values = entity_values(dispatch, kind)
        foreign = [value for value in values if normal_form(value) not in known]
        beside = len(foreign) < len(values) or any(f" {name} " in text for name in known)
        if kind is EntityType.BRAND and not values:
            foreign = [word for word in text.split() if word in FOREIGN_BRANDS]
            if foreign and not beside:
                names = ", ".join(dict.fromkeys(data.labels("brand").tolist()))
                raise AgentFailure("unknown_entity", f"The data have no brand {quoted(foreign[0].capitalize())}. Available: {names}.")
        if foreign and beside:
            dropped += foreign
            caveats.append(f"The data have no {kind.value} {quoted(foreign[0])}; it was left out.")
    kept = tuple(one for one in dispatch.payload.entities if one.value not in dropped)
    return dispatch.model_copy(update={"payload": dispatch.payload.model_copy(update={"entities": kept})}), caveats


def _among(data: Snapshot, column: str, names: tuple[str, ...]) -> Mask:
    return np.isin(data.labels(column), names) if names else np.ones(len(data.hcps), dtype=bool)


def _values(data: Snapshot, column: str, mask: Mask) -> str:
    return ", ".join(sorted(set(data.labels(column)[mask].tolist())))
