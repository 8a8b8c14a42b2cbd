"""Checks explanations: a change's parts by pandas, and each term's example by a computation of its own."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from service.agents.sample_data import Snapshot
from tests.golden_checks.explained_terms import EXAMPLES, TERM_WORDS
from tests.golden_checks.question import (
    KPIS,
    calendar_window,
    check_period_is_absent,
    check_scope,
    check_unknown_name,
    named_brands,
    named_outcome,
    named_regions,
    said_period,
    words_of,
)

USUAL_WEEKS = 13
RESULTS = (
    r"arriv\w+ at|landed on|c[ao]me up with|tl;?dr|on what (?:grounds|basis)|told (?:me|us) to|gist|takeaways|key points|summar"
    r"|really saying|boil|recap|sentences on|rationale|readout|report|study|chart|page \d|slide|plot|results?|dashboard|recommend|suggest"
    r"|output|card|dr\b|agent"
)
Rows = np.ndarray[Any, np.dtype[np.bool_]]


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff["errors"], data)
        return
    found, result = handoff["result"]["primary_output"], handoff["result"]
    checks: dict[str, Callable[..., None]] = {"term": _check_term, "change": _check_change, "earlier_results": _check_results}
    checks[found["kind"]](query, found, result, data)


def _check_refusal(query: str, errors: dict[str, Any], data: Snapshot) -> None:
    message = errors["error_message"]
    assert errors["error_type"] in {"unknown_entity", "missing_data"}, errors
    if "no week in" in message:
        check_period_is_absent(message, data)
        return
    if "nothing to explain" in message:
        _check_nothing_to_explain(query, message)
        return
    check_unknown_name(query, message, data, tuple(KPIS))


def _check_nothing_to_explain(query: str, message: str) -> None:
    """Either the question is about a result that would have to come with it, or it names nothing that could be explained."""
    if "earlier result" in message and "came with it" in message and "names no" not in message:
        assert re.search(RESULTS, words_of(query)), f"the question is not about a result: {message}"
        return
    about = [name for name, pattern in TERM_WORDS.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query))]
    assert not about, f"the question is about {about}, which can be explained"
    assert not named_brands(query), message
    assert not named_regions(query), message
    assert named_outcome(query) is None, message


def _check_term(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    term = found["term"]
    assert re.search(rf"(?<!\w)(?:{TERM_WORDS[term]})(?!\w)", words_of(query)), f"the question does not speak of {term}"
    assert len(found["meaning"]) > 40
    assert result["evidence"][0] == found["meaning"]
    assert found["example"] in result["evidence"]
    label = re.match(r"For example, for (.+?): ", found["example"])
    assert label, found["example"]
    brands = [name for name in data.hcps["brand"].unique() if name in label[1]]
    regions = [name for name in data.hcps["region"].unique() if f"the {name}" in label[1]]
    rows = data.hcps["brand"].isin(brands or data.hcps["brand"].unique()) & data.hcps["region"].isin(
        regions or data.hcps["region"].unique()
    )
    told = [float(one.replace(",", "")) for one in re.findall(r"(?<![\w-])[+-]?\d[\d,]*(?:\.\d+)?", found["example"][label.end() :])]
    for name, own, slack in EXAMPLES[term](data, rows.to_numpy()):
        assert any(abs(one - own) <= slack for one in told), f"{term}: {name} is {own}, not among {told}"
    for other in found["compared_with"]:
        assert re.search(rf"(?<!\w)(?:{TERM_WORDS[other['term']]})(?!\w)", words_of(query)), f"{other['term']} was not asked for"
    assert 0.5 <= result["confidence"] <= 1.0
    for name in (*named_brands(query), *named_regions(query)):
        assert name in label[1] or any(f"'{name}'" in caveat for caveat in result["caveats"]), f"{name} was passed over in silence"
    if re.search(r"readout|report|study|chart|dashboard|(?<!\w)drs?(?!\w)", words_of(query)):
        assert any("did not come with it" in caveat for caveat in result["caveats"])


def _check_results(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    assert found["explained"]
    assert len(result["evidence"]) == len(found["explained"])
    assert result["confidence"] == round(min(one["confidence"] for one in found["explained"]), 4)


def _check_change(query: str, found: dict[str, Any], result: dict[str, Any], data: Snapshot) -> None:
    rows = check_scope(query, found["scope"], data)
    outcome = named_outcome(query)
    assert outcome is None or found["kpi"] == outcome, f"the question is about {outcome}"
    before, after = (_weeks(found[name]["weeks"], data) for name in ("before", "after"))
    said = said_period(query)
    window = calendar_window(said, data) if said else None
    assert after == (window or (data.weeks - USUAL_WEEKS, data.weeks)), f"the question names {said}, not {after}"
    assert before == (after[0] - (after[1] - after[0]), after[0])
    frame = _frame(data, rows, found["kpi"], before, after)
    whole = _level(frame.sum(numeric_only=True))
    for name in ("before", "after"):
        assert abs(found[name]["value"] - whole[name]) <= 1e-4 * abs(whole[name]), (
            f"{name} it was {whole[name]}, not {found[name]['value']}"
        )
    change = whole["after"] - whole["before"]
    assert abs(found["change"] - change) <= 1e-4 * abs(change) + 1e-6
    draws = _draws(frame, None)
    _check_interval(found["change_interval"], draws, abs(change))
    for dimension, parts in found["contributions"].items():
        _check_parts(dimension, parts, frame, change)
    first = next(iter(found["contributions"]))
    _check_leader(first, found["contributions"][first][0]["group"], frame, change, result["confidence"])
    low, high = found["change_interval"]
    assert any("within what chance gives" in one for one in result["caveats"]) == (low <= 0.0 <= high)
    assert found["contributions"][first][0]["group"] in " ".join(result["evidence"])


def _weeks(said: list[str], data: Snapshot) -> tuple[int, int]:
    ends = [end.isoformat() for end in data.week_ends]
    return ends.index(said[0]), ends.index(said[1]) + 1


def _frame(data: Snapshot, rows: Rows, kpi: str, before: tuple[int, int], after: tuple[int, int]) -> pd.DataFrame:
    """Return one row an HCP with its groups, and its sums above and below the line before and after."""
    top, bottom = KPIS[kpi]
    frame = data.hcps.loc[rows, ["brand", "region", "setting", "decile"]].copy()
    frame["decile band"] = pd.cut(frame["decile"], [0, 3, 7, 10], labels=["decile 1-3", "decile 4-7", "decile 8-10"]).astype(str)
    for name, (start, stop) in (("before", before), ("after", after)):
        frame[f"top_{name}"] = data.weekly[top][start:stop, rows].sum(axis=0) / (stop - start)
        frame[f"bottom_{name}"] = 0.0 if bottom is None else data.weekly[bottom][start:stop, rows].sum(axis=0) / (stop - start)
    return frame.drop(columns="decile")


def _level(sums: pd.Series | pd.DataFrame) -> Any:
    """Return before and after: a ratio where there is something below the line."""
    kinds = {name: (sums[f"bottom_{name}"], sums[f"top_{name}"]) for name in ("before", "after")}
    return {name: top / bottom if np.all(bottom > 0) else top for name, (bottom, top) in kinds.items()}


def _contributions(sums: pd.DataFrame) -> pd.Series:
    """Return each group's part: its own change of a count, or for a ratio what leaves the parts adding up (midpoint weights)."""
    if not (sums["bottom_before"] > 0).all():
        return sums["top_after"] - sums["top_before"]
    weight = {name: sums[f"bottom_{name}"] / sums[f"bottom_{name}"].sum() for name in ("before", "after")}
    rate = {name: sums[f"top_{name}"] / sums[f"bottom_{name}"] for name in ("before", "after")}
    whole = {name: sums[f"top_{name}"].sum() / sums[f"bottom_{name}"].sum() for name in ("before", "after")}
    middle = (whole["before"] + whole["after"]) / 2
    # (w1 r1 - w0 r0) less the change of the weight times the middle level: the same as rate and mix effects together.
    return weight["after"] * rate["after"] - weight["before"] * rate["before"] - (weight["after"] - weight["before"]) * middle


def _check_parts(dimension: str, parts: list[dict[str, Any]], frame: pd.DataFrame, change: float) -> None:
    own = _contributions(frame.groupby(dimension).sum(numeric_only=True))
    assert {part["group"] for part in parts} == set(own.index), f"not every {dimension} is listed"
    for part in parts:
        value = own[part["group"]]
        digits = 2e-5 if abs(change) < 1 else 0.02
        assert abs(part["contribution"] - value) <= digits, f"{part['group']} adds {value}, not {part['contribution']}"
        assert abs(part["rate"] + part["mix"] - part["contribution"]) <= 2 * digits
    assert abs(own.sum() - change) <= 1e-9 + 1e-6 * abs(change)
    towards = [part["contribution"] * np.sign(change) for part in parts]
    assert towards == sorted(towards, reverse=True)


def _draws(frame: pd.DataFrame, dimension: str | None, count: int = 200) -> Any:
    draw = np.random.default_rng(37)
    picks = [frame.iloc[draw.integers(0, len(frame), len(frame))] for _ in range(count)]
    if dimension is None:
        levels = [_level(one.sum(numeric_only=True)) for one in picks]
        return np.array([one["after"] - one["before"] for one in levels])
    return [_contributions(one.groupby(dimension).sum(numeric_only=True)) for one in picks]


def _check_interval(told: list[float], draws: Any, size: float) -> None:
    low, high = np.percentile(draws, [2.5, 97.5])
    for one, own in zip(told, (low, high), strict=True):
        assert abs(one - own) <= 0.25 * (high - low) + 1e-3 * size, f"the interval is {low} to {high}, not {told}"


def _check_leader(dimension: str, leader: str, frame: pd.DataFrame, change: float, confidence: float) -> None:
    """The share of draws in which the same group leads; the direction is that of the whole change."""
    leads = np.mean([(one * np.sign(change)).idxmax() == leader for one in _draws(frame, dimension)])
    assert abs(confidence - leads) <= 0.13, f"confidence {confidence}, in {leads:.2f} of the draws the same group leads"
