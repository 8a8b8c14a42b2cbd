"""The training rows of a scope, built again with pandas from the sample data, and models of them: what the tier 0 checks compare with.

It imports nothing of the agents but the data set.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from service.agents.sample_data import Snapshot

STATIC = {"decile", "potential", "panel_size", "digital_affinity", "academic", "region", "specialty", "brand"}
COUNTS = ("trx", "nrx", "market_trx", "calls", "emails", "samples", "speaker_events", "candidates", "conversions")
PROGRAMMES = ("call_programme", "email_campaign", "speaker_programme", "sample_programme")
CLASSES = {"conversion", "lapse", "growth", "speaker_attendance"}


def population(scope: dict[str, Any], data: Snapshot) -> pd.DataFrame:
    """Return the HCPs of a scope, indexed by their row in the data."""
    hcps = data.hcps.reset_index(drop=True)
    keep = hcps["brand"].isin(scope["brands"]) & hcps["region"].isin(scope["regions"])
    for column, key in (("specialty", "specialties"), ("setting", "settings")):
        if scope[key]:
            keep &= hcps[column].isin(scope[key])
    return hcps[keep]


def training_rows(scope: dict[str, Any], data: Snapshot) -> pd.DataFrame:
    """Return one row an HCP and origin: the inputs, `target`, `hcp`, `origin` and `split`; rows with an unknown target are left out."""
    hcps, horizon = population(scope, data), scope["horizon_weeks"]
    weeks = [one.isoformat() for one in data.week_ends]
    start, stop = weeks.index(scope["first_week"]), weeks.index(scope["last_week"]) + 1
    origins = []
    origin = stop - horizon
    while origin - scope["history_weeks"] >= start and len(origins) < 12:
        origins.insert(0, origin)
        origin -= max(4, horizon)
    counts = {name: pd.DataFrame(data.weekly[name]).clip(lower=0)[list(hcps.index)] for name in COUNTS}
    fixed = _fixed(scope, hcps)
    parts = []
    for origin in origins:
        rows = _sums(scope, counts, origin).join(fixed)
        for name in PROGRAMMES:
            if name in scope["inputs"]:
                rows[name] = hcps[name] if origin >= len(weeks) - 26 else 0
        rows["target"], at_risk = _target(scope["target"], counts, origin, horizon)
        rows["origin"] = origin
        parts.append(rows[at_risk & rows["target"].notna()])
    if not parts:
        return pd.DataFrame()
    whole = pd.concat(parts).rename_axis("hcp").reset_index()
    held = max(1, len(origins) // 6)
    names = {origin: "train" for origin in origins}
    if len(origins) > 1:
        names |= {origin: "test" for origin in origins[-held:]}
    if len(origins) > 2:
        names |= {origin: "validation" for origin in origins[-2 * held : -held]}
    whole["split"] = whole["origin"].map(names)
    return whole


def input_columns(rows: pd.DataFrame) -> list[str]:
    """Return the names of the inputs."""
    return [name for name in rows.columns if name not in {"hcp", "origin", "split", "target"}]


def auc(target: pd.Series, score: Any) -> float:
    """Return the AUC as the share of pairs in the right order, by the Mann-Whitney statistic."""
    positive, score = target.to_numpy() > 0.5, np.asarray(score, dtype=float)
    return float(mannwhitneyu(score[positive], score[~positive]).statistic / (positive.sum() * (~positive).sum()))


def score(metric: str, target: pd.Series, predicted: Any) -> float:
    """Return a metric by its formula."""
    truth, predicted = target.to_numpy(), np.asarray(predicted, dtype=float)
    if metric == "roc_auc":
        return auc(target, predicted)
    if metric == "pr_auc":
        order = np.argsort(-predicted, kind="stable")
        hits = truth[order].cumsum()
        return float((hits / np.arange(1, len(hits) + 1))[truth[order] > 0.5].mean())
    if metric == "log_loss":
        inside = predicted.clip(1e-6, 1 - 1e-6)
        return float(-np.where(truth > 0.5, np.log(inside), np.log(1 - inside)).mean())
    if metric == "r2":
        return float(1 - ((truth - predicted) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
    squared = float(((truth - predicted) ** 2).mean())
    return {"brier": squared, "rmse": squared**0.5, "mae": float(np.abs(truth - predicted).mean())}[metric]


def estimator(scope: dict[str, Any], family: str, settings: dict[str, Any]) -> Any:
    """Return scikit-learn's model of a family with the settings that an agent reports."""
    classify = scope["target"] in CLASSES
    weight = {"class_weight": "balanced" if scope["class_weights"] else None} if classify else {}
    if family == "linear":
        strength = settings["strength"]
        model = LogisticRegression(C=strength, max_iter=500, **weight) if classify else Ridge(alpha=strength)
        return make_pipeline(StandardScaler(), model)
    if family == "k_nearest":
        nearest = KNeighborsClassifier if classify else KNeighborsRegressor
        return make_pipeline(StandardScaler(), nearest(settings["neighbours"]))
    if family == "decision_tree":
        tree = DecisionTreeClassifier if classify else DecisionTreeRegressor
        return tree(max_depth=settings["depth"], min_samples_leaf=20, **weight)
    if family == "neural_network":
        network = MLPClassifier if classify else MLPRegressor
        return make_pipeline(
            StandardScaler(),
            network(
                (settings["units"],),
                alpha=settings["penalty"],
                early_stopping=True,
                learning_rate_init=0.01,
                max_iter=1_000,
                random_state=17,
            ),
        )
    if family == "random_forest":
        forest = RandomForestClassifier if classify else RandomForestRegressor
        size = {"n_estimators": settings["trees"], "min_samples_leaf": settings["smallest_leaf"], "max_depth": settings["depth"]}
        return forest(max_features="sqrt" if classify else 0.33, max_samples=0.5, random_state=1, **size, **weight)
    boosting = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    patience = settings["early_stopping"]
    stopping = {"early_stopping": patience is not None} | ({} if patience is None else {"n_iter_no_change": patience})
    rounds = settings["iterations"] if patience is None else 300
    return boosting(
        max_iter=rounds, learning_rate=settings["learning_rate"], max_depth=settings["depth"], random_state=1, **stopping, **weight
    )


def predict(fitted: Any, rows: pd.DataFrame) -> Any:
    """Return the chance of the positive class, or the number."""
    values = rows.to_numpy(dtype=float)
    return fitted.predict_proba(values)[:, 1] if hasattr(fitted, "predict_proba") else fitted.predict(values)


def _sums(scope: dict[str, Any], counts: dict[str, pd.DataFrame], origin: int) -> pd.DataFrame:
    found = {}
    for name in scope["inputs"]:
        stem, _, span = name.rpartition("_")
        if stem in counts and int(span.rstrip("w")) <= scope["history_weeks"]:
            found[name] = counts[stem].iloc[origin - int(span.rstrip("w")) : origin].sum()
    return pd.DataFrame(found, index=counts["trx"].columns, dtype=float)


def _fixed(scope: dict[str, Any], hcps: pd.DataFrame) -> pd.DataFrame:
    made = pd.DataFrame(index=hcps.index)
    for name in (one for one in scope["inputs"] if one in STATIC):
        if name == "academic":
            made[name] = (hcps["setting"] == "academic").astype(float)
        elif name == "panel_size":
            made[name] = hcps[name].fillna(hcps[name].median())
        elif name in {"region", "specialty", "brand"}:
            made = made.join(pd.get_dummies(hcps[name], prefix=name, prefix_sep="=", drop_first=True, dtype=float))
        else:
            made[name] = hcps[name].astype(float)
    return made


def _target(name: str, counts: dict[str, pd.DataFrame], origin: int, horizon: int) -> tuple[pd.Series, pd.Series]:
    after = {one: frame.iloc[origin : origin + horizon].sum() for one, frame in counts.items()}
    usual = counts["trx"].iloc[max(0, origin - 13) : origin].mean() * horizon
    everybody = usual >= -1
    if name == "lapse":
        return (after["trx"] <= usual / 2).astype(float), usual >= 4
    if name == "growth":
        return (after["trx"] >= 1.5 * usual).astype(float), usual >= 4
    if name == "market_share":
        return after["trx"] / after["market_trx"].where(after["market_trx"] > 0), everybody
    if name in {"conversion", "speaker_attendance"}:
        return (after["conversions" if name == "conversion" else "speaker_events"] > 0).astype(float), everybody
    return after[{"trx_demand": "trx", "nrx_demand": "nrx", "sample_demand": "samples"}[name]].astype(float), everybody
