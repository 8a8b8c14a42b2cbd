"""model_trainer (tier 0): fits the selected model, judges it on weeks that nothing has seen, and registers it in MLflow."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.agents.chart import Row, Spec, bar_chart, table
from service.agents.finding import Finding
from service.agents.model_selector import blocked_finding
from service.agents.registry.store import CARD_FILE, MODEL_FILE, Version, open_registry, writing
from service.agents.sample_data import Snapshot
from service.agents.training.data import Prepared, prepare
from service.agents.training.families import LABELS
from service.agents.training.fit import Evaluation, Fitted, evaluate, fit_model
from service.agents.training.metrics import METRICS, reliability
from service.agents.training.scope import Selected, TrainingScope, handed_over
from service.agents.training.search import search
from service.agents.training.target import label_of
from service.contracts.dispatch import AgentDispatch

POOR_CALIBRATION = 0.05


@dataclass(frozen=True, slots=True)
class _Training:
    prepared: Prepared
    selected: Selected
    fitted: Fitted
    evaluation: Evaluation
    version: Version
    repeated: bool


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Train, evaluate and register the model of the scope; the same dispatch again registers nothing more.

    Confidence is the share of bootstrap replicates in which the model beats the training mean on the test weeks, times 1 less
    the relative gap between the folds' score and the test's, times the share of quality expectations that the data meet.

    Raises:
        AgentFailure: What was handed over does not fit (`invalid_input`), or the registry fails (`registry_unavailable`).
    """
    prepared = prepare(dispatch, data)
    if prepared.blocked is not None:
        return blocked_finding(prepared)
    selected = handed_over(dispatch, "selected", Selected)
    if selected is None:
        found = search(prepared.table, prepared.scope, dispatch.payload.constraints.max_latency_ms)
        chosen = found.selected
        selected = Selected(
            family=chosen.family, parameters=chosen.parameters, score=chosen.mean, standard_error=chosen.standard_error, folds=found.folds
        )
    fitted = fit_model(prepared.table, prepared.scope, selected.family, selected.parameters)
    evaluation = evaluate(fitted, prepared.table, prepared.scope, data)
    version, repeated = _register(dispatch, prepared, selected, fitted, evaluation)
    return _finding(_Training(prepared, selected, fitted, evaluation, version, repeated))


def model_name(scope: TrainingScope, all_brands: int, all_regions: int) -> str:
    """Return the registered name of a scope's model, such as e2i-fabhalta-conversion; a part of the HCPs is named at the end."""
    brands = "-".join(scope.brands) if len(scope.brands) < all_brands else "all"
    parts = ["e2i", brands, scope.target]
    if len(scope.regions) < all_regions:
        parts += scope.regions
    parts += [*scope.specialties, *scope.settings]
    return "-".join(parts).lower().replace(" ", "-").replace("_", "-")


def _register(
    dispatch: AgentDispatch, prepared: Prepared, selected: Selected, fitted: Fitted, evaluation: Evaluation
) -> tuple[Version, bool]:
    scope, dispatch_id = prepared.scope, str(dispatch.dispatch_id)
    with writing:
        registry = open_registry(create=True)
        if registry is None:  # cannot be: it was to be created
            raise RuntimeError("the registry was not created")
        known = registry.version_of_dispatch(dispatch_id)
        if known is not None:
            return known, True
        name = model_name(scope, prepared.all_brands, prepared.all_regions)
        card = _card(prepared, selected, evaluation)
        tags = {
            "dispatch_id": dispatch_id,
            "target": scope.target,
            "metric": scope.metric,
            "score": repr(evaluation.score),
            "higher_is_better": str(METRICS[scope.metric].higher_is_better).lower(),
            "family": selected.family,
            "dataset": prepared.table.id,
        }
        params = {"family": selected.family, **{key: str(value) for key, value in selected.parameters.items()}}
        params |= {
            "target": scope.target,
            "horizon_weeks": str(scope.horizon_weeks),
            "dataset": prepared.table.id,
            "inputs": str(len(scope.inputs)),
        }
        with tempfile.TemporaryDirectory() as folder:
            _write_model(Path(folder), fitted, card)
            version = registry.register(name, Path(folder), params=params, metrics=evaluation.metrics, tags=tags)
        if scope.alias is not None:
            registry.point(name, scope.alias, version.number)
        return version, False


def _write_model(folder: Path, fitted: Fitted, card: dict[str, object]) -> None:
    """Write the model by skops: it holds numbers and names of types, and nothing that runs when it is read."""
    from skops.io import dump  # type: ignore[import-untyped]  # skops ships no types

    dump(fitted.estimator, folder / MODEL_FILE)
    (folder / CARD_FILE).write_text(json.dumps(card, indent=1), "utf-8")


def _card(prepared: Prepared, selected: Selected, evaluation: Evaluation) -> dict[str, object]:
    return {
        "scope": prepared.scope.model_dump(mode="json"),
        "columns": list(prepared.table.columns),
        "dataset": prepared.table.id,
        "family": selected.family,
        "parameters": selected.parameters,
        "metrics": evaluation.metrics,
    }


def _finding(done: _Training) -> Finding:
    scope, version, evaluation = done.prepared.scope, done.version, done.evaluation
    uri = f"models:/{version.model}/{version.number}"
    metrics = {"auc" if name == "roc_auc" else name: value for name, value in evaluation.metrics.items()}
    cross_validation = {"mean": done.selected.score, "standard_error": done.selected.standard_error, "folds": done.selected.folds}
    return Finding(
        primary_output={
            "model_id": f"{version.model}-v{version.number}",
            "model_version": f"{version.number}.0.0",
            "registered_model": version.model,
            "registered_version": version.number,
            "run_id": version.run_id,
            "mlflow_uri": uri,
            "alias": scope.alias,
            "family": done.selected.family,
            "best_params": done.selected.parameters,
            "metrics": metrics,
            "metric": scope.metric,
            "score": evaluation.score,
            "score_interval": [evaluation.low, evaluation.high],
            "baseline": evaluation.baseline,
            "persistence_rmse": evaluation.persistence,
            "cross_validation": {"metric": scope.metric, **cross_validation},
            "test_rows": len(done.fitted.truth),
            "dataset": done.prepared.table.id,
        },
        confidence=_confidence(done),
        evidence=_evidence(done, uri),
        caveats=(*done.prepared.caveats, *_caveats(done)),
        visualizations=_charts(done),
        tables=(table("Metrics on the test weeks", [{"metric": name, "value": value} for name, value in metrics.items()]),),
        models=({"mlflow_uri": uri, "stage": "Staging" if scope.alias else "None", "alias": scope.alias},),
        model_used=f"scikit-learn {LABELS[done.selected.family]}",
        cache_hit=done.repeated,
    )


def _confidence(done: _Training) -> float:
    gap = 0.0
    if done.selected.score is not None:
        gap = abs(done.evaluation.score - done.selected.score) / max(abs(done.selected.score), 1e-9)
    return done.evaluation.beats_baseline * max(0.0, 1.0 - gap) * done.prepared.report.share_met


def _evidence(done: _Training, uri: str) -> list[str]:
    scope, evaluation, selected, report = done.prepared.scope, done.evaluation, done.selected, done.prepared.report
    metric = METRICS[scope.metric]
    held = f"{len(done.fitted.truth):,} HCP rows of the latest weeks, which nothing had seen"
    verb = "was already registered by this same request" if done.repeated else "is registered"
    sentences = [
        f"The {LABELS[selected.family]} for {label_of(scope.wanted, scope.horizon_weeks)} {verb} as {uri}; on {held}, its {metric.label} "
        "is "
        f"{evaluation.score:.3f} (95 % interval {evaluation.low:.3f} to {evaluation.high:.3f})."
    ]
    if selected.score is not None:
        error = f" ± {selected.standard_error:.3f}" if selected.standard_error is not None else ""
        folds = f"{selected.folds}-fold, " if selected.folds else ""
        sentences.append(f"Cross-validation: {folds}mean {metric.label} {selected.score:.3f}{error}.")
    sentences.append(f"QC gate passed: {100 * report.share_met:.0f} % expectations met.")
    sentences.append(
        f"Without inputs (the training mean for everybody) the {metric.label} is {evaluation.baseline:.3f}; the model is better in "
        f"{100 * evaluation.beats_baseline:.0f} % of the bootstrap replicates."
    )
    if evaluation.persistence is not None:
        better = "better" if evaluation.metrics["rmse"] < evaluation.persistence else "not better"
        sentences.append(
            f"The HCP's own mean of the 13 weeks before has an RMSE of {evaluation.persistence:.3f}; the model's "
            f"{evaluation.metrics['rmse']:.3f} is {better}."
        )
    if scope.task == "classification":
        sentences.append(
            f"Brier score {evaluation.metrics['brier']:.3f}, mean calibration error {100 * evaluation.metrics['calibration_error']:.1f} "
            "percentage points; "
            f"{100 * float(np.mean(done.fitted.truth)):.1f} % of the test rows are positive."
        )
    return sentences


def _caveats(done: _Training) -> list[str]:
    scope, evaluation = done.prepared.scope, done.evaluation
    caveats = []
    if evaluation.metrics.get("calibration_error", 0.0) > POOR_CALIBRATION:
        cause = "the class weights raise them" if scope.class_weights and not scope.calibration else "they were fitted on earlier weeks"
        caveats.append(
            f"The probabilities are off by {100 * evaluation.metrics['calibration_error']:.0f} percentage points on average: {cause}."
        )
    moved = [one.column for one in done.prepared.report.failed if one.name == "psi" and one.column]
    if moved:
        caveats.append(f"{len(moved)} inputs moved between training and test weeks, {moved[0]} among them.")
    if scope.alias is not None:
        caveats.append("MLflow has no stages any more: the alias 'staging' stands for it. Nothing went to production.")
    else:
        caveats.append("The version has no alias: nothing was released.")
    if done.repeated:
        caveats.append("The request came a second time; no second version was registered.")
    return caveats


def _charts(done: _Training) -> tuple[Spec, ...]:
    bins = reliability(done.fitted.truth, done.fitted.predicted)
    rows: list[Row] = []
    for tenth, (mean, share, _) in enumerate(bins, start=1):
        rows += [
            {"tenth": f"tenth {tenth}", "what": "predicted", "value": round(mean, 4)},
            {"tenth": f"tenth {tenth}", "what": "observed", "value": round(share, 4)},
        ]
    return (
        bar_chart(
            "reliability", "Predicted and observed by tenth of the prediction, test weeks", rows, value="value", label="tenth", color="what"
        ),
    )
