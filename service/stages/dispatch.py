"""Dispatch: turn a verdict into work with one deadline, and let the decision's flow carry it out."""

from collections.abc import Mapping

from service.catalog.model import Catalog
from service.contracts.decision import RouteDecision
from service.contracts.model import JsonObject
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.flows.agent_call import EXTENDED, Work
from service.flows.flow import Flow, Outcome, Verdict
from service.routing.history import UTTERANCES

MOST_SAID = 2_000  # characters of an earlier utterance that an agent is told


class Dispatch:
    """`Verdict` → `Outcome`, by one of the flows."""

    def __init__(self, *, catalog: Catalog, flows: Mapping[str, Flow]) -> None:
        self._catalog = catalog
        self._flows = flows

    async def __call__(
        self, request: OrchestratorInput, decision: RouteDecision, verdict: Verdict, correlation_id: str, limit: Deadline
    ) -> Outcome:
        """Carry the decision out within the chain's timeouts and the request's limit."""
        query, wishes = request.parsed_query, request.preferences
        context: JsonObject = {**(query.context or {}), "raw_query": query.raw_query}
        if request.conversation_history:
            said = request.conversation_history[-UTTERANCES:]
            context["conversation_history"] = [{"role": turn.role, "content": turn.content[:MOST_SAID]} for turn in said]
        work = Work(
            query_id=query.query_id,
            correlation_id=correlation_id,
            intent=decision.intent or self._catalog.fallback_intent,
            entities=decision.entities,
            context=context,
            required_confidence=wishes.required_confidence if wishes is not None else None,
            deadline=limit.within(latency_budget_ms(verdict) / 1_000),
        )
        return await self._flows[decision.flow or "single"](verdict, work)


def latency_budget_ms(verdict: Verdict) -> int:
    """Return the time that the chain may take by the timeouts: each agent's first attempt, an extended one, and its further retries."""
    attempts = (1.0 + (EXTENDED + agent.max_retries - 1 if agent.max_retries else 0.0) for agent in verdict.chain)
    return int(sum(agent.timeout_ms * factor for agent, factor in zip(verdict.chain, attempts, strict=True)))
