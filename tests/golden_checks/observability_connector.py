"""Checks an answer on the platform's state against the text of /metrics, which is read here line by line without a metrics library.

The text may have been taken a little before or after the agent read its own: counts may differ by the few calls in between.
"""

import math
import re
from collections import defaultdict
from typing import Any

from service.agents.sample_data import Snapshot

SLACK_CALLS, SLACK_SHARE = 5.0, 0.10
ANSWERS = {"success", "partial", "answered", "blocked", "dispatch", "clarify", "refuse", "social", "done", "ok"}
FAILURES = {"failed", "error", "timeout", "cancelled", "unavailable"}
_LINE = re.compile(r"^(orchestrator_[a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def check(query: str, handoff: dict[str, Any], data: Snapshot, metrics_text: str) -> None:
    """Verify counts, shares and quantiles of an answer, or that a failure is justified.

    Raises:
        AssertionError: They do not fit.
    """
    families = _read(metrics_text)
    if handoff["execution"]["status"] == "failed":
        errors = handoff["errors"]
        if errors["error_type"] == "unknown_entity":
            named = re.findall(r"'([^']+)'", errors["error_message"])
            known = {str(one) for one in (*data.hcps["brand"].unique(), *data.hcps["region"].unique())}
            assert named, "the refusal names nothing"
            assert not set(named) & known, f"refused although the data have it: {errors['error_message']}"
            return
        assert errors["error_type"] == "missing_data", f"unexpected failure: {errors}"
        assert "POINTSMAN_" in errors["error_message"], "the failure does not say what to set"
        assert not families, "it failed although the metrics can be read"
        return
    output, result = handoff["result"]["primary_output"], handoff["result"]
    assert result["evidence"], "no evidence"
    assert output["source"] in {"metrics", "prometheus"}
    _check_state(output, result)
    for row in (output["service"], *output["agents"], *output["stages"]):
        _check_row(row)
    if output["source"] == "metrics":
        _check_counts(output["service"], families, "request", None, None, FAILURES)
        for row in output["agents"]:
            _check_counts(row, families, "agent", "agent", row["name"], None)
        for row in output["stages"]:
            _check_counts(row, families, "stage", "stage", row["name"], FAILURES)
        counted = {name for name, count in _by(families, "orchestrator_agent_seconds_count", "agent").items() if count > SLACK_CALLS}
        assert counted <= {row["name"] for row in output["agents"]}, "an agent that was called is missing"


def _check_state(output: dict[str, Any], result: dict[str, Any]) -> None:
    """The state follows from traffic and findings; the confidence from the calls behind the answer."""
    calls = output["service"]["calls"]
    expected = "no_traffic" if calls < 1 else "attention" if output["out_of_line"] else "ok"
    assert output["state"] == expected, f"{output['state']} with {calls} requests and {output['out_of_line']}"
    if output["asked_agents"]:
        calls = sum(row["calls"] for row in output["agents"] if row["name"] in output["asked_agents"])
    assert result["confidence"] <= calls / (calls + 20.0) + 1e-3, "more confidence than the calls give"
    called = {row["name"] for row in output["agents"]}
    assert not called & set(output["agents_not_called"]), "an agent is called and not called"


def _check_row(row: dict[str, Any]) -> None:
    """A row fits together: outcomes add up, the share is the failed part, quantiles rise."""
    assert math.isclose(sum(row["outcomes"].values()), row["calls"], rel_tol=1e-3, abs_tol=0.6), f"{row['name']}: outcomes do not add up"
    if row["calls"] > 0:
        assert abs(row["error_share"] - row["failed"] / row["calls"]) < 0.02, f"{row['name']}: the share is not the failed part"
    known = [row[name] for name in ("p50_ms", "p95_ms", "p99_ms") if row[name] is not None]
    assert known == sorted(known), f"{row['name']}: quantiles do not rise"


def _check_counts(
    row: dict[str, Any],
    families: dict[str, list[tuple[dict[str, str], float]]],
    what: str,
    label: str | None,
    name: str | None,
    bad: set[str] | None,
) -> None:
    family = f"orchestrator_{what}_seconds"
    mine = [(labels, value) for labels, value in families.get(f"{family}_count", []) if label is None or labels.get(label) == name]
    outcome = "status" if what == "request" else "outcome"
    calls = sum(value for _, value in mine)
    failed = sum(value for labels, value in mine if (labels.get(outcome) in bad if bad is not None else labels.get(outcome) not in ANSWERS))
    assert abs(row["calls"] - calls) <= SLACK_CALLS + SLACK_SHARE * calls, f"{row['name']}: {row['calls']} calls are told, {calls} counted"
    assert abs(row["failed"] - failed) <= SLACK_CALLS + SLACK_SHARE * failed, f"{row['name']}: {row['failed']} failures, {failed} counted"
    buckets: dict[float, float] = defaultdict(float)
    for labels, value in families.get(f"{family}_bucket", []):
        if label is None or labels.get(label) == name:
            buckets[float(labels["le"])] += value
    for part, told in ((0.5, row["p50_ms"]), (0.95, row["p95_ms"]), (0.99, row["p99_ms"])):
        if told is not None and row["calls"] == calls and calls > 0:
            low, high = _bucket_of(buckets, part)
            assert 1000 * low - 0.1 <= told <= 1000 * high + 0.1, f"{row['name']}: p{100 * part:.0f} {told} ms is outside {low} to {high} s"


def _bucket_of(buckets: dict[float, float], part: float) -> tuple[float, float]:
    """Return the bounds of the bucket in which a quantile lies; above the last finite bound, that bound."""
    bounds = sorted(buckets)
    rank = part * buckets[bounds[-1]]
    for at, bound in enumerate(bounds):
        if buckets[bound] >= rank - 1e-9:
            low = bounds[at - 1] if at else 0.0
            return (low, low) if math.isinf(bound) else (low, bound)
    return bounds[-2], bounds[-2]


def _by(families: dict[str, list[tuple[dict[str, str], float]]], name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for labels, value in families.get(name, []):
        found[labels.get(label, "")] += value
    return found


def _read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of the text by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for line in text.splitlines():
        if matched := _LINE.match(line.strip()):
            found[matched[1]].append((dict(_LABEL.findall(matched[2] or "")), float(matched[3])))
    return found
