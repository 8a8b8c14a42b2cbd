"""The signal collector: what is written down of a decision for training, from its choice over its outcome to what users say later.

Credit is kept apart here: an agent that could not be had is counted by itself, because that says nothing of the choice, and only the
agents that the decision selected count, not the fallbacks that stood in for them.
"""

from collections.abc import Iterable, Sequence

from service.contracts.decision import Action, RouteDecision
from service.contracts.handoff import HandoffStatus
from service.contracts.model import JsonObject
from service.contracts.notice import INTENT_FROM_HISTORY
from service.contracts.query import OrchestratorInput
from service.contracts.signals import Feedback, RoutingTrainingSignal
from service.errors import ErrorCode
from service.flows.flow import Outcome, PartRun, Verdict
from service.ids import new_id


class OrchestratorSignalCollector:
    """The specification's four operations. Pure: signals in, signals out; the store keeps them."""

    def collect_routing_signal(self, request: OrchestratorInput, decision: RouteDecision, verdict: Verdict) -> RoutingTrainingSignal:
        """Write down the decision."""
        agent = decision.primary_agent if verdict.action is Action.DISPATCH else None
        return RoutingTrainingSignal(
            signal_id=new_id(),
            session_id=request.session_id,
            query=request.parsed_query.raw_query,
            query_pattern=decision.intent or decision.action.value,
            intent=decision.intent or "",
            entities_extracted=tuple(f"{e.type.value}:{e.value}" for e in decision.entities),
            agents_selected=(agent,) if agent is not None else (),
            routing_confidence=decision.confidence,
            routing_rationale=decision.rationale,
            router_version=decision.router_version,
            rung=decision.rung,
            propensity=decision.propensity,
            alternative=decision.alternative,
            asked=decision.asked,
            from_history=any(warning.code == INTENT_FROM_HISTORY for warning in decision.warnings),
            caller_intent=request.parsed_query.intent,
            further_intents=decision.intents[1:],
        )

    def update_with_outcome(
        self, signal: RoutingTrainingSignal, request: OrchestratorInput, verdict: Verdict, outcome: Outcome, latency_ms: int
    ) -> RoutingTrainingSignal:
        """Return the signal with what came of the decision."""
        parts = outcome.parts
        succeeded, down = [p for p in parts if _succeeded(p)], [p for p in parts if _was_down(p)]
        selected = tuple(dict.fromkeys(part.part.primary.name for part in parts))
        return signal.model_copy(
            update={
                "agents_selected": selected or signal.agents_selected,
                "agents_succeeded": len(succeeded),
                "agents_failed": len(parts) - len(succeeded),
                "agents_unavailable": len(down),
                "was_rerouted": None if not parts or parts[0] in down else parts[0] not in succeeded,
                "total_latency_ms": float(latency_ms),
                "latency_budget_ms": _budget_ms(request, verdict),
            }
        )

    def update_with_feedback(self, signal: RoutingTrainingSignal, feedback: Feedback) -> RoutingTrainingSignal:
        """Return the signal with what a user or reviewer said of the answer; a repeated statement replaces the earlier one."""
        return signal.with_feedback(feedback)

    def get_signals_for_training(self, signals: Iterable[RoutingTrainingSignal]) -> Sequence[JsonObject]:
        """Return those from which routing can be learned, as JSON objects with their reward.

        That is, where it is known what came of the choice, or what would have been right, and where the query alone tells the intent.
        """
        return [
            {**signal.model_dump(mode="json"), "reward": signal.compute_reward()}
            for signal in signals
            if not signal.from_history and (signal.corrected_agent is not None or signal.was_rerouted is not None)
        ]


def _succeeded(run: PartRun) -> bool:
    """Say whether the part's own agent answered, and its gate let the work through."""
    handoff = run.answer.handoff if run.answer is not None and not run.by_another else None
    return handoff is not None and handoff.execution.status in {HandoffStatus.SUCCESS, HandoffStatus.PARTIAL}


def _was_down(run: PartRun) -> bool:
    """Say whether the part's own agent could not be had, which speaks of availability and not of the choice."""
    own, nobody = run.part.primary.name, not run.part.chain
    if any(s.code is ErrorCode.AGENT_UNAVAILABLE and (s.agent.name == own or nobody) for s in run.part.skipped):
        return True
    failures = (r.failure for r in run.runs if r.agent.name == own and r.failure is not None)
    return any(failure.unavailable or failure.code is ErrorCode.AGENT_TIMEOUT for failure in failures)


def _budget_ms(request: OrchestratorInput, verdict: Verdict) -> int | None:
    """Return the selected agents' timeouts, the longest where they work at once, or the caller's wish where that is shorter."""
    timeouts = [part.primary.timeout_ms for part in verdict.parts]
    if not timeouts:
        return None
    budget = sum(timeouts) if verdict.flow == "pipeline" else max(timeouts) if verdict.flow == "parallel" else timeouts[0]
    wish = request.preferences.max_latency_ms if request.preferences is not None else None
    return budget if wish is None else min(budget, wish)
