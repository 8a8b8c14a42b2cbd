"""model_selector compares families fairly, keeps to its time, and prefers the simpler of two that are about as good."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.agents.training.families import complexity, draw, grid, make_estimator
from service.agents.training.metrics import METRICS, calibration_error
from service.agents.training.scope import FAMILIES, TrainingScope
from service.agents.training.search import Candidate, plan, select_best, select_simplest
from tests.unit.agents.model_store import run_pipeline

Ask = Callable[..., Finding]
STEPS = ("scope_definer", "data_preparer", "model_selector")


def scope_for(ask: Ask, query: str) -> TrainingScope:
    """Return the scope of a request."""
    found: Any = ask("scope_definer", context={"raw_query": query}).primary_output
    return TrainingScope.model_validate(found["scope"])


@pytest.fixture(scope="module")
def found(make_dispatch: Any, data: Snapshot) -> dict[str, Finding]:
    """The pipeline up to the selection, for two families."""
    return run_pipeline(make_dispatch, "fabhalta conversion, logistic against xgboost, 4 folds, keep the better", data, *STEPS)


def test_every_candidate_is_reported_and_one_selected(found: dict[str, Finding]) -> None:
    """Both families, four fold scores each, one choice."""
    output: Any = found["model_selector"].primary_output

    assert {one["family"] for one in output["candidates"]} == {"linear", "hist_gradient_boosting"}
    assert all(len(one["fold_scores"]) == 4 for one in output["candidates"])
    assert sum(one["selected"] for one in output["candidates"]) == 1


def test_the_selected_one_is_within_one_standard_error_of_the_best(found: dict[str, Finding]) -> None:
    """And no simpler family is."""
    output: Any = found["model_selector"].primary_output
    best = max(output["candidates"], key=lambda one: one["mean"])
    near = [one for one in output["candidates"] if one["mean"] >= best["mean"] - best["standard_error"]]

    assert output["selected"]["score"] >= best["mean"] - best["standard_error"]
    assert output["selected"]["family"] == min((one["family"] for one in near), key=FAMILIES.index)


def test_the_scores_beat_chance_by_what_the_truth_allows(found: dict[str, Finding]) -> None:
    """Conversions depend on market size and the call programme: an AUC near 0.73, and never near 1."""
    output: Any = found["model_selector"].primary_output

    assert 0.68 < output["selected"]["score"] < 0.8


def test_asked_alone_it_finds_the_same(ask: Ask, found: dict[str, Finding]) -> None:
    """Without a scope in the context it reads the question itself."""
    alone: Any = ask(
        "model_selector", context={"raw_query": "fabhalta conversion, logistic against xgboost, 4 folds, keep the better"}
    ).primary_output

    assert alone["selected"] == found["model_selector"].primary_output["selected"]


def test_a_short_time_limit_tries_less_and_says_so(ask: Ask) -> None:
    """With 100 ms only the first candidate is tried."""
    finding = ask("model_selector", context={"raw_query": "fabhalta conversion"}, max_latency_ms=100)
    output: Any = finding.primary_output

    assert len(output["candidates"]) == 1
    assert any("Time was short" in caveat for caveat in finding.caveats)


def test_bad_data_stop_it(ask: Ask) -> None:
    """Asked alone it checks the data itself; a shut gate is its answer."""
    finding = ask("model_selector", context={"raw_query": "conversion on the last 8 weeks"})

    assert finding.blocked is not None
    assert "selected" not in finding.primary_output


@pytest.mark.parametrize(
    "dataset",
    [{"id": "ds-0000000000000000", "rows": 5}, {"id": "x", "rows": 1}, {"rows": -1}, "all of it"],
    ids=["another", "no-id", "no-rows", "text"],
)
def test_another_dataset_is_refused(ask: Ask, found: dict[str, Finding], dataset: object) -> None:
    """The hash must be that of the scope's rows."""
    with pytest.raises(AgentFailure) as failure:
        ask("model_selector", context={"scope": found["scope_definer"].primary_output["scope"], "dataset": dataset})

    assert failure.value.error_type == "invalid_input"


def test_the_simplest_within_one_standard_error_wins() -> None:
    """A forest ahead by less than its standard error loses to the linear model; ahead by more it wins."""
    scope = TrainingScope.model_construct(task="classification")
    linear = Candidate("linear", {"strength": 0.1}, (0.70, 0.72, 0.71), 0.7)
    close = Candidate("random_forest", {"smallest_leaf": 10}, (0.68, 0.75, 0.72), 0.7)
    ahead = Candidate("random_forest", {"smallest_leaf": 10}, (0.81, 0.80, 0.82), 0.7)
    metric = METRICS["roc_auc"]

    for rival, winner in ((close, linear), (ahead, ahead)):
        best = select_best([linear, rival], metric)
        assert best is rival
        assert select_simplest([linear, rival], best, metric, scope) is winner


def test_errors_are_chosen_the_other_way_round() -> None:
    """For RMSE the smallest is the best."""
    small, large = (Candidate("linear", {"strength": 1.0}, (value, value + 0.1), 0.0) for value in (1.0, 2.0))

    assert select_best([large, small], METRICS["rmse"]) is small


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("query", ["conversion", "demand"])
def test_every_family_can_be_built_from_its_own_settings(ask: Ask, family: Any, query: str) -> None:
    """Standard and random settings build; they are the same each time; the first is no more complex than a larger one is."""
    scope = scope_for(ask, query)

    for parameters in (*grid(family, scope), *draw(family, scope, 3)):
        assert make_estimator(family, scope, parameters) is not None
    assert draw(family, scope, 3) == draw(family, scope, 3)
    assert complexity("linear", scope.task, {"strength": 1.0})[0] <= complexity(family, scope.task, grid(family, scope)[0])[0]


@pytest.mark.parametrize("parameters", [{"strength": 1e9}, {"strength": -1.0}, {"strength": "much"}, {"power": 1.0}, {}], ids=str)
def test_senseless_parameters_are_refused(ask: Ask, parameters: dict[str, Any]) -> None:
    """They come from another agent, so they are checked."""
    with pytest.raises(AgentFailure) as failure:
        make_estimator("linear", scope_for(ask, "conversion"), parameters)

    assert failure.value.error_type == "invalid_input"


@pytest.mark.parametrize(("trials", "count"), [(0, 9), (1, 1), (10, 10), (24, 24)])
def test_trials_are_spread_over_the_families(ask: Ask, trials: int, count: int) -> None:
    """The families take turns, and no candidate comes twice."""
    scope = scope_for(ask, "conversion").model_copy(update={"trials": trials})
    planned = plan(scope)

    assert len(planned) == count
    assert len({(family, str(parameters)) for family, parameters in planned}) == count
    assert count < 4 or {family for family, _ in planned} == set(scope.families)


@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
def test_metrics_are_those_of_scikit_learn(*, weighted: bool) -> None:
    """Each metric against the library's own; many scores are equal."""
    rng = np.random.default_rng(1)
    truth, score = (rng.random(200) < 0.3).astype(float), rng.random(200).round(1) * 0.8 + 0.1
    weight = rng.random(200) + 0.1 if weighted else None
    number = rng.normal(size=200)

    for name, expected in {
        "roc_auc": roc_auc_score(truth, score, sample_weight=weight),
        "pr_auc": average_precision_score(truth, score, sample_weight=weight),
        "brier": brier_score_loss(truth, score, sample_weight=weight),
        "log_loss": log_loss(truth, score, sample_weight=weight),
    }.items():
        assert METRICS[name].measure(truth, score, weight) == pytest.approx(expected)
    for name, function in {"rmse": root_mean_squared_error, "mae": mean_absolute_error, "r2": r2_score}.items():
        assert METRICS[name].measure(number, score, weight) == pytest.approx(function(number, score, sample_weight=weight))
    assert calibration_error(truth, np.full(200, truth.mean())) == pytest.approx(
        np.mean([abs(part.mean() - truth.mean()) for part in np.array_split(truth, 10)])
    )
