"""The gate: may this decision be carried out, and by whom if the first agent cannot? Pure code, never the LM; denies by default."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from service.catalog.model import TEMPLATE, Agent, Catalog
from service.contracts.caller import Caller
from service.contracts.decision import Action, RouteDecision
from service.errors import ErrorCode
from service.flows.flow import Part, Role, Skipped, Verdict


class Gate:
    """Decision and caller → `Verdict`."""

    def __init__(self, *, catalog: Catalog) -> None:
        self._catalog = catalog

    def __call__(self, decision: RouteDecision, caller: Caller, available: Callable[[Agent], bool]) -> Verdict:
        """Check permission, tier, required entities and availability of every agent of the plan and of each fallback."""
        if decision.action is not Action.DISPATCH:
            return Verdict(decision.action)
        primary = self._catalog.agent.get(decision.primary_agent or "")
        if primary is None:
            return Verdict(Action.REFUSE, code=ErrorCode.ROUTING_FAILED, reason=f"There is no agent {decision.primary_agent!r}.")
        flow, check = decision.flow or "single", _Check(decision, caller, available)
        if flow == "pipeline":
            return self._steps(decision.intent or "", check)
        if (stop := check.stops(primary)) is not None:
            return stop
        others, supports = self._beside(decision, primary)
        planned = (
            {primary.name, *(agent.name for _, agent in others), *(agent.name for agent in supports)}
            if flow == "parallel"
            else {primary.name}
        )
        intent = decision.intent or self._catalog.fallback_intent
        parts = [
            self._part(Role.ASKED, intent, primary, check, planned),
            *(self._part(Role.ASKED, i, a, check, planned) for i, a in others),
        ]
        parts += [Part(Role.SUPPORTS, intent, agent, (agent,)) for agent in supports if check.fault(agent) is None]
        return Verdict(Action.DISPATCH, flow, tuple(parts))

    def _beside(self, decision: RouteDecision, primary: Agent) -> tuple[list[tuple[str, Agent]], list[Agent]]:
        """Return the further intents that are carried out, and the agents that support; only what changes nothing goes along."""
        catalog, several = self._catalog, decision.flow == "parallel"
        others = [(i, catalog.agent[catalog.intent[i].primary_agent]) for i in decision.intents[1:] if several and catalog.is_reading(i)]
        taken = {primary.name, *(catalog.intent[i].primary_agent for i in decision.intents)}
        supports = [catalog.agent[name] for name in decision.secondary_agents if name not in taken]
        return others, [agent for agent in supports if agent.idempotent]

    def _part(self, role: Role, intent: str, primary: Agent, check: "_Check", planned: Collection[str]) -> Part:
        """Plan an agent with its fallbacks; an agent that has a part of its own stands in for nobody, and nobody for one that is denied."""
        first = check.fault(primary)
        if first is not None and first.code is not ErrorCode.AGENT_UNAVAILABLE:
            return Part(role, intent, primary, (), (first,))
        chain: list[Agent] = []
        skipped: list[Skipped] = []
        agent, ends_in_template = primary, False
        while True:
            if (fault := check.fault(agent)) is not None:
                skipped.append(fault)
            elif agent is primary or agent.name not in planned:
                chain.append(agent)
            if agent.fallback is None or agent.fallback == TEMPLATE:
                ends_in_template = agent.fallback == TEMPLATE
                break
            agent = self._catalog.agent[agent.fallback]  # the catalogue has no cycles and no unknown names
        return Part(role, intent, primary, tuple(chain), tuple(skipped), ends_in_template)

    def _steps(self, intent: str, check: "_Check") -> Verdict:
        """Plan a pipeline: it begins only if every step may be run and can be reached."""
        steps = [(step, self._catalog.agent[step.agent]) for step in self._catalog.intent[intent].pipeline]
        for _, agent in steps:
            if (stop := check.stops(agent)) is not None:
                return stop
        faults = [fault for _, agent in steps if (fault := check.fault(agent)) is not None]
        if faults:
            first = steps[0][1]
            return Verdict(Action.DISPATCH, "pipeline", (Part(Role.STEP, intent, first, (), tuple(faults)),))
        return Verdict(Action.DISPATCH, "pipeline", tuple(Part(Role.STEP, intent, agent, (agent,), step=step) for step, agent in steps))


@dataclass(frozen=True, slots=True)
class _Check:
    """The checks before a dispatch, for one decision and caller."""

    decision: RouteDecision
    caller: Caller
    available: Callable[[Agent], bool]

    def stops(self, agent: Agent) -> Verdict | None:
        """Return the verdict that stops the whole request: a permission is lacking, or something that the user has to name."""
        missing = missing_permissions(agent, self.caller)
        if missing:
            reason = f"{agent.name} needs the permission {', '.join(missing)}, which this key lacks."
            return Verdict(Action.REFUSE, code=ErrorCode.PERMISSION_DENIED, reason=reason)
        absent = sorted({e.value for e in agent.required_entities} - {e.type.value for e in self.decision.entities})
        if absent:
            names = ", ".join(a.replace("_", " ") for a in absent)
            return Verdict(Action.CLARIFY, code=ErrorCode.MISSING_ENTITY, reason=f"Which {names} do you mean?")
        return None

    def fault(self, agent: Agent) -> Skipped | None:
        """Return why an agent is left out, or None."""
        if missing_permissions(agent, self.caller):
            return Skipped(agent, ErrorCode.PERMISSION_DENIED, f"{agent.name} needs a permission that this key lacks")
        if not {e.type for e in self.decision.entities}.issuperset(agent.required_entities):
            return Skipped(agent, ErrorCode.MISSING_ENTITY, f"{agent.name} needs entities that the question lacks")
        if not self.available(agent):
            return Skipped(agent, ErrorCode.AGENT_UNAVAILABLE, f"{agent.name} is not available")
        return None


def missing_permissions(agent: Agent, caller: Caller) -> tuple[str, ...]:
    """Return the permissions that the caller lacks for an agent: its tier's and its own."""
    return tuple(p for p in (f"tier:{agent.tier}", *agent.permissions) if not caller.may(p))
