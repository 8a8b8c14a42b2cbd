"""health_score (tier 3): checks the data, the agents' process and configured addresses, and weighs the results into one score."""

import os
from datetime import date

from service.agents.chart import Row, bar_chart, table
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
from service.agents.sample_data import Snapshot
from service.agents.scope import resolve_scope
from service.contracts.dispatch import AgentDispatch

HEALTHY = 0.95
DEGRADED = 0.80
FAILING = 0.50
"""A component below this keeps the whole from being healthy, whatever the score."""
ADDRESSES_VARIABLE = "POINTSMAN_HEALTH_URLS"


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Score the health from 0 to 1: the weighted mean of the components that could be measured.

    Confidence is the share of the weight that could be measured.

    Raises:
        AgentFailure: The named brand or region is not in the data.
    """
    scope = resolve_scope(dispatch, data)
    wait_s = dispatch.payload.constraints.max_latency_ms / 2000.0
    urls = [url.strip() for url in os.environ.get(ADDRESSES_VARIABLE, "").split(",") if url.strip()]
    components = [
        check_freshness(data, date.today()),
        check_completeness(data, scope.mask),
        check_ranges(data, scope.mask),
        check_uptime(),
        check_memory(),
        check_addresses(urls, wait_s),
    ]
    measured = [(one.weight, one.score) for one in components if one.score is not None]
    weight = sum(part for part, _ in measured)
    score = sum(part * value for part, value in measured) / weight
    grade = _grade(score, [value for _, value in measured])
    rows = _rows(components, weight)
    caveats = list(scope.caveats) if scope.brand_named or scope.region_named else []
    caveats += [
        f"{one.name} was not measured; its weight of {one.weight:.2f} was spread over the others."
        for one in components
        if one.score is None
    ]
    return Finding(
        primary_output={"score": score, "grade": grade, "scope": scope.label, "components": rows, "measured_weight": weight},
        confidence=weight / sum(one.weight for one in components),
        evidence=[
            f"The health score is {score:.3f} of 1 ({grade}), from {len(measured)} of {len(components)} components.",
            *(one.sentence for one in components),
        ],
        caveats=caveats,
        visualizations=(
            bar_chart(
                "health",
                "Health by component (1 is best)",
                [row for row in rows if row["score"] is not None],
                value="score",
                label="component",
            ),
        ),
        tables=(table("Health components", rows),),
        model_used="weighted checks",
    )


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
