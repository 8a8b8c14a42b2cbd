"""Values of a turn for unit tests: each maker returns one that is valid, with the given fields replaced."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from service.catalog.loader import load_catalog
from service.catalog.model import Agent, Catalog
from service.contracts.decision import Candidate, RouteDecision
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.lm import LMVerdict
from service.contracts.query import ConversationTurn, OrchestratorInput, ParsedEntity, Preferences
from service.deadline import Deadline
from service.flows.agent_call import CallAgent
from service.flows.flow import Outcome, Part, PartRun, Role, Verdict
from service.flows.health import Health
from service.flows.work import AgentRun, Work, build_dispatch
from service.ports import AgentClient, AgentFailure, Observer
from service.programs import Router
from service.routing.policy import Policy
from service.routing.student import Example
from service.stages.intent import Understanding
from service.stages.triage import Admitted
from tests.conftest import body
from tests.fakes import Watcher, handoff_for, some_health

FOREVER = 60.0
CATALOG = load_catalog()
INTENTS = tuple(CATALOG.intent)
HOSTED = "openai/some-model"
VERDICT = LMVerdict(
    intent="gap_analysis",
    sub_intent="",
    primary_agent="gap_analyzer",
    secondary_agents=("causal_impact",),
    confidence=0.8,
    rationale="It asks for a gap.",
)


def a_request(
    text: str = "Did the rep visits lift Kisqali TRx?",
    *,
    preferences: dict[str, Any] | None = None,
    history: Sequence[dict[str, str]] = (),
    **parsed: Any,
) -> OrchestratorInput:
    """Return a request; keywords replace fields of the parsed query."""
    given = {**body(text, **parsed), "preferences": preferences, "conversation_history": list(history)}
    return OrchestratorInput.model_validate(given)


def an_entity(kind: str = "brand", value: str = "Kisqali", **fields: Any) -> ParsedEntity:
    """Return an entity."""
    return ParsedEntity.model_validate({"type": kind, "value": value, **fields})


def a_decision(agent: str | None = "causal_impact", **fields: Any) -> RouteDecision:
    """Return a decision that dispatches to an agent."""
    given = {
        "decision_id": uuid4(),
        "query_id": uuid4(),
        "action": "dispatch",
        "intent": "causal_impact",
        "confidence": 0.9,
        "primary_agent": agent,
        "flow": "single",
        "oos_score": 0.1,
        "rung": "student",
        "router_version": "7",
        "policy": "selective-risk",
        "rationale": "because",
    }
    return RouteDecision.model_validate({**given, **fields})


def an_agent(catalog: Catalog, name: str = "causal_impact", **fields: Any) -> Agent:
    """Return an agent of the catalogue with fields replaced."""
    return catalog.agent[name].model_copy(update=fields)


def some_work(seconds: float = FOREVER, **fields: Any) -> Work:
    """Return work that has `seconds` left."""
    given: dict[str, Any] = {
        "request": a_request("Did it?"),
        "tenant": "default",
        "correlation_id": "corr-1",
        "intent": "causal_impact",
        "entities": (),
        "deadline": Deadline.after(seconds),
    }
    return Work(**{**given, **fields})


def calling(client: AgentClient, observer: Observer | None = None, health: Health | None = None) -> CallAgent:
    """Return a way to call agents that never pauses between attempts."""
    return CallAgent(client=client, health=health or some_health(), observer=observer or Watcher(), jitter=lambda: 0.0)


def first_part(verdict: Verdict) -> Part:
    """Return the first part of a plan; one without agents where nothing is dispatched."""
    return verdict.parts[0] if verdict.parts else Part(Role.ASKED, "", CATALOG.agent["explainer"])


def a_part(*chain: Agent, **fields: Any) -> Part:
    """Return a part whose chain begins with its own agent."""
    return Part(**{"role": Role.ASKED, "intent": "causal_impact", "primary": chain[0], "chain": chain, **fields})


def an_outcome(*runs: AgentRun, part: Part | None = None, **fields: Any) -> Outcome:
    """Return an outcome of one part."""
    return Outcome((PartRun(part or a_part(*(run.agent for run in runs)), runs),), **fields)


def a_dispatch(agent: Agent, work: Work | None = None) -> AgentDispatch:
    """Return the first dispatch of some work to an agent."""
    return build_dispatch(agent, work or some_work(), agent.timeout_ms / 1_000, uuid4())


def a_handoff(agent: Agent, status: HandoffStatus = HandoffStatus.SUCCESS, **result: Any) -> AgentHandoff:
    """Return an agent's answer; keywords replace fields of its result."""
    handoff = handoff_for(agent, a_dispatch(agent), status)
    return handoff.model_copy(update={"result": handoff.result.model_copy(update=result)})


def a_run(agent: Agent, answer: AgentHandoff | AgentFailure | None = None, **fields: Any) -> AgentRun:
    """Return how an agent's part ended; a success unless an answer or failure is given."""
    failure = answer if isinstance(answer, AgentFailure) else None
    handoff = None if failure else answer if isinstance(answer, AgentHandoff) else a_handoff(agent)
    return AgentRun(**{"agent": agent, "handoff": handoff, "failure": failure, "attempts": 1, "latency_ms": 5, **fields})


def a_router(**policy: Any) -> Router:
    """Return a router for what comes after reading: it has a policy and no student."""
    given = {"refuse_above": 0.8, "act_above": 0.9, "clarify_below": 0.5, "accepted_in_scope": 0.95, "risk_target": 0.02, "coverage": 0.6}
    student: Any = None
    return Router("7", student, Policy.model_validate({**given, **policy}), {"intent": {"demos": []}})


_PLAIN: dict[str, Any] = {
    "text": "where is the gap",
    "history": (ConversationTurn(content="earlier"),),
    "preferences": Preferences(),
    "entities": (an_entity(),),
    "caller_intent": None,
    "caller_confidence": 1.0,
    "ambiguous": False,
    "unknown_intent": False,
    "social": False,
    "empty": False,
    "explicit_agent": None,
    "warnings": (),
}


def admitted(**fields: Any) -> Admitted:
    """Return a plain question with fields replaced."""
    return Admitted(**{**_PLAIN, **fields})


def understood(best: float = 0.95, oos: float = 0.1, *, caller_decides: bool = False) -> Understanding:
    """Return a reading whose best intent is causal_impact, followed by gap_analysis; the rest share what is left."""
    rest = (1.0 - best) / (len(INTENTS) - 1)
    order = ["causal_impact", "gap_analysis", *(i for i in INTENTS if i not in {"causal_impact", "gap_analysis"})]
    candidates = tuple(Candidate(intent=i, probability=best if n == 0 else rest) for n, i in enumerate(order))
    examples = (Example("what is the gap", "gap_analysis"),)
    return Understanding(candidates, oos, caller_decides, (an_entity(),), lambda: examples, ("causal_impact",), best)
