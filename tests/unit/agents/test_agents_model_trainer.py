"""model_trainer fits, judges on later weeks, and registers each dispatch once, in a format that runs nothing when it is read."""

import json
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from service.adapters.mlflow_registry import MODEL
from service.agents.directory import load_agent, run_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.registry.store import CARD_FILE, EXPERIMENT, MODEL_FILE, ROUTER_MODEL, Registry, open_registry
from service.agents.sample_data import Snapshot
from service.agents.training.families import grid
from service.agents.training.scope import FAMILIES, TrainingScope
from service.agents.training.search import predict
from service.agents.training.table import build_table
from service.contracts.handoff import HandoffStatus
from tests.golden_checks.scope_definer import check_pipeline
from tests.unit.agents.model_store import registry, run_pipeline, store_uri, with_id

__all__ = ["registry"]
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow 3.17 under SQLAlchemy 2.1

Ask = Callable[..., Finding]
QUERY = "fabhalta conversion, logistic regression, 3 folds"


def output_of(finding: Finding) -> dict[str, Any]:
    """Return the output with its values open to tests."""
    found: Any = finding.primary_output
    return dict(found)


def test_a_pipeline_ends_in_a_registered_version(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """The specification's fields are there, and the registry has the version under the alias staging."""
    trained = run_pipeline(make_dispatch, QUERY, data)["model_trainer"]
    output = output_of(trained)

    assert output["model_id"] == "e2i-fabhalta-conversion-v1"
    assert output["model_version"] == "1.0.0"
    assert {"auc", "pr_auc", "brier", "log_loss", "calibration_error"} == set(output["metrics"])
    assert output["best_params"]["strength"] > 0
    assert trained.models == ({"mlflow_uri": "models:/e2i-fabhalta-conversion/1", "stage": "Staging", "alias": "staging"},)
    model = registry.model("e2i-fabhalta-conversion")
    assert model is not None
    assert [one.aliases for one in model.versions] == [("staging",)]
    assert model.versions[0].score == pytest.approx(output["score"])


def test_the_same_dispatch_registers_nothing_more(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """A repeated dispatch gets the same version; another dispatch gets the next one."""
    first_id = uuid4()
    first, again, other = (
        output_of(run_pipeline(make_dispatch, QUERY, data, dispatch_id=one)["model_trainer"]) for one in (first_id, first_id, uuid4())
    )
    model = registry.model("e2i-fabhalta-conversion")

    assert model is not None
    assert (first["registered_version"], again["registered_version"], other["registered_version"]) == (1, 1, 2)
    assert first["run_id"] == again["run_id"]
    assert [one.number for one in model.versions] == [1, 2]
    assert first["score"] == again["score"] == other["score"]


def test_two_threads_with_one_dispatch_register_one_version(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """A retry that overlaps with the first try finds the version that the other made."""
    dispatch = with_id(make_dispatch("model_trainer", context={"raw_query": QUERY}))
    found: list[Finding] = []
    threads = [threading.Thread(target=lambda: found.append(load_agent("model_trainer")(dispatch, data))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model = registry.model("e2i-fabhalta-conversion")

    assert model is not None
    assert len(model.versions) == 1
    assert {output_of(one)["registered_version"] for one in found} == {1}


def test_the_artifact_is_skops_and_json_and_no_pickle(make_dispatch: Any, data: Snapshot, registry: Registry, tmp_path: Path) -> None:
    """A zip of a schema and arrays; the loaded model predicts what the trainer reported."""
    output = output_of(run_pipeline(make_dispatch, QUERY, data)["model_trainer"])
    client: Any = registry._client
    client.download_artifacts(output["run_id"], "model", str(tmp_path))
    files = {one.name for one in (tmp_path / "model").iterdir()}
    model = registry.model(output["registered_model"])
    assert model is not None
    estimator, card = registry.load(model.versions[0])
    scope = TrainingScope.model_validate(card["scope"])
    table = build_table(scope, data)
    predicted = predict(estimator, table.values[table.rows("test")])

    assert files == {MODEL_FILE, CARD_FILE}
    with zipfile.ZipFile(tmp_path / "model" / MODEL_FILE) as archive:
        assert {Path(name).suffix for name in archive.namelist()} <= {".json", ".npy"}
    assert output["metrics"]["brier"] == pytest.approx(float(np.mean((predicted - table.target[table.rows("test")]) ** 2)), abs=1e-5)
    assert card["metrics"]["roc_auc"] == pytest.approx(output["metrics"]["auc"], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("query", ["fabhalta west conversion, calibrate with isotonic", "fabhalta west demand"])
def test_every_family_is_written_and_read_again(
    make_dispatch: Any, ask: Ask, data: Snapshot, registry: Registry, family: Any, query: str
) -> None:
    """The trusted types cover all that the families are made of."""
    found: Any = ask("scope_definer", context={"raw_query": query}).primary_output
    scope = TrainingScope.model_validate(found["scope"] | {"families": [family]})
    selected = {"family": family, "parameters": grid(family, scope)[0]}
    context = {"scope": scope.model_dump(mode="json"), "selected": selected}
    output = output_of(load_agent("model_trainer")(with_id(make_dispatch("model_trainer", context=context)), data))
    model = registry.model(output["registered_model"])
    assert model is not None
    estimator, _ = registry.load(model.versions[-1])
    table = build_table(scope, data)
    test = table.rows("test")

    error = float(np.mean((predict(estimator, table.values[test]) - table.target[test]) ** 2))
    reported = output["metrics"].get("brier", output["metrics"].get("rmse", 0.0) ** 2)
    assert error == pytest.approx(reported, rel=1e-4)


def test_a_type_that_is_not_trusted_is_not_built(
    registry: Registry, data: Snapshot, make_dispatch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the artifact says of itself, only the listed types are made."""
    context = {"raw_query": "fabhalta conversion, random forest, 2 folds"}
    output = output_of(load_agent("model_trainer")(with_id(make_dispatch("model_trainer", context=context)), data))
    model = registry.model(output["registered_model"])
    assert model is not None
    monkeypatch.setattr("service.agents.registry.store.TRUSTED_TYPES", ())

    with pytest.raises(AgentFailure, match="no model that can be read"):
        registry.load(model.versions[0])


def test_a_model_on_hold_gets_no_alias(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """'Don't release anything' registers the version and points nothing to it."""
    trained = run_pipeline(make_dispatch, "fabhalta churn, logistic, 3 folds, don't release anything", data)["model_trainer"]
    model = registry.model("e2i-fabhalta-lapse")

    assert model is not None
    assert model.versions[0].aliases == ()
    assert trained.models[0]["stage"] == "None"


def test_demand_beats_the_mean_by_far(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """TRx follow the HCP's own level; the R² on the later weeks is high, and persistence is reported beside it."""
    output = output_of(run_pipeline(make_dispatch, "kisqali demand, ridge, 3 folds", data)["model_trainer"])

    assert output["metrics"]["r2"] > 0.75
    assert output["persistence_rmse"] > 0
    assert output["score_interval"][0] < output["score"] < output["score_interval"][1]


def test_class_weights_spoil_probabilities_and_calibration_mends_them(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """Lapses are rare: weighted probabilities are far off, calibrated ones are not."""
    weighted = run_pipeline(make_dispatch, "churn, logistic, class weights, 3 folds", data)["model_trainer"]
    mended = run_pipeline(make_dispatch, "churn, logistic, class weights, isotonic, 3 folds", data)["model_trainer"]

    assert output_of(weighted)["metrics"]["calibration_error"] > 0.2
    assert any("class weights raise them" in caveat for caveat in weighted.caveats)
    assert output_of(mended)["metrics"]["calibration_error"] < 0.05


def test_bad_data_train_nothing(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """Asked alone on too few weeks, the trainer is blocked and registers nothing."""
    finding = load_agent("model_trainer")(with_id(make_dispatch("model_trainer", context={"raw_query": "conversion, last 8 weeks"})), data)

    assert finding.blocked is not None
    assert registry.models() == ()


@pytest.mark.parametrize(
    "context",
    [
        {"selected": {"family": "oracle", "parameters": {}}},
        {"selected": {"family": "linear", "parameters": {"strength": 1e12}}},
        {"selected": {"family": "linear", "parameters": {"__class__": 1}}},
        {"selected": "the best"},
        {"qc_report": {"passed": False, "share_met": 0.5}},
        {"qc_report": {"passed": True, "share_met": 7}},
    ],
    ids=["family", "range", "name", "shape", "shut-gate", "share"],
)
def test_what_is_handed_over_is_checked(make_dispatch: Any, data: Snapshot, registry: Registry, context: dict[str, object]) -> None:
    """Nothing is registered from an input that does not fit."""
    dispatch = with_id(make_dispatch("model_trainer", context={"raw_query": "fabhalta conversion", **context}))

    with pytest.raises(AgentFailure) as failure:
        load_agent("model_trainer")(dispatch, data)

    assert failure.value.error_type == "invalid_input"
    assert registry.models() == ()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("conversion", "e2i-all-conversion"),
        ("kisqali conversion in the west", "e2i-kisqali-conversion-west"),
        ("nephrologists: demand", "e2i-fabhalta-trx-demand-nephrology"),
    ],
)
def test_the_name_says_what_the_model_is_for(make_dispatch: Any, data: Snapshot, registry: Registry, query: str, name: str) -> None:
    """Brand, target, and a part of the HCPs where it is one."""
    context = {"raw_query": f"{query}, logistic, 2 folds", "qc_minimum": 0.9}
    output = output_of(load_agent("model_trainer")(with_id(make_dispatch("model_trainer", context=context)), data))

    assert output["registered_model"] == name


def test_the_router_is_out_of_reach(registry: Registry) -> None:
    """The name is the adapter's, the model is not listed, and every change of it is refused."""
    client: Any = registry._client
    client.create_registered_model(MODEL)
    try:
        assert ROUTER_MODEL == MODEL
        assert registry.model(MODEL) is None
        for change in (
            lambda: registry.point(MODEL, "production", 1),
            lambda: registry.unpoint(MODEL, "champion"),
            lambda: registry.tag(MODEL, 1, "retired", "true"),
            lambda: registry.register(MODEL, Path("."), params={}, metrics={}, tags={}),
        ):
            with pytest.raises(AgentFailure, match="own model"):
                change()
    finally:
        client.delete_registered_model(MODEL)


def test_reading_creates_no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no store is, none is made by looking."""
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{tmp_path}/none/mlflow.db")

    assert open_registry(create=False) is None
    assert list(tmp_path.iterdir()) == []


def test_runs_lie_in_an_experiment_of_their_own(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """Parameters and metrics are logged beside the artifacts, next to the database."""
    output = output_of(run_pipeline(make_dispatch, QUERY, data)["model_trainer"])
    client: Any = registry._client
    run = client.get_run(output["run_id"])

    assert client.get_experiment(run.info.experiment_id).name == EXPERIMENT
    assert run.data.params["family"] == "linear"
    assert run.data.metrics["roc_auc"] == pytest.approx(output["metrics"]["auc"], abs=1e-5)
    assert str(Path(store_uri().removeprefix("sqlite:///")).parent) in run.info.artifact_uri
    assert run.info.status == "FINISHED"


def test_the_golden_check_agrees_with_a_whole_pipeline(
    make_dispatch: Any, data: Snapshot, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handoffs as JSON, and every number done again by other code."""
    monkeypatch.setattr("service.agents.sample_data.load_snapshot", lambda: data)
    handoffs: dict[str, dict[str, Any]] = {}
    handed: dict[str, Any] = {}
    for name in ("scope_definer", "data_preparer", "model_selector", "model_trainer"):
        handoff = run_agent(name, with_id(make_dispatch(name, context={"raw_query": QUERY, **handed}), UUID(int=77)))
        assert handoff.execution.status is HandoffStatus.SUCCESS
        handoffs[name] = json.loads(handoff.model_dump_json())
        output = handoffs[name]["result"]["primary_output"]
        handed |= {key: output[key] for key in ("scope", "dataset", "qc_report", "selected") if key in output}

    check_pipeline(QUERY, handoffs, data)
