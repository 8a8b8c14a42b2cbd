"""Commit: decision and training signal become durable in one transaction, before the answer leaves."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from service.contracts.caller import Caller
from service.contracts.decision import Action, RouteDecision
from service.contracts.model import JsonObject
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import RoutingTrainingSignal
from service.errors import ErrorCode
from service.flows.flow import Outcome, Verdict
from service.ports import Store

ANSWERED = {"success", "partial"}


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
    primary = decision.primary_agent if verdict.action is Action.DISPATCH else None
    results = {r.agent_id: r for r in finished.output.agent_results}
    answered = primary is not None and primary in results and results[primary].status.value in ANSWERED
    runs = {run.agent.name: run for run in outcome.runs} if outcome is not None else {}
    failure = runs[primary].failure if primary in runs else None
    skipped = primary is not None and any(s.agent.name == primary for s in verdict.skipped)
    unavailable = skipped or (failure is not None and (failure.unavailable or failure.code is ErrorCode.AGENT_TIMEOUT))
    rerouted = None if primary is None or unavailable else not answered
    return RoutingTrainingSignal(
        signal_id=uuid4(),
        session_id=finished.request.session_id,
        query=finished.request.parsed_query.raw_query,
        query_pattern=decision.intent or decision.action.value,
        intent=decision.intent or "",
        entities_extracted=tuple(f"{e.type.value}:{e.value}" for e in decision.entities),
        agents_selected=(primary,) if primary is not None else (),
        routing_confidence=decision.confidence,
        routing_rationale=decision.rationale,
        agents_succeeded=int(answered),
        agents_failed=int(primary is not None and not answered),
        total_latency_ms=float(finished.output.total_latency_ms) if outcome is not None else None,
        was_rerouted=rerouted,
        agents_unavailable=int(unavailable),
        latency_budget_ms=_budget_ms(finished) if outcome is not None else None,
    )


def _budget_ms(finished: Finished) -> int | None:
    """Return the selected agent's timeout, or the caller's wish where that is shorter."""
    primary, wishes = finished.verdict.primary, finished.request.preferences
    if primary is None:
        return None
    wish = wishes.max_latency_ms if wishes is not None else None
    return primary.timeout_ms if wish is None else min(primary.timeout_ms, wish)


def hash_request(request: OrchestratorInput) -> str:
    """Return the SHA-256 of the canonical body. The time stamp is left out: a client that retries may stamp anew."""
    body = request.model_dump(mode="json", exclude={"parsed_query": {"timestamp"}}, exclude_unset=True)
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
