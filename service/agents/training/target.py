"""What a model can be trained to predict from the sample data, and the words by which people ask for it. It knows no dispatch."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from service.agents.sample_data import Mask, Reals, Snapshot

Task = Literal["classification", "regression"]

LEAST_TRX_AT_RISK = 4.0
"""An HCP who writes fewer than 4 TRx in a horizon of weeks halves by chance alone, so it is not in the population of a lapse model."""
BASELINE_WEEKS = 13


@dataclass(frozen=True, slots=True)
class Target:
    """One quantity to predict for an HCP over the weeks that follow.

    `measure` returns one value an HCP (NaN where it cannot be known) for the weeks [origin, origin + horizon); `at_risk` says
    who belongs to the population. `words` name the target itself, `near_words` something that it can only stand in for; both
    are regular expressions over normal text.
    """

    name: str
    label: str
    task: Task
    unit: str
    measure: Callable[[Snapshot, int, int], Reals]
    words: str
    near_words: str = ""
    at_risk: Callable[[Snapshot, int, int], Mask] | None = None


def _total(measure: str) -> Callable[[Snapshot, int, int], Reals]:
    return lambda data, origin, horizon: np.asarray(data.weekly[measure][origin : origin + horizon].sum(axis=0), dtype=np.float64)


def _any(measure: str) -> Callable[[Snapshot, int, int], Reals]:
    return lambda data, origin, horizon: (data.weekly[measure][origin : origin + horizon].sum(axis=0) > 0).astype(np.float64)


def _clean_samples(data: Snapshot, origin: int, horizon: int) -> Reals:
    return np.asarray(np.maximum(data.weekly["samples"][origin : origin + horizon], 0).sum(axis=0), dtype=np.float64)


def _share(data: Snapshot, origin: int, horizon: int) -> Reals:
    trx = data.weekly["trx"][origin : origin + horizon].sum(axis=0).astype(np.float64)
    market = data.weekly["market_trx"][origin : origin + horizon].sum(axis=0)
    return np.asarray(np.divide(trx, market, out=np.full(len(trx), np.nan), where=market > 0))


def expected_trx(data: Snapshot, origin: int, horizon: int) -> Reals:
    """Return the TRx of `horizon` weeks at the mean of the 13 weeks before the origin."""
    return np.asarray(data.weekly["trx"][max(0, origin - BASELINE_WEEKS) : origin].mean(axis=0) * horizon)


def _lapsed(data: Snapshot, origin: int, horizon: int) -> Reals:
    return (_total("trx")(data, origin, horizon) <= 0.5 * expected_trx(data, origin, horizon)).astype(np.float64)


def _grew(data: Snapshot, origin: int, horizon: int) -> Reals:
    return (_total("trx")(data, origin, horizon) >= 1.5 * expected_trx(data, origin, horizon)).astype(np.float64)


def _writes_enough(data: Snapshot, origin: int, horizon: int) -> Mask:
    return np.asarray(expected_trx(data, origin, horizon) >= LEAST_TRX_AT_RISK)


TARGETS = MappingProxyType(
    {
        target.name: target
        for target in (
            Target(
                "conversion",
                "at least one converted patient within {weeks} weeks",
                "classification",
                "HCPs",
                _any("conversions"),
                r"convert\w*|conversions?",
                r"propensity|adoption|adopters?|adopting|adopt|uptake|lookalike|look alike|starts|starters?|starter|new starts?|first "
                r"scripts?|first rx|"
                r"first time writers?|prescribe|buyers?|wrote in|trialists?|leads|lead scoring|purchase intent|patient finder",
            ),
            Target(
                "lapse",
                "TRx of {weeks} weeks at half of the 13 weeks before, or less",
                "classification",
                "HCPs",
                _lapsed,
                r"churn\w*|lapse\w*|lapsing|attrition",
                r"switch(?! (?:the|to|over|from|on|off|it|back)\b)\w*|will leave|leaving|defect\w*|stop writing|stops? prescribing|win "
                r"back|winback|no longer write|dropouts?|drop off|"
                r"discontinu\w*|quit",
                _writes_enough,
            ),
            Target(
                "growth",
                "TRx of {weeks} weeks at 1.5 times the 13 weeks before, or more",
                "classification",
                "HCPs",
                _grew,
                r"growth|will grow|risers?",
                r"expand|expands|upgrade\w*",
                _writes_enough,
            ),
            Target(
                "nrx_demand",
                "NRx of the next {weeks} weeks",
                "regression",
                "NRx",
                _total("nrx"),
                r"nrx|new prescriptions",
                r"nbrx|new to brand",
            ),
            Target(
                "market_share", "market share over the next {weeks} weeks", "regression", "share", _share, r"market share|share of market"
            ),
            Target(
                "speaker_attendance",
                "at least one speaker event within {weeks} weeks",
                "classification",
                "HCPs",
                _any("speaker_events"),
                r"speaker|speakers|dinner|dinners",
                r"event attend\w*|webinar attend\w*",
            ),
            Target(
                "sample_demand",
                "samples of the next {weeks} weeks",
                "regression",
                "samples",
                _clean_samples,
                r"samples? (?:demand|requests?)",
            ),
            Target(
                "trx_demand",
                "TRx of the next {weeks} weeks",
                "regression",
                "TRx",
                _total("trx"),
                r"demand|trx|time series|forecast\w*",
                r"sales(?! (?:ops|force|team|reps?)\b)|prescriptions|scripts|volume|potential",
            ),
        )
    }
)
"""In the order in which words are tried: a target's own words first, then the words that it stands in for."""


def label_of(target: Target, weeks: int) -> str:
    """Return the target in words, for a horizon of weeks."""
    return target.label.format(weeks=weeks)


def find_target(text: str) -> tuple[Target, str, bool] | None:
    """Return the target that a normal text names first, the word that named it, and whether it is the target itself."""
    for exact in (True, False):
        hits = [
            (found.start(), -len(found[0]), found[0], target)
            for target in TARGETS.values()
            if (words := target.words if exact else target.near_words) and (found := re.search(rf"\b(?:{words})\b", text))
        ]
        if hits:
            _, _, word, target = min(hits, key=lambda hit: hit[:2])
            return target, word, exact
    return None
