"""health_score (tier 3): checks the data, the agents' process and configured addresses, and weighs the results into one score."""

import os
from datetime import date

from service.agents.chart import Row, bar_chart, table
from service.agents.directory import AGENTS, loaded_agents
from service.agents.finding import Finding
from service.agents.health_check import (
    Component,
    check_addresses,
    check_completeness,
    check_freshness,
    check_memory,
    check_ranges,
    check_uptime,
)
from service.agents.health_request import METRICS_AGENT, HealthRequest, read_health_request
from service.agents.sample_data import Mask, Snapshot
from service.agents.scope import Scope, question_of, resolve_scope
from service.contracts.dispatch import AgentDispatch

HEALTHY = 0.95
DEGRADED = 0.80
FAILING = 0.50
"""A component below this keeps the whole from being healthy, whatever the score."""
ADDRESSES_VARIABLE = "POINTSMAN_HEALTH_URLS"


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Score the health from 0 to 1: the weighted mean of the components that could be measured.

    Confidence is the share of the weight that could be measured, times the measured share of what the question asks about.

    Raises:
        AgentFailure: The named brand or region is not in the data.
    """
    scope = resolve_scope(dispatch, data)
    components = _check_all(data, scope.mask, dispatch.payload.constraints.max_latency_ms / 2000.0)
    measured = [(one.weight, one.score) for one in components if one.score is not None]
    weight = sum(part for part, _ in measured)
    score = sum(part * value for part, value in measured) / weight
    grade = _grade(score, [value for _, value in measured])
    rows = _rows(components, weight)
    request = read_health_request(question_of(dispatch))
    unmeasured = request.unmeasured(components)
    shown = [row for row in rows if row["score"] is not None]
    return Finding(
        primary_output={
            "score": score,
            "grade": grade,
            "scope": scope.label,
            "components": rows,
            "measured_weight": weight,
            "asked": [name for name, _ in request.topics],
            "asked_but_not_measured": unmeasured,
            "asked_and_measured": request.share_measured(components),
            "agents_loaded": len(loaded_agents()),
            "weakest": _weakest(components).name,
        },
        confidence=weight / sum(one.weight for one in components) * request.share_measured(components),
        evidence=[
            *_lead(request, components, unmeasured),
            f"The health score is {score:.3f} of 1 ({grade}), from {len(measured)} of {len(components)} components.",
            *(one.sentence for one in components),
        ],
        caveats=_caveats(scope, components, unmeasured),
        visualizations=(bar_chart("health", "Health by component (1 is best)", shown, value="score", label="component"),),
        tables=(table("Health components", rows),),
        model_used="weighted checks",
    )


def _check_all(data: Snapshot, mask: Mask, wait_s: float) -> list[Component]:
    urls = [url.strip() for url in os.environ.get(ADDRESSES_VARIABLE, "").split(",") if url.strip()]
    return [
        check_freshness(data, date.today()),
        check_completeness(data, mask),
        check_ranges(data, mask),
        check_uptime(),
        check_memory(),
        check_addresses(urls, wait_s),
    ]


def _caveats(scope: Scope, components: list[Component], unmeasured: list[str]) -> list[str]:
    caveats = list(scope.caveats) if scope.brand_named or scope.region_named else []
    caveats += [f"{name} could not be measured here.".capitalize() for name in unmeasured]
    return caveats + [
        f"{one.name} was not measured; its weight of {one.weight:.2f} was spread over the others."
        for one in components
        if one.score is None
    ]


def _lead(request: HealthRequest, components: list[Component], unmeasured: list[str]) -> list[str]:
    """Return what answers the question's own words: what cannot be measured here, and the parts that it asks about."""
    sentences = []
    if unmeasured:
        sentences.append(f"This agent does not measure {' or '.join(unmeasured)}; {METRICS_AGENT} reads such metrics.")
    for one in request.leading(components):
        verdict = "in order" if (one.score or 0.0) >= HEALTHY else "not in order"
        sentences.append(f"{one.name.replace('_', ' ').capitalize()} is {verdict} (score {one.score:.2f}): {one.sentence}")
    if request.asks_services:
        weakest = _weakest(components)
        sentences.append(f"Of what is measured, {weakest.name.replace('_', ' ')} is weakest (score {weakest.score:.2f}).")
    if request.asks_agents:
        sentences.append(f"{len(loaded_agents())} of the {len(AGENTS)} built-in agents are loaded in this process.")
    return sentences


def _weakest(components: list[Component]) -> Component:
    return min((one for one in components if one.score is not None), key=lambda one: one.score or 0.0)


def _grade(score: float, values: list[float]) -> str:
    if score >= HEALTHY and min(values) >= FAILING:
        return "healthy"
    return "degraded" if score >= DEGRADED else "unhealthy"


def _rows(components: list[Component], measured_weight: float) -> list[Row]:
    return [
        {
            "component": one.name,
            "score": None if one.score is None else round(one.score, 4),
            "weight": one.weight,
            "effective_weight": 0.0 if one.score is None else round(one.weight / measured_weight, 4),
            "finding": one.sentence,
        }
        for one in components
    ]
