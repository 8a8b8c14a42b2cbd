"""Extra calls are a share of the requests: however many fail, there is no storm."""

from hypothesis import given
from hypothesis import strategies as st

from service.flows.allowance import Allowance
from tests.unit.test_breaker import Clock


def test_what_is_saved_at_the_start_can_be_spent_at_once() -> None:
    """A single request gets its retries."""
    allowance = Allowance(share=0.2, most=10.0, start=3.0, clock=Clock())

    assert [allowance.spend() for _ in range(4)] == [True, True, True, False]


def test_requests_earn_a_share() -> None:
    """Five requests pay for one retry."""
    allowance = Allowance(share=0.2, most=10.0, start=0.0, clock=Clock())
    spent = []
    for _ in range(10):
        allowance.earn()
        spent.append(allowance.spend())

    assert spent.count(True) == 2


def test_time_earns_for_an_agent_with_few_requests() -> None:
    """Up to the most that can be saved."""
    clock = Clock()
    allowance = Allowance(share=0.0, most=2.0, start=0.0, per_second=1.0, clock=clock)

    clock.now += 100.0

    assert [allowance.spend() for _ in range(3)] == [True, True, False]


@given(share=st.floats(0.01, 0.5), start=st.integers(0, 5), tries=st.lists(st.booleans(), max_size=300))
def test_no_more_is_spent_than_was_earned(share: float, start: int, tries: list[bool]) -> None:
    """Extra calls never exceed what there was at the start and the share of the requests."""
    allowance = Allowance(share=share, most=10.0, start=float(start), clock=Clock())
    requests = extra = 0
    for wants in tries:
        allowance.earn()
        requests += 1
        extra += wants and allowance.spend()

    assert extra <= start + share * requests + 1e-9
