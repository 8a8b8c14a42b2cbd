"""Dispatch gives a flow one budget: the chain's timeouts with their retries, or less where the caller wishes."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from service.catalog.loader import load_catalog
from service.contracts.caller import Caller
from service.deadline import Deadline
from service.errors import ErrorCode, Saturated
from service.flows.flow import Outcome, Part, Verdict
from service.flows.parallel import Parallel
from service.flows.pipeline import PipelineFlow
from service.flows.single import Single
from service.flows.work import Work, unwatched
from service.ports import AgentFailure
from service.stages.dispatch import Dispatch
from service.stages.gate import Gate
from tests.fakes import ScriptedAgents
from tests.unit.turns import a_decision, a_request, a_run, an_entity, an_outcome, calling

CATALOG = load_catalog()


class Recorder:
    """A flow that keeps what it is given; its parts may take `limit` seconds."""

    def __init__(self, limit: float = 60.0, outcome: Outcome | None = None) -> None:
        self.given: list[tuple[Verdict, Work]] = []
        self.limit = limit
        self.outcome = outcome or Outcome(())

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        self.given.append((verdict, work))
        return self.outcome

    def seconds(self, parts: Sequence[Part]) -> float:
        return self.limit


def plan(agent: str, **decision: Any) -> Verdict:
    """Return what the gate lets happen for a decision for an agent."""
    return Gate(catalog=CATALOG)(a_decision(agent, **decision), Caller(), lambda _: True)


CALL = calling(ScriptedAgents())
BUDGETS = {  # own timeout by (1 first + 1.5 extended + further retries), then the same for each fallback
    "model_deployer": 60.0 * 2.5,
    "causal_impact": 120.0 * 3.5 + 180.0 * 2.5,
    "drift_monitor": 60.0 * 3.5 + 60.0 * 3.5 + 180.0 * 2.5,
    "prediction_synthesizer": 20.0 * 4.5 + 180.0 * 2.5,
    "explainer": 180.0 * 2.5,
}


@pytest.mark.parametrize(("agent", "budget"), BUDGETS.items(), ids=BUDGETS)
def test_the_budget_is_what_the_chain_may_take(agent: str, budget: float) -> None:
    """Every attempt that the tiers allow is paid for."""
    assert Single(call=CALL).seconds(plan(agent).parts) == pytest.approx(budget)


def test_agents_that_work_at_once_share_the_time_and_steps_add_up() -> None:
    """Parallel takes as long as its longest chain, a pipeline as long as all of its steps."""
    steps = plan("scope_definer", intent="ml_training", flow="pipeline")
    several = plan("causal_impact", intents=["causal_impact", "drift_check"], flow="parallel")

    assert Parallel(call=CALL).seconds(several.parts) == pytest.approx(BUDGETS["drift_monitor"])
    assert PipelineFlow(call=CALL).seconds(steps.parts) == pytest.approx((3 * 300.0 + 900.0) * 2.5)


def test_a_chain_without_agents_has_no_budget() -> None:
    """There is nothing to wait for."""
    verdict = Gate(catalog=CATALOG)(a_decision("drift_monitor"), Caller(), lambda _: False)

    assert Single(call=CALL).seconds(verdict.parts) == 0.0


async def carry_out(flow: Recorder, request: Any, limit: Deadline | None = None, **decision: Any) -> Work:
    """Dispatch a request by a recording flow and return the work that the flow got."""
    verdict = plan("causal_impact")
    dispatch = Dispatch(catalog=CATALOG, flows={"single": flow})
    await dispatch(request, "acme", a_decision(**decision), verdict, "corr-7", limit or Deadline.after(3_600.0), unwatched)
    assert flow.given[-1][0] is verdict
    return flow.given[-1][1]


@pytest.mark.parametrize(("limit", "seconds"), [(3_600.0, 870.0), (1.5, 1.5)], ids=["more than the chain may take", "less"])
async def test_the_requests_limit_may_shorten_the_budget_but_not_lengthen_it(limit: float, seconds: float) -> None:
    """One deadline for the whole plan."""
    started = time.monotonic()

    work = await carry_out(Recorder(870.0), a_request(), Deadline.after(limit))

    assert work.deadline.at - started == pytest.approx(seconds, abs=0.2)


async def test_the_work_holds_what_is_asked() -> None:
    """The request and whose it is, the decision's intent and entities, and the id that joins logs."""
    request = a_request("Did it?")

    work = await carry_out(Recorder(), request, entities=[an_entity()])

    assert (work.request, work.tenant, work.correlation_id, work.intent) == (request, "acme", "corr-7", "causal_impact")
    assert [e.value for e in work.entities] == ["Kisqali"]


async def test_a_decision_without_intent_carries_the_fallback_intent() -> None:
    """The dispatch contract has no empty intent."""
    work = await carry_out(Recorder(), a_request(), intent=None)

    assert work.intent == CATALOG.fallback_intent


async def test_the_verdicts_flow_is_taken() -> None:
    """Flows are plug-ins, chosen by name."""
    single, steps = Recorder(), Recorder()
    dispatch = Dispatch(catalog=CATALOG, flows={"single": single, "pipeline": steps})

    await dispatch(
        a_request(), "acme", a_decision(), plan("scope_definer", intent="ml_training", flow="pipeline"), "c", Deadline.after(9.0), unwatched
    )

    assert (len(single.given), len(steps.given)) == (0, 1)


FULL = AgentFailure(ErrorCode.SATURATED, "no room", recoverable=False, unavailable=True, latency_ms=0)


async def test_a_request_for_which_there_is_no_room_is_turned_away() -> None:
    """Nothing was started, so the caller may send it again."""
    flow = Recorder(outcome=an_outcome(a_run(CATALOG.agent["explainer"], FULL, attempts=0)))

    with pytest.raises(Saturated, match="no room"):
        await carry_out(flow, a_request())


async def test_what_was_begun_is_not_turned_away() -> None:
    """One agent without room beside one that has worked is a failure of its part only."""
    done, full = a_run(CATALOG.agent["gap_analyzer"]), a_run(CATALOG.agent["explainer"], FULL, attempts=0)
    outcome = Outcome((*an_outcome(done).parts, *an_outcome(full).parts))

    await carry_out(Recorder(outcome=outcome), a_request())
