"""What is known of an agent decides who may call it, how long it is left alone, and which of its addresses is taken."""

from dataclasses import replace

import pytest
from pydantic import AnyHttpUrl

from service.catalog.model import Agent
from service.errors import ErrorCode
from service.flows.breaker import IN_A_ROW, SHORT_REST, BreakerState
from service.flows.health import HEDGE_LEAST, LATELY, LONGEST_RETRY_AFTER, REPLICA_REST, AgentHealth, Health
from service.flows.slots import Slots
from service.ports import AgentFailure
from tests.fakes import down
from tests.unit.test_breaker import Clock
from tests.unit.turns import CATALOG, an_agent

A, B, C = "http://a/x", "http://b/x", "http://c/x"
ERROR = down(ErrorCode.AGENT_ERROR, recoverable=True, unavailable=False)
LATE = down(ErrorCode.AGENT_TIMEOUT, recoverable=True)
REFUSED = down(ErrorCode.AGENT_ERROR, recoverable=False, unavailable=False)


def at(*urls: str) -> Agent:
    """Return an agent with these addresses."""
    return an_agent(CATALOG, urls=tuple(AnyHttpUrl(url) for url in urls))


@pytest.fixture
def clock() -> Clock:
    """Give a clock that stands still."""
    return Clock()


def test_addresses_are_taken_in_turn(clock: Clock) -> None:
    """Replicas share the work."""
    health = AgentHealth(at(A, B, C), clock=clock)

    assert sorted(health.choose_url() for _ in range(6)) == [A, A, B, B, C, C]


def test_an_address_that_has_failed_is_passed_over_for_a_while(clock: Clock) -> None:
    """And taken again after its rest."""
    health = AgentHealth(at(A, B), clock=clock)
    health.failed(A, ERROR, 0.1)

    passed_over = {health.choose_url() for _ in range(4)}
    clock.now += REPLICA_REST + 0.1

    assert passed_over == {B}
    assert {health.choose_url() for _ in range(4)} == {A, B}


def test_when_all_addresses_have_failed_the_one_that_rested_longest_is_taken(clock: Clock) -> None:
    """Somebody has to be asked."""
    health = AgentHealth(at(A, B), clock=clock)
    health.failed(B, ERROR, 0.1)
    clock.now += 1.0
    health.failed(A, ERROR, 0.1)

    assert {health.choose_url() for _ in range(4)} == {B}


def test_a_second_call_goes_to_another_address(clock: Clock) -> None:
    """A hedge at the same address would wait in the same queue."""
    health = AgentHealth(at(A, B), clock=clock)

    assert {health.choose_url(other_than=A) for _ in range(4)} == {B}


@pytest.mark.parametrize(("urls", "answers", "hedges"), [((A, B), HEDGE_LEAST, True), ((A, B), HEDGE_LEAST - 1, False), ((A,), 100, False)])
def test_hedging_takes_two_addresses_and_enough_answers(clock: Clock, urls: tuple[str, ...], answers: int, hedges: bool) -> None:
    """A percentile of three numbers means nothing."""
    health = AgentHealth(at(*urls), clock=clock)
    for number in range(answers):
        health.answered(0.1 + number / 1_000)

    assert (health.hedge_after is not None) is hedges


def test_the_hedge_comes_after_the_95th_percentile(clock: Clock) -> None:
    """Of the last hundred answers."""
    health = AgentHealth(at(A, B), clock=clock)
    for number in range(1_000):
        health.answered(9.0 if number < 900 else float(number - 899))

    assert health.hedge_after == pytest.approx(95.0, abs=1.0)
    assert health.fastest == 1.0


JUDGED: dict[str, tuple[AgentFailure, BreakerState]] = {
    "an error that may pass": (ERROR, BreakerState.OPEN),
    "silence": (LATE, BreakerState.OPEN),
    "unavailable": (down(), BreakerState.OPEN),
    "a broken contract": (down(ErrorCode.HANDOFF_INVALID, unavailable=False), BreakerState.OPEN),
    "another's answer": (down(ErrorCode.DISPATCH_MISMATCH, unavailable=False), BreakerState.OPEN),
    "left out what is required": (down(ErrorCode.OUTPUT_MISSING, unavailable=False), BreakerState.OPEN),
    "refused in good order": (REFUSED, BreakerState.CLOSED),
}


@pytest.mark.parametrize(("failure", "state"), JUDGED.values(), ids=JUDGED)
def test_what_speaks_of_the_agent_opens_its_breaker(clock: Clock, failure: AgentFailure, state: BreakerState) -> None:
    """A question that it cannot answer (an unknown brand, HTTP 400) speaks of the question."""
    health = AgentHealth(at(A), clock=clock)
    for _ in range(IN_A_ROW):
        health.failed(A, failure, 0.5)

    assert health.breaker.state is state


@pytest.mark.parametrize(
    ("failure", "waited", "soon"),
    [(down(), 0.01, True), (down(), 3.0, False), (replace(down(), may_have_run=True), 0.01, False), (ERROR, 0.01, False)],
    ids=["refused at once", "only after a while", "broken off in the work", "an error of the agent"],
)
def test_who_is_not_there_is_tried_again_soon(clock: Clock, failure: AgentFailure, waited: float, soon: bool) -> None:
    """Only where trying costs nobody anything."""
    health = AgentHealth(at(A), clock=clock)
    for _ in range(IN_A_ROW):
        health.failed(A, failure, waited)

    clock.now += SHORT_REST * 1.2 + 0.01

    assert health.breaker.allows(60.0) is soon


@pytest.mark.parametrize(("asked", "left_alone"), [(2.0, 2.0), (0.0, 0.0), (86_400.0, LONGEST_RETRY_AFTER), (None, 0.0)])
def test_an_agent_is_left_alone_as_long_as_it_asks(clock: Clock, asked: float | None, left_alone: float) -> None:
    """Up to a minute, after which it is tried again whatever it says; a shorter wish does not cut a longer one."""
    health = AgentHealth(at(A), clock=clock)
    health.failed(A, replace(down(recoverable=True), retry_after=asked), 0.1)
    health.failed(A, replace(down(recoverable=True), retry_after=0.0), 0.1)

    assert health.left_alone_for == pytest.approx(left_alone)
    clock.now += LONGEST_RETRY_AFTER
    assert health.left_alone_for == 0.0


def test_availability_is_of_one_agent_and_of_the_callers_patience(clock: Clock) -> None:
    """No more than the agent's own timeout counts: nobody waits longer than that for one attempt."""
    health = Health(slots=Slots(8, most_waiting=8), clock=clock)
    stuck, other = an_agent(CATALOG, timeout_ms=10_000), CATALOG.agent["explainer"]
    for _ in range(IN_A_ROW):
        health.of(stuck).failed(A, LATE, 2.0)

    assert [health.available(stuck, seconds) for seconds in (1.0, 2.0, 3.0)] == [False, False, True]
    assert health.available(other, 1.0)
    for _ in range(IN_A_ROW):
        health.of(stuck).failed(A, LATE, 10.0)
    assert not health.available(stuck, 3_600.0)
    assert dict(health.states([stuck, other])) == {"causal_impact": BreakerState.OPEN, "explainer": BreakerState.CLOSED}


def test_a_breaker_that_opens_or_closes_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once each, with the agent's name; the failures in between are in the metrics."""
    agent = CATALOG.agent["gap_analyzer"]
    known = AgentHealth(agent)
    for _ in range(8):
        known.failed(str(agent.urls[0]), down(ErrorCode.AGENT_TIMEOUT), 1.0)
    known.answered(0.1)
    known.answered(0.1)

    assert [(r.message, getattr(r, "agent", None)) for r in caplog.records] == [
        ("breaker_opened", "gap_analyzer"),
        ("breaker_closed", "gap_analyzer"),
    ]


def test_several_that_are_told_at_once_to_wait_are_one_failure(clock: Clock) -> None:
    """All of them come again; one that is told so time after time still opens the breaker."""
    health = AgentHealth(at(A), clock=clock)
    full = replace(down(ErrorCode.AGENT_UNAVAILABLE, recoverable=True), retry_after=1.0)

    for _ in range(3 * IN_A_ROW):
        health.failed(A, full, 0.2)
    first = health.breaker.state
    for _ in range(IN_A_ROW):
        clock.now += 1.5
        health.failed(A, full, 0.2)

    assert (first, health.breaker.state) == (BreakerState.CLOSED, BreakerState.OPEN)


def test_how_fast_an_agent_was_long_ago_keeps_nobody_from_it(clock: Clock) -> None:
    """A cold start takes its time once."""
    health = AgentHealth(at(A), clock=clock)
    health.answered(10.0)

    known = health.fastest
    clock.now += LATELY + 1.0

    assert (known, health.fastest) == (10.0, 0.0)


@pytest.mark.parametrize(("status", "soon"), [(503, True), (502, False)])
def test_a_proxy_that_has_nobody_behind_it_is_tried_again_soon(clock: Clock, status: int, soon: bool) -> None:
    """Though nobody knows whether it had somebody when it took the work."""
    health = AgentHealth(at(A), clock=clock)
    said = replace(down(ErrorCode.AGENT_UNAVAILABLE, recoverable=True), may_have_run=True, status=status)
    for _ in range(IN_A_ROW):
        health.failed(A, said, 0.01)

    clock.now += SHORT_REST * 1.2 + 0.01

    assert health.breaker.allows(60.0) is soon


def test_how_slow_a_slow_agent_is_is_known_for_longer(clock: Clock) -> None:
    """A training of ten minutes says something for half an hour."""
    health = AgentHealth(at(A), clock=clock)
    health.answered(600.0)

    clock.now += 1_799.0
    known = health.fastest
    clock.now += 2.0

    assert (known, health.fastest) == (600.0, 0.0)


def test_a_slow_answer_is_known_no_longer_than_a_quick_one(clock: Clock) -> None:
    """Or the slowest would be all that is known after a pause."""
    health = AgentHealth(at(A), clock=clock)
    health.answered(40.0)
    health.answered(0.3)

    clock.now += LATELY + 1.0

    assert health.fastest == 0.0
