"""scope_definer reads from a request what is to be trained, assumes the rest aloud, and refuses what the data cannot give."""

from collections.abc import Callable
from typing import Any

import pytest

from service.agents.directory import run_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.contracts.handoff import HandoffStatus
from tests.golden_checks.scope_definer import check

Ask = Callable[..., Finding]


def scope_of(ask: Ask, query: str, **entities: str | list[str]) -> dict[str, Any]:
    """Return the scope that a request gets."""
    found: Any = ask("scope_definer", context={"raw_query": query}, **entities).primary_output
    return dict(found["scope"])


@pytest.mark.parametrize(
    ("query", "target", "task"),
    [
        ("train fabhalta conversion model", "conversion", "classification"),
        ("refit the churn classifier", "lapse", "classification"),
        ("who will switch away? build a model", "lapse", "classification"),
        ("account growth model please", "growth", "classification"),
        ("a new forecaster for demand", "trx_demand", "regression"),
        ("fit an NRx regression", "nrx_demand", "regression"),
        ("model the market share", "market_share", "regression"),
        ("who comes to a dinner program? learn it", "speaker_attendance", "classification"),
        ("how about a sample demand model", "sample_demand", "regression"),
        ("train a model", "conversion", "classification"),
        ("", "conversion", "classification"),
        ("start over and run it again", "conversion", "classification"),
        ("switch the objective and refit", "conversion", "classification"),
    ],
    ids=lambda value: value[:28] if isinstance(value, str) else None,
)
def test_the_target_is_read_from_the_text(ask: Ask, query: str, target: str, task: str) -> None:
    """Each kind of model has its target; verbs such as 'start over' and 'switch the' name none."""
    scope = scope_of(ask, query)

    assert (scope["target"], scope["task"]) == (target, task)


def test_context_names_the_target_before_the_text_does(ask: Ask) -> None:
    """As in the specification's example: model_type and target_variable of the context, with the horizon in the name."""
    context = {"raw_query": "train it", "model_type": "conversion_prediction", "target_variable": "converted_30d"}
    found: Any = ask("scope_definer", context=context, brand="Fabhalta").primary_output

    assert found["scope"]["target"] == "conversion"
    assert found["scope"]["horizon_weeks"] == 4
    assert found["scope"]["brands"] == ["Fabhalta"]
    assert {"target", "brand"} <= set(found["named"])


@pytest.mark.parametrize(
    ("query", "weeks"),
    [
        ("redo it on the last twelve months only", 52),
        ("a challenger on the last twenty four months of scripts", 104),
        ("last 26 weeks, conversion", 26),
        ("model building for conversion, last 18 months of data", 78),
        ("use 6 mo instead of 24", 26),
        ("retrain", 52),
        ("train on the last 40 months", 104),
    ],
    ids=lambda value: str(value)[:24],
)
def test_the_window_is_counted_back_from_the_last_week(ask: Ask, data: Snapshot, query: str, weeks: int) -> None:
    """Spans end with the data; where none is named a year is taken, and more than there is cannot be."""
    scope = scope_of(ask, query)

    assert scope["last_week"] == data.week_ends[-1].isoformat()
    assert scope["first_week"] == data.week_ends[-weeks].isoformat()


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("data thru april", "2024-06-23", "2026-04-26"),
        ("until 2026-03-31 please", "2024-06-23", "2026-03-29"),
        ("from the 2024-25 data", "2024-06-23", "2025-12-28"),
        ("since 2026, conversion", "2026-01-04", "2026-06-14"),
        ("post-2024 visits only", "2025-01-05", "2026-06-14"),
        ("train on 2025 data", "2025-01-05", "2025-12-28"),
        ("new xgb on ytd data pls", "2026-01-04", "2026-06-14"),
    ],
    ids=lambda value: value[:20],
)
def test_the_window_is_read_as_calendar_time(ask: Ask, query: str, first: str, last: str) -> None:
    """Years, months, ends and beginnings become weeks of the data (of 17 June 2026)."""
    scope = scope_of(ask, query)

    assert (scope["first_week"], scope["last_week"]) == (first, last)


def test_a_window_without_a_week_in_the_data_is_refused(ask: Ask) -> None:
    """2019 lies before the data; the message says what they cover."""
    with pytest.raises(AgentFailure, match="2024-06-23 to 2026-06-14") as failure:
        ask("scope_definer", context={"raw_query": "train on the 2019 data"})

    assert failure.value.error_type == "missing_data"


@pytest.mark.parametrize(
    ("query", "families"),
    [
        ("xgboost instead of logistic, run both and keep the better one", ["linear", "hist_gradient_boosting"]),
        ("use logistic rather than a random forest", ["linear"]),
        ("random forest, 500 trees", ["random_forest"]),
        ("a neural net, 3 layers", ["neural_network"]),
        ("a simple tree that my boss can read", ["decision_tree"]),
        ("train it", ["linear", "k_nearest", "random_forest", "hist_gradient_boosting"]),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_families_are_read_from_the_text(ask: Ask, query: str, families: list[str]) -> None:
    """A family that is to be replaced is left out, unless both are to be compared."""
    assert scope_of(ask, query)["families"] == families


def test_numbers_are_read_and_drawn_into_their_limits(ask: Ask) -> None:
    """Trials, folds, early stopping, trees, depth and rate; what exceeds a limit is said."""
    query = "hyperparameter search, 200 trials, twenty folds, early stopping at 50 rounds, 500 trees, depth 4, learning rate 0.01"
    finding = ask("scope_definer", context={"raw_query": query})
    found: Any = finding.primary_output
    scope = found["scope"]

    assert (scope["trials"], scope["folds"], scope["early_stopping"]) == (24, 10, 50)
    assert scope["fixed"] == {"trees": 300, "depth": 4, "learning_rate": 0.01}
    told = " ".join(finding.caveats)
    assert "200 trials" in told
    assert "20 folds" in told
    assert "500 trees" in told


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("conversion, PR-AUC as objective", "metric", "pr_auc"),
        ("demand, judged by mae", "metric", "mae"),
        ("conversion, rmse", "metric", "roc_auc"),
        ("class imbalance is killing recall", "class_weights", True),
        ("demand with class weights", "class_weights", False),
        ("calibrate with isotonic", "calibration", "isotonic"),
        ("don't release anything yet, only fit", "alias", None),
        ("fit conversion", "alias", "staging"),
        ("new fit, convert within 60 days", "horizon_weeks", 9),
        ("converted_90d, please", "horizon_weeks", 13),
        ("demand for the next quarter", "horizon_weeks", 13),
        ("conversion within 40 weeks", "horizon_weeks", 13),
    ],
    ids=lambda value: str(value)[:26],
)
def test_wishes_are_read_from_the_text(ask: Ask, query: str, field: str, value: object) -> None:
    """Metric, weights, calibration, release and horizon; a metric that does not judge the task is not taken."""
    assert scope_of(ask, query)[field] == value


@pytest.mark.parametrize(
    ("query", "gone", "kept"),
    [
        ("leave call_count out of the inputs", "calls_4w", "emails_4w"),
        ("without the emails, run it", "emails_26w", "calls_26w"),
        ("same model but without the region columns, run it", "region", "specialty"),
        ("excluding trx_90d and samples", "trx_13w", "trx_4w"),
        ("drop the potential column", "potential", "decile"),
    ],
    ids=lambda value: value[:24],
)
def test_excluded_inputs_are_left_out(ask: Ask, query: str, gone: str, kept: str) -> None:
    """What the text excludes is not among the inputs; the rest is."""
    inputs = scope_of(ask, query)["inputs"]

    assert gone not in inputs
    assert kept in inputs


def test_an_unknown_exclusion_is_said(ask: Ask) -> None:
    """There is no rep_id to leave out, and the caveat says so."""
    finding = ask("scope_definer", context={"raw_query": "redo the conversion classifier without rep_id"})

    assert any("'rep_id' is not among the inputs" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize(
    ("query", "error_type"),
    [
        ("train an X-learner", "unsupported_request"),
        ("make a sentiment classifier of the call notes", "unsupported_request"),
        ("retrain nba", "unsupported_request"),
        ("fit a survival model", "unsupported_request"),
        ("the adherence model, please", "missing_data"),
        ("which patients will drop off? build it", "missing_data"),
        ("score cardiologists", "unknown_entity"),
        ("a Leqvio model", "unknown_entity"),
    ],
    ids=lambda value: value[:24],
)
def test_what_the_data_cannot_give_is_refused(ask: Ask, query: str, error_type: str) -> None:
    """The failure says what there is."""
    with pytest.raises(AgentFailure) as failure:
        ask("scope_definer", context={"raw_query": query})

    assert failure.value.error_type == error_type
    assert ":" in str(failure.value)


def test_an_unknown_brand_beside_a_known_one_is_a_caveat(ask: Ask) -> None:
    """'The Cosentyx one is a poor stand-in' does not stop a model for Fabhalta."""
    finding = ask("scope_definer", context={"raw_query": "propensity for Fabhalta"}, brand=["Cosentyx", "Fabhalta"])
    found: Any = finding.primary_output

    assert found["scope"]["brands"] == ["Fabhalta"]
    assert any("'Cosentyx'" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize("name", ["brand", "region"])
def test_an_unknown_name_alone_is_refused(ask: Ask, name: str) -> None:
    """The message lists the names that there are."""
    with pytest.raises(AgentFailure, match="Available") as failure:
        ask("scope_definer", context={"raw_query": "train"}, **{name: "Atlantis"})

    assert failure.value.error_type == "unknown_entity"


def test_specialties_choose_the_brands(ask: Ask, data: Snapshot) -> None:
    """Oncologists belong to Kisqali, in both their specialties."""
    found: Any = ask("scope_definer", context={"raw_query": "which oncologists convert? train it"}).primary_output

    assert found["scope"]["brands"] == ["Kisqali"]
    assert found["hcps"] == int((data.labels("brand") == "Kisqali").sum())


def test_confidence_is_the_share_that_is_named(ask: Ask) -> None:
    """All four parts named: 1; none: one half."""
    full = ask("scope_definer", context={"raw_query": "conversion on the last 52 weeks"}, brand="Kisqali", region="West")
    empty = ask("scope_definer", context={"raw_query": "train it"})

    assert full.confidence == 1.0
    assert empty.confidence == 0.5


def test_too_short_a_window_is_announced(ask: Ask) -> None:
    """Eight weeks cannot be split in three; the scope says that the gate will stop it."""
    finding = ask("scope_definer", context={"raw_query": "conversion on the last 8 weeks"})

    assert any("quality gate will stop it" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize(
    "query", ["refit fabhalta propensity with the june claims added", "swap xgboost for lightgbm", "kick off a sweep, 200 trials"]
)
def test_the_golden_check_agrees(make_dispatch: Any, query: str, monkeypatch: pytest.MonkeyPatch, data: Snapshot) -> None:
    """The independent check reads the same from the request, and the handoff survives JSON."""
    monkeypatch.setattr("service.agents.sample_data.load_snapshot", lambda: data)
    handoff = run_agent("scope_definer", make_dispatch("scope_definer", context={"raw_query": query}))

    assert handoff.execution.status is HandoffStatus.SUCCESS
    check(query, handoff.model_dump(mode="json"), data)
