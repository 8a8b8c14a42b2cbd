"""The trace times every stage, tells the observer how it ended, and writes down what each stage made of the request."""

import asyncio
import json

import pytest

from service.catalog.loader import load_catalog
from service.contracts.caller import Caller
from service.ports import StageDone
from service.routing.entities import Gazetteer
from service.routing.history import History
from service.stages.gate import Gate
from service.stages.intent import ReadIntent
from service.stages.trace import Trace
from service.stages.triage import Triage
from tests.fakes import Watcher, down
from tests.unit.turns import a_decision, a_request, a_run, an_agent, an_outcome

CATALOG = load_catalog()


def test_each_stage_is_timed_and_told() -> None:
    """Name, outcome, seconds and router version reach the observer; the timings are in milliseconds."""
    watcher = Watcher()
    trace = Trace(watcher, router_version="7")

    with trace.stage("triage"):
        pass
    with trace.stage("routing") as stage:
        stage.outcome = "student"

    events = [e for e in watcher.events if isinstance(e, StageDone)]
    assert [(e.stage, e.outcome, e.router_version) for e in events] == [("triage", "ok", "7"), ("routing", "student", "7")]
    assert trace.timings_ms() == {e.stage: pytest.approx(e.seconds * 1_000, abs=0.001) for e in events}


@pytest.mark.parametrize(("error", "outcome"), [(ValueError, "error"), (asyncio.CancelledError, "cancelled"), (KeyboardInterrupt, "error")])
def test_a_stage_that_breaks_is_told_too_and_the_error_goes_on(error: type[BaseException], outcome: str) -> None:
    """A trace swallows nothing, a cancellation included."""
    watcher = Watcher()
    trace = Trace(watcher)

    with pytest.raises(error), trace.stage("intent"):
        raise error

    assert [e.outcome for e in watcher.events if isinstance(e, StageDone)] == [outcome]
    assert "intent" in trace.timings_ms()


def test_the_record_is_json_and_holds_every_stages_output() -> None:
    """From triage to dispatch, so that a decision can be explained; the text is not kept twice."""
    trace = Trace(Watcher())
    trace.admitted = Triage(catalog=CATALOG, gazetteer=Gazetteer(CATALOG))(a_request(intent="prediction", confidence=0.4))
    trace.understanding = ReadIntent(History())(trace.admitted, None)
    agent, other = an_agent(CATALOG, "causal_impact"), an_agent(CATALOG, "explainer")
    verdict = Gate(catalog=CATALOG)(a_decision(), Caller(), lambda a: a.name != "explainer")
    outcome = an_outcome(a_run(agent, down(), attempts=3), a_run(other), part=verdict.parts[0])

    record = json.loads(json.dumps(trace.record(verdict, outcome)))

    assert record["triage"]["caller_intent"] == "prediction"
    assert not record["triage"].keys() & {"text", "history"}
    assert [c["intent"] for c in record["intent"]["candidates"]] == ["prediction"]
    assert record["gate"] == {
        "action": "dispatch",
        "flow": "single",
        "parts": [
            {
                "role": "asked",
                "intent": "causal_impact",
                "chain": ["causal_impact"],
                "skipped": [{"agent": "explainer", "code": "agent_unavailable", "reason": "explainer is not available"}],
            }
        ],
        "code": None,
        "reason": "",
    }
    failed, answered = record["dispatch"]
    assert (failed["agent"], failed["attempts"], failed["dispatch_id"], failed["handoff"]) == ("causal_impact", 3, None, None)
    assert failed["failure"] == {"code": "agent_unavailable", "detail": "the agent failed as scripted", "error_type": None}
    assert (answered["agent"], answered["failure"]) == ("explainer", None)
    assert answered["handoff"]["dispatch_id"] == answered["dispatch_id"]


def test_a_record_of_little_is_small() -> None:
    """Stages that did not run leave nothing behind."""
    verdict = Gate(catalog=CATALOG)(a_decision(None), Caller(), lambda _: True)

    record = Trace(Watcher()).record(verdict, None)

    assert record.keys() == {"timings_ms", "gate", "dispatch"}
    assert (record["gate"]["code"], record["dispatch"]) == ("routing_failed", [])
