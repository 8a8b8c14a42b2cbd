"""Which flow carries a choice out: what changes something is done alone, what only reads may be done together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contracts.query import Depth
from service.stages.plan import Plan, plan
from tests.unit.turns import CATALOG

CAUSAL = ("causal_impact", "causal_impact")
THOROUGH, QUICK = Depth.THOROUGH, Depth.QUICK

PLANS = {
    "one wish, read surely": (plan(CATALOG, *CAUSAL), Plan("single", ("explainer",), ())),
    "one wish, not read surely": (plan(CATALOG, *CAUSAL, unsure=True), Plan("parallel", ("explainer",), ())),
    "one wish, thoroughly": (plan(CATALOG, *CAUSAL, depth=THOROUGH), Plan("parallel", ("explainer",), ())),
    "one wish, quickly": (plan(CATALOG, *CAUSAL, depth=QUICK, unsure=True), Plan("single", (), ())),
    "two wishes": (
        plan(CATALOG, *CAUSAL, others=("gap_analysis",)),
        Plan("parallel", ("gap_analyzer", "explainer", "resource_optimizer"), ()),
    ),
    "two wishes, quickly": (plan(CATALOG, *CAUSAL, others=("gap_analysis",), depth=QUICK), Plan("parallel", ("gap_analyzer",), ())),
    "a wish without support, thoroughly": (plan(CATALOG, "explanation", "explainer", depth=THOROUGH), Plan("single", (), ())),
    "support that cannot be undone is no perspective": (
        plan(CATALOG, "model_deploy", "model_deployer", depth=THOROUGH),
        Plan("single", ("model_trainer",), ()),
    ),
    "an agent that the LM chose beside the first": (
        plan(CATALOG, *CAUSAL, chosen_beside=("gap_analyzer",), depth=THOROUGH),
        Plan("parallel", ("gap_analyzer",), ()),
    ),
    "training is a pipeline": (
        plan(CATALOG, "ml_training", "scope_definer"),
        Plan("pipeline", ("data_preparer", "model_selector", "model_trainer"), ()),
    ),
    "the first agent of a pipeline, by name": (plan(CATALOG, "ml_training", "scope_definer", named=True).flow, "single"),
    "a later one, by name": (plan(CATALOG, "ml_training", "model_trainer", named=True).flow, "single"),
    "an agent by name works alone": (plan(CATALOG, *CAUSAL, named=True, depth=THOROUGH, unsure=True), Plan("single", (), ())),
    "training first: the check waits": (plan(CATALOG, "ml_training", "scope_definer", others=("drift_check",)).left, ("drift_check",)),
    "deploying first: the check waits": (plan(CATALOG, "model_deploy", "model_deployer", others=("health_check",)).left, ("health_check",)),
    "checking first: training waits for a word of its own": (
        plan(CATALOG, "drift_check", "drift_monitor", others=("ml_training",)),
        Plan("single", ("scope_definer", "health_score", "data_preparer", "model_selector", "model_trainer"), ("ml_training",)),
    ),
    "three wishes, one of which changes something": (
        (p := plan(CATALOG, "drift_check", "drift_monitor", others=("model_deploy", "prediction"), depth=QUICK)).flow + str(p.left),
        "parallel('model_deploy',)",
    ),
}


@pytest.mark.parametrize(("planned", "expected"), PLANS.values(), ids=PLANS)
def test_each_choice_has_its_plan(planned: object, expected: object) -> None:
    """Flow, agents beside the first, and wishes that wait."""
    assert planned == expected


@given(
    wishes=st.lists(st.sampled_from(list(CATALOG.intent)), min_size=1, max_size=4, unique=True),
    depth=st.sampled_from(list(Depth)),
    unsure=st.booleans(),
)
def test_nothing_that_changes_something_is_carried_out_beside_something_else(wishes: list[str], depth: Depth, unsure: bool) -> None:
    """Only the first wish may change something, and then it is alone; each wish is either carried out or left."""
    first, *others = wishes

    planned = plan(CATALOG, first, CATALOG.intent[first].primary_agent, others=tuple(others), depth=depth, unsure=unsure)

    together = [i for i in others if i not in planned.left]
    assert all(CATALOG.is_reading(i) for i in together)
    assert not together or (CATALOG.is_reading(first) and planned.flow == "parallel")
    assert (planned.flow == "pipeline") is bool(CATALOG.intent[first].pipeline)
    assert CATALOG.intent[first].primary_agent not in planned.secondary
