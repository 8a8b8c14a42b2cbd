"""The change of a KPI between two periods, split exactly over groups. It knows no dispatch.

A count splits into the groups' own changes. A ratio splits into what each group's own ratio did (rate) and what its weight did
(mix), with midpoint weights, so that the parts add up to the change without a remainder.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.agents.attainment import BANDS
from service.agents.kpi import Kpi
from service.agents.resampling import draw_weights, interval, share_true, sum_by_group
from service.agents.sample_data import Mask, Reals, Snapshot

Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """One group's part of the change. `rate` and `mix` add up to `contribution`; a count has no mix."""

    group: str
    before: float
    after: float
    rate: float
    mix: float
    low: float
    high: float

    @property
    def contribution(self) -> float:
        """What the group adds to the change of the whole."""
        return self.rate + self.mix


@dataclass(frozen=True, slots=True)
class Change:
    """A KPI before and after, the interval of its change, and its parts, the strongest in the direction of the change first."""

    dimension: str
    before: float
    after: float
    low: float
    high: float
    parts: tuple[Part, ...]
    leader_certainty: float

    @property
    def total(self) -> float:
        """After less before."""
        return self.after - self.before


def decompose(data: Snapshot, mask: Mask, kpi: Kpi, before: Window, after: Window, dimension: str) -> Change:
    """Split the KPI's change over the groups of one dimension: `brand`, `region`, `specialty`, `setting` or `decile band`.

    Counts are weekly means. `leader_certainty` is the share of bootstrap replicates (HCPs drawn anew) with the same leading group.
    """
    names, group = _groups(data, mask, dimension)
    weights = draw_weights(int(mask.sum()))
    tops = [_sums(data, mask, kpi.numerator, window, group, len(names), weights) for window in (before, after)]
    if kpi.denominator is None:
        levels, rate, mix = tops, tops[1] - tops[0], np.zeros_like(tops[0])
        wholes = [top.sum(axis=1) for top in tops]
    else:
        bottoms = [np.maximum(_sums(data, mask, kpi.denominator, window, group, len(names), weights), 1e-9) for window in (before, after)]
        levels = [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]
        share = [bottom / bottom.sum(axis=1, keepdims=True) for bottom in bottoms]
        wholes = [top.sum(axis=1) / bottom.sum(axis=1) for top, bottom in zip(tops, bottoms, strict=True)]
        middle = (wholes[0] + wholes[1])[:, None] / 2.0
        rate = (share[0] + share[1]) / 2.0 * (levels[1] - levels[0])
        mix = (share[1] - share[0]) * ((levels[0] + levels[1]) / 2.0 - middle)
    change = wholes[1] - wholes[0]
    towards = (rate + mix) * np.sign(change[0] or 1.0)
    order = np.argsort(-towards[0])
    bounds = [interval((rate + mix)[1:, at]) for at in range(len(names))]
    parts = tuple(
        Part(names[at], float(levels[0][0, at]), float(levels[1][0, at]), float(rate[0, at]), float(mix[0, at]), *bounds[at])
        for at in order
    )
    low, high = interval(change[1:])
    certainty = share_true(np.argmax(towards[1:], axis=1) == order[0])
    return Change(dimension, float(wholes[0][0]), float(wholes[1][0]), low, high, parts, certainty)


def volume_and_share(data: Snapshot, mask: Mask, before: Window, after: Window) -> tuple[float, float]:
    """Split the change of weekly TRx exactly into what the market's volume did and what the brand's share of it did."""
    trx = [float(data.weekly["trx"][start:stop, mask].sum()) / (stop - start) for start, stop in (before, after)]
    market = [float(data.weekly["market_trx"][start:stop, mask].sum()) / (stop - start) for start, stop in (before, after)]
    share = [one / max(whole, 1e-9) for one, whole in zip(trx, market, strict=True)]
    return (market[1] - market[0]) * (share[0] + share[1]) / 2.0, (share[1] - share[0]) * (market[0] + market[1]) / 2.0


def _sums(data: Snapshot, mask: Mask, measure: str, window: Window, group: NDArray[np.int64], groups: int, weights: Reals) -> Reals:
    return sum_by_group(data.weekly[measure][window[0] : window[1], mask].mean(axis=0), group, groups, weights)


def _groups(data: Snapshot, mask: Mask, dimension: str) -> tuple[list[str], NDArray[np.int64]]:
    if dimension == "decile band":
        return list(BANDS), np.digitize(data.column("decile")[mask], [3.5, 7.5]).astype(np.int64)
    labels = data.labels(dimension)[mask]
    names, group = np.unique(labels, return_inverse=True)
    return [str(name) for name in names], group.astype(np.int64)
