"""Calling one agent: the specification's dispatch, its retries within the deadline, and a check of everything that comes back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffErrors, HandoffStatus
from service.deadline import Deadline
from service.errors import ErrorCode
from service.flows.agent_call import BACKOFF, CallAgent
from service.flows.chain import chain_seconds
from service.flows.work import build_dispatch
from service.ports import AgentCalled, AgentFailure, Attempt
from tests.fakes import ScriptedAgents, Watcher, down, handoff_for, some_health
from tests.unit.turns import a_part, a_request, an_agent, an_entity, calling, some_work

CATALOG = load_catalog()
LATE = down(ErrorCode.AGENT_TIMEOUT, recoverable=True)
BROKEN = down(ErrorCode.AGENT_ERROR, recoverable=True, unavailable=False)
FINAL = down(ErrorCode.AGENT_ERROR, unavailable=False)


def at_once() -> float:
    """Jitter that waits not at all."""
    return 0.0


@dataclass
class Client:
    """`AgentClient` that notes what it is given and answers as a function of the attempt's number and dispatch."""

    answer: Callable[[Agent, AgentDispatch, int], Awaitable[AgentHandoff | AgentFailure]]
    timeouts: list[float] = field(default_factory=list)
    deadlines: list[int] = field(default_factory=list)
    sent: list[AgentDispatch] = field(default_factory=list)

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        self.timeouts.append(timeout)
        self.deadlines.append(dispatch.payload.constraints.max_latency_ms)
        self.sent.append(dispatch)
        return await self.answer(agent, dispatch, len(self.sent))


def scripted(*answers: AgentFailure | HandoffStatus) -> Client:
    """Return a client that gives the answers in turn, the last one again and again."""

    async def answer(agent: Agent, dispatch: AgentDispatch, attempt: int) -> AgentHandoff | AgentFailure:
        given = answers[min(attempt, len(answers)) - 1]
        return given if isinstance(given, AgentFailure) else handoff_for(agent, dispatch, given)

    return Client(answer)


def hanging() -> Client:
    """Return a client whose agent never answers, and which gives up in time."""

    async def answer(agent: Agent, dispatch: AgentDispatch, attempt: int) -> AgentFailure:
        await asyncio.sleep(client.timeouts[-1])
        return LATE

    client = Client(answer)
    return client


def caller(client: Any, watcher: Watcher | None = None) -> CallAgent:
    """Return the call under test, without pauses between attempts."""
    return calling(client, watcher)


RETRIES = {"model_deployer": 1, "causal_impact": 2, "drift_monitor": 2, "prediction_synthesizer": 3, "explainer": 1}


@pytest.mark.parametrize(("name", "retries"), RETRIES.items(), ids=[f"tier {CATALOG.agent[n].tier}" for n in RETRIES])
async def test_an_agent_is_retried_as_often_as_its_tier_allows(name: str, retries: int) -> None:
    """The specification's table: tier 0 once, 2 and 3 twice, 4 three times, 5 once."""
    client = scripted(BROKEN)

    run = await caller(client)(CATALOG.agent[name], some_work(3_600.0))

    assert (run.attempts, len(client.sent)) == (1 + retries, 1 + retries)
    assert (run.handoff, run.failure) == (None, BROKEN)


@pytest.mark.parametrize(("failures", "attempts"), [(0, 1), (1, 2), (2, 3)])
async def test_the_first_answer_ends_the_retries(failures: int, attempts: int) -> None:
    """An agent that recovers is heard, and its earlier failures are not held against it."""
    run = await caller(scripted(*[BROKEN] * failures, HandoffStatus.SUCCESS))(CATALOG.agent["causal_impact"], some_work(3_600.0))

    assert (run.attempts, run.failure) == (attempts, None)
    assert run.handoff is not None


@pytest.mark.parametrize(
    ("answers", "factors"),
    [
        ((LATE,), (1.0, 1.5, 1.0, 1.0)),
        ((LATE, BROKEN), (1.0, 1.5, 1.0, 1.0)),
        ((BROKEN, LATE), (1.0, 1.0, 1.5, 1.0)),
        ((BROKEN,), (1.0, 1.0, 1.0, 1.0)),
    ],
    ids=["timeouts", "timeout, then errors", "error, then timeouts", "errors"],
)
async def test_the_first_retry_after_a_timeout_gets_half_as_much_time_again(
    answers: tuple[AgentFailure, ...], factors: tuple[float, ...]
) -> None:
    """Once, and only for a timeout; the dispatch tells the agent so."""
    agent = an_agent(CATALOG, timeout_ms=1_000, max_retries=3)
    client = scripted(*answers)

    await caller(client)(agent, some_work(3_600.0))

    assert client.timeouts == pytest.approx(factors, abs=0.02)
    assert [d.routing.timeout_ms / 1_000 for d in client.sent] == pytest.approx(factors, abs=0.02)


@pytest.mark.parametrize("code", [ErrorCode.AGENT_ERROR, ErrorCode.AGENT_UNAVAILABLE, ErrorCode.HANDOFF_INVALID])
async def test_what_cannot_recover_is_not_tried_again(code: ErrorCode) -> None:
    """Asking again would only waste the budget."""
    client = scripted(down(code, recoverable=False))

    run = await caller(client)(CATALOG.agent["causal_impact"], some_work())

    assert (run.attempts, run.failure and run.failure.code) == (1, code)


async def test_an_agents_own_failure_is_retried_only_if_it_says_so() -> None:
    """`errors.recoverable` of the handoff decides."""
    runs = []
    for recoverable in (False, True):

        async def answer(agent: Agent, dispatch: AgentDispatch, attempt: int, said: bool = recoverable) -> AgentHandoff:
            failed = handoff_for(agent, dispatch, HandoffStatus.FAILED)
            return failed.model_copy(update={"errors": HandoffErrors(error_message="no rows", recoverable=said)})

        runs.append(await caller(Client(answer))(CATALOG.agent["causal_impact"], some_work(3_600.0)))

    assert [run.attempts for run in runs] == [1, 3]
    assert {run.failure and run.failure.detail for run in runs} == {"causal_impact failed: no rows"}


async def test_nothing_is_sent_when_no_time_is_left() -> None:
    """The run says that time, not the agent, was missing."""
    client = scripted(HandoffStatus.SUCCESS)

    run = await caller(client)(CATALOG.agent["causal_impact"], some_work(0.0))

    assert (run.attempts, client.sent) == (0, [])
    assert run.failure is not None
    assert (run.failure.code, run.failure.unavailable) == (ErrorCode.AGENT_TIMEOUT, False)


async def test_an_agent_that_hangs_costs_no_more_than_the_deadline() -> None:
    """Attempts are cut to what is left, and no attempt starts after the end."""
    client = hanging()
    agent = an_agent(CATALOG, timeout_ms=80, max_retries=10)
    started = time.monotonic()

    run = await caller(client)(agent, some_work(0.3))

    assert 0.25 < time.monotonic() - started < 5.0
    assert run.failure is not None
    assert run.failure.code is ErrorCode.AGENT_TIMEOUT
    assert client.timeouts[:2] == pytest.approx([0.08, 0.12], abs=0.03)
    assert sum(client.timeouts) <= 0.31
    assert run.latency_ms >= 250


async def test_the_pause_before_a_retry_ends_with_the_deadline() -> None:
    """A long pause does not outlive the request."""
    call = CallAgent(client=scripted(BROKEN), health=some_health(), observer=Watcher(), jitter=lambda: 1_000.0)
    started = time.monotonic()

    run = await call(an_agent(CATALOG, max_retries=5), some_work(0.1))

    assert time.monotonic() - started < 5.0
    assert (run.attempts, run.failure) == (1, BROKEN)


async def test_pauses_double_and_are_jittered() -> None:
    """0.1 s, 0.2 s, 0.4 s times the jitter, and none after the last attempt."""
    jitters = iter([0.5, 0.1, 0.05])
    call = CallAgent(client=scripted(BROKEN), health=some_health(), observer=Watcher(), jitter=lambda: next(jitters))
    started = time.monotonic()

    run = await call(an_agent(CATALOG, max_retries=3), some_work())

    pauses = BACKOFF * (0.5 + 2 * 0.1 + 4 * 0.05)
    assert run.attempts == 4
    assert pauses <= time.monotonic() - started < pauses + 5.0
    assert next(jitters, None) is None


async def test_a_call_can_be_cancelled() -> None:
    """Cancelling the request ends the attempt and is not swallowed."""
    task = asyncio.create_task(caller(hanging())(an_agent(CATALOG), some_work()))
    await asyncio.sleep(0.01)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_every_attempt_is_observed() -> None:
    """The observer learns of each one, with its outcome."""
    watcher = Watcher()

    await caller(scripted(LATE, HandoffStatus.FAILED, HandoffStatus.SUCCESS), watcher)(CATALOG.agent["causal_impact"], some_work(3_600.0))

    events = [e for e in watcher.events if isinstance(e, AgentCalled)]
    assert [(e.agent, e.outcome, e.attempt) for e in events] == [
        ("causal_impact", "agent_timeout", Attempt.FIRST),
        ("causal_impact", "agent_error", Attempt.RETRY),
    ]


@given(seconds=st.floats(0.05, 1.0), timeout_ms=st.integers(1, 400), retries=st.integers(0, 4), late=st.booleans())
async def test_no_attempt_may_take_longer_than_what_is_left(seconds: float, timeout_ms: int, retries: int, late: bool) -> None:
    """Neither the time allowed nor the time told to the agent exceeds the deadline or the agent's extended timeout."""
    client = scripted(LATE if late else BROKEN)
    agent = an_agent(CATALOG, timeout_ms=timeout_ms, max_retries=retries)

    run = await caller(client)(agent, some_work(seconds))

    limit = min(seconds, timeout_ms * 1.5 / 1_000)
    assert all(t <= limit for t in client.timeouts)
    assert all(ms <= max(1, limit * 1_000) for ms in client.deadlines)
    assert run.attempts == 1 + retries


@pytest.mark.parametrize("name", list(CATALOG.agent))
async def test_the_longest_series_of_attempts_fits_the_budget(name: str) -> None:
    """The budget that dispatch grants one agent pays for all its attempts, the extended one included."""
    agent = CATALOG.agent[name]
    client = scripted(LATE)

    await caller(client)(agent, some_work(3_600.0 * 24))

    assert sum(client.timeouts) == pytest.approx(chain_seconds(a_part(agent)), rel=0.001)


@pytest.mark.parametrize("name", list(CATALOG.agent))
def test_the_dispatch_has_exactly_the_specified_fields(name: str) -> None:
    """Field by field, as in the dispatch contract; priority 1 on the critical path, else 2 + tier."""
    agent = CATALOG.agent[name]
    agent = agent.model_copy(update={"receives": ("raw_query", "entities", "context.treatment")})
    work = some_work(3_600.0 * 24, entities=(an_entity(),), request=a_request("Did it?", context={"treatment": "visits"}))

    dispatch = build_dispatch(agent, work, agent.timeout_ms / 1_000, uuid4()).model_dump(mode="json")

    assert UUID(dispatch.pop("dispatch_id")).version == 4
    assert dispatch["metadata"].pop("dispatched_at").endswith("Z")
    allowed = dispatch["payload"]["constraints"].pop("max_latency_ms")
    assert dispatch["routing"].pop("timeout_ms") == allowed
    assert agent.timeout_ms - 5 <= allowed <= agent.timeout_ms
    assert dispatch == {
        "query_id": str(work.request.parsed_query.query_id),
        "target_agent": name,
        "target_tier": agent.tier,
        "payload": {
            "intent": "causal_impact",
            "entities": [{"type": "brand", "value": "Kisqali", "confidence": 1.0, "source": "exact"}],
            "context": {"treatment": "visits", "raw_query": "Did it?"},
            "constraints": {"required_confidence": agent.required_confidence},
        },
        "routing": {
            "priority": 1 if name in {"causal_impact", "explainer"} else 2 + agent.tier,
            "retry_count": {0: 1, 2: 2, 3: 2, 4: 3, 5: 1}[agent.tier],
            "fallback_agent": {0: None, 2: "explainer", 3: "health_score", 4: "explainer", 5: None}[agent.tier]
            if name != "health_score"
            else "explainer",
        },
        "metadata": {"correlation_id": "corr-1"},
    }


def test_a_dispatch_tells_no_less_than_a_millisecond() -> None:
    """Even when the deadline passes while it is written."""
    assert build_dispatch(CATALOG.agent["explainer"], some_work(deadline=Deadline(0.0)), 5.0, uuid4()).routing.timeout_ms == 1


@pytest.mark.parametrize(
    ("idempotent", "may_have_run", "attempts"), [(True, True, 3), (True, False, 3), (False, False, 3), (False, True, 1)]
)
async def test_work_that_may_have_been_started_is_repeated_for_idempotent_agents_only(
    idempotent: bool, may_have_run: bool, attempts: int
) -> None:
    """A training run does not start twice because its first answer got lost."""
    client = scripted(replace(LATE, may_have_run=may_have_run))

    run = await caller(client)(an_agent(CATALOG, idempotent=idempotent), some_work(3_600.0))

    assert run.attempts == attempts


async def test_all_attempts_at_an_agent_have_one_id() -> None:
    """An agent can know a repeated dispatch by its id, and not start the same work twice."""
    client = ScriptedAgents({"causal_impact": [BROKEN]})

    await caller(client)(CATALOG.agent["causal_impact"], some_work(3_600.0))

    assert [d.dispatch_id for d in client.sent] == [client.sent[0].dispatch_id] * 3
    assert {d.metadata.correlation_id for d in client.sent} == {"corr-1"}


@pytest.mark.parametrize("status", list(HandoffStatus))
async def test_whatever_the_status_a_run_holds_a_handoff_or_a_failure(status: HandoffStatus) -> None:
    """Never both, never neither."""
    run = await caller(scripted(status))(CATALOG.agent["causal_impact"], some_work(3_600.0))

    assert (run.handoff is None) is not (run.failure is None)


async def test_who_is_told_to_wait_by_the_crowd_is_answered_after_it() -> None:
    """Six at once get 429 with `Retry-After`; nobody finds the breaker open when the time has come."""
    full = replace(down(ErrorCode.AGENT_UNAVAILABLE, recoverable=True), retry_after=0.3)
    sent: list[float] = []

    async def answer(agent: Agent, dispatch: AgentDispatch, attempt: int) -> AgentHandoff | AgentFailure:
        sent.append(time.monotonic())
        await asyncio.sleep(0.05)
        return full if attempt <= 6 else handoff_for(agent, dispatch)

    agent = an_agent(CATALOG, max_concurrent=6, max_retries=2)
    call = calling(Client(answer))
    runs = await asyncio.gather(*(call(agent, some_work(5.0)) for _ in range(6)))

    assert [run.failure for run in runs] == [None] * 6
    assert min(sent[6:]) - sent[0] >= 0.3
