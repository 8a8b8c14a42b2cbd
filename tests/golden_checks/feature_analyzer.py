"""Checks feature_analyzer's numbers with pandas, scipy and statsmodels on rows and models of its own."""

import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd

from service.agents.sample_data import Snapshot
from tests.golden_checks.training_rows import CLASSES, auc, estimator, input_columns, predict, score, training_rows

REASONS = {"unknown_entity", "missing_data", "insufficient_data"}
REPEATS = 12


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Check every number that the answer gives; a refusal must name what the request brings up and the data lack."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff)
        return
    output = handoff["result"]["primary_output"]
    scope, model = output["scope"], output["model"]
    rows = training_rows(scope, data)
    columns = input_columns(rows)
    learn, test = rows[rows["split"] != "test"], rows[rows["split"] == "test"]
    assert output["rows"]["fitted"] == len(learn)
    assert output["rows"]["held_out"] == min(len(test), 1_500)
    text = _plain(query)
    for name in sorted(set(data.hcps["brand"])):
        if name.lower() in text.split():
            assert name in scope["brands"]
    if re.search(r"\b(?:vifs?|correlation|same thing|redundant|collinear\w*)\b", text):
        assert "overlap" in output
    if re.search(r"\bboruta\b", text):
        assert "shadow_test" in output
    if re.search(r"\bshap\b", text):
        assert "contributions" in output
    if re.search(r"\bleak\w*\b", text):
        assert "leakage" in output
    if "overlap" in output:
        _check_overlap(output["overlap"], learn, columns)
    if "leakage" in output:
        _check_leakage(output["leakage"], scope, learn)
    if scope["calibration"] is not None:
        return
    fitted = estimator(scope, model["family"], model["parameters"]).fit(learn[columns].to_numpy(dtype=float), learn["target"])
    real = score(model["metric"], test["target"], predict(fitted, test[columns]))
    noise = 3.0 * abs(real) / len(test) ** 0.5 if len(test) > 1_500 or model["family"] not in {"linear", "k_nearest"} else 0.002
    assert abs(real - model["score"]) <= noise + 0.002, f"the score is {real}, not {model['score']}"
    _check_importance(output, scope, fitted, test, columns)
    if "contributions" in output and model["family"] == "linear":
        _check_contributions(output["contributions"], fitted, test, columns)
    if "reduction" in output:
        kept = output["reduction"]["kept"]
        assert sorted([*kept, *output["reduction"]["dropped"]]) == sorted(columns)
        fewer = estimator(scope, model["family"], model["parameters"]).fit(learn[kept].to_numpy(dtype=float), learn["target"])
        change = score(model["metric"], test["target"], predict(fewer, test[kept])) - real
        loss = -change if model["metric"] == "roc_auc" else change
        assert abs(loss - output["reduction"]["loss"]) <= noise + 0.01 * max(1.0, abs(real)), f"the loss is {loss}"


def _check_refusal(query: str, handoff: dict[str, Any]) -> None:
    error = handoff["errors"]
    assert error["error_type"] in REASONS, error
    message, text = _plain(error["error_message"]), _plain(query)
    if re.search(r"there is no version|models fit|no registered model|has no version|was trained on|has no model that", message):
        assert re.search(r"\b(?:v|version) ?\d+\b", text), "a version is refused that nobody named"
        return
    said = re.search(
        r"^(?:the data have no|there is no) (?:brand |region |group )?(.+?)(?: so | model | available | they | the data | $)", message
    )
    assert said, message
    assert any(word in text for word in said[1].split()), f"{said[1]!r} is not in the request"


def _check_overlap(overlap: dict[str, Any], learn: pd.DataFrame, columns: list[str]) -> None:
    inflation = {one["column"]: one["vif"] for one in overlap["variance_inflation"]}
    block = [name for name in columns if name in inflation]
    related = learn[block].corr()
    for pair in overlap["pairs"]:
        assert np.isclose(related.loc[pair["first"], pair["second"]], pair["correlation"], atol=1e-3)
        assert abs(pair["correlation"]) >= 0.7 - 1e-6
    strong = int((related.abs().where(np.triu(np.ones(related.shape), 1) > 0) >= 0.7).to_numpy().sum())
    assert len(overlap["pairs"]) == min(strong, 40)
    standard = ((learn[block] - learn[block].mean()) / learn[block].std()).to_numpy(dtype=float)
    for at, name in enumerate(block):
        others = np.delete(standard, at, axis=1)
        rest = standard[:, at] - others @ np.linalg.lstsq(others, standard[:, at], rcond=1e-10)[0] if len(block) > 1 else standard[:, at]
        unexplained = float((rest**2).mean() / (standard[:, at] ** 2).mean())
        if unexplained < 1e-9:
            assert inflation[name] is None, f"{name} is an exact combination of others"
        else:
            assert np.isclose(inflation[name], 1 / unexplained, rtol=1e-2), f"VIF of {name} is {1 / unexplained}, not {inflation[name]}"
    for group in overlap["clusters"]:
        within = related.loc[group, group].abs().to_numpy()
        assert within[np.triu_indices(len(group), 1)].mean() >= 0.6, f"{group} do not go together"


def _check_leakage(leakage: list[dict[str, Any]], scope: dict[str, Any], learn: pd.DataFrame) -> None:
    for one in leakage:
        if scope["target"] in CLASSES:
            alone = auc(learn["target"], learn[one["column"]])
            assert np.isclose(one["alone"], max(alone, 1 - alone), atol=1e-3)
            assert one["suspicious"] == (max(alone, 1 - alone) > 0.95)
        elif learn[one["column"]].nunique() > 1:
            assert np.isclose(one["alone"], abs(learn[one["column"]].corr(learn["target"])), atol=1e-3)


def _check_importance(output: dict[str, Any], scope: dict[str, Any], fitted: Any, test: pd.DataFrame, columns: list[str]) -> None:
    """Shuffle again with other random numbers: the first, the last and the named inputs."""
    metric, groups = output["model"]["metric"], output["groups"]
    assert [one["loss"] for one in groups] == sorted((one["loss"] for one in groups), reverse=True)
    assert sum(one["columns"] for one in groups) == len(columns)
    wanted = [(one["input"], _columns_of(one["input"], columns), one["loss"], one["standard_deviation"]) for one in (groups[0], groups[-1])]
    wanted += [(one["word"], one["columns"], one["shuffled_loss"], one["standard_deviation"]) for one in output.get("named", [])]
    rng = np.random.default_rng(99)
    real = score(metric, test["target"], predict(fitted, test[columns]))
    for name, block, loss, deviation in wanted:
        changes = []
        for _ in range(REPEATS):
            shuffled = test[columns].copy()
            shuffled[block] = test[block].to_numpy()[rng.permutation(len(test))]
            changes.append(score(metric, test["target"], predict(fitted, shuffled)) - real)
        again = -float(np.mean(changes)) if metric == "roc_auc" else float(np.mean(changes))
        tolerance = (
            3 * (deviation + float(np.std(changes))) + 0.004 * max(1.0, abs(real)) + (0.1 * abs(again) if len(test) > 1_500 else 0.0)
        )
        assert abs(again - loss) <= tolerance, f"shuffling {name} costs {again}, not {loss}"


def _columns_of(name: str, columns: list[str]) -> list[str]:
    return [one for one in columns if one == name or re.fullmatch(rf"{re.escape(name)}(?:_\d+w|=.*)", one)]


def _check_contributions(shown: list[dict[str, Any]], fitted: Any, test: pd.DataFrame, columns: list[str]) -> None:
    scaler, linear = fitted[0], fitted[-1]
    weights = np.ravel(linear.coef_) / scaler.scale_
    sizes = (test[columns].sub(scaler.mean_) * weights).abs().mean()
    loose = 0.05 if len(test) > 1_500 else 0.005
    for one in shown:
        assert np.isclose(one["mean_absolute"], sizes[one["column"]], rtol=loose, atol=2e-3), one
        assert (one["direction"] == "up") == (weights[columns.index(one["column"])] > 0)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))
