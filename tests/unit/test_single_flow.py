"""The flow `single`: the chain in order, never twice to one agent, the template at its end, and a warning for every detour."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.contracts.caller import Caller
from service.contracts.handoff import HandoffStatus
from service.errors import ErrorCode
from service.flows.chain import leave_time
from service.flows.flow import Outcome, Verdict
from service.flows.single import Single
from service.ports import AgentFailure
from service.stages.gate import Gate
from tests.fakes import ScriptedAgents, down
from tests.unit.turns import a_decision, calling, some_work

CATALOG = load_catalog()
DOWN, WRONG = down(), down(ErrorCode.HANDOFF_INVALID, unavailable=False)


def plan(agent: str, *, absent: tuple[str, ...] = ()) -> Verdict:
    """Return what the gate lets happen for a decision for an agent."""
    return Gate(catalog=CATALOG)(a_decision(agent), Caller(), lambda a: a.name not in absent)


async def carry_out(
    verdict: Verdict, script: dict[str, list[AgentFailure | HandoffStatus]], seconds: float = 3_600.0
) -> tuple[Outcome, ScriptedAgents]:
    """Run the flow against scripted agents."""
    agents = ScriptedAgents(script)
    flow = Single(call=calling(agents))
    return await flow(verdict, some_work(seconds)), agents


WALKS = {
    "the primary agent answers": ("drift_monitor", {}, ["drift_monitor"], []),
    "the first fallback answers": (
        "drift_monitor",
        {"drift_monitor": [DOWN]},
        ["drift_monitor", "health_score"],
        ["agent_unavailable", "fallback_used"],
    ),
    "the second fallback answers": (
        "drift_monitor",
        {"drift_monitor": [DOWN], "health_score": [WRONG]},
        ["drift_monitor", "health_score", "explainer"],
        ["agent_unavailable", "handoff_invalid", "fallback_used"],
    ),
    "nobody answers": (
        "drift_monitor",
        {"drift_monitor": [DOWN], "health_score": [WRONG], "explainer": [DOWN]},
        ["drift_monitor", "health_score", "explainer"],
        ["agent_unavailable", "handoff_invalid", "agent_unavailable", "template_answer"],
    ),
    "health_score falls back to explainer, not to itself": (
        "health_score",
        {"health_score": [DOWN]},
        ["health_score", "explainer"],
        ["agent_unavailable", "fallback_used"],
    ),
    "explainer falls back to the template": ("explainer", {"explainer": [DOWN]}, ["explainer"], ["agent_unavailable", "template_answer"]),
    "tier 0 fails without a fallback": ("model_trainer", {"model_trainer": [DOWN]}, ["model_trainer"], ["agent_unavailable"]),
    "a partial answer ends the walk": ("causal_impact", {"causal_impact": [HandoffStatus.PARTIAL]}, ["causal_impact"], []),
    "an agent's own failure is a failure": (
        "causal_impact",
        {"causal_impact": [HandoffStatus.FAILED]},
        ["causal_impact", "explainer"],
        ["agent_error", "fallback_used"],
    ),
    "a quality gate ends the walk": ("drift_monitor", {"drift_monitor": [HandoffStatus.BLOCKED]}, ["drift_monitor"], []),
}


@pytest.mark.parametrize(("agent", "script", "called", "warnings"), WALKS.values(), ids=WALKS)
async def test_the_chain_is_walked_until_an_agent_answers(
    agent: str, script: dict[str, list[AgentFailure | HandoffStatus]], called: list[str], warnings: list[str]
) -> None:
    """In order, each agent once; every detour is reported."""
    outcome, agents = await carry_out(plan(agent), script)

    assert [run.agent.name for run in outcome.runs] == called
    assert list(dict.fromkeys(d.target_agent for d in agents.sent)) == called
    assert [w.code for w in outcome.warnings] == warnings
    assert outcome.template is ("template_answer" in warnings)
    assert all(run.handoff is None for run in outcome.runs[:-1])


async def test_an_agent_that_recovers_on_a_retry_needs_no_fallback() -> None:
    """Retries come before fallbacks."""
    late = down(ErrorCode.AGENT_TIMEOUT, recoverable=True)

    outcome, agents = await carry_out(plan("causal_impact"), {"causal_impact": [late, late, HandoffStatus.SUCCESS]})

    assert [(run.agent.name, run.attempts) for run in outcome.runs] == [("causal_impact", 3)]
    assert len(agents.sent) == 3
    assert outcome.warnings == ()


async def test_a_blocked_handoff_carries_its_code() -> None:
    """QC_GATE_BLOCKED stays on the run, and no fallback hides it."""
    outcome, _ = await carry_out(plan("data_preparer"), {"data_preparer": [HandoffStatus.BLOCKED]})

    assert [w.code for w in outcome.runs[0].warnings] == ["qc_gate_blocked"]
    assert (len(outcome.runs), outcome.template) == (1, False)


async def test_an_agent_that_the_gate_skipped_is_reported_first() -> None:
    """Why the decision's agent was not called is the first thing that a reader wants to know."""
    outcome, agents = await carry_out(plan("drift_monitor", absent=("drift_monitor",)), {})

    assert [d.target_agent for d in agents.sent] == ["health_score"]
    assert [(w.code, w.message) for w in outcome.warnings] == [
        ("agent_unavailable", "drift_monitor is not available."),
        ("fallback_used", "health_score answers in place of drift_monitor."),
    ]


@pytest.mark.parametrize(("agent", "template"), [("drift_monitor", True), ("model_trainer", False)])
async def test_a_chain_without_an_agent_calls_nobody(agent: str, template: bool) -> None:
    """The template stands in where the chain ends in it; otherwise the request fails."""
    outcome, agents = await carry_out(plan(agent, absent=tuple(CATALOG.agent)), {})

    assert (outcome.runs, outcome.template, agents.sent) == ((), template, [])


@settings(max_examples=100)
@given(left=st.floats(0.01, 1_000.0), chain=st.lists(st.sampled_from(["causal_impact", "drift_monitor", "explainer"]), max_size=3))
def test_an_agent_leaves_time_for_those_that_come_later(left: float, chain: list[str]) -> None:
    """It keeps at least seven tenths, and all that the later ones cannot use."""
    later = [CATALOG.agent[name] for name in chain]
    needed = sum(a.timeout_ms for a in later) / 1_000

    kept = leave_time(some_work(left), later).deadline.left

    assert kept == pytest.approx(left - min(needed, 0.3 * left), abs=0.05)


async def test_when_time_is_up_nobody_further_is_called() -> None:
    """The primary agent is accounted for, and none is bothered or said to have been called."""
    outcome, agents = await carry_out(plan("drift_monitor"), {}, seconds=0.0)

    assert agents.sent == []
    assert [w.code for w in outcome.warnings] == ["agent_timeout", "template_answer"]


async def test_warnings_are_sentences() -> None:
    """With one full stop at the end, whatever the failure's own text ends in."""
    said = AgentFailure(ErrorCode.AGENT_ERROR, "explainer is tired.", recoverable=False, unavailable=False, latency_ms=1)

    outcome, _ = await carry_out(plan("causal_impact"), {"causal_impact": [DOWN], "explainer": [said]})

    assert all(w.message.endswith(".") and not w.message.endswith("..") for w in outcome.warnings)
