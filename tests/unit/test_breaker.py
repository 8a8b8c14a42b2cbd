"""A breaker opens on what an agent does, lets one request try now and then, and closes when the agent answers again."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.flows.breaker import IN_A_ROW, LONGEST_REST, REST, WINDOW, Breaker, BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
ANY_TIME = 60.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give a clock that stands still."""
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    """Give a breaker whose pauses are exact."""
    return Breaker(clock=clock, jitter=lambda: 0.5)


def break_it(breaker: Breaker) -> None:
    """Let it open."""
    for _ in range(IN_A_ROW):
        breaker.failed()


def test_a_few_failures_in_a_row_open_it(breaker: Breaker) -> None:
    """The fifth; one success in between begins the row anew."""
    states = []
    for answer in "ffffsfffff":
        breaker.succeeded() if answer == "s" else breaker.failed()
        states.append(breaker.state)

    assert states == [CLOSED] * 9 + [OPEN]
    assert not breaker.allows(ANY_TIME)


@pytest.mark.parametrize(("pattern", "state"), [("fs" * 10, OPEN), ("ffssss" * 4, CLOSED), ("f" * 4 + "s" * 20, CLOSED)])
def test_half_of_the_last_answers_open_it_too(breaker: Breaker, pattern: str, state: BreakerState) -> None:
    """An agent that fails every other request is broken, although never often in a row."""
    for answer in pattern:
        breaker.succeeded() if answer == "s" else breaker.failed()

    assert breaker.state is state


def test_after_a_rest_one_may_try_and_its_success_closes_it(breaker: Breaker, clock: Clock) -> None:
    """Half-open: the probe passes, the others do not; then all do."""
    break_it(breaker)
    clock.now += REST + 0.1

    assert breaker.state is HALF_OPEN
    assert [breaker.enter(ANY_TIME) for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert (breaker.state, breaker.enter(ANY_TIME)) == (CLOSED, True)


def test_a_probe_that_fails_doubles_the_rest_up_to_a_minute(breaker: Breaker, clock: Clock) -> None:
    """An agent that stays down is left alone longer and longer, but never for good."""
    break_it(breaker)
    rests = []
    for _ in range(6):
        waited = 0
        while not breaker.enter(ANY_TIME):
            clock.now += 1.0
            waited += 1
        rests.append(waited)
        breaker.failed()

    assert rests == [5, 10, 20, 40, int(LONGEST_REST), int(LONGEST_REST)]


def test_an_agent_that_is_not_there_is_tried_again_soon_however_long_it_is_away(breaker: Breaker, clock: Clock) -> None:
    """A probe that is refused at once costs nobody anything; a failure of another kind doubles the rest as ever."""
    for _ in range(IN_A_ROW):
        breaker.failed(absent=True)
    rests = []
    for absent in (True, True, True, False, False, True):
        waited = 0
        while not breaker.enter(ANY_TIME):
            clock.now += 1.0
            waited += 1
        rests.append(waited)
        breaker.failed(absent=absent)

    assert rests == [3, 3, 3, 3, 6, 12]


def test_a_probe_that_never_returns_is_not_waited_for(breaker: Breaker, clock: Clock) -> None:
    """Another one may try after as long a rest."""
    break_it(breaker)
    clock.now += REST + 0.1
    breaker.enter(ANY_TIME)

    clock.now += REST + 0.1

    assert breaker.enter(ANY_TIME)


def test_a_straggler_that_succeeds_closes_a_silent_agents_breaker_only(breaker: Breaker) -> None:
    """Who was silent speaks again; who fails every other time has shown nothing new."""
    silent = Breaker(clock=Clock(), jitter=lambda: 0.5)
    for _ in range(IN_A_ROW):
        silent.failed(silent_for=1.0)
    break_it(breaker)

    silent.succeeded()
    breaker.succeeded()

    assert (silent.state, breaker.state) == (CLOSED, OPEN)


def test_a_straggler_takes_nothing_from_the_probe(breaker: Breaker, clock: Clock) -> None:
    """A request from before the probe says nothing of how the agent is now, whichever way it ends; the probe's answer counts."""
    break_it(breaker)
    clock.now += REST * 1.2 + 0.01
    assert breaker.enter(ANY_TIME)

    breaker.failed(began=clock.now - 4.0)
    breaker.succeeded(began=clock.now - 4.0)
    between = breaker.state
    breaker.succeeded(began=clock.now)

    assert (between, breaker.state) == (HALF_OPEN, CLOSED)


def test_an_agent_slower_than_the_rest_closes_by_its_first_probe(breaker: Breaker, clock: Clock) -> None:
    """Others may try while it is out; its answer, and theirs, count however late they come."""
    break_it(breaker)
    clock.now += REST * 1.2 + 0.01
    began = clock.now
    assert breaker.enter(ANY_TIME)
    for _ in range(3):
        clock.now += REST + 0.01
        breaker.enter(ANY_TIME)

    breaker.succeeded(began=began)

    assert breaker.state is CLOSED


def test_a_probe_that_hangs_for_longer_than_the_rest_lengthens_it(breaker: Breaker, clock: Clock) -> None:
    """However many were let in meanwhile."""
    break_it(breaker)
    clock.now += REST * 1.2 + 0.01
    began = clock.now
    assert breaker.enter(ANY_TIME)
    clock.now += REST * 2.0
    breaker.enter(ANY_TIME)

    breaker.failed(began=began, silent_for=REST * 2.0)
    clock.now += REST * 1.2 + 0.01

    assert breaker.state is OPEN


def test_stragglers_do_not_lengthen_the_rest(breaker: Breaker, clock: Clock) -> None:
    """Thirty requests that were under way when it opened fail too; the first probe comes no later for that."""
    break_it(breaker)
    for _ in range(30):
        breaker.failed()

    clock.now += REST + 0.1

    assert breaker.enter(ANY_TIME)


@pytest.mark.parametrize(("patience", "allowed"), [(0.5, False), (2.0, False), (2.6, True), (60.0, True)])
def test_a_silent_agent_is_still_open_to_the_patient(breaker: Breaker, patience: float, allowed: bool) -> None:
    """Five who waited two seconds in vain say nothing to one who would wait a minute, and everything to one who would not wait longer."""
    for _ in range(IN_A_ROW):
        breaker.failed(silent_for=2.0)

    assert breaker.state is OPEN
    assert breaker.allows(patience) is allowed


def test_the_patient_who_wait_in_vain_do_not_lengthen_the_rest(breaker: Breaker, clock: Clock) -> None:
    """They are no probes: a crowd of longer retries would otherwise double it to the longest at once."""
    for _ in range(IN_A_ROW):
        breaker.failed(silent_for=1.0)
    for _ in range(8):
        assert breaker.enter(1.5)
    for _ in range(8):
        breaker.failed(silent_for=1.5)

    clock.now += REST + 0.1

    assert breaker.enter(1.0)


def test_an_agent_that_breaks_is_closed_to_the_patient_too(breaker: Breaker) -> None:
    """An error comes however long one waits."""
    for _ in range(IN_A_ROW - 1):
        breaker.failed(silent_for=2.0)
    breaker.failed()

    assert not breaker.allows(3_600.0)


def test_the_impatient_neither_take_the_probe_nor_lengthen_the_rest(breaker: Breaker, clock: Clock) -> None:
    """A crowd that waits 0.2 s may glance now and then; whoever waits as long as the silence was probes as soon as one is due."""
    for _ in range(IN_A_ROW):
        breaker.failed(silent_for=2.0)
    glances = 0
    for _ in range(60):
        clock.now += 0.5
        if breaker.enter(0.2):
            glances += 1
            breaker.failed(silent_for=0.2)

    assert glances == 6  # one in five seconds
    assert breaker.enter(2.0)
    assert not breaker.enter(2.0)
    breaker.succeeded()
    assert breaker.state is CLOSED


def test_a_first_attempt_may_probe_after_extended_ones_were_in_vain(breaker: Breaker, clock: Clock) -> None:
    """The first retry waits half as long again; its silence shuts nobody out who waits as long as the agent is given."""
    for silence in (2.0, 3.0, 2.0, 2.0, 3.0):
        breaker.failed(silent_for=silence)
    clock.now += REST + 0.1

    assert breaker.enter(2.0)
    breaker.succeeded()
    assert breaker.state is CLOSED


def test_a_glance_at_an_agent_that_breaks_does_not_lengthen_the_rest(breaker: Breaker, clock: Clock) -> None:
    """It may have been about to answer; who waits in vain for more than a second has shown that it is not."""
    break_it(breaker)
    rests = []
    for silence in (0.2, 0.2, 3.0, None):
        waited = 0
        while not breaker.enter(ANY_TIME):
            clock.now += 1.0
            waited += 1
        rests.append(waited)
        breaker.failed(silent_for=silence)

    assert rests == [5, 5, 5, 10]


Event = Literal["success", "failure", "silence", "enter"]


@given(events=st.lists(st.tuples(st.sampled_from(["success", "failure", "silence", "enter"]), st.floats(0.0, 10.0)), max_size=60))
def test_whatever_happens_it_never_stays_shut(events: list[tuple[Event, float]]) -> None:
    """After the longest rest somebody may try, whose success closes it; a closed one lets everybody pass."""
    clock = Clock()
    breaker = Breaker(clock=clock)
    for event, seconds in events:
        clock.now += seconds
        match event:
            case "success":
                breaker.succeeded()
            case "failure":
                breaker.failed()
            case "silence":
                breaker.failed(silent_for=seconds)
            case "enter":
                breaker.enter(seconds)
        if breaker.state is CLOSED:
            assert breaker.allows(0.0)

    clock.now += LONGEST_REST * 1.2 + 0.1
    assert breaker.enter(0.0)
    breaker.succeeded()
    assert breaker.state is CLOSED


def test_the_window_is_larger_than_the_row() -> None:
    """Otherwise the share could never be what opens it."""
    assert WINDOW > IN_A_ROW


def test_whoever_was_let_in_after_the_rest_closes_it(breaker: Breaker, clock: Clock) -> None:
    """Also after the first that was has failed: it answered, and the other one had begun earlier."""
    break_it(breaker)
    clock.now += REST * 1.2 + 0.01
    first = clock.now
    assert breaker.enter(ANY_TIME)
    clock.now += REST + 0.01
    second = clock.now
    assert breaker.enter(ANY_TIME)

    breaker.failed(began=first)
    between = breaker.state
    breaker.succeeded(began=second)

    assert (between, breaker.state) == (OPEN, CLOSED)
