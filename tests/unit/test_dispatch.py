"""Dispatch gives a flow one budget: the chain's timeouts with their retries, or less where the caller wishes."""

import time
from typing import Any

import pytest

from service.catalog.loader import load_catalog
from service.contracts.caller import Caller
from service.deadline import Deadline
from service.flows.agent_call import Work
from service.flows.flow import Outcome, Verdict
from service.routing.history import UTTERANCES
from service.stages.dispatch import MOST_SAID, Dispatch, latency_budget_ms
from service.stages.gate import Gate
from tests.unit.turns import a_decision, a_request, an_entity

CATALOG = load_catalog()


class Recorder:
    """A flow that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[Verdict, Work]] = []

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        self.given.append((verdict, work))
        return Outcome(())


def plan(agent: str) -> Verdict:
    """Return what the gate lets happen for a decision for an agent."""
    return Gate(catalog=CATALOG)(a_decision(agent), Caller(), lambda _: True)


BUDGETS = {  # own timeout by (1 first + 1.5 extended + further retries), then the same for each fallback
    "model_deployer": 60_000 * 2.5,
    "causal_impact": 120_000 * 3.5 + 180_000 * 2.5,
    "drift_monitor": 60_000 * 3.5 + 60_000 * 3.5 + 180_000 * 2.5,
    "prediction_synthesizer": 20_000 * 4.5 + 180_000 * 2.5,
    "explainer": 180_000 * 2.5,
}


@pytest.mark.parametrize(("agent", "budget"), BUDGETS.items(), ids=BUDGETS)
def test_the_budget_is_what_the_chain_may_take(agent: str, budget: float) -> None:
    """Every attempt that the tiers allow is paid for."""
    assert latency_budget_ms(plan(agent)) == int(budget)


def test_a_chain_without_agents_has_no_budget() -> None:
    """There is nothing to wait for."""
    verdict = Gate(catalog=CATALOG)(a_decision("drift_monitor"), Caller(), lambda _: False)

    assert latency_budget_ms(verdict) == 0


async def carry_out(flow: Recorder, request: Any, limit: Deadline | None = None, **decision: Any) -> Work:
    """Dispatch a request by a recording flow and return the work that the flow got."""
    verdict = plan("causal_impact")
    await Dispatch(catalog=CATALOG, flows={"single": flow})(
        request, a_decision(**decision), verdict, "corr-7", limit or Deadline.after(3_600.0)
    )
    assert flow.given[-1][0] is verdict
    return flow.given[-1][1]


@pytest.mark.parametrize(("limit", "seconds"), [(3_600.0, 870.0), (1.5, 1.5)], ids=["more than the chain may take", "less"])
async def test_the_requests_limit_may_shorten_the_budget_but_not_lengthen_it(limit: float, seconds: float) -> None:
    """One deadline for the whole chain."""
    started = time.monotonic()

    work = await carry_out(Recorder(), a_request(), Deadline.after(limit))

    assert work.deadline.at - started == pytest.approx(seconds, abs=0.2)


async def test_the_work_holds_what_the_agent_needs() -> None:
    """The decision's intent and entities, the caller's context, and the question under `raw_query`, which the caller cannot fake."""
    request = a_request("Did it?", context={"treatment": "visits", "raw_query": "something else"})

    work = await carry_out(Recorder(), request, entities=[an_entity()])

    assert (work.query_id, work.correlation_id, work.intent) == (request.parsed_query.query_id, "corr-7", "causal_impact")
    assert work.context == {"treatment": "visits", "raw_query": "Did it?"}
    assert [e.value for e in work.entities] == ["Kisqali"]
    assert work.required_confidence is None


async def test_the_agent_is_told_what_was_said_before() -> None:
    """The latest utterances, each cut to a length, which the caller's own context cannot fake."""
    history = [{"role": "user", "content": str(i) * (MOST_SAID + 5)} for i in range(UTTERANCES + 1)]
    request = a_request("and there?", history=history, context={"conversation_history": "x"})

    work = await carry_out(Recorder(), request)

    said = work.context["conversation_history"]
    assert said == [{"role": "user", "content": str(i) * MOST_SAID} for i in range(1, UTTERANCES + 1)]


@pytest.mark.parametrize("required", [0.0, 0.9])
async def test_the_callers_required_confidence_is_passed_on(required: float) -> None:
    """Zero is a wish too."""
    work = await carry_out(Recorder(), a_request(preferences={"required_confidence": required}))

    assert work.required_confidence == required


async def test_a_decision_without_intent_carries_the_fallback_intent() -> None:
    """The dispatch contract has no empty intent."""
    work = await carry_out(Recorder(), a_request(), intent=None)

    assert work.intent == CATALOG.fallback_intent


async def test_the_decisions_flow_is_taken() -> None:
    """Flows are plug-ins, chosen by name; without one it is `single`."""
    single, other = Recorder(), Recorder()
    dispatch = Dispatch(catalog=CATALOG, flows={"single": single, "other": other})

    await dispatch(a_request(), a_decision(flow="other"), plan("causal_impact"), "c", Deadline.after(60.0))
    await dispatch(a_request(), a_decision(flow=None), plan("causal_impact"), "c", Deadline.after(60.0))

    assert (len(single.given), len(other.given)) == (1, 1)
