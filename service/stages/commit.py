"""Commit: decision and training signal become durable in one transaction, before the answer leaves."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from service.contracts.caller import Caller
from service.contracts.decision import RouteDecision
from service.contracts.model import JsonObject
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import RoutingTrainingSignal
from service.flows.flow import Outcome, Verdict
from service.ports import Store
from service.stages.collector import OrchestratorSignalCollector


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
    """Write down the decision and, where it was carried out, its outcome for training."""
    collector, request, verdict = OrchestratorSignalCollector(), finished.request, finished.verdict
    signal = collector.collect_routing_signal(request, finished.decision, verdict)
    if finished.outcome is None:
        return signal
    return collector.update_with_outcome(signal, request, verdict, finished.outcome, finished.output.total_latency_ms)


def hash_request(request: OrchestratorInput) -> str:
    """Return the SHA-256 of the canonical body. The time stamp is left out: a client that retries may stamp anew."""
    body = request.model_dump(mode="json", exclude={"parsed_query": {"timestamp"}}, exclude_unset=True)
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
