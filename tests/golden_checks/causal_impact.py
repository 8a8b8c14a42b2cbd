"""Checks an effect by three other routes than DoWhy's: Frisch and Waugh's two residuals, Student's t, and a weighted (AIPW) estimate."""

import re
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.stats import t as student

from service.agents.sample_data import Snapshot
from tests.golden_checks.question import check_scope, check_unknown_name, named_outcome, words_of

OUTCOMES = {
    "trx": ("trx", None),
    "nrx": ("nrx", None),
    "market_share": ("trx", "market_trx"),
    "conversion_rate": ("conversions", "candidates"),
}
PROGRAMME_WORDS = {
    "email_campaign": r"e-?mails?",
    "speaker_programme": r"speakers?",
    "sample_programme": r"samples?|sampling",
    "call_programme": r"rep visits?|sales visits?|detailing|field force|call (?:plan|program|programme)",
}
NOT_IN_DATA = {
    "competitor": r"competitors?|biosimilars?|generics?",
    "payer": r"pbm|payers?|formulary|prior auth\w*|step[- ]therapy",
    "advertising": r"tv|radio|journal ads?|banner ads?",
    "webinar": r"webinars?|lunch(?:es)? and learns?|lunch-and-learns?",
    "copay card": r"co-?pay card",
    "nurse": r"nurse (?:hotline|educators?)",
    "realignment": r"realignment",
}
SMALLEST_GROUP = 30
MATERIAL = 0.10


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff["errors"], data)
        return
    found, result = handoff["result"]["primary_output"], handoff["result"]
    rows = check_scope(query, found["scope"], data)
    _check_subject(query, found)
    frame = _frame(data, rows, found["measured_treatment"], found["measured_outcome"])
    error = _check_effect(found["ate"], found["confidence_interval"], frame, found["p_value"])
    treated = frame["treated"] == 1
    assert (found["n"], found["n_treated"]) == (len(frame), int(treated.sum()))
    naive = frame.groupby("treated")["after"].mean().diff().iloc[-1]
    assert abs(found["naive_difference"] - naive) <= 1e-4 * abs(naive) + 1e-6, f"the plain difference is {naive}"
    for name, code in (("academic", 1.0), ("community", 0.0)):
        part = frame[frame["academic"] == code]
        enough = min(part["treated"].sum(), (1 - part["treated"]).sum()) >= SMALLEST_GROUP
        assert (name in found["effect_by_setting"]) == enough
        if enough:
            one = found["effect_by_setting"][name]
            _check_effect(one["ate"], one["confidence_interval"], part.drop(columns="academic"), None)
    for name, one in found["other_programmes"].items():
        _check_effect(one["ate"], one["confidence_interval"], _frame(data, rows, name, found["measured_outcome"]), None)
    _check_totals(found, frame, rows, data)
    _check_nearness(query, found, result)
    chance = _chance(frame)
    _check_weighted(found["ate"], error, frame, chance)
    _check_confidence(found, result, frame, chance, error)
    _check_sentences(found, result, frame, error)


def _check_refusal(query: str, errors: dict[str, Any], data: Snapshot) -> None:
    message = errors["error_message"]
    if errors["error_type"] == "insufficient_data":
        counts = [int(one) for one in re.findall(r"(\d+) (?:in|outside)", message)]
        assert counts, message
        assert min(counts) < SMALLEST_GROUP, message
        return
    assert errors["error_type"] in {"unknown_entity", "missing_data"}, errors
    check_unknown_name(query, message, data, (*OUTCOMES, *PROGRAMME_WORDS, "share"))


def _check_subject(query: str, found: dict[str, Any]) -> None:
    """Programme and outcome are those that the question plainly names."""
    programmes = [name for name, pattern in PROGRAMME_WORDS.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query))]
    if len(programmes) == 1:
        assert found["measured_treatment"] == programmes[0], f"the question is about {programmes[0]}"
    assert found["measured_treatment"] in PROGRAMME_WORDS
    outcome = named_outcome(query)
    assert outcome is None or found["measured_outcome"] == outcome, f"the question is about {outcome}"


def _frame(data: Snapshot, rows: np.ndarray[Any, np.dtype[np.bool_]], programme: str, outcome: str) -> pd.DataFrame:
    """Return one row an HCP: treated, after, before and the causes, from long tables by pandas."""
    top, bottom = OUTCOMES[outcome]
    start = data.weeks - 26
    frame = data.hcps[["decile", "potential", "digital_affinity", "region", "brand"]].astype({"decile": float}).copy()
    frame["academic"] = data.hcps["setting"].eq("academic").astype(float)
    frame["treated"] = data.hcps[programme].astype(float)
    for name, (first, last) in {"after": (start, data.weeks), "before": (start - 52, start)}.items():
        upper = pd.DataFrame(data.weekly[top]).iloc[first:last].sum()
        lower = pd.Series(last - first, index=upper.index) if bottom is None else pd.DataFrame(data.weekly[bottom]).iloc[first:last].sum()
        frame[name] = (upper / lower.where(lower > 0)).to_numpy(dtype=float)
    return frame[rows].dropna()


def _causes(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    dummies = pd.get_dummies(frame[["region", "brand"]], dtype=float)
    numbers = frame.drop(columns=["region", "brand", "treated", "after"])
    return np.column_stack([numbers, dummies])


def _check_effect(value: float, bounds: list[float], frame: pd.DataFrame, p_value: float | None) -> float:
    """Frisch and Waugh: what the causes leave of outcome and treatment, one on the other. Return the standard error."""
    causes = _causes(frame)
    both = frame[["after", "treated"]].to_numpy()
    fitted, _, rank, _ = np.linalg.lstsq(causes, both, rcond=None)
    outcome, treated = (both - causes @ fitted).T
    slope = float(outcome @ treated / (treated @ treated))
    degrees = len(frame) - int(rank) - 1
    error = float(np.sqrt(np.square(outcome - slope * treated).sum() / degrees / (treated @ treated)))
    assert abs(value - slope) <= 2e-4 * abs(slope) + 2e-6, f"the effect is {slope}, not {value}"
    reach = float(student.ppf(0.975, degrees)) * error
    for told, own in zip(bounds, (slope - reach, slope + reach), strict=True):
        assert abs(told - own) <= 0.01 * reach + 2e-6, f"the interval is {slope - reach} to {slope + reach}, not {bounds}"
    if p_value is not None:
        own_p = 2.0 * float(student.sf(abs(slope) / error, degrees))
        assert abs(p_value - own_p) <= 0.002, f"p is {own_p}, not {p_value}"
    return error


def _chance(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    dummies = pd.get_dummies(frame[["region", "brand"]], dtype=float, drop_first=True)
    numbers = frame.drop(columns=["region", "brand", "treated", "after"])
    scaled = (numbers - numbers.mean()) / numbers.std()
    design = sm.add_constant(pd.concat([scaled, dummies], axis=1))
    return np.asarray(sm.GLM(frame["treated"], design, family=sm.families.Binomial()).fit().predict(design))


def _check_weighted(value: float, error: float, frame: pd.DataFrame, chance: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Augmented inverse probability weighting agrees within noise: it weighs HCPs otherwise, so not exactly."""
    weight = np.clip(chance, 0.03, 0.97)
    treated = frame["treated"].to_numpy()
    outcome, causes = frame["after"].to_numpy(), _causes(frame)
    fits = {one: causes @ np.linalg.lstsq(causes[treated == one], outcome[treated == one], rcond=None)[0] for one in (0.0, 1.0)}
    signal = fits[1.0] - fits[0.0] + treated * (outcome - fits[1.0]) / weight - (1 - treated) * (outcome - fits[0.0]) / (1 - weight)
    other = float(signal.mean())
    noise = float(np.hypot(error, signal.std() / np.sqrt(len(signal))))
    assert abs(value - other) <= 4.0 * noise, f"the weighted estimate is {other}, the answer {value}"


def _check_confidence(
    found: dict[str, Any], result: dict[str, Any], frame: pd.DataFrame, chance: np.ndarray[Any, np.dtype[np.float64]], error: float
) -> None:
    """Precision times overlap times refutation, as documented, and never more; a stand-in counts half."""
    precision = max(0.0, 1.0 - error / max(abs(found["ate"]), MATERIAL * frame["after"].mean()))
    overlap = float(np.mean((chance > 0.05) & (chance < 0.95)))
    expected = precision * overlap * (1.0 if found["refutation_passed"] else 0.4) * found["nearness"]
    assert abs(result["confidence"] - expected) <= 0.03, f"confidence {result['confidence']}, expected {expected}"


def _check_totals(found: dict[str, Any], frame: pd.DataFrame, rows: np.ndarray[Any, np.dtype[np.bool_]], data: Snapshot) -> None:
    """Levels are means of weekly totals; what the programme added is its effect times HCPs times weeks."""
    top, bottom = OUTCOMES[found["measured_outcome"]]
    weekly = pd.DataFrame(data.weekly[top]).loc[:, rows].sum(axis=1)
    if bottom is not None:
        weekly = weekly / pd.DataFrame(data.weekly[bottom]).loc[:, rows].sum(axis=1)
    for name, own in (("level", weekly.tail(26).mean()), ("level_before", weekly.iloc[-52:-26].mean())):
        assert abs(found[name] - own) <= 1e-4 * own, f"{name} is {own}, not {found[name]}"
    if bottom is not None:
        assert found["total_effect"] is None
        return
    total = found["total_effect"]
    assert total["weeks"] == 26
    for told, one in zip((total["value"], *total["confidence_interval"]), (found["ate"], *found["confidence_interval"]), strict=True):
        own = one * frame["treated"].sum() * 26
        assert abs(told - own) <= 1e-3 * abs(own) + 0.5, f"the total is {own}, not {told}"


def _check_nearness(query: str, found: dict[str, Any], result: dict[str, Any]) -> None:
    """What the question blames or credits and the data lack is owned up to in the first sentence, and the confidence shows it."""
    blamed = [name for name, pattern in NOT_IN_DATA.items() if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query))]
    own = any(re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query)) for pattern in PROGRAMME_WORDS.values())
    assert found["nearness"] <= (0.5 if blamed else 1.0), f"the data have no {blamed}"
    assert found["nearness"] == 1.0 or "do not record" in result["evidence"][0], result["evidence"][0]
    assert found["nearness"] > 0.0 or not own, "a programme of the data is asked for"


def _check_sentences(found: dict[str, Any], result: dict[str, Any], frame: pd.DataFrame, error: float) -> None:
    """The numbers in words are those of the output."""
    first = next(one for one in result["evidence"] if re.match(r"The .+ (?:changed|did not measurably change) ", one))
    scale = 100.0 if OUTCOMES[found["measured_outcome"]][1] else 1.0
    digits = 1 if scale == 100.0 else 2
    told = [float(one) for one in re.findall(r"(?<![\w.])[+-]?\d+\.\d+", first)]
    for number in (found["ate"], *found["confidence_interval"], frame["after"].mean()):
        assert any(abs(one - number * scale) <= 0.51 * 10**-digits for one in told), f"{number} is not in: {first}"
    low, high = found["confidence_interval"]
    assert ("did not measurably change" in first) == (low <= 0.0 <= high)
    placebo = next(one for one in result["evidence"] if one.startswith("Placebo test"))
    effect = re.search(r"mean effect is ([+-]\d+\.\d+)", placebo)
    assert effect, placebo
    assert abs(float(effect[1])) <= scale * 2.0 * error + 0.5 * 10**-digits, "a placebo has an effect"
    if not found["refutation_passed"]:
        assert any("refutation failed" in one for one in result["caveats"])
