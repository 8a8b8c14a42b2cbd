"""The dimensions along which the data can be cut into subgroups, each from what was known before the programmes began.

Thirds are taken within the brand, as deciles are, so that a group's mix of brands is that of all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from service.agents.sample_data import Reals, Snapshot
from service.agents.subgroups.model import PRE_PERIOD_WEEKS

Labels = NDArray[np.str_]
"""One group name an HCP, empty where it cannot be told."""

THIRDS = ("low", "middle", "high")
BANDS = ("decile 1-3", "decile 4-7", "decile 8-10")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One way to cut. `nested` dimensions lie within a brand (a specialty prescribes one brand), so groups compare within brands."""

    name: str
    label: str
    cut: Callable[[Snapshot], Labels]
    nested: bool = False


def _column(name: str) -> Callable[[Snapshot], Labels]:
    return lambda data: data.labels(name)


def _third_of(values: Reals, brand: Labels, what: str) -> Labels:
    rank = pd.Series(values).groupby(brand).rank(pct=True, method="first").to_numpy()
    names = np.array([f"{third} {what}" for third in THIRDS])
    third = np.clip(np.ceil(np.nan_to_num(rank, nan=1.0) * 3.0) - 1, 0, 2).astype(np.int64)
    return np.where(np.isfinite(rank), names[third], "")


def _third(column: str, what: str) -> Callable[[Snapshot], Labels]:
    return lambda data: _third_of(data.column(column), data.labels("brand"), what)


def _bands(data: Snapshot) -> Labels:
    return np.array(BANDS)[np.digitize(data.column("decile"), [3.5, 7.5])]


def _single_deciles(data: Snapshot) -> Labels:
    return np.array([f"decile {int(one)}" for one in data.column("decile")])


def _prior_writing(data: Snapshot) -> Labels:
    before = slice(data.programme_start - PRE_PERIOD_WEEKS, data.programme_start)
    return _third_of(data.weekly["trx"][before].mean(axis=0), data.labels("brand"), "prior writing")


def _prior_share(data: Snapshot) -> Labels:
    before = slice(data.programme_start - PRE_PERIOD_WEEKS, data.programme_start)
    share = data.weekly["trx"][before].sum(axis=0) / np.maximum(data.weekly["market_trx"][before].sum(axis=0), 1)
    return _third_of(share, data.labels("brand"), "prior brand share")


DIMENSIONS = {
    one.name: one
    for one in (
        Dimension("setting", "practice setting", _column("setting")),
        Dimension("region", "region", _column("region")),
        Dimension("decile", "decile band", _bands),
        Dimension("specialty", "specialty", _column("specialty"), nested=True),
        Dimension("digital_affinity", "digital affinity", _third("digital_affinity", "digital affinity")),
        Dimension("panel_size", "panel size", _third("panel_size", "panel size")),
        Dimension("potential", "market potential", _third("potential", "market potential")),
        Dimension("prior_writing", "prior writing of the brand", _prior_writing),
        Dimension("prior_share", "prior share of the brand", _prior_share),
        Dimension("brand", "brand", _column("brand")),
    )
}
"""By name. Prior means the 52 weeks before the programmes began."""

SINGLE_DECILES = Dimension("decile", "decile", _single_deciles)
"""Taken where deciles are asked for one by one and there are HCPs enough in each."""


def group_order(names: set[str]) -> list[str]:
    """Return group names in their natural order: thirds from low to high, deciles by number, else by the alphabet."""

    def place(name: str) -> tuple[int, int, str]:
        first, _, rest = name.partition(" ")
        if first in THIRDS:
            return THIRDS.index(first), 0, name
        number = rest.partition("-")[0]
        return 0, int(number) if first == "decile" and number.isdigit() else 0, name

    return sorted(names - {""}, key=place)
