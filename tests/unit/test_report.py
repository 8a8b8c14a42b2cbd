"""What is known of a request when its caller leaves: who was called, how often, and for how long."""

import time

import pytest

from service.contracts.caller import Caller
from service.errors import ErrorCode
from service.flows.work import AgentStarted
from service.stages.gate import Gate
from service.stages.report import Report
from tests.unit.turns import CATALOG, a_decision

AGENT = CATALOG.agent["causal_impact"]


@pytest.mark.parametrize("attempts", [0, 2])
def test_who_was_still_at_work_counts_as_cancelled(attempts: int) -> None:
    """With the calls that were made: none, where the agent had only been waited for."""
    report, verdict = Report(), Gate(catalog=CATALOG)(a_decision(), Caller(), lambda _: True)
    report(AgentStarted(AGENT, time.monotonic() - 0.5, lambda: attempts))

    (run,) = report.cut_off(verdict).runs

    assert run.failure is not None
    assert (run.failure.code, run.failure.may_have_run, run.attempts) == (ErrorCode.CANCELLED, attempts > 0, attempts)
    assert run.latency_ms >= 500
