"""Dispatch: turn a verdict into work with one deadline, and let the verdict's flow carry it out."""

from collections.abc import Mapping

from service.catalog.model import Catalog
from service.contracts.decision import RouteDecision
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.errors import ErrorCode, Saturated
from service.flows.flow import Flow, Outcome, Verdict
from service.flows.work import Progress, Work


class Dispatch:
    """`Verdict` → `Outcome`, by one of the flows."""

    def __init__(self, *, catalog: Catalog, flows: Mapping[str, Flow]) -> None:
        self._catalog = catalog
        self._flows = flows

    async def __call__(
        self,
        request: OrchestratorInput,
        tenant: str,
        decision: RouteDecision,
        verdict: Verdict,
        correlation_id: str,
        limit: Deadline,
        progress: Progress,
    ) -> Outcome:
        """Carry the verdict out within its agents' timeouts and the request's limit.

        Raises:
            Saturated: no agent was called, for lack of room; nothing was started.
        """
        flow = self._flows[verdict.flow]
        work = Work(
            request=request,
            tenant=tenant,
            correlation_id=correlation_id,
            intent=decision.intent or self._catalog.fallback_intent,
            entities=decision.entities,
            asked=decision.asked,
            deadline=limit.within(flow.seconds(verdict.parts)),
            progress=progress,
        )
        outcome = await flow(verdict, work)
        full = [run.failure for run in outcome.runs if run.failure is not None and run.failure.code is ErrorCode.SATURATED]
        if full and not any(run.attempts for run in outcome.runs):
            raise Saturated(full[0].detail)
        return outcome
