"""The flow `parallel`: all perspectives at once, in the order of the plan, and what some of them bring is brought, whoever fails."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.model import Agent
from service.contracts.caller import Caller
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.errors import ErrorCode
from service.flows.flow import Outcome, Role, Verdict
from service.flows.parallel import Parallel
from service.ports import AgentFailure
from service.stages.gate import Gate
from tests.fakes import ScriptedAgents, down
from tests.unit.turns import CATALOG, a_decision, calling, some_work

DOWN = down()
Script = dict[str, list[AgentFailure | HandoffStatus]]


def plan(*intents: str, beside: tuple[str, ...] = (), caller: Caller | None = None, absent: tuple[str, ...] = ()) -> Verdict:
    """Return what the gate lets happen for several intents, with agents beside them."""
    first = CATALOG.intent[intents[0]]
    decision = a_decision(first.primary_agent, intent=first.name, intents=intents, secondary_agents=beside, flow="parallel")
    return Gate(catalog=CATALOG)(decision, caller or Caller(), lambda a: a.name not in absent)


async def carry_out(verdict: Verdict, script: Script | None = None) -> tuple[Outcome, ScriptedAgents]:
    """Run the flow against scripted agents."""
    agents = ScriptedAgents(script or {})
    return await Parallel(call=calling(agents))(verdict, some_work()), agents


def test_the_plan_has_a_part_for_each_wish_and_each_perspective() -> None:
    """Each wish with its own intent and fallbacks; who only supports has neither."""
    verdict = plan("causal_impact", "drift_check", beside=("drift_monitor", "health_score", "model_trainer"))

    assert [(p.role, p.intent, [a.name for a in p.chain]) for p in verdict.parts] == [
        (Role.ASKED, "causal_impact", ["causal_impact", "explainer"]),
        (Role.ASKED, "drift_check", ["drift_monitor", "explainer"]),
        (Role.SUPPORTS, "causal_impact", ["health_score"]),
    ]


async def test_every_agent_is_asked_for_its_own_intent() -> None:
    """The specification's example: causes, opportunities and an allocation, each by its agent."""
    outcome, agents = await carry_out(plan("causal_impact", "gap_analysis", "resource_optimize"))

    assert [(d.target_agent, d.payload.intent) for d in agents.sent] == [
        ("causal_impact", "causal_impact"),
        ("gap_analyzer", "gap_analysis"),
        ("resource_optimizer", "resource_optimize"),
    ]
    assert [part.answer and part.answer.agent.name for part in outcome.parts] == ["causal_impact", "gap_analyzer", "resource_optimizer"]
    assert outcome.warnings == ()


async def test_one_that_fails_does_not_take_the_others_along() -> None:
    """What came is there, and what did not is said; its fallback stands in for it alone."""
    outcome, _ = await carry_out(plan("causal_impact", "gap_analysis"), {"gap_analyzer": [DOWN]})

    assert [part.answer and part.answer.agent.name for part in outcome.parts] == ["causal_impact", "explainer"]
    assert [w.code for w in outcome.warnings] == ["agent_unavailable", "fallback_used"]


async def test_an_agent_with_a_part_of_its_own_stands_in_for_nobody() -> None:
    """The explainer beside causal_impact is asked once, not a second time in its place."""
    outcome, agents = await carry_out(plan("causal_impact", beside=("explainer",)), {"causal_impact": [DOWN]})

    assert [d.target_agent for d in agents.sent] == ["causal_impact", "explainer"]
    assert [(part.part.role, part.answer is not None) for part in outcome.parts] == [(Role.ASKED, False), (Role.SUPPORTS, True)]
    assert not outcome.template


async def test_no_agent_stands_in_for_two() -> None:
    """Both fall back to the explainer, which is asked once: for the part that fails first."""
    outcome, agents = await carry_out(plan("causal_impact", "gap_analysis"), {"causal_impact": [DOWN], "gap_analyzer": [DOWN]})

    assert sorted(d.target_agent for d in agents.sent) == ["causal_impact", "explainer", "gap_analyzer"]
    assert sum(part.answer is not None for part in outcome.parts) == 1
    assert not outcome.template


async def test_when_nobody_answers_the_template_stands_in() -> None:
    """As in a single flow."""
    outcome, _ = await carry_out(plan("causal_impact", "gap_analysis"), {name: [DOWN] for name in CATALOG.agent})

    assert (outcome.answered, outcome.template) == (False, True)
    assert outcome.warnings[-1].code == "template_answer"


async def test_they_work_at_once_and_the_results_keep_the_order_of_the_plan() -> None:
    """The slowest is asked first and answers last; its part stays the first."""
    waits = {"causal_impact": 0.2, "gap_analyzer": 0.1, "drift_monitor": 0.0}
    ended: list[str] = []

    class Slow(ScriptedAgents):
        async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
            await asyncio.sleep(waits[agent.name])
            ended.append(agent.name)
            return await super().send(agent, url, dispatch, timeout=timeout)

    started = time.monotonic()
    outcome = await Parallel(call=calling(Slow()))(plan("causal_impact", "gap_analysis", "drift_check"), some_work())

    assert 0.2 <= time.monotonic() - started < 0.29
    assert ended == ["drift_monitor", "gap_analyzer", "causal_impact"]
    assert [run.agent.name for run in outcome.runs] == list(waits)


def test_a_wish_that_the_caller_may_not_have_is_left_out_with_its_reason() -> None:
    """No fallback comes in its place: a permission is not an outage. The rest is carried out."""
    caller = Caller(tenant="acme", permissions=frozenset({"tier:2", "tier:5"}))

    verdict = plan("causal_impact", "drift_check", caller=caller)

    assert [[a.name for a in part.chain] for part in verdict.parts] == [["causal_impact", "explainer"], []]
    assert [s.code for s in verdict.parts[1].skipped] == [ErrorCode.PERMISSION_DENIED]


def test_what_changes_something_has_no_part_beside_others() -> None:
    """Neither as a further wish nor as support."""
    verdict = plan("drift_check", "ml_training", "model_deploy", beside=("model_trainer", "scope_definer", "model_deployer"))

    assert [part.primary.name for part in verdict.parts] == ["drift_monitor"]


@pytest.mark.parametrize("absent", [("health_score",), ("health_score", "drift_monitor")])
def test_a_perspective_that_cannot_be_had_is_left_out(absent: tuple[str, ...]) -> None:
    """It is not what was asked for, so nobody has to hear of it."""
    verdict = plan("causal_impact", beside=("health_score", "drift_monitor", "explainer"), absent=absent)

    assert [p.primary.name for p in verdict.parts[1:]] == [n for n in ("health_score", "drift_monitor", "explainer") if n not in absent]


ENDS = [HandoffStatus.SUCCESS, HandoffStatus.PARTIAL, HandoffStatus.FAILED, HandoffStatus.BLOCKED, DOWN]


@given(
    wishes=st.lists(st.sampled_from([i for i in CATALOG.intent if CATALOG.is_reading(i)]), min_size=1, max_size=4, unique=True),
    ends=st.dictionaries(st.sampled_from(list(CATALOG.agent)), st.sampled_from(ENDS)),
)
async def test_results_keep_their_order_and_belong_to_their_part(wishes: list[str], ends: dict[str, AgentFailure | HandoffStatus]) -> None:
    """Whatever ends how, every wish has its part, in order, and no agent is called twice for one wish."""
    outcome, agents = await carry_out(plan(*wishes), {name: [end] for name, end in ends.items()})

    assert [run.part.intent for run in outcome.parts] == wishes
    for run in outcome.parts:
        names = [r.agent.name for r in run.runs]
        assert len(set(names)) == len(names)
        assert names[:1] == [CATALOG.intent[run.part.intent].primary_agent]
    assert all(d.payload.intent in wishes for d in agents.sent)
