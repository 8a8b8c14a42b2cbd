"""The flow `pipeline`: steps in order, each given what it asks of the earlier ones; a gate that does not open stops everything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.model import Agent
from service.contracts.caller import Caller
from service.contracts.decision import Action
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.model import JsonObject
from service.errors import ErrorCode
from service.flows.flow import Outcome, Verdict
from service.flows.pipeline import PipelineFlow, project
from service.ports import AgentFailure
from service.stages.gate import Gate
from tests.fakes import Watcher, down, handoff_for, some_health
from tests.unit.turns import CATALOG, a_decision, calling, some_work

STEPS = ["scope_definer", "data_preparer", "model_selector", "model_trainer"]
OUTPUT: dict[str, JsonObject] = {
    "scope_definer": {"scope": {"brand": "Fabhalta"}, "secret": "kept"},
    "data_preparer": {"dataset": {"id": "d1"}, "qc_report": {"passed": True, "share_met": 0.98}},
    "model_selector": {"selected": {"family": "ridge"}},
    "model_trainer": {"model_id": "m"},
}
GATE_CLOSED: JsonObject = {"dataset": {"id": "d1"}, "qc_report": {"passed": False, "share_met": 0.6}}


class Trainers:
    """`AgentClient` of the four agents; `ends` says how an agent ends, `output` what it brings."""

    def __init__(self, ends: dict[str, AgentFailure | HandoffStatus] | None = None, output: dict[str, JsonObject] | None = None) -> None:
        self.ends, self.output = ends or {}, {**OUTPUT, **(output or {})}
        self.sent: list[AgentDispatch] = []

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Note the dispatch and answer."""
        self.sent.append(dispatch)
        end = self.ends.get(agent.name, HandoffStatus.SUCCESS)
        if isinstance(end, AgentFailure):
            return end
        handoff = handoff_for(agent, dispatch, end)
        return handoff.model_copy(update={"result": handoff.result.model_copy(update={"primary_output": self.output[agent.name]})})


def plan(*, caller: Caller | None = None, absent: tuple[str, ...] = ()) -> Verdict:
    """Return what the gate lets happen for a training."""
    decision = a_decision("scope_definer", intent="ml_training", flow="pipeline")
    return Gate(catalog=CATALOG)(decision, caller or Caller(), lambda a: a.name not in absent)


async def train(agents: Trainers, *, seconds: float = 3_600.0, **planned: Any) -> Outcome:
    """Run the pipeline."""
    return await PipelineFlow(call=calling(agents))(plan(**planned), some_work(seconds))


async def test_each_step_gets_what_it_asks_of_the_earlier_ones() -> None:
    """By the catalogue's projection: scope to all, data to those after it, and nothing besides."""
    agents = Trainers()

    outcome = await train(agents)

    given = [{k: v for k, v in d.payload.context.items() if k != "raw_query"} for d in agents.sent]
    scope, dataset = OUTPUT["scope_definer"]["scope"], OUTPUT["data_preparer"]["dataset"]
    assert [d.target_agent for d in agents.sent] == STEPS
    assert given == [
        {},
        {"scope": scope},
        {"scope": scope, "dataset": dataset},
        {
            "scope": scope,
            "dataset": dataset,
            "selected": OUTPUT["model_selector"]["selected"],
            "qc_report": OUTPUT["data_preparer"]["qc_report"],
        },
    ]
    assert {d.payload.intent for d in agents.sent} == {"ml_training"}
    assert [part.answer is not None for part in outcome.parts] == [True] * 4
    assert outcome.warnings == ()


GATES: dict[str, tuple[dict[str, AgentFailure | HandoffStatus], dict[str, JsonObject]]] = {
    "the agent says that it is blocked": ({"data_preparer": HandoffStatus.BLOCKED}, {}),
    "it says success, but the gate is shut": ({}, {"data_preparer": GATE_CLOSED}),
    "it leaves the report out": ({}, {"data_preparer": {"dataset": {}}}),
    "it writes the report as text": ({}, {"data_preparer": {"dataset": {}, "qc_report": "passed"}}),
    "it writes yes in place of true": ({}, {"data_preparer": {"dataset": {}, "qc_report": {"passed": "true"}}}),
    "it writes one in place of true": ({}, {"data_preparer": {"dataset": {}, "qc_report": {"passed": 1}}}),
}


@pytest.mark.parametrize(("ends", "output"), GATES.values(), ids=GATES)
async def test_a_gate_opens_to_true_only(ends: dict[str, AgentFailure | HandoffStatus], output: dict[str, JsonObject]) -> None:
    """What the data agent does not plainly report as good is not trained on; its report is kept."""
    agents = Trainers(ends, output)

    outcome = await train(agents)

    assert [d.target_agent for d in agents.sent] == STEPS[:2]
    blocked = outcome.runs[-1]
    assert blocked.handoff is not None
    assert blocked.handoff.execution.status is HandoffStatus.BLOCKED
    assert blocked.handoff.result.primary_output == {**OUTPUT, **output}["data_preparer"]
    assert [w.code for w in blocked.warnings] == [ErrorCode.QC_GATE_BLOCKED]
    assert [(w.code, w.message) for w in outcome.warnings] == [("steps_not_reached", "Not reached: model_selector, model_trainer.")]


@pytest.mark.parametrize("failing", STEPS)
async def test_a_step_that_fails_ends_the_pipeline(failing: str) -> None:
    """There is no fallback for half a piece of work, and no template."""
    agents = Trainers({failing: down()})

    outcome = await train(agents)

    place = STEPS.index(failing)
    assert list(dict.fromkeys(d.target_agent for d in agents.sent)) == STEPS[: place + 1]
    assert [part.answer is not None for part in outcome.parts] == [True] * place + [False]
    assert not outcome.template
    assert [w.code for w in outcome.warnings] == ["agent_unavailable", *(["steps_not_reached"] if place < 3 else [])]


async def test_a_step_without_what_it_needs_is_not_begun() -> None:
    """The sentence says what is missing and who should have brought it."""
    agents = Trainers(output={"scope_definer": {"summary": "all done"}})

    outcome = await train(agents)

    assert [d.target_agent for d in agents.sent] == ["scope_definer"]
    assert [(w.code, w.message) for w in outcome.warnings[:1]] == [("output_missing", "scope_definer did not bring scope.")]


async def test_nothing_begins_that_cannot_reach_its_end() -> None:
    """A training that takes a second is not begun with a tenth of one left, not even its first step."""
    agents, health = Trainers(), some_health()
    health.of(CATALOG.agent["model_trainer"]).answered(1.0)
    flow = PipelineFlow(call=calling(agents, Watcher(), health))

    outcome = await flow(plan(), some_work(0.1))

    assert agents.sent == []
    assert [w.code for w in outcome.warnings] == ["agent_timeout", "steps_not_reached"]


@pytest.mark.parametrize("held", [{"tier:0"}, {"models:train"}, {"tier:5", "models:deploy"}])
def test_without_permission_for_a_step_nothing_begins(held: set[str]) -> None:
    """The gate refuses the whole pipeline."""
    verdict = plan(caller=Caller(tenant="acme", permissions=frozenset(held)))

    assert (verdict.action, verdict.code, verdict.parts) == (Action.REFUSE, ErrorCode.PERMISSION_DENIED, ())


@pytest.mark.parametrize("absent", STEPS)
async def test_when_a_step_cannot_be_reached_nothing_begins(absent: str) -> None:
    """A scope and data for a trainer that is down would be work for nothing."""
    agents = Trainers()

    outcome = await train(agents, absent=(absent,))

    assert (agents.sent, outcome.answered) == ([], False)
    assert [(w.code, w.message) for w in outcome.warnings if w.code != "steps_not_reached"] == [
        ("agent_unavailable", f"{absent} is not available.")
    ]


def test_a_projection_follows_its_path() -> None:
    """Field by field; what is null, or no object on the way, is missing."""
    brought: dict[str, JsonObject] = {"a": {"b": {"c": 0}, "d": None, "e": "text"}}

    assert project({"x": "a.b.c", "y": "a.b"}, brought) == {"x": 0, "y": {"c": 0}}
    assert project({}, brought) == {}
    for path in ("a.d", "a.f", "a.e.c", "a.b.c.d", "z.b"):
        assert project({"x": path}, brought) == f"{path[0]} did not bring {path[2:]}"


def _nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3)


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), _nested, max_leaves=8)


@given(output=st.dictionaries(st.sampled_from(["dataset", "qc_report", "x"]), json_values))
async def test_whatever_the_data_agent_brings_only_a_passed_report_is_trained_on(output: JsonObject) -> None:
    """Its answer is untrusted input."""
    agents = Trainers(output={"data_preparer": output})

    await train(agents)

    report = output.get("qc_report")
    passed = isinstance(report, dict) and report.get("passed") is True and output.get("dataset") is not None
    assert ("model_selector" in [d.target_agent for d in agents.sent]) is passed
