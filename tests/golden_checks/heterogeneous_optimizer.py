"""Checks a subgroup answer by another route: ordinary least squares in each group, and Wald's test of the interaction.

The agent averages doubly robust signals. Here each group has its own regression of the outcome on the programme and the causes, and
one dimension's test is redone from these. Nothing is imported from the agent.
"""

import re

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.stats import chi2, norm

from service.agents.sample_data import Snapshot

PROGRAMMES = {"call_programme", "email_campaign", "speaker_programme", "sample_programme"}
OUTCOMES = {
    "trx": ("trx", None),
    "nrx": ("nrx", None),
    "market_share": ("trx", "market_trx"),
    "conversion_rate": ("conversions", "candidates"),
}
REASONS = {"unknown_entity", "missing_data", "insufficient_data"}
OWN_BRANDS = r"kisqali|ribociclib|fabhalta|iptacopan|remibrutinib|rhapsido"
OWN_NAMES = {
    "kisqali",
    "fabhalta",
    "remibrutinib",
    "south",
    "west",
    "midwest",
    "northeast",
    "visits",
    "calls",
    "samples",
    "emails",
    "speaker",
}
ABSENT = (
    r"cosentyx|entresto|leqvio|secukinumab|sacubitril|inclisiran|southeast|southwest|germany|europe|canada|co-?\s?pay|nurse|hotline|reminder"
    r"|text|sms|app\b|apps\b|tv\b|ctv|ads?\b|formulary|payer win|price|discount|rebate|coupon|voucher|kit|coaching|training|academy"
    r"|incentive|contest|turnover|hub|video|messag|chatbot|podcast|banner|adherence|persistence|roi\b|return on|cardio|cards\b|gps?\b"
    r"|pcps?\b|primary care|surgeon|endocrin|lipid|rheumat|neurolog|pediatric|support|bridge|card|cap\b|radio|social|reach|open rate"
    r"|payback|referral|shipping|layout|module|patient story|after.clinic|transport|refill|portal|awareness|loyalty|onboarding|instagram"
    r"|retention offer"
)
THIRD_COLUMNS = {"digital affinity": "digital_affinity", "panel size": "panel_size", "market potential": "potential"}


def check(query: str, handoff: dict, data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        _check_failure(query, handoff["errors"])
        return
    found = handoff["result"]["primary_output"]
    assert found["measured_treatment"] in PROGRAMMES
    assert found["measured_outcome"] in OUTCOMES
    assert not re.search(r"\b(cosentyx|entresto|leqvio)\b", query, re.IGNORECASE) or re.search(OWN_BRANDS, query, re.IGNORECASE)
    frame = _frame(data, found["measured_treatment"], found["measured_outcome"])
    inside = frame[_scope(found["scope"], frame)]
    _check_group(found["overall_effect"], inside, tolerance=4.0)
    for dimension in found["dimensions"]:
        _check_dimension(dimension, inside)
    _check_crossed(found.get("crossed"), inside)
    _check_leaders(found)
    if ranking := found.get("ranking"):
        assert sum(ranking["classes"].values()) == found["overall_effect"]["n"]
        assert ranking["is_real"] == (ranking["slope"] > 0 and ranking["p_value"] < 0.05)
    assert set(found["differs_by"]) == {one["dimension"] for one in found["dimensions"] if one["differs"]}
    _check_holm([one["test"]["p_value"] for one in found["dimensions"]], [one["test"]["p_adjusted"] for one in found["dimensions"]])
    evidence = handoff["result"]["evidence"]
    assert evidence
    assert 0.0 <= handoff["result"]["confidence"] <= 1.0
    if found["is_stand_in"]:
        assert found["treatment"] in evidence[0], "a stand-in is owned up to in the first sentence"
    for one in found["absent_dimensions"]:
        assert any(one["asked"] in caveat for caveat in handoff["result"]["caveats"])


def _check_crossed(crossed: dict | None, frame: pd.DataFrame) -> None:
    """Each cell by the plain mean of its members; the largest and the smallest also by a regression."""
    cells = sorted(crossed["cells"], key=lambda cell: cell["effect"]) if crossed else []
    for at, cell in enumerate(cells):
        one, _, other = cell["group"].partition(", ")
        first, second = (_members(name, group, frame) for name, group in zip(crossed["dimensions"], (one, other), strict=True))
        assert first is not None
        assert second is not None
        members = frame[first & second]
        assert abs(cell["n"] - len(members)) <= 0.05 * len(members) + 2
        assert abs(cell["n_treated"] - members["treated"].sum()) <= 0.05 * len(members) + 2
        if at in {0, len(cells) - 1}:
            _check_group(cell, members, tolerance=5.0)


def _check_leaders(found: dict) -> None:
    leading = next(one for one in found["dimensions"] if one["dimension"] == found["leading_dimension"])
    for name, at in (("best_responders", 0), ("worst_responders", -1)):
        leader = found[name]
        assert (leader is not None) == leading["differs"]
        if leader is not None:
            assert all(leading["groups"][at][key] == value for key, value in leader.items())
    spread = leading["groups"][0]["effect"] - leading["groups"][-1]["effect"]
    assert abs(spread - leading["spread"]) < 1e-3 * max(1.0, abs(spread))
    assert leading["spread_interval"][0] <= spread <= leading["spread_interval"][1]


def _check_failure(query: str, errors: dict) -> None:
    assert errors["error_type"] in REASONS, errors
    message = errors["error_message"]
    if errors["error_type"] == "insufficient_data":
        assert re.search(r"\d", message)
        return
    assert re.search(ABSENT, query, re.IGNORECASE), f"nothing in the question is absent: {message}"
    quoted = re.search(r"'([^']*)'", message)
    assert quoted is None or quoted[1].casefold() not in OWN_NAMES, message
    assert re.search(r"Available|Specialt|ids run", message), message


def _frame(data: Snapshot, programme: str, outcome: str) -> pd.DataFrame:
    start, weeks = data.programme_start, data.weeks
    frame = data.hcps.copy()
    frame["treated"] = frame[programme].astype(float)
    top, bottom = OUTCOMES[outcome]
    for name, first, last in (("after", start, weeks), ("before", start - 52, start)):
        upper = data.weekly[top][first:last].sum(axis=0).astype(float)
        if bottom is None:
            frame[name] = upper / (last - first)
        else:
            lower = data.weekly[bottom][first:last].sum(axis=0).astype(float)
            frame[name] = np.where(lower > 0, upper / np.maximum(lower, 1), np.nan)
    trx, market = (data.weekly[name][start - 52 : start].sum(axis=0).astype(float) for name in ("trx", "market_trx"))
    frame["prior writing"] = trx
    frame["prior brand share"] = trx / np.maximum(market, 1)
    for what in (*THIRD_COLUMNS, "prior writing", "prior brand share"):
        column = frame[THIRD_COLUMNS.get(what, what)]
        frame[f"rank of {what}"] = column.groupby(frame["brand"]).rank(pct=True)
    return frame[np.isfinite(frame["after"]) & np.isfinite(frame["before"])]


def _scope(label: str, frame: pd.DataFrame) -> pd.Series:
    """Read brands, regions and specialties back from the label."""
    brands = [one for one in frame["brand"].unique() if one in label] or list(frame["brand"].unique())
    regions = [one for one in frame["region"].unique() if re.search(rf"the {one}\b", label)] or list(frame["region"].unique())
    specialties = [one for one in frame["specialty"].unique() if one in label] or list(frame["specialty"].unique())
    return frame["brand"].isin(brands) & frame["region"].isin(regions) & frame["specialty"].isin(specialties)


def _members(dimension: str, group: str, frame: pd.DataFrame) -> pd.Series | None:
    if dimension in {"setting", "region", "specialty", "brand"}:
        return frame[dimension] == group
    if hit := re.fullmatch(r"decile (\d+)(?:-(\d+))?", group):
        return frame["decile"].between(int(hit[1]), int(hit[2] or hit[1]))
    third, _, what = group.partition(" ")
    if f"rank of {what}" in frame.columns:
        rank = frame[f"rank of {what}"]
        bounds = {"low": (0.0, 1 / 3), "middle": (1 / 3, 2 / 3), "high": (2 / 3, 1.0)}[third]
        return (rank > bounds[0]) & (rank <= bounds[1] + 1e-9)
    return None


def _regress(frame: pd.DataFrame) -> tuple[float, float]:
    causes = frame[["before", "decile", "potential", "digital_affinity"]].astype(float)
    causes = causes.assign(treated=frame["treated"], academic=(frame["setting"] == "academic").astype(float))
    dummies = pd.get_dummies(frame[["region", "brand"]], drop_first=True, dtype=float)
    slopes = {
        f"{name}_{column}": dummies[name] * frame[column]
        for name in dummies
        if name.startswith("brand_")
        for column in ("before", "potential")
    }
    design = sm.add_constant(pd.concat([causes, dummies, pd.DataFrame(slopes, index=frame.index)], axis=1), has_constant="add")
    kept = design.loc[:, (design.std() > 1e-12) | (design.columns == "const")]
    fit = sm.OLS(frame["after"], kept).fit(cov_type="HC1")
    return float(fit.params["treated"]), float(fit.bse["treated"])


def _check_group(row: dict, frame: pd.DataFrame, tolerance: float = 4.5) -> tuple[float, float]:
    """Compare one group with a regression; both are noisy, so they may lie `tolerance` standard errors apart."""
    low, high = row["confidence_interval"]
    assert low <= row["effect"] <= high
    value, error = _regress(frame)
    own = (high - low) / 3.92
    assert 0.4 * error < own < 3.0 * error, f"{row['group']}: standard error {own}, regression {error}"
    assert abs(row["p_value"] - 2.0 * norm.sf(abs(row["effect"]) / own)) < 0.01
    assert abs(row["n_treated"] - frame["treated"].sum()) <= 0.03 * len(frame) + 2
    assert abs(row["n"] - len(frame)) <= 0.03 * len(frame) + 2, f"{row['group']}: {row['n']} HCPs, counted {len(frame)}"
    assert abs(row["effect"] - value) < tolerance * float(np.hypot(own, error)), f"{row['group']}: {row['effect']} but regression {value}"
    return value, error


def _check_dimension(dimension: dict, frame: pd.DataFrame) -> None:
    groups, values, errors = dimension["groups"], [], []
    assert [one["rank"] for one in groups] == list(range(1, len(groups) + 1))
    assert [one["effect"] for one in groups] == sorted((one["effect"] for one in groups), reverse=True)
    assert abs(sum(one["chance_best"] for one in groups) - 1.0) < 1e-3
    for one in groups:
        members = _members(dimension["dimension"], one["group"], frame)
        assert members is not None, one["group"]
        value, error = _check_group(one, frame[members])
        values.append(value)
        errors.append(error)
    test = dimension["test"]
    if test["method"] == "Cochran Q":
        _check_statistic(groups, test)
        weights = 1.0 / np.square(errors)
        statistic = float((weights * np.square(np.array(values) - np.average(values, weights=weights))).sum())
        p_value = float(chi2.sf(statistic, len(values) - 1))
        # Two methods agree on what is plain; between a plain difference and none either may be right.
        assert not (test["p_value"] < 1e-4 and p_value > 0.05), (dimension["dimension"], test["p_value"], p_value)
        assert not (test["p_value"] > 0.3 and p_value < 1e-3), (dimension["dimension"], test["p_value"], p_value)


def _check_statistic(groups: list[dict], test: dict) -> None:
    """Redo the statistic from the printed effects and intervals."""
    effects = np.array([one["effect"] for one in groups])
    variances = np.array([((one["confidence_interval"][1] - one["confidence_interval"][0]) / 3.92) ** 2 for one in groups])
    mean = np.average(effects, weights=1.0 / variances)
    statistic = float(((effects - mean) ** 2 / variances).sum())
    assert abs(statistic - test["statistic"]) < 0.02 * max(1.0, statistic)
    assert test["degrees_of_freedom"] == len(groups) - 1


def _check_holm(raw: list[float], adjusted: list[float]) -> None:
    order = np.argsort(raw)
    running = 0.0
    for place, at in enumerate(order):
        running = max(running, min(1.0, (len(raw) - place) * raw[at]))
        assert abs(running - adjusted[at]) < 1e-4 * max(running, 1e-3) + 1e-9
