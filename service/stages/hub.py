"""The hub of the learning loop: agents ask it for better versions of Pointsman's signatures. It keeps requests; a job carries them out."""

from collections.abc import Sequence
from typing import Literal

from service.catalog.model import Catalog
from service.contracts.caller import ANYONE
from service.contracts.model import JsonObject
from service.contracts.optimization import ORCHESTRATOR, OptimizationRequest, OptimizationWish, RequestStatus
from service.errors import FieldProblem, InvalidInput
from service.ports import OptimizationQueue

UNKNOWN_AGENT = FieldProblem("agent_name", f"must be an agent of GET /agents, or {ORCHESTRATOR}", "unknown_agent")


class OrchestratorDSPyHub:
    """The specification's two operations, for one tenant.

    Both are coroutines, though the specification has a plain function for the second: the requests are in a database, and who waits for one
    in a plain function stops everything else that the service does.
    """

    dspy_type: Literal["hub"] = "hub"

    def __init__(self, *, queue: OptimizationQueue, catalog: Catalog, tenant: str = ANYONE) -> None:
        self._queue = queue
        self._catalog = catalog
        self._tenant = tenant

    async def request_optimization(
        self,
        agent_name: str,
        signature_name: str,
        training_signals: Sequence[JsonObject],
        priority: Literal["low", "medium", "high"] = "medium",
    ) -> str:
        """Ask for a better version of a signature on behalf of an agent; return the request's id.

        Raises:
            pydantic.ValidationError: a name or a signal breaks the contract `OptimizationWish`.
            InvalidInput: there is no such agent.
            StoreUnavailable: nothing was kept.
        """
        said = {"agent_name": agent_name, "signature_name": signature_name, "training_signals": training_signals, "priority": priority}
        return str((await self.accept(OptimizationWish.model_validate(said))).request_id)

    async def accept(self, wish: OptimizationWish) -> OptimizationRequest:
        """Keep a wish, or join it to an equal one that waits; see `request_optimization`."""
        if wish.agent_name != ORCHESTRATOR and wish.agent_name not in self._catalog.agent:
            raise InvalidInput("agent_name names no agent of the catalogue.", [UNKNOWN_AGENT])
        return await self._queue.ask_for(self._tenant, wish)

    async def get_pending_requests(self) -> list[JsonObject]:
        """Return the requests that wait, as JSON objects, in the order in which they will be carried out."""
        return [one.model_dump(mode="json") for one in await self._queue.requests(self._tenant, RequestStatus.PENDING)]
