"""Checks a plan by textbook formulas and by the data, on another route than the agent's.

Sizes: two proportions by Fleiss's formula without correction, means by the normal formula 2 (z + z)^2 / d^2; clusters by the design
effect. Baselines and spreads are measured again with pandas. Balance and stepped wedge are redone from what is printed.
"""

import re

import numpy as np
import pandas as pd
from scipy.stats import nct, norm
from scipy.stats import t as student

from service.agents.sample_data import Snapshot

KPIS = {"trx": ("trx", None), "nrx": ("nrx", None), "market_share": ("trx", "market_trx"), "conversion_rate": ("conversions", "candidates")}
DECISIONS = {"share", "sample_size", "smallest_effect", "duration", "power", "assignment", "design", "plan"}


def check(query: str, handoff: dict, data: Snapshot) -> None:
    """Verify one plan; raise AssertionError where it is inconsistent or does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        assert handoff["errors"]["error_type"] in {"unknown_entity", "missing_data"}, handoff["errors"]
        return
    plan = handoff["result"]["primary_output"]
    assert plan["decision"] in DECISIONS
    assert len(handoff["result"]["evidence"]) >= 3
    if plan.get("pre_period"):
        _check_measures(plan, data)
    _check_numbers_of_the_query(query, plan)
    _check_size(plan)
    _check_power(plan)
    _check_holdout(plan)
    if plan.get("looks"):
        _check_looks(plan)
    if plan.get("stepped_wedge"):
        _check_wedge(plan)
    if plan.get("assignment"):
        _check_assignment(plan, data)
    _check_arms(plan)
    assumed = [name for name, trust in plan["input_trust"].items() if trust == 0.0]
    assert handoff["result"]["confidence"] <= 1.0 - 0.9 * len(assumed) / len(plan["input_trust"]) + 1e-6


def _check_numbers_of_the_query(query: str, plan: dict) -> None:
    """What the text plainly gives must be in the plan."""
    text = query.casefold().replace(",", "")
    if hit := re.search(r"\bicc\D{0,12}(0?\.\d+)", text):
        assert plan["icc"]["value"] == float(hit[1])
    if hit := re.search(r"baseline (?:conversion |conv )?(?:is )?(\d+(?:\.\d+)?) ?(?:%|percent)", text):
        assert abs(plan["baseline"]["value"] - float(hit[1]) / 100.0) < 1e-9
        assert plan["baseline"]["source"] == "given"
    if hit := re.search(r"\b(\d+) (territories|districts|clinics|pharmacies|hospitals)\b(?! per| in each| a side| each)", text):
        given = int(hit[1])
        if plan["available_per_arm"].get("source") == "given" and plan["design"] != "stepped_wedge":
            assert plan["available_per_arm"]["value"] in {given // plan["arms"], given} or plan["allocation_ratio"] != 1.0
    if hit := re.search(r"\b(\d+)[ -](?:weeks?|wks?)\b", text):
        assert plan["weeks"].get("value") == float(hit[1]) or plan["weeks_needed"] is not None or plan["weeks"]["source"] == "given"
    if hit := re.search(r"\b(\d+(?:\.\d+)?) (?:point|pt|pp)\b", text):
        assert abs(plan["effect"]["value"] - float(hit[1]) / 100.0) < 1e-9


def _check_measures(plan: dict, data: Snapshot) -> None:
    """Baseline and spread again, by pandas."""
    top, bottom = KPIS[plan["metric"]]
    weeks = min(52, max(1, round(plan["weeks"]["value"])))
    frame = data.hcps[["brand", "region"]].copy()
    for name, stop in (("after", data.weeks), ("before", data.weeks - weeks)):
        start = stop - (weeks if name == "after" else 26)
        upper = data.weekly[top][start:stop].sum(axis=0)
        lower = data.weekly[bottom][start:stop].sum(axis=0) if bottom else np.full(len(frame), stop - start)
        frame[name] = np.where(lower > 0, upper / np.maximum(lower, 1), np.nan)
    brands = [one for one in frame["brand"].unique() if one in plan["scope"]] or list(frame["brand"].unique())
    regions = [one for one in frame["region"].unique() if re.search(rf"the {one}\b", plan["scope"])] or list(frame["region"].unique())
    inside = frame[frame["brand"].isin(brands) & frame["region"].isin(regions)].dropna()
    assert abs(inside["after"].mean() - plan["baseline"]["value"]) < 1e-3 * max(1.0, inside["after"].mean())
    assert abs(inside["after"].std() - plan["standard_deviation"]) < 1e-3 * inside["after"].std()
    assert abs(inside["after"].corr(inside["before"]) - plan["pre_period"]["correlation"]) < 1e-3
    dummies = pd.get_dummies(inside["brand"], dtype=float)
    design = np.column_stack([dummies, inside["before"]])
    fitted = design @ np.linalg.lstsq(design, inside["after"].to_numpy(), rcond=None)[0]
    residual = float(np.std(inside["after"] - fitted) * np.sqrt(len(inside) / (len(inside) - 1)))
    assert abs(residual - plan["residual_standard_deviation"]) < 0.01 * residual


def _quantiles(plan: dict) -> tuple[float, float]:
    alpha = plan["alpha_per_comparison"] / plan["sides"]
    return float(norm.ppf(1.0 - alpha)), float(norm.ppf(plan["target_power"]))


def _variance(plan: dict) -> float:
    """The variance of the difference for one unit an arm, with the second arm `allocation_ratio` times the first."""
    ratio = plan["allocation_ratio"]
    if plan["metric_kind"] == "mean":
        first = second = plan["residual_standard_deviation"] ** 2
    else:
        one, two = plan["baseline"]["value"], min(0.9999, max(0.0001, plan["baseline"]["value"] + plan["effect"]["value"]))
        first, second = one * (1 - one), two * (1 - two)
    size = plan["cluster_size"].get("value")
    clusters = plan["design_effect"] / max(1, round(size)) if size else 1.0
    return (first + second / ratio) * clusters * (plan["looks"]["inflation"] if plan.get("looks") else 1.0)


def _check_size(plan: dict) -> None:
    """The normal formula; Student's test needs a few units more, the arcsine scale differs a little for rates."""
    if plan["needed_per_arm"] is None:
        return
    near, far = _quantiles(plan)
    expected = _variance(plan) * (near + far) ** 2 / plan["effect"]["value"] ** 2
    tolerance = 3.0 + (0.03 if plan["metric_kind"] == "mean" else 0.10) * expected
    assert abs(plan["needed_per_arm"] - expected) <= tolerance, f"needs {plan['needed_per_arm']}, formula {expected:.1f}"
    if size := plan["cluster_size"].get("value"):
        assert abs(plan["design_effect"] - (1 + (max(1, round(size)) - 1) * plan["icc"]["value"])) < 1e-4


def _check_power(plan: dict) -> None:
    sizes = list(plan["arm_sizes"].values())
    error = float(np.sqrt(_variance(plan) / sizes[0]))
    near, _ = _quantiles(plan)
    units = sizes[0] / (plan["looks"]["inflation"] if plan.get("looks") else 1.0)
    shift = abs(plan["effect"]["value"]) / error
    if plan["metric_kind"] == "mean" or plan["cluster_size"]:
        degrees = max(1.0, max(2.0, units) * (1 + plan["allocation_ratio"]) - 2)
        bound = student.ppf(1.0 - plan["alpha_per_comparison"] / plan["sides"], degrees)
        expected = float(nct.sf(bound, degrees, shift))
    else:
        expected = float(norm.cdf(shift - near))
    assert abs(plan["power"] - expected) < 0.06 or (np.isnan(expected) and plan["power"] > 0.99), (plan["power"], expected)
    assert plan["is_enough"] == (plan["power"] >= plan["target_power"] - 0.005)
    if plan["smallest_effect"] is not None and plan["needed_per_arm"] is not None:
        more = plan["effect"]["value"] - plan["smallest_effect"]
        assert (more >= -0.02 * plan["smallest_effect"]) == (plan["power"] >= plan["target_power"] - 0.02) or abs(more) < 0.05 * plan[
            "smallest_effect"
        ]


def _check_arms(plan: dict) -> None:
    sizes = list(plan["arm_sizes"].values())
    assert len(sizes) == plan["arms"]
    assert all(abs(size - sizes[0] * plan["allocation_ratio"]) <= 1.0 for size in sizes[1:])
    assert abs(plan["alpha"] - plan["alpha_per_comparison"] * (plan["arms"] - 1)) < 1e-6
    assert plan["design_effect"] >= 1.0
    assert plan["cluster_size"] or plan["design_effect"] == 1.0
    if plan.get("pre_period"):
        left = plan["standard_deviation"] * np.sqrt(1.0 - plan["pre_period"]["variance_removed"])
        assert abs(left - plan["residual_standard_deviation"]) < 0.01 * left
    if plan["metric_kind"] == "mean" and plan["smallest_effect"] is not None and sizes[0] >= 30:
        near, far = _quantiles(plan)
        expected = (near + far) * np.sqrt(_variance(plan) / sizes[0])
        assert abs(plan["smallest_effect"] - expected) < 0.06 * expected
    if plan["baseline"] and plan["effect"]["relative"] is not None:
        assert abs(plan["effect"]["relative"] * plan["baseline"]["value"] - plan["effect"]["value"]) < 1e-4


def _check_holdout(plan: dict) -> None:
    for row in plan.get("holdout_options", []):
        total = sum(plan["arm_sizes"].values())
        assert abs(row["held_out"] - row["share"] * total) <= 2.0
    smallest = [row["smallest_effect"] for row in sorted(plan.get("holdout_options", []), key=lambda row: row["share"])]
    assert smallest == sorted(smallest, reverse=True)


def _check_looks(plan: dict) -> None:
    """Simulate the looks: together they must cross with about the error in all."""
    bounds = np.array(plan["looks"]["bounds"])
    assert list(bounds) == sorted(bounds, reverse=True)
    steps = np.random.default_rng(5).standard_normal((200_000, len(bounds)))
    scores = np.cumsum(steps, axis=1) / np.sqrt(np.arange(1, len(bounds) + 1))
    crossed = float((np.abs(scores) > bounds).any(axis=1).mean())
    alpha = plan["alpha_per_comparison"] * (2.0 / plan["sides"])
    assert abs(crossed - alpha) < 0.004, (crossed, alpha)


def _check_wedge(plan: dict) -> None:
    """The generalised least squares variance of the effect, from the whole covariance matrix of cluster means."""
    wedge = plan["stepped_wedge"]
    periods = wedge["steps"] + 1
    switched = np.repeat(np.arange(1, periods), wedge["batches"])
    assert len(switched) == wedge["clusters"]
    smallest, power = wedge["smallest"], wedge["power"]
    near, far = _quantiles({**plan, "sides": 2})
    error = smallest / (near + far)
    assert abs(power - norm.cdf(abs(plan["effect"]["value"]) / error - near)) < 1e-3
    if plan["metric_kind"] == "rate" and plan["icc"]:
        noise = plan["residual_standard_deviation"] ** 2
        between = plan["icc"]["value"] / (1 - plan["icc"]["value"]) * noise
        one = noise / plan["cluster_size"]["value"] * np.eye(periods) + between
        information = np.zeros((periods + 1, periods + 1))
        for at in switched:
            design = np.column_stack([np.eye(periods), (np.arange(periods) >= at).astype(float)])
            information += design.T @ np.linalg.solve(one, design)
        assert abs(np.sqrt(np.linalg.inv(information)[-1, -1]) - error) < 0.01 * error


def _check_assignment(plan: dict, data: Snapshot) -> None:
    drawn = plan["assignment"]
    counted = sum(value for row in drawn["strata"] for name, value in row.items() if name not in {"stratum", "eligible"})
    assert counted == drawn["hcps"]
    for row in drawn["strata"]:
        assert sum(value for name, value in row.items() if name not in {"stratum", "eligible"}) <= row["eligible"]
    if not drawn["listed"]:
        return
    listed = pd.DataFrame(drawn["listed"]).merge(data.hcps, on="hcp_id")
    assert listed["hcp_id"].is_unique
    assert len(listed) == drawn["hcps"]
    for covariate in ("decile", "potential", "digital_affinity"):
        first, second = (listed[listed["arm"] == arm][covariate].astype(float) for arm in (0, 1))
        spread = float(np.sqrt((first.var() + second.var()) / 2.0))
        difference = (second.mean() - first.mean()) / max(spread, 1e-9) if min(len(first), len(second)) > 1 else 0.0
        printed = next(row["standardised_difference"] for row in drawn["balance"] if row["covariate"] == covariate)
        assert abs(difference - printed) < 1e-3
    largest = max(abs(row["standardised_difference"]) for row in drawn["balance"])
    assert abs(largest - drawn["largest_standardised_difference"]) < 1e-4
