"""Past weekly spending by brand, region (or HCP tier) and channel, and the TRx that a geo experiment measured it to have added.

It is a data set of its own beside `sample_data`, with its own seed: nothing here changes a number there. In the first 52 weeks the
spending of each line was set at random; the last 13 weeks are spending as usual. Nothing here knows an agent.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import pandas as pd

from service.agents import truth
from service.agents.allocation import channel_truth as true

CHANNELS = true.CHANNELS
TIERS = true.TIERS
TIER_DECILES = true.TIER_DECILES
TIER_CHANNELS = ("calls", "emails", "speaker", "samples")
"""Paid search cannot be aimed at a tier."""
USUAL_WEEKS = true.USUAL_WEEKS
COLUMNS = ("week", "brand", "group", "channel", "spend", "incremental_trx", "standard_error")

UNIT_COST = MappingProxyType({"calls": 0.35, "emails": 0.012, "speaker": 12.0, "samples": 0.08, "paid_search": 0.004})
"""k$ for one visit of a rep (with salary, travel and material), e-mail, speaker event, box of samples, click."""
UNIT_NAME = MappingProxyType({"calls": "visits", "emails": "e-mails", "speaker": "events", "samples": "boxes", "paid_search": "clicks"})
VISITS_PER_REP = 25.0
"""Visits that a rep makes in a week."""
MARGIN = MappingProxyType({"Kisqali": 1.6, "Fabhalta": 2.4, "Remibrutinib": 1.0})
"""k$ of margin before promotion that one TRx brings."""


@dataclass(frozen=True, slots=True, eq=False)
class ChannelData:
    """Two tables with the columns COLUMNS, one row a week and line: `group` is a region in one, a tier in the other.

    `spend` is in k$ a week; `incremental_trx` is what the experiment measured the spending to have added in that week, with its
    `standard_error`.
    """

    by_region: pd.DataFrame
    by_tier: pd.DataFrame


@lru_cache(maxsize=1)
def load_channel_data() -> ChannelData:
    """Return the data set, generated once a process."""
    return generate_channel_data()


def generate_channel_data(*, seed: int = true.SEED) -> ChannelData:
    """Generate the data set; another seed gives another draw of the same curves."""
    return ChannelData(
        by_region=_draw(np.random.default_rng([seed, 0]), truth.REGIONS, CHANNELS),
        by_tier=_draw(np.random.default_rng([seed, 1]), TIERS, TIER_CHANNELS),
    )


def _draw(rng: np.random.Generator, groups: tuple[str, ...], channels: tuple[str, ...]) -> pd.DataFrame:
    frames = []
    for brand in truth.BRANDS:
        for at_group, group in enumerate(groups):
            for channel in channels:
                top, half, planned = _line(brand, at_group, channel, by_tier=groups == TIERS)
                wobble = np.exp(rng.normal(0.0, true.WEEKLY_WOBBLE, true.EXPERIMENT_WEEKS + USUAL_WEEKS))
                level = np.append(rng.choice(true.LEVELS, true.EXPERIMENT_WEEKS), np.ones(USUAL_WEEKS))
                spend = (planned * level * wobble).round(3)
                shape = true.SHAPE[channel]
                error = true.NOISE_SHARE * top + true.NOISE_FLOOR
                measured = top * spend**shape / (half**shape + spend**shape) + rng.normal(0.0, error, len(spend))
                values = (np.arange(len(spend)), brand, group, channel, spend, measured.round(3), round(error, 4))
                frames.append(pd.DataFrame(dict(zip(COLUMNS, values, strict=True))))
    return pd.concat(frames, ignore_index=True)


def _line(brand: str, at_group: int, channel: str, *, by_tier: bool) -> tuple[float, float, float]:
    """Return the top, the half and the planned spending of one line."""
    at = CHANNELS.index(channel)
    weight = true.TIER_TOP[at_group] if by_tier else true.REGION_WEIGHT[brand][at_group]
    half = true.TIER_HALF[at_group] if by_tier else true.REGION_WEIGHT[brand][at_group]
    share = true.TIER_SPEND[at_group] if by_tier else true.REGION_SPEND[brand][at_group]
    return true.TOP[brand][at] * weight, true.HALF[brand][at] * half, true.PLANNED_SPEND[brand][at] * share
