"""Checks an answer to a request for a split by another route: curves fitted line by line with curve_fit, and SLSQP for the best split.

Read from the service: the spending data and their documented constants, and the documented true curves. Nothing of the agent's code.
"""

import re
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit, minimize

from service.agents import truth
from service.agents.allocation import channel_truth as true
from service.agents.allocation.channel_data import MARGIN, load_channel_data
from service.agents.sample_data import Snapshot

USUAL_WEEKS = 13
NRX_WEEKS = 26
REFUSALS = {"unknown_entity", "missing_data", "infeasible_limits"}
SCALES = {"k": 1.0, "thousand": 1.0, "grand": 1.0, "m": 1e3, "mm": 1e3, "mn": 1e3, "mio": 1e3, "mil": 1e3, "million": 1e3, "bn": 1e6}
ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: at + 1 for at, word in enumerate(ONES.split())} | {word: 10 * (at + 2) for at, word in enumerate(TENS.split())}
Values = np.ndarray[Any, np.dtype[np.float64]]


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify the numbers of an answer, or that a refusal is justified.

    Raises:
        AssertionError: They do not fit.
    """
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff["errors"], data)
        return
    output, result = handoff["result"]["primary_output"], handoff["result"]
    lines = pd.DataFrame(output["lines"])
    assert 0.0 <= result["confidence"] <= 1.0, "confidence outside 0 to 1"
    assert result["evidence"], "no evidence"
    by = "tier" if "tier" in lines else "region"
    table = load_channel_data().by_tier if by == "tier" else load_channel_data().by_region
    fits = _fits(by).loc[list(zip(lines["brand"], lines[by], lines["channel"], strict=True))]
    spend, today = lines["recommended_k_per_week"].to_numpy(), lines["current_k_per_week"].to_numpy()
    _check_lines(lines, table, by, spend, today)
    scale = output["weeks"] / (output["unit_cost_k"] or 1.0)
    _check_totals(query, output, lines, by, scale)
    weight = _weights(output["objective"], lines, by, data)
    _check_returns(output, fits, weight, spend, today)
    if not any(" gets at least " in caveat or " gets at most " in caveat for caveat in result["caveats"]):
        _check_best(output, lines, fits, weight, spend)  # limits on groups of lines are not repeated there
    _check_truth(output, lines, by, weight, spend, today)


def _check_refusal(query: str, errors: dict[str, Any], data: Snapshot) -> None:
    """A refusal names something of the question that the data do not have."""
    assert errors["error_type"] in REFUSALS, f"unexpected failure: {errors}"
    message, words = errors["error_message"], " ".join(re.findall(r"[a-z0-9]+", query.casefold()))
    if errors["error_type"] == "infeasible_limits":
        assert re.search(r"\d", query) or set(words.split()) & set(NUMBER_WORDS), "limits without a number"
        return
    named = [one.casefold() for one in re.findall(r"'([^']+)'", message)]
    known = {one.casefold() for one in (*data.hcps["brand"].unique(), *data.hcps["region"].unique(), *true.CHANNELS)}
    assert named, f"the refusal names nothing: {message}"
    assert all(one not in known for one in named), f"refused although the data have it: {message}"
    if errors["error_type"] == "missing_data":
        assert all(one in words for one in named), f"refused for something that the question does not name: {message}"


def _check_lines(lines: pd.DataFrame, table: pd.DataFrame, by: str, spend: Values, today: Values) -> None:
    """Today's spending is the mean of the last 13 weeks, and no line leaves its limits or what was ever tried."""
    for row in lines.to_dict("records"):
        one = table[(table["brand"] == row["brand"]) & (table["group"] == row[by]) & (table["channel"] == row["channel"])]
        mean = one["spend"].to_numpy()[-USUAL_WEEKS:].mean()
        assert abs(mean - row["current_k_per_week"]) < 0.002, f"today's spending of {row} is {mean:.3f}"
        assert row["highest_k_per_week"] <= max(one["spend"].max(), mean) + 0.002, f"{row} may get more than was ever tried"
    assert (spend >= lines["lowest_k_per_week"] - 0.002).all(), "a line below its lower limit"
    assert (spend <= lines["highest_k_per_week"] + 0.002).all(), "a line above its upper limit"
    assert (today > 0).all(), "a line without spending"


def _check_totals(query: str, output: dict[str, Any], lines: pd.DataFrame, by: str, scale: float) -> None:
    """Groups and totals are the sums of the lines, and the total is what the question says."""
    total, slack = output["total"], 0.001 * len(lines) * scale + 0.5
    column = {"channel": "channel", "brand": "brand"}.get(output["split_by"], by)
    for row in output["groups"]:
        part = lines[lines[column] == row["group"]]
        for name, weekly in (("current", "current_k_per_week"), ("recommended", "recommended_k_per_week")):
            assert abs(part[weekly].sum() * scale - row[name]) <= slack + 1e-3 * abs(row[name]), f"{row['group']}: {name} is not the sum"
    assert abs(lines["recommended_k_per_week"].sum() * scale - total["recommended"]) <= slack + 1e-3 * total["recommended"]
    assert total["recommended"] <= total["available"] * (1 + 1e-4) + 1e-6, "more is given than there is"
    assert abs(total["available"] - total["recommended"] - total["not_placed"]) <= 1e-3 * total["available"] + 0.5
    said = _numbers(query)
    step, ratio = abs(total["available"] - total["current"]), total["available"] / max(total["current"], 1e-9)
    match output["mode"]:
        case "total":
            assert _near(total["available"], said), f"{total['available']} is not what the question says"
        case "change":
            assert _near(step, said), f"a change of {step} is not what the question says"
        case "ratio":
            parts = [part for one in said for part in (1 - one / 100, 1 + one / 100, one / 100)] + [2 / 3, 1 / 3, 0.5]
            pairs = [one / other for one in said for other in said if other > 0]
            assert _near(ratio, [*parts, *pairs]), f"a ratio of {ratio} is not what the question says"
        case "flat":
            assert abs(ratio - 1.0) < 1e-3, "the total moved although the question names no other"


def _check_returns(output: dict[str, Any], fits: pd.DataFrame, weight: Values, spend: Values, today: Values) -> None:
    """Expected returns are those of curves that were fitted line by line."""
    for name, at in (("current", today), ("recommended", spend)):
        own = output["weeks"] * float(np.sum(weight * _hill(at, *_parameters(fits))))
        told = output["expected_return"][name]
        assert abs(own - told) <= 0.06 * max(own, told) + 2.0, f"{name}: {told:.1f} is told, {own:.1f} comes out of another fit"
    low, high = output["expected_return"]["interval"]
    assert low - 1e-6 <= output["expected_return"]["recommended"] <= high + 1e-6 or high - low < 0.02 * high, "the estimate lies outside"


def _check_best(output: dict[str, Any], lines: pd.DataFrame, fits: pd.DataFrame, weight: Values, spend: Values) -> None:
    """SLSQP on the other curves finds no split that is better by more than the two fits differ."""
    parameters, cost = _parameters(fits), 1.0 if output["objective"].startswith("k$") else 0.0
    low, high = lines["lowest_k_per_week"].to_numpy(), lines["highest_k_per_week"].to_numpy()
    total = float(spend.sum())

    def worth(at: Values) -> float:
        return float(np.sum(weight * _hill(at, *parameters))) - cost * float(np.sum(at))

    if len(spend) < 2 or total <= low.sum() + 1e-6:
        return
    best = worth(spend)
    for seed in range(3):
        start = np.clip(spend * np.random.default_rng(seed).uniform(0.5, 1.5, len(spend)), low, high)
        start = low + (start - low) * min(1.0, (total - low.sum()) / max(float((start - low).sum()), 1e-9))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = minimize(
                lambda at: -worth(np.clip(at, low, high)),
                start,
                bounds=list(zip(low, high, strict=True)),
                constraints=[{"type": "ineq", "fun": lambda at: total - np.sum(at)}],
                method="SLSQP",
                options={"maxiter": 60},
            )
        if float(np.sum(found.x)) <= total * 1.0001:
            best = max(best, -float(found.fun))
    slack = 0.008 if output["unit"] != "k$" else 0.005  # whole units are no match for parts of units
    assert worth(spend) >= best - slack * abs(best) - 0.05, f"another split is worth {best:.2f} a week, the recommended {worth(spend):.2f}"


def _check_truth(output: dict[str, Any], lines: pd.DataFrame, by: str, weight: Values, spend: Values, today: Values) -> None:
    """By the documented curves the recommended split is no worse than today's split of the same total, where it claims to be better."""
    if output["gain"]["share_of_replicates_better"] < 0.95 or output["mode"] == "size" or output["objective"].startswith("k$"):
        return
    top, half, shape = [], [], []
    for row in lines.to_dict("records"):
        at = true.CHANNELS.index(row["channel"])
        if by == "tier":
            tier = true.TIERS.index(row["tier"])
            pair = (true.TIER_TOP[tier], true.TIER_HALF[tier])
        else:
            pair = (true.REGION_WEIGHT[row["brand"]][truth.REGIONS.index(row["region"])],) * 2
        top.append(true.TOP[row["brand"]][at] * pair[0])
        half.append(true.HALF[row["brand"]][at] * pair[1])
        shape.append(true.SHAPE[row["channel"]])
    curve = (np.array(top), np.array(half), np.array(shape))
    same_total = today * spend.sum() / today.sum()
    gain = float(np.sum(weight * (_hill(spend, *curve) - _hill(same_total, *curve))))
    assert gain > -0.01 * float(np.sum(weight * _hill(spend, *curve))), f"in truth the split loses {-gain:.2f} a week"


def _hill(spend: Values, top: Values, half: Values, shape: Values) -> Values:
    ratio = (np.maximum(spend, 0.0) / half) ** shape
    return np.asarray(top * ratio / (1.0 + ratio))


def _parameters(fits: pd.DataFrame) -> tuple[Values, Values, Values]:
    return fits["top"].to_numpy(), fits["half"].to_numpy(), fits["shape"].to_numpy()


@lru_cache(maxsize=2)
def _fits(by: str) -> pd.DataFrame:
    """Fit each line alone, its shape held at the channel's median of free fits."""
    table = load_channel_data().by_tier if by == "tier" else load_channel_data().by_region
    groups = {key: one for key, one in table.groupby(["brand", "group", "channel"], sort=False)}
    free = {key: _fit(one, None) for key, one in groups.items()}
    shapes = {
        channel: float(np.median([fit[2] for key, fit in free.items() if key[2] == channel])) for channel in table["channel"].unique()
    }
    rows = {key: _fit(one, shapes[key[2]]) for key, one in groups.items()}
    index = pd.MultiIndex.from_tuples(list(rows))
    return pd.DataFrame(list(rows.values()), index=index, columns=["top", "half", "shape"])


def _fit(one: pd.DataFrame, shape: float | None) -> tuple[float, float, float]:
    spend, effect, error = (one[name].to_numpy(dtype=float) for name in ("spend", "incremental_trx", "standard_error"))
    start = [max(float(effect.max()), 0.1), float(spend.mean())]
    upper = [20 * start[0], 20 * start[1]]
    if shape is None:
        found = curve_fit(_hill, spend, effect, [*start, 1.0], error, bounds=([1e-3, 1e-3, 0.5], [*upper, 3.0]), maxfev=5000)[0]
        return float(found[0]), float(found[1]), float(found[2])
    found = curve_fit(
        lambda at, top, half: _hill(at, top, half, np.asarray(shape)),
        spend,
        effect,
        start,
        error,
        bounds=([1e-3, 1e-3], upper),
        maxfev=5000,
    )[0]
    return float(found[0]), float(found[1]), shape


def _weights(objective: str, lines: pd.DataFrame, by: str, data: Snapshot) -> Values:
    if objective == "TRx":
        return np.ones(len(lines))
    if objective.startswith("k$"):
        return np.array([MARGIN[brand] for brand in lines["brand"]])
    shares = []
    for row in lines.to_dict("records"):
        mask = (data.hcps["brand"] == row["brand"]).to_numpy()
        if by == "region":
            mask = mask & (data.hcps["region"] == row["region"]).to_numpy()
        shares.append(data.weekly["nrx"][-NRX_WEEKS:, mask].sum() / data.weekly["trx"][-NRX_WEEKS:, mask].sum())
    return np.array(shares)


def _numbers(query: str) -> list[float]:
    """Return every number of the question, as it stands and, with a scale, in thousands (k$) and in ones."""
    found: list[float] = []
    for number, scale in re.findall(r"(\d[\d,]*(?:\.\d+)?)\s?([a-z]*)", query.casefold()):
        value = float(number.replace(",", ""))
        found += [value, value / 1000.0]
        if scale in SCALES:
            found += [value * SCALES[scale], value * SCALES[scale] * 1000.0]
    words = re.findall(r"[a-z]+", query.casefold())
    for at, word in enumerate(words):
        if word in NUMBER_WORDS:
            following = NUMBER_WORDS.get(words[at + 1], 0) if at + 1 < len(words) else 0
            found += [float(NUMBER_WORDS[word]), float(NUMBER_WORDS[word] + following)]
    return found + [1.0] * ("another" in words)


def _near(value: float, others: list[float]) -> bool:
    return any(abs(value - other) <= 2e-3 * max(abs(other), 1e-9) for other in others)
