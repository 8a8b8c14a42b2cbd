"""The output: everything that a turn has brought, in the words of the contract. Pure."""

import time
from datetime import UTC, datetime

from service.contracts.decision import RouteDecision
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.flows.flow import Outcome, Verdict
from service.stages.plain_text import harmless, harmless_notice, harmless_result
from service.stages.synthesis import Answer


def write_output(
    request: OrchestratorInput, decision: RouteDecision, verdict: Verdict, outcome: Outcome | None, answer: Answer, started: float
) -> OrchestratorOutput:
    """Write the answer down; `started` is the request's start by `time.monotonic`."""
    return OrchestratorOutput(
        query_id=request.parsed_query.query_id,
        status=answer.status,
        response_text=harmless(answer.text),
        response_confidence=answer.confidence,
        agents_dispatched=tuple(dict.fromkeys(run.agent.name for run in outcome.runs if run.attempts)) if outcome else (),
        agent_results=tuple(map(harmless_result, answer.results)),
        citations=answer.citations,
        visualizations=answer.visualizations,
        follow_up_suggestions=answer.follow_ups,
        total_latency_ms=int((time.monotonic() - started) * 1_000),
        timestamp=datetime.now(UTC),
        decision_id=decision.decision_id,
        action=verdict.action,
        intent=decision.intent,
        flow=decision.flow,
        rung=decision.rung,
        router_version=decision.router_version,
        warnings=tuple(map(harmless_notice, (*decision.warnings, *answer.warnings))),
    )
