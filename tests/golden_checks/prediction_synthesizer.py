"""Checks forecasts by normal equations and Student's t, and an HCP's chance by a logistic GLM on rows made with pandas."""

import re
from itertools import chain, combinations
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.stats import rankdata
from scipy.stats import t as student

from service.agents.sample_data import Snapshot
from tests.golden_checks.question import (
    KPIS,
    MONTHS,
    check_period_is_absent,
    check_scope,
    check_unknown_name,
    named_outcome,
    next_weeks,
    words_of,
)

LONGEST = 26
STOPS = r"\b(?:stop|drop|lapse|churn|quit|defect|leav\w+ us|los(?:e|ing)|abandon|shaky|at risk|switch away)"
Values = np.ndarray[Any, np.dtype[np.float64]]


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff["errors"], data)
        return
    found, result = handoff["result"]["primary_output"], handoff["result"]
    if "hcp_id" in found:
        _check_hcp(query, found, result, data)
        return
    if "ranked" in found:
        _check_ranking(query, found, result, data)
        return
    _check_forecast(query, found, result, data)


def _check_refusal(query: str, errors: dict[str, Any], data: Snapshot) -> None:
    message = errors["error_message"]
    assert errors["error_type"] in {"unknown_entity", "missing_data"}, errors
    if "no patients" in message:
        assert re.search(r"patients?|refil|(?<!\w)pat?[-_ ]?\d", query.casefold()), message
        return
    if "no week in" in message:
        check_period_is_absent(message, data)
        return
    if "no doctor" in message:
        name = re.search(r"'([^']+)'", message)
        assert name, message
        assert name[1] in query, message
        assert re.match(r"(?i)dr|prof", name[1]), message
        return
    check_unknown_name(query, message, data, tuple(KPIS))


def _series(data: Snapshot, kpi: str, rows: np.ndarray[Any, np.dtype[np.bool_]]) -> Values:
    top, bottom = KPIS[kpi]
    upper = pd.DataFrame(data.weekly[top]).loc[:, rows].sum(axis=1)
    return np.asarray(upper / (1 if bottom is None else pd.DataFrame(data.weekly[bottom]).loc[:, rows].sum(axis=1)), dtype=float)


def _check_forecast(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    rows = check_scope(query, found["scope"], data)
    outcome = named_outcome(query)
    assert outcome is None or found["target"] == outcome, f"the question is about {outcome}"
    series, horizon = _series(data, found["target"], rows), found["horizon_weeks"]
    assert 1 <= horizon <= LONGEST
    rated = KPIS[found["target"]][1] is not None
    _check_horizon(query, horizon, data)
    _check_window(found, series, data)
    _check_groups(found, rows, data)
    assert [row["week_end"] for row in found["forecast"]] == next_weeks(data, horizon)
    step = data.weeks - 26
    test = _backtest(series, min(horizon, 8), step)
    mean, half = _forecast(series, horizon, step)
    half = half * test["widening"]
    high_cap = 1.0 if rated else np.inf
    for row, middle, reach in zip(found["forecast"], mean, half, strict=True):
        slack = 2e-3 * abs(middle) + (6e-5 if rated else 0.06)
        for name, own in (("value", middle), ("low", middle - reach), ("high", middle + reach)):
            own = float(np.clip(own, 0.0, high_cap))
            assert abs(row[name] - own) <= slack, f"{row['week_end']}: {name} is {own}, not {row[name]}"
    assert abs(found["mean_of_horizon"] - mean.mean()) <= 2e-3 * mean.mean()
    assert abs(found["mean_of_last_weeks"] - series[-horizon:].mean()) <= 1e-4 * series[-horizon:].mean()
    told = found["backtest"]
    for name in ("mean_absolute_error", "naive_error", "seasonal_naive_error"):
        assert abs(told[name] - test[name]) <= 0.01 * test[name] + 1e-6, f"{name} is {test[name]}, not {told[name]}"
    assert abs(told["inside_interval"] - test["inside"]) <= 1.5 / test["points"]
    assert told["points"] == test["points"]
    best = min(test["naive_error"], test["seasonal_naive_error"])
    assert abs(told["skill"] - (1 - test["mean_absolute_error"] / best)) <= 0.02
    at = horizon // 2
    precision = max(0.0, 1.0 - half[at] / mean[at])
    expected = precision * min(1.0, test["inside"] / 0.9) * min(1.0, best / test["mean_absolute_error"]) * found.get("nearness", 1.0)
    assert abs(result["confidence"] - expected) <= 0.03, f"confidence {result['confidence']}, expected {expected}"
    _check_sentences(found, result, rated)


def _check_horizon(query: str, horizon: int, data: Snapshot) -> None:
    """What the question plainly says of the way ahead is the horizon, up to the longest."""
    text, last = words_of(query).replace("-", " "), pd.Timestamp(data.week_ends[-1])
    if hit := re.search(r"\b(?:next|coming|following) (\d{1,3}) (day|week|month|quarter)s?\b", text):
        days = int(hit[1]) * {"day": 1, "week": 7, "month": 52 * 7 / 12, "quarter": 91}[hit[2]]
        assert horizon == min(LONGEST, max(1, round(days / 7))), f"{hit[0]} is not {horizon} weeks"
        return
    if re.search(r"\b(?:next|coming|following|over|within)\b", text):
        return
    ends = pd.date_range(last + pd.Timedelta(days=7), periods=60, freq="7D")
    quarter = ends[0].to_period("Q")
    wanted = {
        r"year end|end of (?:the )?year": ends[ends.year == ends[0].year],
        r"this quarter": ends[ends.to_period("Q") == last.to_period("Q")],
        r"q1(?! 20)": ends[ends.to_period("Q") == (quarter if quarter.quarter == 1 else quarter + (5 - quarter.quarter))],
    }
    said = [inside for pattern, inside in wanted.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text)]
    if len(said) == 1 and len(said[0]) and not re.search("|".join(MONTHS), text):
        assert horizon == min(LONGEST, list(ends).index(said[0][-1]) + 1), f"{horizon} weeks do not reach {said[0][-1]:%Y-%m-%d}"


def _check_window(found: dict[str, Any], series: Values, data: Snapshot) -> None:
    """The asked weeks' mean and total are those of the weeks seen and forecast."""
    window = found["asked_window"]
    week = pd.Series([*series, *(row["value"] for row in found["forecast"])])
    week.index = pd.Index([end.isoformat() for end in data.week_ends] + [row["week_end"] for row in found["forecast"]])
    part = week[window["from"] : window["to"]]
    assert len(part) == window["weeks"]
    assert window["weeks_seen"] == sum(end <= data.week_ends[-1].isoformat() for end in part.index)
    assert abs(part.mean() - window["mean"]) <= 1e-3 * part.mean(), f"the mean of the asked weeks is {part.mean()}"
    assert (window["total"] is None) == (KPIS[found["target"]][1] is not None)
    assert window["total"] is None or abs(part.sum() - window["total"]) <= 1e-3 * part.sum()


def _check_groups(found: dict[str, Any], rows: np.ndarray[Any, np.dtype[np.bool_]], data: Snapshot) -> None:
    """Each group's last week is its own forecast."""
    for dimension in ("region", "brand"):
        for row in found.get(f"by_{dimension}", []):
            series = _series(data, found["target"], rows & (data.hcps[dimension] == row[dimension]).to_numpy())
            mean, half = _forecast(series, found["horizon_weeks"], data.weeks - 26)
            half = half * _backtest(series, min(found["horizon_weeks"], 8), data.weeks - 26)["widening"]
            slack = 3e-3 * abs(mean[-1]) + (6e-5 if mean[-1] < 1 else 0.06)
            for name, own in (
                ("value", mean[-1]),
                ("low", mean[-1] - half[-1]),
                ("high", mean[-1] + half[-1]),
                ("now", series[-4:].mean()),
            ):
                assert abs(row[name] - own) <= slack, f"{row[dimension]}: {name} is {own}, not {row[name]}"


def _check_ranking(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    """The listed HCPs are in scope, among the first by another model, and their chances are about the same."""
    inside = check_scope(query, found["scope"], data)
    if found["specialties"]:
        inside = inside & data.hcps["specialty"].isin(found["specialties"]).to_numpy()
        text = query.casefold()
        assert all(any(word.casefold()[:4] in text for word in name.split() if len(word) > 3) for name in found["specialties"])
    assert found["hcps"] == int(inside.sum())
    stops = found["target"].startswith("no_trx")
    assert stops == bool(re.search(STOPS, words_of(query))), found["target"]
    now, before, outcome = _quiet_chances(data) if stops else hcp_chances(data)
    frame = data.hcps.assign(chance=now, before=before, outcome=outcome)[inside]
    frame["place"] = frame["chance"].rank(ascending=False)
    listed = pd.DataFrame(found["ranked"]).merge(frame, on="hcp_id", suffixes=("", "_own"))
    assert len(listed) == len(found["ranked"]), "an HCP outside the scope is listed"
    assert (listed["decile"] == listed["decile_own"]).all()
    assert list(listed["probability"]) == sorted(listed["probability"], reverse=True)
    slack = 0.06 if not stops else 0.02
    assert ((listed["chance"] - listed["probability"]).abs() <= slack).all(), "another model gives other chances"
    assert (listed["place"] <= 3 * len(listed) + 0.05 * len(frame)).all(), (
        "an HCP is listed that another model does not have among the first"
    )
    assert abs(found["mean_probability"] - frame["chance"].mean()) <= slack / 2
    like = frame.nlargest(found["like_hcps"], "before")
    share = like["outcome"].mean()
    assert abs(found["observed_share_of_like"] - share) <= 0.06, f"{share} of them had it"
    assert found["interval_of_like"][0] <= found["observed_share_of_like"] <= found["interval_of_like"][1]
    half = (found["interval_of_like"][1] - found["interval_of_like"][0]) / 2
    expected = (1.0 - half - abs(like["before"].mean() - share)) * (1.0 if found["auc"] > 0.5 else 0.5)
    assert abs(result["confidence"] - expected) <= 0.08, f"confidence {result['confidence']}, expected {expected}"
    assert f"{100 * found['ranked'][0]['probability']:.1f} %" in result["evidence"][0]


def _quiet_chances(data: Snapshot) -> tuple[Values, Values, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The chance of no TRx in 8 weeks: the mean of exp(-8 rate) over a brand's gamma distributed rates, by numerical integration."""
    found = []
    for now in (data.weeks, data.weeks - 8):
        seen = pd.Series(data.weekly["trx"][now - 26 : now].sum(axis=0))
        chance = pd.Series(0.0, index=seen.index)
        for _, group in seen.groupby(data.hcps["brand"].to_numpy()):
            mean, extra = group.mean(), group.var(ddof=0) - group.mean()
            shape, scale = mean**2 / extra, extra / mean / 26
            rates = np.linspace(1e-4, 3 * group.max() / 26, 3000)
            for count in group.unique():
                logs = (shape - 1 + count) * np.log(rates) - rates / scale - 26 * rates
                weight = np.exp(logs - logs.max())
                chance[group.index[group == count]] = float((weight * np.exp(-8 * rates)).sum() / weight.sum())
        found.append(chance.to_numpy())
    return found[0], found[1], np.asarray(data.weekly["trx"][-8:].max(axis=0) == 0)


def _check_sentences(found: dict[str, Any], result: dict[str, Any], rated: bool) -> None:
    scale, last = (100.0 if rated else 1.0), found["forecast"][-1]
    text = " ".join(result["evidence"]).replace(",", "")
    told = [float(one) for one in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)]
    for number in (found["mean_of_horizon"], last["value"], last["low"], last["high"]):
        assert any(abs(one - scale * number) <= 0.004 * scale * abs(number) + 0.11 for one in told), f"{number} is not told: {text}"


def _design(week: Values, now: int, step_at: int, parts: tuple[str, ...]) -> Values:
    trend, angle = week / 100.0, 2.0 * np.pi * week / 52.0
    columns = [np.ones(len(week))]
    if "trend" in parts:
        columns.append(trend)
    if "cycle" in parts:
        columns += [wave * height for height in (np.ones(len(week)), trend - now / 100.0) for wave in (np.sin(angle), np.cos(angle))]
    if "step" in parts:
        columns.append((week >= step_at).astype(float))
    return np.column_stack(columns)


def _forecast(series: Values, horizon: int, step_at: int) -> tuple[Values, Values]:
    """Return mean and half width of the 90 % interval of the model with the lowest BIC, by the normal equations."""
    now = len(series)
    names = ("trend", "cycle", "step") if now - step_at >= 6 else ("trend", "cycle")
    best: tuple[float, Values, Values] | None = None
    for parts in chain.from_iterable(combinations(names, size) for size in range(len(names) + 1)):
        design = _design(np.arange(now + horizon, dtype=float), now, step_at, parts)
        past, ahead = design[:now], design[now:]
        inverse = np.linalg.inv(past.T @ past)
        slope = inverse @ past.T @ series
        left = float(np.square(series - past @ slope).sum())
        bic = now * np.log(left / now) + past.shape[1] * np.log(now)
        degrees = now - past.shape[1]
        spread = np.sqrt(left / degrees * (1.0 + np.einsum("ij,jk,ik->i", ahead, inverse, ahead)))
        if best is None or bic < best[0]:
            best = (bic, ahead @ slope, float(student.ppf(0.95, degrees)) * spread)
    assert best is not None
    return best[1], best[2]


def _backtest(series: Values, horizon: int, step_at: int) -> dict[str, Any]:
    rows = []
    for back in range(4):
        origin = len(series) - horizon - back * max(1, horizon // 2)
        mean, half = _forecast(series[:origin], horizon, step_at)
        rows += [(series[origin + at], mean[at], half[at], series[origin - 1], series[origin + at - 52]) for at in range(horizon)]
    frame = pd.DataFrame(rows, columns=["actual", "mean", "half", "last", "year_ago"])
    error = frame.sub(frame["actual"], axis=0).abs()
    missed = error["mean"] / frame["half"]
    return {
        "mean_absolute_error": error["mean"].mean(),
        "naive_error": error["last"].mean(),
        "seasonal_naive_error": error["year_ago"].mean(),
        "inside": (missed <= 1.0).mean(),
        "widening": max(1.0, missed.quantile(0.9)),
        "points": len(frame),
    }


def hcp_chances(data: Snapshot) -> tuple[Values, Values, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return each HCP's chance of a conversion within 4 weeks from now, and for the last 4 weeks with what came, by a plain GLM."""
    last = data.weeks - 4
    origins = [last - 4 * at for at in range(1, 7)]
    train = pd.concat([_rows(data, at) for at in origins])
    model = sm.GLM(np.concatenate([_converted(data, at) for at in origins]), train, family=sm.families.Binomial()).fit()
    return np.asarray(model.predict(_rows(data, data.weeks))), np.asarray(model.predict(_rows(data, last))), _converted(data, last)


def _rows(data: Snapshot, origin: int) -> pd.DataFrame:
    past = {name: pd.Series(data.weekly[name][origin - 26 : origin].sum(axis=0)).clip(lower=0) for name in data.weekly}
    frame = pd.DataFrame({name: np.log1p(past[name]) for name in ("trx", "market_trx", "calls", "emails", "candidates", "conversions")})
    frame["rate"] = np.log((past["conversions"] + 3) / (past["candidates"] + 10))
    frame[["decile", "digital_affinity"]] = data.hcps[["decile", "digital_affinity"]].astype(float)
    frame["size"] = np.log(data.hcps["potential"])
    for name in ("call_programme", "speaker_programme"):
        frame[name] = data.hcps[name] * float(origin >= data.weeks - 26)
    return frame.assign(one=1.0)


def _converted(data: Snapshot, origin: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(data.weekly["conversions"][origin : origin + 4].max(axis=0) >= 1)


def _check_hcp(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    digits = re.search(r"hcp[-_ ]?0*(\d+)", query.casefold())
    assert digits, "an HCP is predicted that the question does not name"
    row = int(digits[1]) - 1
    assert data.hcps["hcp_id"].iloc[row] == found["hcp_id"]
    now, before, outcome = hcp_chances(data)
    assert abs(found["probability"] - now[row]) <= 0.06, f"another model gives {now[row]:.3f}"
    ranks = len(now) + 1 - rankdata(now)
    assert abs(found["rank"] - ranks[row]) <= 0.08 * len(now) + 5, f"the rank is about {ranks[row]:.0f}"
    assert found["of"] == len(now)
    order = rankdata(before)
    hits = int(outcome.sum())
    auc = (order[outcome].sum() - hits * (hits + 1) / 2) / (hits * (len(outcome) - hits))
    assert abs(found["auc"] - auc) <= 0.015, f"the AUC is {auc}"
    assert abs(found["brier"] - np.mean((before - outcome) ** 2)) <= 0.005
    low, high = found["interval"]
    near = np.argsort(np.abs(before - found["probability"]))[:240]
    assert low - 0.04 <= outcome[near].mean() <= high + 0.04, f"{outcome[near].mean():.3f} of the like HCPs had one"
    assert 0.02 <= high - low <= 0.2
    assert f"{100 * found['probability']:.0f} %" in result["evidence"][0]
    assert result["confidence"] <= 1.0 - (high - low) / 2 + 1e-6
    assert result["confidence"] >= 1.0 - (high - low) / 2 - 0.1
