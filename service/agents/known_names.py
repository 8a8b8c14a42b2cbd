"""A dispatch without the names that the data lack, for an agent that can also answer in general. Most agents refuse such names."""

from service.agents.finding import AgentFailure
from service.agents.sample_data import Snapshot
from service.agents.scope import resolve_kpi, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType, ParsedEntity

_CHECKED = (EntityType.BRAND, EntityType.REGION, EntityType.KPI)


def known_names(dispatch: AgentDispatch, data: Snapshot) -> tuple[AgentDispatch, list[str]]:
    """Return the dispatch without the brands, regions and KPIs that the data lack, and a sentence on each that was dropped."""
    kept: list[ParsedEntity] = []
    notes: list[str] = []
    for entity in dispatch.payload.entities:
        note = _refusal(dispatch, data, entity) if entity.type in _CHECKED else None
        if note is None:
            kept.append(entity)
        else:
            notes.append(note)
    return (_with(dispatch, kept) if notes else dispatch), notes


def _refusal(dispatch: AgentDispatch, data: Snapshot, entity: ParsedEntity) -> str | None:
    alone = _with(dispatch, [entity])
    try:
        resolve_scope(alone, data)
        resolve_kpi(alone)
    except AgentFailure as failure:
        return str(failure)
    return None


def _with(dispatch: AgentDispatch, entities: list[ParsedEntity]) -> AgentDispatch:
    return dispatch.model_copy(update={"payload": dispatch.payload.model_copy(update={"entities": tuple(entities)})})
