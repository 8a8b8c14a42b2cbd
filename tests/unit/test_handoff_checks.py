"""What an agent returns is checked against what it was asked: ids, status, required output; late and unsure answers pass with a warning."""

from typing import Any
from uuid import uuid4

import pytest

from service.catalog.loader import load_catalog
from service.contracts.handoff import AgentHandoff, HandoffErrors, HandoffStatus
from service.errors import ErrorCode
from service.flows.handoff_check import check_handoff
from service.ports import AgentFailure
from tests.fakes import handoff_for
from tests.unit.turns import a_dispatch, a_handoff

CATALOG = load_catalog()
CAUSAL = CATALOG.agent["causal_impact"]
DISPATCH = a_dispatch(CAUSAL)
GOOD = handoff_for(CAUSAL, DISPATCH)


def changed(**fields: Any) -> AgentHandoff:
    """Return the good handoff with fields replaced; `execution__status=...` reaches into a part."""
    handoff = GOOD
    for name, value in fields.items():
        part, _, inner = name.partition("__")
        update = {part: getattr(handoff, part).model_copy(update={inner: value}) if inner else value}
        handoff = handoff.model_copy(update=update)
    return handoff


REFUSED = {
    "another dispatch": (changed(dispatch_id=uuid4()), ErrorCode.DISPATCH_MISMATCH, True),
    "another agent": (changed(agent_id="explainer"), ErrorCode.DISPATCH_MISMATCH, False),
    "timeout": (changed(execution__status=HandoffStatus.TIMEOUT), ErrorCode.AGENT_TIMEOUT, True),
    "failed": (changed(execution__status=HandoffStatus.FAILED), ErrorCode.AGENT_ERROR, False),
    "failed, may recover": (
        changed(execution__status=HandoffStatus.FAILED, errors__recoverable=True),
        ErrorCode.AGENT_ERROR,
        True,
    ),
    "no output": (changed(result__primary_output={}), ErrorCode.OUTPUT_MISSING, False),
    "a field left out": (
        changed(result__primary_output={"treatment": 1, "outcome": 1, "ate": 1}),
        ErrorCode.OUTPUT_MISSING,
        False,
    ),
    "a field left out of a partial answer": (
        changed(execution__status=HandoffStatus.PARTIAL, result__primary_output={"ate": 1}),
        ErrorCode.OUTPUT_MISSING,
        False,
    ),
    "another dispatch, blocked": (
        changed(dispatch_id=uuid4(), execution__status=HandoffStatus.BLOCKED),
        ErrorCode.DISPATCH_MISMATCH,
        True,
    ),
}


@pytest.mark.parametrize(("handoff", "code", "recoverable"), REFUSED.values(), ids=REFUSED)
def test_a_handoff_that_breaks_a_check_is_a_failure(handoff: AgentHandoff, code: ErrorCode, recoverable: bool) -> None:
    """Each check has its code; none of them speaks of availability."""
    checked = check_handoff(CAUSAL, DISPATCH, handoff)

    assert isinstance(checked, AgentFailure)
    assert (checked.code, checked.recoverable, checked.unavailable) == (code, recoverable, False)
    assert "causal_impact" in checked.detail


BUDGET = DISPATCH.payload.constraints.max_latency_ms
PASSED = {
    "good": (GOOD, []),
    "partial": (changed(execution__status=HandoffStatus.PARTIAL), []),
    "within the budget": (changed(execution__latency_ms=BUDGET), []),
    "late": (changed(execution__latency_ms=BUDGET + 1), ["latency_exceeded"]),
    "just sure enough": (changed(result__confidence=0.5), []),
    "unsure": (changed(result__confidence=0.49), ["low_confidence"]),
    "late and unsure": (changed(execution__latency_ms=BUDGET * 2, result__confidence=0.0), ["latency_exceeded", "low_confidence"]),
    "a required field that is null": (
        changed(result__primary_output={"treatment": None, "outcome": None, "ate": None, "confidence_interval": None}),
        [],
    ),
    "blocked, without output": (
        changed(execution__status=HandoffStatus.BLOCKED, result__primary_output={}, result__confidence=0.0),
        ["qc_gate_blocked"],
    ),
}


@pytest.mark.parametrize(("handoff", "warnings"), PASSED.values(), ids=PASSED)
def test_a_handoff_that_passes_may_carry_warnings(handoff: AgentHandoff, warnings: list[str]) -> None:
    """Late, unsure and blocked answers are answers."""
    checked = check_handoff(CAUSAL, DISPATCH, handoff)

    assert not isinstance(checked, AgentFailure)
    assert checked[0] is handoff
    assert [w.code for w in checked[1]] == warnings


def test_a_blocked_handoff_says_why() -> None:
    """The agent's own message is in the warning."""
    said = a_handoff(CAUSAL, HandoffStatus.BLOCKED).model_copy(
        update={"dispatch_id": DISPATCH.dispatch_id, "errors": HandoffErrors(error_message="3 of 40 checks failed")}
    )

    checked = check_handoff(CAUSAL, DISPATCH, said)

    assert not isinstance(checked, AgentFailure)
    assert checked[1][0].message == "causal_impact was stopped by its quality gate: 3 of 40 checks failed"
