"""Commit: decision and training signal become durable in one transaction, before the answer leaves."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from service.contracts.caller import Caller
from service.contracts.decision import Action, RouteDecision
from service.contracts.handoff import HandoffStatus
from service.contracts.model import JsonObject
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import RoutingTrainingSignal
from service.errors import ErrorCode
from service.flows.flow import Outcome, PartRun, Verdict
from service.ports import Store


@dataclass(frozen=True, slots=True)
class Finished:
    """All that is known of a request when it has been answered."""

    caller: Caller
    request: OrchestratorInput
    decision: RouteDecision
    verdict: Verdict
    outcome: Outcome | None
    output: OrchestratorOutput
    stages: JsonObject


class Commit:
    """`Finished` → `Receipt`, stored. The receipt that is returned is the stored one, which may be that of an equal, earlier request."""

    def __init__(self, *, store: Store, catalog_hash: str) -> None:
        self._store = store
        self._catalog_hash = catalog_hash

    async def __call__(self, finished: Finished) -> Receipt:
        """Store.

        Raises:
            StoreUnavailable: nothing was stored.
        """
        signal = collect_signal(finished)
        receipt = Receipt(
            decision=finished.decision,
            tenant=finished.caller.tenant,
            catalog_hash=self._catalog_hash,
            request_hash=hash_request(finished.request),
            request=finished.request,
            stages=finished.stages,
            output=finished.output,
            signal=signal,
            reward=signal.compute_reward(),
            committed_at=datetime.now(UTC),
        )
        return await self._store.commit(receipt)


def collect_signal(finished: Finished) -> RoutingTrainingSignal:
    """Write down the decision and its outcome for training. Only the agents that the decision selected count, not their fallbacks."""
    decision, verdict, outcome = finished.decision, finished.verdict, finished.outcome
    parts = outcome.parts if outcome is not None else ()
    succeeded, down = [p for p in parts if _succeeded(p)], [p for p in parts if _was_down(p)]
    selected = tuple(dict.fromkeys(part.part.primary.name for part in parts))
    if not parts and verdict.action is Action.DISPATCH and decision.primary_agent is not None:
        selected = (decision.primary_agent,)
    rerouted = None if not parts or parts[0] in down else parts[0] not in succeeded
    return RoutingTrainingSignal(
        signal_id=uuid4(),
        session_id=finished.request.session_id,
        query=finished.request.parsed_query.raw_query,
        query_pattern=decision.intent or decision.action.value,
        intent=decision.intent or "",
        entities_extracted=tuple(f"{e.type.value}:{e.value}" for e in decision.entities),
        agents_selected=selected,
        routing_confidence=decision.confidence,
        routing_rationale=decision.rationale,
        agents_succeeded=len(succeeded),
        agents_failed=len(parts) - len(succeeded),
        total_latency_ms=float(finished.output.total_latency_ms) if outcome is not None else None,
        was_rerouted=rerouted,
        agents_unavailable=len(down),
        latency_budget_ms=_budget_ms(finished) if outcome is not None else None,
    )


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


def _budget_ms(finished: Finished) -> int | None:
    """Return the selected agents' timeouts, the longest where they work at once, or the caller's wish where that is shorter."""
    verdict, wishes = finished.verdict, finished.request.preferences
    timeouts = [part.primary.timeout_ms for part in verdict.parts]
    if not timeouts:
        return None
    budget = sum(timeouts) if verdict.flow == "pipeline" else max(timeouts) if verdict.flow == "parallel" else timeouts[0]
    wish = wishes.max_latency_ms if wishes is not None else None
    return budget if wish is None else min(budget, wish)


def hash_request(request: OrchestratorInput) -> str:
    """Return the SHA-256 of the canonical body. The time stamp is left out: a client that retries may stamp anew."""
    body = request.model_dump(mode="json", exclude={"parsed_query": {"timestamp"}}, exclude_unset=True)
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
