"""For each term that can be explained: words that name it, and what its example should say, computed with pandas: (what, number, slack)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp, linregress

from service.agents.sample_data import Snapshot

Rows = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = list[tuple[str, float, float]]

TERM_WORDS = {
    "average treatment effect": r"ates?|treatment effects?|causal effects?",
    "confidence interval": r"confidence intervals?|ci|95 ?%? intervals?",
    "p-value": r"p[- ]?values?|significan\w+",
    "confounding": r"confound\w+|selection bias|naive difference",
    "refutation": r"refut\w+|placebo(?: tests?)?|random common cause",
    "heterogeneous effect": r"cate|heterogen\w+|uplift|subgroup effects?",
    "SHAP": r"shap(?:ley)?|feature attribution",
    "PSI": r"psi|population stability index",
    "Kolmogorov-Smirnov": r"ks|ks[- ]test|kolmogorov.*",
    "drift": r"drift\w*",
    "QC gate": r"qc|quality (?:control )?gates?",
    "decile": r"deciles?",
    "TRx": r"trx|total prescriptions",
    "NRx": r"nrx|new prescriptions",
    "market share": r"market shares?",
    "conversion rate": r"conversion rates?",
    "NBRx": r"nbrxs?|new[- ]to[- ]brand",
    "reach": r"reach(?:ed)?|call frequency",
    "confidence score": r"confidence (?:scores?|of|level|value)",
    "propensity score": r"propensit\w+|(?:conversion|probability) score|score of",
    "instrumental variable": r"instrument(?:al)? variables?",
    "adjusted estimate": r"adjust\w*",
    "sensitivity analysis": r"gamma|(?:unobserved|hidden) confounding|sensitivity analysis|e[- ]value",
    "waterfall chart": r"waterfalls?(?: charts?)?|residual|bridge chart",
    "regression": r"(?:linear )?regressions?(?: analysis)?",
    "two axes": r"two (?:y[- ]?)?ax[ei]s|(?:dual|second|secondary|right)[- ]axis",
    "band around a line": r"gr[ea]y (?:band|area|funnel)|shaded (?:band|area)|error (?:bars|band)",
}


def _frame(data: Snapshot, rows: Rows) -> pd.DataFrame:
    frame = data.hcps[rows].copy()
    frame["recent"] = data.weekly["trx"][-26:, rows].mean(axis=0)
    frame["earlier"] = data.weekly["trx"][-78:-26, rows].mean(axis=0)
    return frame


def _programme_gap(frame: pd.DataFrame, column: str = "recent") -> float:
    means = frame.groupby("call_programme")[column].mean()
    return float(means[1] - means[0])


def _within_deciles(frame: pd.DataFrame) -> float:
    table = frame.pivot_table(index="decile", columns="call_programme", values="recent", aggfunc=["mean", "count"]).dropna()
    gap = table["mean"][1] - table["mean"][0]
    return float((gap * table["count"].sum(axis=1)).sum() / table["count"].to_numpy().sum())


def _ate(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows)
    return [("the plain difference", _programme_gap(frame), 0.006), ("the difference within deciles", _within_deciles(frame), 0.006)]


def _interval(data: Snapshot, rows: Rows) -> Numbers:
    trx = _frame(data, rows)["recent"]
    half = 1.96 * trx.sem()
    return [("the mean", trx.mean(), 0.006), ("low", trx.mean() - half, 0.006), ("high", trx.mean() + half, 0.006)]


def _p_value(data: Snapshot, rows: Rows) -> Numbers:
    means = _frame(data, rows).groupby("setting")["recent"].mean()
    return [("the difference", means["academic"] - means["community"], 0.006)]


def _confounding(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows)
    shares = frame.groupby(pd.cut(frame["decile"], [0, 3, 7, 10]), observed=True)["call_programme"].mean() * 100
    return [("top", shares.iloc[-1], 0.51), ("bottom", shares.iloc[0], 0.51)]


def _placebo(data: Snapshot, rows: Rows) -> Numbers:
    return [("the difference", _programme_gap(_frame(data, rows)), 0.006), ("the placebo", 0.0, 0.06)]


def _heterogeneity(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows).assign(gain=lambda one: one["recent"] - one["earlier"])
    return [(name, _programme_gap(part, "gain"), 0.006) for name, part in frame.groupby("setting")]


def _shap(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows)
    names = ["decile", "potential", "digital_affinity"]
    design = np.column_stack([np.ones(len(frame)), frame[names].astype(float)])
    slope = np.linalg.solve(design.T @ design, design.T @ frame["recent"].to_numpy())[1:]
    parts = slope * (frame[names].iloc[0].astype(float) - frame[names].mean())
    return [("the prediction", frame["recent"].mean() + parts.sum(), 0.006), *((name, parts[name], 0.006) for name in names)]


def _windows(data: Snapshot, rows: Rows, measure: str) -> tuple[pd.Series, pd.Series]:
    return pd.Series(data.weekly[measure][-16:-8, rows].mean(axis=0)), pd.Series(data.weekly[measure][-8:, rows].mean(axis=0))


def _psi(data: Snapshot, rows: Rows) -> Numbers:
    found: Numbers = []
    for name in ("emails", "calls"):
        old, new = _windows(data, rows, name)
        edges = [-np.inf, *sorted(set(old.quantile(np.arange(1, 10) / 10).round(9))), np.inf]
        one, two = (
            np.maximum(pd.cut(each + 1e-8, edges, right=False).value_counts(sort=False, normalize=True), 1e-4) for each in (old, new)
        )
        found.append((name, float(((two - one) * np.log(two / one)).sum()), 0.006))
    return found


def _ks(data: Snapshot, rows: Rows) -> Numbers:
    return [("the distance", float(ks_2samp(*_windows(data, rows, "emails")).statistic), 0.006)]


def _gate(data: Snapshot, rows: Rows) -> Numbers:
    missing = int(data.hcps.loc[rows, "panel_size"].isna().sum())
    return [
        ("missing", missing, 0.0),
        ("their share", 100 * missing / rows.sum(), 0.06),
        ("negative", float((data.weekly["samples"][:, rows] < 0).sum()), 0),
    ]


def _decile(data: Snapshot, rows: Rows) -> Numbers:
    means = _frame(data, rows).groupby("decile")["recent"].mean()
    return [("decile 10", means[10], 0.06), ("decile 1", means[1], 0.06)]


def _level(top: str, bottom: str | None) -> Callable[[Snapshot, Rows], Numbers]:
    def numbers(data: Snapshot, rows: Rows) -> Numbers:
        upper = data.weekly[top][:, rows].sum(axis=1)
        series = pd.Series(upper if bottom is None else 100 * upper / data.weekly[bottom][:, rows].sum(axis=1))
        slack = 0.51 if bottom is None else 0.06
        return [("recent", series.iloc[-13:].mean(), slack), ("before", series.iloc[-26:-13].mean(), slack)]

    return numbers


def _leader(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows)
    draw = np.random.default_rng(41)
    first = frame.groupby("region")["recent"].mean()
    picks = [frame.iloc[draw.integers(0, len(frame), len(frame))] for _ in range(200)]
    stays = np.mean([one.groupby("region")["recent"].mean().idxmax() == first.idxmax() for one in picks])
    return [("the highest mean", first.max(), 0.006), ("its share of the draws", 100 * float(stays), 9.0)]


def _email(data: Snapshot, rows: Rows) -> Numbers:
    frame = _frame(data, rows)
    frame["high"] = frame["digital_affinity"] >= frame["digital_affinity"].median()
    shares = 100 * frame.groupby("high")["email_campaign"].mean()
    means = frame[frame["email_campaign"] == 0].groupby("high")["recent"].mean()
    return [
        (f"{what}, high: {high}", one[high], slack)
        for what, one, slack in (("share", shares, 0.51), ("TRx", means, 0.006))
        for high in (True, False)
    ]


def _odds(data: Snapshot, rows: Rows) -> Numbers:
    frame = data.hcps[rows]
    counts = [frame.loc[frame["decile"].between(*span), "call_programme"].value_counts().reindex([0, 1]) for span in ((8, 10), (1, 3))]
    return [("the odds ratio", float(counts[0][1] / counts[0][0] / (counts[1][1] / counts[1][0])), 0.06)]


def _reach(data: Snapshot, rows: Rows) -> Numbers:
    calls = pd.DataFrame(data.weekly["calls"][:, rows]).tail(13).sum()
    seen = calls[calls >= 1]
    return [("the reached", len(seen), 0), ("reach", 100 * len(seen) / len(calls), 0.06), ("frequency", seen.mean(), 0.06)]


def _waterfall(data: Snapshot, rows: Rows) -> Numbers:
    frame = pd.DataFrame({name: data.weekly[name][:, rows].sum(axis=1) for name in ("trx", "market_trx")})
    old, new = frame.iloc[-26:-13].mean(), frame.iloc[-13:].mean()
    share = (new["trx"] / new["market_trx"] - old["trx"] / old["market_trx"]) * (new["market_trx"] + old["market_trx"]) / 2
    change = new["trx"] - old["trx"]
    return [("the change", change, 0.06), ("by share", share, 0.06), ("by volume", change - share, 0.06)]


def _slope(data: Snapshot, rows: Rows) -> Numbers:
    found = linregress(data.hcps.loc[rows, "potential"], _frame(data, rows)["recent"])
    return [("slope", found.slope, 0.006), ("base", found.intercept, 0.006), ("fit", 100 * found.rvalue**2, 0.51)]


def _axes(data: Snapshot, rows: Rows) -> Numbers:
    frame = pd.DataFrame({name: data.weekly[name][:, rows].sum(axis=1) for name in ("trx", "market_trx")}).tail(13)
    share = 100 * frame["trx"] / frame["market_trx"]
    return [(name, getattr(one, name)(), slack) for one, slack in ((frame["trx"], 0.51), (share, 0.06)) for name in ("min", "max")]


def _chances(data: Snapshot, rows: Rows) -> Numbers:
    frame = pd.DataFrame({name: data.weekly[name][-4:, rows].sum(axis=0) for name in ("candidates", "conversions")})
    shares = 100 * frame["conversions"].gt(0).groupby(frame["candidates"] > frame["candidates"].median()).mean()
    return [("many", shares[True], 0.51), ("few", shares[False], 0.51)]


EXAMPLES: dict[str, Callable[[Snapshot, Rows], Numbers]] = {
    "average treatment effect": _ate,
    "confidence interval": _interval,
    "p-value": _p_value,
    "confounding": _confounding,
    "refutation": _placebo,
    "heterogeneous effect": _heterogeneity,
    "SHAP": _shap,
    "PSI": _psi,
    "Kolmogorov-Smirnov": _ks,
    "drift": _psi,
    "QC gate": _gate,
    "decile": _decile,
    "TRx": _level("trx", None),
    "NRx": _level("nrx", None),
    "market share": _level("trx", "market_trx"),
    "conversion rate": _level("conversions", "candidates"),
    "NBRx": _level("nrx", None),
    "reach": _reach,
    "confidence score": _leader,
    "propensity score": _chances,
    "instrumental variable": _email,
    "adjusted estimate": _ate,
    "sensitivity analysis": _odds,
    "waterfall chart": _waterfall,
    "regression": _slope,
    "two axes": _axes,
    "band around a line": _interval,
}
