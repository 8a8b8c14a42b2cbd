"""The plan: which flow carries a choice out, which agents stand beside the first one, and which wishes have to wait. Pure.

What changes something is done alone and by a word of its own; what only reads may be done together.
"""

from dataclasses import dataclass

from service.catalog.model import Catalog
from service.contracts.query import Depth


@dataclass(frozen=True, slots=True)
class Plan:
    """How a choice is carried out.

    Attributes:
        flow: single, parallel or pipeline.
        secondary: the agents beside the primary one: of the further intents, then those that support.
        left: further intents that are not carried out with the first.
    """

    flow: str
    secondary: tuple[str, ...]
    left: tuple[str, ...]


def plan(
    catalog: Catalog,
    intent: str | None,
    agent: str,
    *,
    others: tuple[str, ...] = (),
    chosen_beside: tuple[str, ...] | None = None,
    depth: Depth = Depth.STANDARD,
    unsure: bool = False,
    named: bool = False,
) -> Plan:
    """Plan one choice.

    Args:
        catalog: the routing table.
        intent: the first intent, None where there is none.
        agent: the agent of the first intent.
        others: the further intents.
        chosen_beside: the supporting agents that the LM chose; None: those of the routing table.
        depth: how many perspectives the caller wants.
        unsure: the first intent is not read surely.
        named: the user named the agent; then it works alone.
    """
    spec = catalog.intent.get(intent or "")
    asked = (intent, *others) if spec is not None and intent is not None else others
    table = tuple(name for i in asked for name in catalog.intent[i].supporting_agents)
    supports = () if depth is Depth.QUICK else table if chosen_beside is None else chosen_beside
    firsts = tuple(catalog.intent[i].primary_agent for i in others)
    secondary = tuple(dict.fromkeys(name for name in (*firsts, *supports) if name != agent))
    if named:
        return Plan("single", (), others)
    if spec is not None and spec.pipeline and agent == spec.primary_agent:
        return Plan("pipeline", secondary, others)
    if not catalog.agent[agent].idempotent:
        return Plan("single", secondary, others)
    together = tuple(i for i in others if catalog.is_reading(i))
    wider = (unsure or depth is Depth.THOROUGH) and any(catalog.agent[name].idempotent for name in supports if name != agent)
    if not together and not wider:
        return Plan("single", secondary, others)
    return Plan("parallel", secondary, tuple(i for i in others if i not in together))
