"""The gate: may this decision be carried out, and by whom if the first agent cannot? Pure code, never the LM; denies by default."""

from collections.abc import Callable

from service.catalog.model import TEMPLATE, Agent, Catalog
from service.contracts.caller import Caller
from service.contracts.decision import Action, RouteDecision
from service.errors import ErrorCode
from service.flows.flow import Skipped, Verdict


class Gate:
    """Decision and caller → `Verdict`."""

    def __init__(self, *, catalog: Catalog) -> None:
        self._catalog = catalog

    def __call__(self, decision: RouteDecision, caller: Caller, available: Callable[[Agent], bool]) -> Verdict:
        """Check permission, tier, required entities and availability of the primary agent and of each fallback."""
        if decision.action is not Action.DISPATCH:
            return Verdict(decision.action)
        primary = self._catalog.agent.get(decision.primary_agent or "")
        if primary is None:
            return Verdict(Action.REFUSE, code=ErrorCode.ROUTING_FAILED, reason=f"There is no agent {decision.primary_agent!r}.")
        missing = missing_permissions(primary, caller)
        if missing:
            reason = f"{primary.name} needs the permission {', '.join(missing)}, which this key lacks."
            return Verdict(Action.REFUSE, code=ErrorCode.PERMISSION_DENIED, reason=reason)
        absent = sorted({e.value for e in primary.required_entities} - {e.type.value for e in decision.entities})
        if absent:
            names = ", ".join(a.replace("_", " ") for a in absent)
            return Verdict(Action.CLARIFY, code=ErrorCode.MISSING_ENTITY, reason=f"Which {names} do you mean?")
        return self._plan(primary, decision, caller, available)

    def _plan(self, primary: Agent, decision: RouteDecision, caller: Caller, available: Callable[[Agent], bool]) -> Verdict:
        chain: list[Agent] = []
        skipped: list[Skipped] = []
        present = {e.type for e in decision.entities}
        agent, ends_in_template = primary, False
        while True:
            if missing_permissions(agent, caller):
                skipped.append(Skipped(agent, ErrorCode.PERMISSION_DENIED, f"{agent.name} needs a permission that this key lacks"))
            elif not present.issuperset(agent.required_entities):
                skipped.append(Skipped(agent, ErrorCode.MISSING_ENTITY, f"{agent.name} needs entities that the question lacks"))
            elif not available(agent):
                skipped.append(Skipped(agent, ErrorCode.AGENT_UNAVAILABLE, f"{agent.name} is not available"))
            else:
                chain.append(agent)
            if agent.fallback is None or agent.fallback == TEMPLATE:
                ends_in_template = agent.fallback == TEMPLATE
                break
            agent = self._catalog.agent[agent.fallback]  # the catalogue has no cycles and no unknown names
        return Verdict(Action.DISPATCH, primary, tuple(chain), tuple(skipped), ends_in_template)


def missing_permissions(agent: Agent, caller: Caller) -> tuple[str, ...]:
    """Return the permissions that the caller lacks for an agent: its tier's and its own."""
    return tuple(p for p in (f"tier:{agent.tier}", *agent.permissions) if not caller.may(p))
