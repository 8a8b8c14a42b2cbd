"""feature_analyzer finds the documented causes of the outcomes, the columns that say the same, and says what the data lack."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.inspection import permutation_importance

from service.agents.directory import load_agent, run_agent
from service.agents.features.importance import input_groups, shuffle_columns
from service.agents.features.model import Reference, find_reference
from service.agents.features.request import read_feature_request
from service.agents.finding import AgentFailure, Finding
from service.agents.registry.store import Registry
from service.agents.sample_data import Snapshot
from service.agents.training.inputs import all_inputs, find_inputs, mentioned_inputs
from service.contracts.handoff import HandoffStatus
from tests.golden_checks.feature_analyzer import check
from tests.unit.agents.model_store import registry, run_pipeline, with_id

__all__ = ["registry"]
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow 3.17 under SQLAlchemy 2.1

Ask = Callable[..., Finding]


def output_of(ask: Ask, query: str, **entities: str) -> dict[str, Any]:
    """Return the output for a question."""
    found: Any = ask("feature_analyzer", context={"raw_query": query}, max_latency_ms=2_000, **entities).primary_output
    return dict(found)


def test_the_causes_of_conversions_lead(ask: Ask) -> None:
    """The truth: conversions grow with the market and the call programme; the email campaign does nothing."""
    losses = {one["input"]: one["loss"] for one in output_of(ask, "what does the conversion model lean on most")["groups"]}

    assert next(iter(losses)) == "market_trx"
    assert losses["call_programme"] > 0.005 > abs(losses["email_campaign"])
    assert losses["call_programme"] > 5 * abs(losses["sample_programme"])


def test_speakers_come_from_the_speaker_programme(ask: Ask) -> None:
    """Attendance depends on the programme and on nothing else."""
    groups = output_of(ask, "permutation importance for the speaker attendance model")["groups"]

    assert groups[0]["input"] == "speaker_programme"
    assert groups[0]["loss"] > 10 * groups[1]["loss"]


def test_named_inputs_are_shuffled_and_left_out(ask: Ask) -> None:
    """The call programme is worth something, emails are not; the first sentence compares them."""
    finding = ask("feature_analyzer", context={"raw_query": "call programme or emails, which counts for more in the conversion model?"})
    found: Any = finding.primary_output
    named = {one["word"]: one for one in found["named"]}

    assert named["call programme"]["shuffled_loss"] > 0.005
    assert abs(named["emails"]["shuffled_loss"]) < 0.005
    assert named["call programme"]["refit_loss"] > named["emails"]["refit_loss"]
    assert finding.evidence[0].startswith("'call programme' counts for more than 'emails'")


@pytest.mark.parametrize("model", ["conversion", "TRx"])
def test_columns_matter_as_much_as_scikit_learn_finds(model: str, data: Snapshot, make_dispatch: Callable[..., Any]) -> None:
    """Its permutations are others: the means lie within three standard errors of the difference, for a class and for a number."""
    question = {"raw_query": f"which inputs does the {model} model rely on?"}
    reference: Reference = find_reference(make_dispatch("feature_analyzer", context=question), data, None)
    values, truth = reference.table.values[reference.test], reference.table.target[reference.test]
    scoring = "roc_auc" if reference.metric.higher_is_better else "neg_root_mean_squared_error"

    theirs = permutation_importance(reference.estimator, values, truth, scoring=scoring, n_repeats=10, random_state=1)

    assert (reference.scope.task == "classification") == (model == "conversion")
    for one in shuffle_columns(reference):
        at = reference.table.columns.index(one.name)
        error = np.hypot(theirs.importances_std[at], one.deviation) * np.sqrt(1 / 5 + 1 / 10)
        assert one.mean == pytest.approx(theirs.importances_mean[at], abs=3 * error + 1e-9), one.name


def test_nested_windows_say_the_same(ask: Ask) -> None:
    """Sums over 13 and 26 weeks of TRx are nearly one column."""
    finding = ask("feature_analyzer", context={"raw_query": "do we need both trx_90d and trx_180d or do they say the same thing"})
    found: Any = finding.primary_output

    assert found["overlap"]["pairs"][0]["correlation"] > 0.95
    assert finding.evidence[0].startswith("trx_13w and trx_26w say largely the same thing")
    assert set(found["overlap"]["variance_inflation"][0]) == {"column", "vif"}


def test_exact_combinations_are_told(ask: Ask) -> None:
    """Specialties determine the brand, so over all brands some of these columns are combinations of the others."""
    overlap = output_of(ask, "which inputs are collinear? VIF table please")["overlap"]

    assert {"brand=Kisqali", "brand=Remibrutinib"} <= set(overlap["exact_combinations"])
    assert all(one["vif"] is None for one in overlap["variance_inflation"] if one["column"] in overlap["exact_combinations"])


def test_nothing_leaks_in_the_sample(ask: Ask) -> None:
    """No input alone knows the outcome; with certainty about it, as later weeks agree."""
    finding = ask("feature_analyzer", context={"raw_query": "does one of the columns already know the answer?"})
    found: Any = finding.primary_output

    assert not any(one["suspicious"] for one in found["leakage"])
    assert finding.evidence[0].startswith("No column looks like a leak")


def test_few_columns_are_enough(ask: Ask) -> None:
    """Market, potential and the call programme do about as well as all; the kept and the dropped are all columns."""
    cut = output_of(ask, "which columns of the fabhalta conversion model could we throw away?")["reduction"]

    assert 1 <= len(cut["kept"]) <= 12
    assert "call_programme" in cut["kept"]
    assert cut["loss"] < 0.015
    assert not set(cut["kept"]) & set(cut["dropped"])


def test_shadows_confirm_the_causes_and_reject_noise(ask: Ask) -> None:
    """Boruta's idea: the market is confirmed, speaker events of four weeks are not."""
    verdicts = {one["column"]: one["verdict"] for one in output_of(ask, "run boruta on the conversion set")["shadow_test"]}

    assert verdicts["market_trx_26w"] == "confirmed"
    assert verdicts["speaker_events_4w"] == "rejected"


def test_contributions_have_signs(ask: Ask) -> None:
    """The call programme pushes conversions up."""
    shown = {one["column"]: one for one in output_of(ask, "top 15 by mean abs shap, conversion model")["contributions"]}

    assert len(shown) == 15
    assert shown["call_programme"]["direction"] == "up"


@pytest.mark.parametrize(
    ("query", "error_type", "said"),
    [
        ("how much auc goes away if you shuffle the payer columns", "missing_data", "payer"),
        ("is enrolled_in_hub leaking?", "missing_data", "enrolled_in_hub"),
        ("do our models get anything out of the lab data", "missing_data", "lab"),
        ("top drivers of the nba model", "missing_data", "nba"),
        ("vif for the adherence inputs", "missing_data", "adherence"),
        ("what does the Leqvio churn model look at", "unknown_entity", "Leqvio"),
    ],
    ids=lambda value: value[:24],
)
def test_what_the_data_lack_is_said(ask: Ask, query: str, error_type: str, said: str) -> None:
    """No number is invented for a column or a model that does not exist."""
    with pytest.raises(AgentFailure, match=said) as failure:
        ask("feature_analyzer", context={"raw_query": query})

    assert failure.value.error_type == error_type


@pytest.mark.parametrize("query", ["does age or gender play any part in the model?", "certify that nothing stands in for ethnicity"])
def test_protected_attributes_get_a_plain_answer(ask: Ask, query: str) -> None:
    """They are not among the inputs; that nothing stands in for them cannot be certified."""
    finding = ask("feature_analyzer", context={"raw_query": query})

    assert "no direct weight" in finding.evidence[0]
    assert "cannot be tested or certified" in finding.evidence[0]
    assert finding.confidence < 0.6


def test_a_registered_version_is_analysed_itself(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """'v1' loads the version, and its score is the one of its registration."""
    trained: Any = run_pipeline(make_dispatch, "fabhalta conversion, logistic, 3 folds", data)["model_trainer"].primary_output
    dispatch = with_id(make_dispatch("feature_analyzer", context={"raw_query": "shap summary for fabhalta conversion v1"}))
    found: Any = load_agent("feature_analyzer")(dispatch, data).primary_output

    assert found["model"]["source"] == "models:/e2i-fabhalta-conversion/1"
    assert found["model"]["score"] == pytest.approx(trained["score"], abs=1e-5)
    assert found["contributions"]


@pytest.mark.parametrize("query", ["shap for conversion v4", "top 5 inputs of version 9"])
def test_a_version_that_is_not_registered_is_refused(make_dispatch: Any, data: Snapshot, registry: Registry, query: str) -> None:
    """No other model is analysed in its place."""
    dispatch = with_id(make_dispatch("feature_analyzer", context={"raw_query": query}))

    with pytest.raises(AgentFailure, match="no version") as failure:
        load_agent("feature_analyzer")(dispatch, data)

    assert failure.value.error_type == "unknown_entity"


def test_the_same_question_gets_the_same_numbers(ask: Ask) -> None:
    """Seeds are fixed."""
    first, again = (output_of(ask, "top drivers of churn", brand="Kisqali") for _ in range(2))

    assert first == again


def test_a_short_time_limit_repeats_less(ask: Ask) -> None:
    """The numbers are rougher, the answer is there."""
    finding = ask("feature_analyzer", context={"raw_query": "top drivers of fabhalta conversion"}, max_latency_ms=100)

    assert finding.primary_output["groups"]


@pytest.mark.parametrize(
    ("phrase", "found"),
    [
        ("trx_90d", ["trx_13w"]),
        ("calls_30d", ["calls_4w"]),
        ("call count", ["calls_4w", "calls_13w", "calls_26w"]),
        ("rep visits of the last 6 months", ["calls_26w"]),
        ("email clicks", ["emails_4w", "emails_13w", "emails_26w"]),
        ("region columns", ["region"]),
        ("potential", ["potential"]),
        ("market share of heart", ["market_trx_4w", "market_trx_13w", "market_trx_26w"]),
        ("zip", []),
        ("", []),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_phrases_become_inputs(phrase: str, found: list[str]) -> None:
    """A span picks the window; what is not there is nothing."""
    assert list(find_inputs(phrase, all_inputs(26))) == found


def test_longer_words_win_over_shorter_ones() -> None:
    """'Call programme' is the programme, not the calls; 'email campaign' not the emails."""
    assert mentioned_inputs("call programme and email campaign", all_inputs(26)) == {
        "call programme": ("call_programme",),
        "email campaign": ("email_campaign",),
    }


def test_groups_hold_every_column_once(data: Snapshot) -> None:
    """Windows of one measure and columns of one label belong together."""
    columns = ("trx_4w", "trx_13w", "decile", "region=South", "region=West", "call_programme")

    assert input_groups(columns) == {
        "trx": ("trx_4w", "trx_13w"),
        "decile": ("decile",),
        "region": ("region=South", "region=West"),
        "call_programme": ("call_programme",),
    }


@pytest.mark.parametrize(
    ("query", "analyses"),
    [
        ("vif please", ("overlap",)),
        ("run boruta", ("boruta",)),
        ("which columns could I throw out", ("redundant", "importance")),
        ("is it leaking", ("leakage",)),
        ("hello", ("importance",)),
        ("", ("importance",)),
        ("compute both again", ("importance",)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_words_become_analyses(query: str, analyses: tuple[str, ...]) -> None:
    """The importance where nothing else is asked for."""
    assert read_feature_request(query, all_inputs(26)).analyses == analyses


@pytest.mark.parametrize(
    "query",
    [
        "top 10 variables of the Remibrutinib propensity model, ranked",
        "are calls_30d and calls_90d telling it the same thing twice",
        "Out of 340 columns, which could we throw away without losing accuracy?",
        "how much auc goes away if you shufle the payer columns",
        "kisqali demand model: which inputs leak?",
    ],
    ids=lambda value: value[:24],
)
def test_the_golden_check_agrees(make_dispatch: Any, data: Snapshot, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """Every number done again by other code, through JSON."""
    monkeypatch.setattr("service.agents.sample_data.load_snapshot", lambda: data)
    handoff = run_agent("feature_analyzer", make_dispatch("feature_analyzer", context={"raw_query": query}))

    assert handoff.execution.status in {HandoffStatus.SUCCESS, HandoffStatus.FAILED}
    check(query, json.loads(handoff.model_dump_json()), data)
