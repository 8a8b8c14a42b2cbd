"""Checks a health score: the data's parts with pandas on long tables, the process's parts from what the sentences themselves say."""

import re
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from service.agents.sample_data import Snapshot
from tests.golden_checks.question import check_scope, check_unknown_name

WEIGHTS = {
    "data_freshness": 0.25,
    "data_completeness": 0.25,
    "data_ranges": 0.20,
    "process_uptime": 0.05,
    "process_memory": 0.10,
    "dependencies": 0.15,
}
NOT_MEASURED = {
    "response times": r"p95|p99|latency|lagging|crawling|timeouts?",
    "jobs": r"jobs?|queue|pipelines?|airflow",
    "uptime over a period": r"uptime|sla",
    "errors": r"errors|5xx",
}


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        assert handoff["errors"]["error_type"] == "unknown_entity", handoff["errors"]
        check_unknown_name(query, handoff["errors"]["error_message"], data, ())
        return
    found, result = handoff["result"]["primary_output"], handoff["result"]
    rows = check_scope(query, found["scope"], data)
    parts = {row["component"]: row for row in found["components"]}
    assert list(parts) == list(WEIGHTS)
    own = {
        "data_freshness": _freshness(data, parts["data_freshness"]["finding"]),
        "data_completeness": _completeness(data, rows, parts["data_completeness"]["finding"]),
        "data_ranges": _ranges(data, rows, parts["data_ranges"]["finding"]),
        "process_uptime": _uptime(parts["process_uptime"]["finding"]),
        "process_memory": _memory(parts["process_memory"]["finding"]),
        "dependencies": _dependencies(parts["dependencies"]["finding"]),
    }
    for name, row in parts.items():
        assert row["weight"] == WEIGHTS[name]
        assert (row["score"] is None) == (own[name] is None), f"{name}: {row['score']}, but measured {own[name]}"
        assert row["score"] is None or abs(row["score"] - own[name]) <= 0.02, f"{name} is {own[name]}, not {row['score']}"
        assert row["finding"] in result["evidence"]
    _check_score(found, result, parts)
    _check_asked(query, found, result, parts)


def _check_score(found: dict[str, Any], result: dict[str, Any], parts: dict[str, Any]) -> None:
    measured = pd.DataFrame([row for row in parts.values() if row["score"] is not None])
    score = float(np.average(measured["score"], weights=measured["weight"]))
    assert abs(found["score"] - score) <= 1e-4, f"the weighted mean is {score}"
    assert abs(found["measured_weight"] - measured["weight"].sum()) <= 1e-6
    assert np.allclose(measured["effective_weight"], measured["weight"] / measured["weight"].sum(), atol=1e-4)
    healthy = score >= 0.95 and measured["score"].min() >= 0.5
    assert found["grade"] == ("healthy" if healthy else "degraded" if score >= 0.8 else "unhealthy")
    assert any(f"{found['score']:.3f}" in one and found["grade"] in one for one in result["evidence"])
    expected = measured["weight"].sum() / sum(WEIGHTS.values()) * found["asked_and_measured"]
    assert abs(result["confidence"] - expected) <= 1e-3, f"confidence {result['confidence']}, expected {expected}"
    missing = [name for name, row in parts.items() if row["score"] is None]
    assert all(any(name in caveat for caveat in result["caveats"]) for name in missing)


def _check_asked(query: str, found: dict[str, Any], result: dict[str, Any], parts: dict[str, Any]) -> None:
    """What the question asks for and no component measures is said first, and lowers the confidence."""
    missing = [name for name, pattern in NOT_MEASURED.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", query.casefold())]
    for name in missing:
        assert any(name in one for one in found["asked_but_not_measured"]), f"{name} cannot be measured, and that is not said"
    assert not found["asked_but_not_measured"] or "does not measure" in result["evidence"][0]
    share = 1.0 - len(found["asked_but_not_measured"]) / (1 + len(found["asked"]))
    assert abs(found["asked_and_measured"] - share) < 1e-5
    measured = {name: row["score"] for name, row in parts.items() if row["score"] is not None}
    assert measured[found["weakest"]] <= min(measured.values()) + 1e-4
    assert 1 <= found["agents_loaded"] <= 16


def _freshness(data: Snapshot, sentence: str) -> float:
    age = date.today().toordinal() - data.week_ends[-1].toordinal()
    said = re.search(r"(\d+) days ago", sentence)
    assert said, sentence
    assert abs(int(said[1]) - age) <= 1, f"the data are {age} days old"
    return float(np.interp(int(said[1]), [10, 38], [1.0, 0.0]))


def _completeness(data: Snapshot, rows: np.ndarray[Any, np.dtype[np.bool_]], sentence: str) -> float:
    frame = data.hcps[rows]
    whole = len(frame.dropna()) / len(frame)
    expected = pd.date_range(data.week_ends[0], data.week_ends[-1], freq="7D")
    weeks = len(set(expected.date) & set(data.week_ends)) / len(expected)
    missing = int(frame["panel_size"].isna().sum())
    assert not missing or f"panel_size for {missing}" in sentence, sentence
    return min(whole, weeks)


def _ranges(data: Snapshot, rows: np.ndarray[Any, np.dtype[np.bool_]], sentence: str) -> float:
    long = pd.DataFrame({name: values[:, rows].ravel() for name, values in data.weekly.items()})
    negative = long.lt(0).sum()
    above = [(long[part] > long[whole]).sum() for part, whole in (("nrx", "trx"), ("trx", "market_trx"), ("conversions", "candidates"))]
    deciles = (~data.hcps.loc[rows, "decile"].between(1, 10)).sum() * data.weeks
    worst = max(int(negative.max()), *(int(one) for one in above), int(deciles))
    for name, count in negative.items():
        assert (f"{name} below 0 in {count}" in sentence) == bool(count), sentence
    return max(0.0, 1.0 - worst / len(long) / 0.01)


def _uptime(sentence: str) -> float | None:
    said = re.search(r"up for ([\d.]+) (seconds|minutes|hours)", sentence)
    if said is None:
        assert "cannot be read" in sentence
        return None
    seconds = float(said[1]) * {"seconds": 1, "minutes": 60, "hours": 3600}[said[2]]
    return min(1.0, 0.5 + seconds / 120)


def _memory(sentence: str) -> float | None:
    said = re.search(r"uses ([\d,]+) MiB, ([\d.]+) % of its limit of ([\d,]+) MiB", sentence)
    if said is None:
        assert "cannot be read" in sentence
        return None
    used, limit = (float(said[at].replace(",", "")) for at in (1, 3))
    assert abs(100 * used / limit - float(said[2])) <= 0.2
    return float(np.interp(used / limit, [0.70, 0.95], [1.0, 0.0]))


def _dependencies(sentence: str) -> float | None:
    said = re.search(r"(\d+) of (\d+) health addresses answer", sentence)
    if said is None:
        assert "No health addresses" in sentence
        return None
    return int(said[1]) / int(said[2])
