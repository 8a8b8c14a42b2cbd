"""What holds for every flow, whatever the agents do: no answer after its budget, no attempt too many, nothing left behind."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyHttpUrl

from service.catalog.model import Agent
from service.contracts.caller import Caller
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.errors import ErrorCode
from service.flows.agent_call import CallAgent
from service.flows.flow import Flow, Outcome, Verdict
from service.flows.health import Health
from service.flows.parallel import Parallel
from service.flows.pipeline import PipelineFlow
from service.flows.single import Single
from service.ports import AgentFailure
from service.stages.gate import Gate, missing_permissions
from tests.fakes import Watcher, down, handoff_for, some_health
from tests.unit.turns import CATALOG, a_decision, some_work
from tests.virtual_time import run_virtually

GRACE = 0.05


@dataclass(frozen=True)
class Reply:
    """How an agent answers one call."""

    seconds: float
    end: AgentFailure | HandoffStatus
    confidence: float = 0.9


@dataclass
class Agents:
    """`AgentClient` by script, agent by agent, the last reply again and again; counts calls and open ones."""

    script: dict[str, list[Reply]]
    calls: Counter[str] = field(default_factory=Counter)
    open: int = 0

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Take the time, then end as scripted."""
        replies = self.script.get(agent.name) or [Reply(0.01, HandoffStatus.SUCCESS)]
        reply = replies[min(self.calls[agent.name], len(replies) - 1)]
        self.calls[agent.name] += 1
        self.open += 1
        try:
            await asyncio.sleep(min(reply.seconds, timeout))
        finally:
            self.open -= 1
        if reply.seconds > timeout:
            return replace(down(ErrorCode.AGENT_TIMEOUT, recoverable=True), may_have_run=True)
        if isinstance(reply.end, AgentFailure):
            return reply.end
        handoff = handoff_for(agent, dispatch, reply.end, reply.confidence)
        output = {"scope": {}, "dataset": {}, "qc_report": {"passed": True}, "selected": {}, **handoff.result.primary_output}
        return handoff.model_copy(update={"result": handoff.result.model_copy(update={"primary_output": output})})


failures = st.builds(
    lambda code, recoverable, begun, after: replace(down(code, recoverable=recoverable), may_have_run=begun, retry_after=after),
    st.sampled_from([ErrorCode.AGENT_ERROR, ErrorCode.AGENT_UNAVAILABLE, ErrorCode.HANDOFF_INVALID]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0.0, 0.3, 30.0, 86_400.0]),
)
replies = st.builds(
    Reply,
    st.sampled_from([0.0, 0.02, 0.4, 3.0, 50.0, 1e6]),
    st.sampled_from(list(HandoffStatus)) | failures,
    st.sampled_from([0.0, 0.4, 0.9]),
)
scripts = st.dictionaries(st.sampled_from(list(CATALOG.agent)), st.lists(replies, min_size=1, max_size=5), max_size=8)
plans = st.sampled_from(["single", "parallel", "pipeline"])
wishes = st.lists(st.sampled_from(list(CATALOG.intent)), min_size=1, max_size=4, unique=True)
callers = st.builds(
    Caller,
    tenant=st.just("acme"),
    permissions=st.none() | st.frozensets(st.sampled_from([*(f"tier:{n}" for n in range(6)), "models:train", "models:deploy"])),
)


def planned(flow: str, intents: list[str], caller: Caller) -> Verdict:
    """Return what the gate lets happen."""
    if flow == "pipeline":
        intents = ["ml_training"]
    first = CATALOG.intent[intents[0]]
    decision = a_decision(
        first.primary_agent, intent=first.name, intents=tuple(intents), secondary_agents=first.supporting_agents, flow=flow
    )
    return Gate(catalog=CATALOG)(decision, caller, lambda _: True)


def flow_of(name: str, agents: Agents, health: Health) -> Flow:
    """Return a flow that calls these agents."""
    call = CallAgent(client=agents, health=health, observer=Watcher())
    return {"single": Single(call=call), "parallel": Parallel(call=call), "pipeline": PipelineFlow(call=call)}[name]


@settings(max_examples=150, deadline=None)
@given(flow=plans, intents=wishes, script=scripts, budget=st.sampled_from([0.001, 0.3, 2.0, 60.0, 3_600.0]), caller=callers)
def test_no_answer_comes_after_its_budget_and_no_attempt_is_too_many(
    flow: str, intents: list[str], script: dict[str, list[Reply]], budget: float, caller: Caller
) -> None:
    """In 50 ms beyond the budget the outcome is there; attempts keep to the tier's table; nobody is called whom the gate denies."""
    agents, health = Agents(script), some_health()
    verdict = planned(flow, intents, caller)

    async def carry_out() -> tuple[Outcome, float]:
        started = time.monotonic()
        outcome = await flow_of(verdict.flow, agents, health)(verdict, some_work(budget))
        return outcome, time.monotonic() - started

    if not verdict.parts:
        return
    outcome, took = run_virtually(carry_out())

    assert took <= budget + GRACE
    assert agents.open == 0
    for run in outcome.runs:
        assert run.attempts <= 1 + run.agent.max_retries
    allowed = {agent.name for part in verdict.parts for agent in part.chain}
    assert set(agents.calls) <= allowed
    assert all(missing_permissions(CATALOG.agent[name], caller) == () for name in agents.calls)
    assert [part.part for part in outcome.parts] == list(verdict.parts[: len(outcome.parts)])


@settings(max_examples=60, deadline=None)
@given(flow=plans, intents=wishes, script=scripts, after=st.sampled_from([0.0, 0.01, 0.1, 1.0, 20.0]))
def test_a_request_that_is_cancelled_leaves_nothing_behind(
    flow: str, intents: list[str], script: dict[str, list[Reply]], after: float
) -> None:
    """No task, no open call, no slot, at whatever moment."""
    agents, health = Agents(script), some_health()
    verdict = planned(flow, intents, Caller())

    async def cancel() -> tuple[int, int]:
        task = asyncio.create_task(_ended(flow_of(verdict.flow, agents, health)(verdict, some_work(3_600.0))))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(asyncio.all_tasks()) - 1, agents.open

    assert run_virtually(cancel()) == (0, 0)
    assert (health.slots.taken, health.slots.waiting) == (0, 0)
    assert all((health.of(agent).slots.taken, health.of(agent).slots.waiting) == (0, 0) for agent in CATALOG.agents)


async def _ended(flow: "asyncio.Future[Outcome]") -> Outcome:
    return await flow


@settings(max_examples=40, deadline=None)
@given(
    requests=st.integers(1, 60),
    limit=st.integers(1, 4),
    script=st.lists(replies, min_size=1, max_size=4),
    two_addresses=st.booleans(),
)
def test_a_crowd_ends_too(requests: int, limit: int, script: list[Reply], two_addresses: bool) -> None:
    """Many requests at once for one agent with few slots: each ends within its budget, and the agent never has more than its limit."""
    urls = ("http://a/x", "http://b/x") if two_addresses else ("http://a/x",)
    agent = CATALOG.agent["gap_analyzer"].model_copy(update={"max_concurrent": limit, "urls": tuple(map(AnyHttpUrl, urls))})
    agents, health = Agents({agent.name: script}), some_health()
    call = CallAgent(client=agents, health=health, observer=Watcher())

    async def rush() -> float:
        started = time.monotonic()
        await asyncio.gather(*(call(agent, some_work(5.0)) for _ in range(requests)))
        return time.monotonic() - started

    assert run_virtually(rush()) <= 5.0 + GRACE
    assert agents.calls[agent.name] <= requests * (1 + agent.max_retries)
    assert (agents.open, health.of(agent).slots.taken) == (0, 0)
