"""What keeps one agent from sinking a request or the service: breaker, retry budget, Retry-After, hedges and slots around a call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
from pydantic import AnyHttpUrl

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.flows.chain import walk
from service.flows.flow import Part, Role
from service.flows.health import RETRIES_SAVED, WAITING_PER_SLOT, Health
from service.flows.slots import Slots
from service.flows.work import AgentRun, AgentStarted
from service.ports import AgentCalled, AgentFailure, Attempt
from tests.fakes import ScriptedAgents, Watcher, down, handoff_for, some_health, take_away
from tests.unit.turns import CATALOG, an_agent, calling, some_work

SLOW, QUICK = "http://slow/x", "http://quick/x"
BROKEN = down(ErrorCode.AGENT_ERROR, recoverable=True, unavailable=False)
FULL = down(recoverable=True)


@dataclass
class Replicas:
    """`AgentClient` whose addresses behave differently; notes which were called, and which calls were given up."""

    behaviour: dict[str, Callable[[], Awaitable[AgentFailure | None]]]
    called: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Behave as the address does."""
        self.called.append(url)
        try:
            failure = await self.behaviour[url]()
        except asyncio.CancelledError:
            self.given_up.append(url)
            raise
        return failure or handoff_for(agent, dispatch)


def answers_after(seconds: float, failure: AgentFailure | None = None) -> Callable[[], Awaitable[AgentFailure | None]]:
    """Return how an address behaves that takes its time."""

    async def behave() -> AgentFailure | None:
        await asyncio.sleep(seconds)
        return failure

    return behave


def two(agent: str = "gap_analyzer", **fields: object) -> Agent:
    """Return an agent with a slow and a quick address."""
    return an_agent(CATALOG, agent, urls=(AnyHttpUrl(SLOW), AnyHttpUrl(QUICK)), **fields)


def experienced(agent: Agent, requests: int = 100) -> Health:
    """Return what is known of an agent after requests that it has answered in 20 ms each."""
    health = some_health()
    for _ in range(requests):
        health.of(agent).answered(0.02)
        health.of(agent).hedges.earn()
        health.of(agent).choose_url()
    return health


async def test_an_agent_whose_breaker_is_open_is_not_called() -> None:
    """The run says so, counts no attempt, and takes no time."""
    agents, health, agent = ScriptedAgents(), some_health(), CATALOG.agent["gap_analyzer"]
    take_away(health, agent)

    run = await calling(agents, health=health)(agent, some_work())

    assert (agents.sent, run.attempts) == ([], 0)
    assert run.failure is not None
    assert (run.failure.code, run.failure.unavailable) == (ErrorCode.AGENT_UNAVAILABLE, True)


async def test_an_agent_that_fails_every_request_is_left_alone_after_five_calls() -> None:
    """Two requests of three attempts: the second one stops when the breaker opens."""
    agents, health, agent = ScriptedAgents({"gap_analyzer": [BROKEN]}), some_health(), CATALOG.agent["gap_analyzer"]
    call = calling(agents, health=health)

    runs = [await call(agent, some_work()) for _ in range(4)]

    assert [run.attempts for run in runs] == [3, 2, 0, 0]


async def test_retries_are_a_share_of_the_requests() -> None:
    """A hundred requests at once to an agent that refuses them all: no storm, although each may be retried."""
    refusing = replace(BROKEN, code=ErrorCode.AGENT_UNAVAILABLE)
    agents, agent = ScriptedAgents({"gap_analyzer": [refusing]}), an_agent(CATALOG, "gap_analyzer", max_concurrent=1_000)
    health = some_health()
    health.of(agent).breaker.enter = lambda _: True  # type: ignore[method-assign]  # the budget alone is looked at

    await asyncio.gather(*(calling(agents, health=health)(agent, some_work()) for _ in range(100)))

    assert 100 <= len(agents.sent) <= 100 + RETRIES_SAVED + 0.2 * 100 + 2


async def test_retry_after_is_waited_for_within_the_deadline() -> None:
    """Not a moment earlier, and by the next request too."""
    health, agent = some_health(), CATALOG.agent["gap_analyzer"]
    health.of(agent).failed(str(agent.urls[0]), replace(FULL, retry_after=0.2), 0.0)
    started = time.monotonic()

    run = await calling(ScriptedAgents(), health=health)(agent, some_work(5.0))

    assert (run.attempts, run.failure) == (1, None)
    assert 0.19 <= time.monotonic() - started < 2.0


async def test_who_cannot_wait_as_long_as_the_agent_asks_goes_to_the_fallback_at_once() -> None:
    """The agent is not called against its wish, and the caller's time is not slept away."""
    agents = ScriptedAgents({"gap_analyzer": [replace(FULL, retry_after=30.0)]})
    call, agent, started = calling(agents), CATALOG.agent["gap_analyzer"], time.monotonic()

    first, second = await call(agent, some_work(1.0)), await call(agent, some_work(1.0))

    assert time.monotonic() - started < 0.5
    assert [(run.attempts, run.failure and run.failure.code) for run in (first, second)] == [
        (1, ErrorCode.AGENT_UNAVAILABLE),
        (0, ErrorCode.AGENT_UNAVAILABLE),
    ]


async def test_no_more_than_a_few_wait_until_an_agent_may_be_called_again() -> None:
    """As many as were at work or had a place; all of them would call it at the same moment."""
    health, agents = some_health(), ScriptedAgents()
    agent = CATALOG.agent["gap_analyzer"].model_copy(update={"max_concurrent": 2})
    health.of(agent).failed(str(agent.urls[0]), replace(FULL, retry_after=0.2), 0.0)

    runs = await asyncio.gather(*(calling(agents, health=health)(agent, some_work(5.0)) for _ in range(50)))

    full = [run for run in runs if run.failure is not None and run.failure.code is ErrorCode.SATURATED]
    assert len(agents.sent) == len(runs) - len(full) == (WAITING_PER_SLOT + 1) * 2


@pytest.mark.parametrize(("rest", "asked"), [(0.3, ["gap_analyzer"]), (30.0, ["explainer"])], ids=["a moment", "a while"])
async def test_an_agent_that_rests_for_a_while_is_passed_over_for_its_fallback(rest: float, asked: list[str]) -> None:
    """Who can be served by another does not wait half a minute; a moment is waited out."""
    health, agents, agent = some_health(), ScriptedAgents(), CATALOG.agent["gap_analyzer"]
    health.of(agent).failed(str(agent.urls[0]), replace(FULL, retry_after=rest), 0.0)
    part = Part(Role.ASKED, "gap_analysis", agent, (agent, CATALOG.agent["explainer"]))

    run = await walk(calling(agents, health=health), part, some_work(60.0), set())

    assert [dispatch.target_agent for dispatch in agents.sent] == asked
    assert run.answer is not None
    assert health.left_alone(agent) is (rest > 1.0)


async def test_whatever_breaks_on_the_way_to_an_agent_is_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the error, the answer only its name; and it counts against the agent like any other."""

    class Broken(ScriptedAgents):
        async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
            raise UnicodeError("label too long: secret")

    health, agent = some_health(), CATALOG.agent["gap_analyzer"]
    run = await calling(Broken(), health=health)(agent, some_work(5.0))

    assert run.failure is not None
    assert (run.failure.code, run.failure.recoverable, run.attempts) == (ErrorCode.AGENT_UNAVAILABLE, False, 1)
    assert "UnicodeError" in run.failure.detail
    assert "secret" not in run.failure.detail
    assert "label too long" in caplog.text


async def test_nothing_starts_that_cannot_finish() -> None:
    """An agent that has never answered within half a second is not asked with a tenth left."""
    agents, health, agent = ScriptedAgents(), some_health(), CATALOG.agent["gap_analyzer"]
    health.of(agent).answered(0.5)

    run = await calling(agents, health=health)(agent, some_work(0.1))

    assert (agents.sent, run.attempts, run.failure and run.failure.code) == ([], 0, ErrorCode.AGENT_TIMEOUT)


async def test_a_hedge_answers_for_a_call_that_takes_too_long_and_the_loser_is_given_up() -> None:
    """Once the usual 20 ms are over, the other address is asked too."""
    agent = two()
    health = experienced(agent, requests=101)
    client, watcher = Replicas({SLOW: answers_after(5.0), QUICK: answers_after(0.0)}), Watcher()
    while health.of(agent).choose_url() != QUICK:  # so that the slow one is next
        pass
    started = time.monotonic()

    run = await calling(client, watcher, health)(agent, some_work())

    assert time.monotonic() - started < 2.0
    assert run.handoff is not None
    assert (client.called, client.given_up, run.attempts) == ([SLOW, QUICK], [SLOW], 2)


async def test_hedges_are_five_in_a_hundred_at_most() -> None:
    """However slow the agent has become."""
    agent = two(max_concurrent=1_000)
    health = some_health()
    client, watcher = Replicas({SLOW: answers_after(0.01), QUICK: answers_after(0.01)}), Watcher()

    for _ in range(200):
        for _ in range(100):
            health.of(agent).answered(0.001)  # so that ten milliseconds stay slow
        await calling(client, watcher, health)(agent, some_work())

    hedges = [e for e in watcher.events if isinstance(e, AgentCalled) and e.attempt is Attempt.HEDGE]
    assert len(client.called) - 200 <= 10
    assert len(hedges) <= 10
    assert len(client.called) > 200


@pytest.mark.parametrize("fields", [{"idempotent": False}, {"max_retries": 0}], ids=["not idempotent", "no retries"])
async def test_work_that_may_not_be_repeated_is_not_hedged(fields: dict[str, object]) -> None:
    """A second call is an attempt like any other."""
    agent = two(**fields)
    client = Replicas({SLOW: answers_after(0.1), QUICK: answers_after(0.1)})

    run = await calling(client, health=experienced(agent))(agent, some_work())

    assert (len(client.called), run.attempts) == (1, 1)


async def test_when_both_calls_fail_it_counts_as_two_attempts() -> None:
    """Attempts stay within the tier's table, hedges included."""
    agent = two(max_retries=2)
    client = Replicas({SLOW: answers_after(0.05, BROKEN), QUICK: answers_after(0.05, BROKEN)})

    run = await calling(client, health=experienced(agent))(agent, some_work())

    assert run.failure == BROKEN
    assert len(client.called) == run.attempts <= 3


async def test_one_agent_has_no_more_calls_at_once_than_its_limit() -> None:
    """The others wait, so many of them; who comes then is turned away, and that is no failure of the agent."""
    agent = an_agent(CATALOG, "gap_analyzer", max_concurrent=2, urls=(AnyHttpUrl(SLOW),))
    client = Replicas({SLOW: answers_after(0.1)})
    call = calling(client)

    runs = await asyncio.gather(*(call(agent, some_work()) for _ in range(8)))

    assert len(client.called) == 6
    assert [run.failure.code for run in runs if run.failure] == [ErrorCode.SATURATED] * 2
    assert all(run.attempts == 0 for run in runs if run.failure)


async def test_who_waits_for_room_waits_no_longer_than_the_deadline() -> None:
    """And is not called afterwards."""
    agent = an_agent(CATALOG, "gap_analyzer", max_concurrent=1, urls=(AnyHttpUrl(SLOW),))
    client = Replicas({SLOW: answers_after(0.5)})
    call = calling(client)
    first = asyncio.create_task(call(agent, some_work()))
    await asyncio.sleep(0.01)
    started = time.monotonic()

    run = await call(agent, some_work(0.1))

    assert time.monotonic() - started < 0.4
    assert (run.attempts, run.failure and run.failure.code) == (0, ErrorCode.AGENT_TIMEOUT)
    assert (await first).handoff is not None


async def test_a_hanging_agent_leaves_room_for_the_others() -> None:
    """Its calls and those that wait for it hold only its own slots."""
    stuck = an_agent(CATALOG, "gap_analyzer", max_concurrent=4, urls=(AnyHttpUrl(SLOW),))
    other = an_agent(CATALOG, "drift_monitor", urls=(AnyHttpUrl(QUICK),))
    health = Health(slots=Slots(8, most_waiting=8, reserved=1))
    call = calling(Replicas({SLOW: answers_after(30.0), QUICK: answers_after(0.0)}), health=health)
    hanging = [asyncio.create_task(call(stuck, some_work())) for _ in range(12)]
    await asyncio.sleep(0.01)

    runs = await asyncio.wait_for(asyncio.gather(*(call(other, some_work()) for _ in range(8))), 2.0)

    assert all(run.handoff is not None for run in runs)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert (health.slots.taken, health.slots.waiting, health.of(stuck).slots.taken, health.of(stuck).slots.waiting) == (0, 0, 0, 0)


async def test_a_call_that_is_given_up_leaves_no_task_and_no_slot() -> None:
    """In the middle of a hedge."""
    agent = two()
    health = experienced(agent)
    client = Replicas({SLOW: answers_after(30.0), QUICK: answers_after(30.0)})
    before = asyncio.all_tasks()
    task = asyncio.create_task(calling(client, health=health)(agent, some_work()))
    while len(client.called) < 2:
        await asyncio.sleep(0.005)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert sorted(client.given_up) == sorted([SLOW, QUICK])
    assert asyncio.all_tasks() == before
    assert (health.slots.taken, health.of(agent).slots.taken) == (0, 0)


async def test_start_and_end_are_told() -> None:
    """To whoever follows this request."""
    told: list[AgentStarted | AgentRun] = []
    agent = CATALOG.agent["gap_analyzer"]

    run = await calling(ScriptedAgents())(agent, some_work(progress=told.append))

    start, end = told
    assert isinstance(start, AgentStarted)
    assert (start.agent, start.attempts(), end) == (agent, 1, run)
