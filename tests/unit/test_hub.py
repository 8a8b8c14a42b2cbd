"""The hub has the specification's two operations, and its closed sets are those of the code that they speak of."""

from uuid import UUID

import pytest
from pydantic import ValidationError

from service.catalog.model import Catalog
from service.contracts.model import JsonObject
from service.contracts.optimization import ORCHESTRATOR, OptimizationWish, SignatureName
from service.errors import InvalidInput
from service.stages.hub import OrchestratorDSPyHub
from signatures.inventory import INVENTORY
from tests.fakes import MemoryStore

SIGNAL: JsonObject = {
    "signal_id": str(UUID(int=7)),
    "session_id": "s-1",
    "query": "who buys less",
    "query_pattern": "gap_analysis",
    "intent": "gap_analysis",
    "routing_confidence": 0.5,
    "routing_rationale": "because",
}


@pytest.fixture
def hub(catalog: Catalog) -> OrchestratorDSPyHub:
    """A hub that has not been asked anything yet."""
    return OrchestratorDSPyHub(queue=MemoryStore(), catalog=catalog)


async def test_what_is_requested_is_pending(hub: OrchestratorDSPyHub) -> None:
    """The id that is returned is the pending request's; it is of medium priority if nothing else is said."""
    request_id = await hub.request_optimization("gap_analyzer", "routing", [SIGNAL])
    urgent = await hub.request_optimization(ORCHESTRATOR, "intent", [], priority="high")

    pending = await hub.get_pending_requests()

    assert [(one["request_id"], one["priority"], one["signals"]) for one in pending] == [(urgent, "high", 0), (request_id, "medium", 1)]


@pytest.mark.parametrize(
    ("agent", "signature", "signals", "priority"),
    [
        ("nobody", "routing", [], "low"),
        (ORCHESTRATOR, "poetry", [], "low"),
        (ORCHESTRATOR, "routing", [{}], "low"),
        (ORCHESTRATOR, "routing", [], "now"),
    ],
    ids=["agent", "signature", "signals", "priority"],
)
async def test_what_breaks_the_contract_is_refused(
    hub: OrchestratorDSPyHub, agent: str, signature: str, signals: list[JsonObject], priority: str
) -> None:
    """And nothing is pending."""
    with pytest.raises((InvalidInput, ValidationError)):
        await hub.request_optimization(agent, signature, signals, priority)  # type: ignore[arg-type]  # that is what is tested

    assert await hub.get_pending_requests() == []


async def test_tenants_share_no_requests(catalog: Catalog) -> None:
    """Over one queue."""
    queue = MemoryStore()
    acme, other = (OrchestratorDSPyHub(queue=queue, catalog=catalog, tenant=name) for name in ("acme", "other"))

    await acme.request_optimization(ORCHESTRATOR, "routing", [])

    assert await other.get_pending_requests() == []


def test_the_hub_says_what_it_is() -> None:
    """As the specification has it."""
    assert OrchestratorDSPyHub.dspy_type == "hub"


def test_every_call_of_the_inventory_can_be_asked_for_and_nothing_else() -> None:
    """The names in the contract are those of the inventory."""
    assert {name.value for name in SignatureName} == INVENTORY.keys()


def test_no_agent_of_the_catalogue_has_the_orchestrators_name(catalog: Catalog) -> None:
    """So it is clear who is meant."""
    assert ORCHESTRATOR not in catalog.agent
    assert OptimizationWish(agent_name=ORCHESTRATOR, signature_name=SignatureName.ROUTING).priority.value == "medium"
