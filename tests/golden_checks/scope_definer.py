"""Checks what the four training agents hand off: the scope against the request, the rest against rows and models of its own."""

import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from service.agents.sample_data import Snapshot
from tests.golden_checks.training_rows import CLASSES, auc, estimator, input_columns, population, predict, score, training_rows

NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10, "twelve": 12, "eighteen": 18, "twenty four": 24}
WEEKS = {"week": 1.0, "month": 52 / 12, "quarter": 13.0, "year": 52.0}
REASONS = {"unknown_entity", "missing_data", "insufficient_data", "unsupported_request"}


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Check scope_definer alone: a refusal must quote the request, a scope must say what the request says."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff, data)
        return
    output = handoff["result"]["primary_output"]
    scope, text = output["scope"], _plain(query)
    told = " ".join(handoff["result"]["caveats"])
    brands, regions = sorted(set(data.hcps["brand"])), sorted(set(data.hcps["region"]))
    for column, known in (("brands", brands), ("regions", regions)):
        named = [name for name in known if re.search(rf"\b{name.lower()}\b", text)]
        if named:
            assert set(scope[column]) <= set(named), f"{scope[column]} are not the named {named}"
        elif column == "regions":
            assert sorted(scope[column]) == known
    assert output["hcps"] == len(population(scope, data)) > 0
    _check_numbers(text, scope, told, data)
    if re.search(r"class (?:weight|imbalance)|imbalance|focal loss", text) and scope["target"] in CLASSES:
        assert scope["class_weights"]
    if "pr auc" in text:
        assert scope["metric"] == "pr_auc"
    if re.search(r"don t (?:push|release|deploy)|release nothing", text):
        assert scope["alias"] is None
    for word, family in (
        ("logistic", "linear"),
        ("forest", "random_forest"),
        ("xgboost", "hist_gradient_boosting"),
        ("lightgbm", "hist_gradient_boosting"),
    ):
        replaced = re.search(rf"(?:instead of|rather than) (?:the |an? )?(?:\w+ )?{word}", text)
        if word in text and not replaced:
            assert family in scope["families"], f"{word} is not among {scope['families']}"
    for word in ("prophet", "gpu", "focal loss", "claims"):
        if word in text:
            assert word in told.lower(), f"no caveat says that {word} cannot be had"
    rows = training_rows(scope, data)
    assert output["rows_per_hcp"] == (0 if rows.empty else rows["origin"].nunique())


def check_pipeline(query: str, handoffs: dict[str, dict[str, Any]], data: Snapshot) -> None:
    """Check the handoffs of a whole pipeline, by agent; those after a failure or a shut gate must be absent."""
    check(query, handoffs["scope_definer"], data)
    if handoffs["scope_definer"]["execution"]["status"] == "failed":
        assert set(handoffs) == {"scope_definer"}
        return
    scope = handoffs["scope_definer"]["result"]["primary_output"]["scope"]
    rows = training_rows(scope, data)
    prepared = handoffs["data_preparer"]
    _check_dataset(prepared["result"]["primary_output"], scope, rows)
    _check_gate(prepared, scope, rows)
    if prepared["execution"]["status"] == "blocked":
        assert not {"model_selector", "model_trainer"} & set(handoffs), "work went on behind a shut gate"
        return
    if "model_selector" in handoffs:
        _check_selection(handoffs["model_selector"]["result"]["primary_output"], scope, rows)
    if "model_trainer" in handoffs:
        _check_training(handoffs, scope, rows)


def _check_refusal(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    error = handoff["errors"]
    assert error["error_type"] in REASONS, error
    quoted = re.findall(r"'([^']+)'", error["error_message"])
    assert quoted, f"the refusal quotes nothing: {error['error_message']}"
    words = [word for word in _plain(quoted[0]).split() if len(word) > 2 and word != "patient"]
    assert any(word in _plain(query) for word in words), f"{quoted[0]!r} is not in the request"
    known = {name.lower() for column in ("brand", "region") for name in data.hcps[column]}
    assert _plain(quoted[0]) not in known, "the data do have it"


def _check_numbers(text: str, scope: dict[str, Any], told: str, data: Snapshot) -> None:
    for word, number in sorted(NUMBERS.items(), key=lambda item: -len(item[0])):
        text = re.sub(rf"\b{word}\b", str(number), text)
    first, last = (pd.Timestamp(scope[key]) for key in ("first_week", "last_week"))
    assert pd.Timestamp(data.week_ends[0]) <= first <= last <= pd.Timestamp(data.week_ends[-1])
    if span := re.search(r"\b(?:last|past|previous) (\d+) (week|month|quarter|year)s?\b", text):
        wanted = min(data.weeks, round(int(span[1]) * WEEKS[span[2]]))
        assert abs((last - first).days / 7 + 1 - wanted) <= 1, f"{span[0]}: {first} to {last}"
        assert last == pd.Timestamp(data.week_ends[-1])
    if folds := re.search(r"\b(\d+) folds?\b", text):
        assert scope["folds"] == min(10, max(2, int(folds[1])))
    if trials := re.search(r"\b(\d+) trials\b", text):
        assert scope["trials"] == min(24, int(trials[1]))
        assert int(trials[1]) <= 24 or trials[1] in told, "no caveat says that the trials were capped"
    if patience := re.search(r"early stopping at (\d+)", text):
        assert scope["early_stopping"] == int(patience[1])


def _check_dataset(output: dict[str, Any], scope: dict[str, Any], rows: pd.DataFrame) -> None:
    dataset = output["dataset"]
    assert dataset["rows"] == len(rows)
    assert re.fullmatch(r"ds-[0-9a-f]{16}", dataset["id"])
    if rows.empty:
        return
    assert dataset["features"] == input_columns(rows), "the columns are not those of the scope"
    assert dataset["hcps"] == rows["hcp"].nunique()
    for name, part in rows.groupby("split"):
        assert dataset["split"][name]["rows"] == len(part)
        assert np.isclose(dataset["target_mean"][name], part["target"].mean(), rtol=1e-4)
    if scope["target"] in CLASSES:
        assert set(rows["target"].unique()) <= {0.0, 1.0}


def _check_gate(handoff: dict[str, Any], scope: dict[str, Any], rows: pd.DataFrame) -> None:
    report = handoff["result"]["primary_output"]["qc_report"]
    ones = report["expectations"]
    for one in ones:
        kept = one["observed"] >= one["limit"] if one["rule"] == ">=" else one["observed"] <= one["limit"]
        assert kept == one["passed"], one
    share = sum(one["passed"] for one in ones) / len(ones)
    critical = any(not one["passed"] and one["severity"] == "critical" for one in ones)
    assert np.isclose(report["share_met"], share, atol=1e-4)
    assert report["passed"] == (not critical and share >= report["minimum"])
    assert (handoff["execution"]["status"] == "blocked") == (not report["passed"])
    if rows.empty:
        assert not report["passed"]
        return
    train, test = rows[rows["split"] == "train"], rows[rows["split"] == "test"]
    observed = {(one["expectation"], one["column"]): one["observed"] for one in ones}
    assert observed["training_rows", None] == len(train)
    assert observed["duplicate_rows", None] == int(rows.duplicated(["hcp", "origin"]).sum())
    for (name, column), value in observed.items():
        if name == "auc_alone":
            alone = auc(train["target"], train[column])
            assert np.isclose(value, max(alone, 1 - alone), atol=1e-4), f"AUC of {column}"
        if name == "psi":
            assert np.isclose(value, _psi(train[column], test[column]), rtol=0.02, atol=2e-3), f"PSI of {column}"
        if name == "outside_training_range":
            outside = (test[column] < train[column].min()) | (test[column] > train[column].max())
            assert np.isclose(value, outside.mean(), atol=1e-4)


def _psi(before: pd.Series, after: pd.Series) -> float:
    """Return the excess PSI over what chance gives, over the deciles of the earlier rows."""
    inner = sorted(set(np.percentile(before, range(10, 100, 10))))
    edges = [-np.inf, *inner, np.inf]
    old, new = (pd.cut(part, edges, right=False).value_counts(sort=False, normalize=True).clip(lower=1e-4) for part in (before, after))
    chance = len(inner) * (1 / len(before) + 1 / len(after))
    return max(0.0, float(((new.to_numpy() - old.to_numpy()) * np.log(new.to_numpy() / old.to_numpy())).sum()) - chance)


def _check_selection(output: dict[str, Any], scope: dict[str, Any], rows: pd.DataFrame) -> None:
    candidates, higher = output["candidates"], output["higher_is_better"]
    assert output["metric"] == scope["metric"]
    assert {one["family"] for one in candidates} <= set(scope["families"])
    for one in candidates:
        assert len(one["fold_scores"]) == scope["folds"]
        assert np.isclose(one["mean"], np.mean(one["fold_scores"]), atol=1e-4)
        assert np.isclose(one["standard_error"], np.std(one["fold_scores"], ddof=1) / scope["folds"] ** 0.5, rtol=1e-2, atol=1e-5)
    best = (max if higher else min)(candidates, key=lambda one: one["mean"])
    chosen = next(one for one in candidates if one["selected"])
    assert abs(chosen["mean"] - best["mean"]) <= best["standard_error"] + 1e-6, "outside one standard error of the best"
    assert {key: output["selected"][key] for key in ("family", "parameters")} == {key: chosen[key] for key in ("family", "parameters")}
    train = rows[rows["split"] == "train"]
    columns = input_columns(rows)
    scores = []
    for learn, judge in GroupKFold(5).split(train, groups=train["hcp"]):
        fitted = estimator(scope, chosen["family"], chosen["parameters"]).fit(
            train.iloc[learn][columns].to_numpy(dtype=float), train.iloc[learn]["target"]
        )
        scores.append(score(scope["metric"], train.iloc[judge]["target"], predict(fitted, train.iloc[judge][columns])))
    tolerance = 4 * max(chosen["standard_error"], float(np.std(scores, ddof=1) / 5**0.5)) + 0.02 * abs(float(np.mean(scores)))
    assert abs(np.mean(scores) - chosen["mean"]) <= tolerance, f"cross-validated {np.mean(scores)} against {chosen['mean']}"


def _check_training(handoffs: dict[str, dict[str, Any]], scope: dict[str, Any], rows: pd.DataFrame) -> None:
    handoff = handoffs["model_trainer"]
    output, columns = handoff["result"]["primary_output"], input_columns(rows)
    selected = handoffs["model_selector"]["result"]["primary_output"]["selected"] if "model_selector" in handoffs else output
    assert output["family"] == selected["family"]
    assert output["best_params"] == selected.get("parameters", output["best_params"])
    assert output["dataset"] == handoffs["data_preparer"]["result"]["primary_output"]["dataset"]["id"]
    model = handoff["artifacts"]["models"][0]
    assert model["mlflow_uri"] == f"models:/{output['registered_model']}/{output['registered_version']}"
    assert model["stage"] == ("Staging" if scope["alias"] == "staging" else "None")
    assert output["model_id"] == f"{output['registered_model']}-v{output['registered_version']}"
    test = rows[rows["split"] == "test"]
    assert output["test_rows"] == len(test)
    assert output["score_interval"][0] <= output["score"] <= output["score_interval"][1]
    if scope["calibration"] is not None:
        return
    learn = rows[rows["split"] != "test"]
    fitted = estimator(scope, output["family"], output["best_params"]).fit(learn[columns].to_numpy(dtype=float), learn["target"])
    predicted = predict(fitted, test[columns])
    loose = 0.002 if output["family"] in {"linear", "k_nearest"} else 0.05
    for name, value in output["metrics"].items():
        metric = {"auc": "roc_auc"}.get(name, name)
        if metric == "calibration_error":
            continue
        again = score(metric, test["target"], predicted)
        assert np.isclose(value, again, rtol=loose, atol=loose), f"{name} is {again}, not {value}"


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))
