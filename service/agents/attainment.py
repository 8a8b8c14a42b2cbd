"""What each region would prescribe at the share of the best ones, HCPs of the same size compared with each other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.agents.resampling import draw_weights, interval, sum_by_group
from service.agents.sample_data import Mask, Reals, Snapshot

BANDS = ("decile 1-3", "decile 4-7", "decile 8-10")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Observed and attainable TRx a week of one group of HCPs; `gaps` has the gap of each bootstrap replicate."""

    brand: str
    region: str
    band: str | None
    observed: float
    attainable: float
    gaps: Reals
    is_benchmark: bool

    @property
    def gap(self) -> float:
        """Attainable less observed, TRx a week."""
        return self.attainable - self.observed

    @property
    def bounds(self) -> tuple[float, float]:
        """The gap's 95 % interval."""
        return interval(self.gaps)


def measure_brand(data: Snapshot, brand: str, start: int, stop: int) -> list[Cell]:
    """Return one cell a region, then one a region and decile band, for one brand over the weeks start to stop.

    The benchmark is the region with the highest share at the brand's mix of deciles, pooled with the regions that are not
    measurably below it. A region's attainable volume is its own market, band by band, at the benchmark's share.
    """
    mask: Mask = data.labels("brand") == brand
    names = tuple(sorted(set(data.labels("region")[mask].tolist())))
    group = _groups(data, mask, names)
    weights = draw_weights(int(mask.sum()))
    size = len(names) * len(BANDS)
    shape = (len(weights) + 1, len(names), len(BANDS))
    trx = sum_by_group(data.weekly["trx"][start:stop, mask].mean(axis=0), group, size, weights).reshape(shape)
    market = sum_by_group(data.weekly["market_trx"][start:stop, mask].mean(axis=0), group, size, weights).reshape(shape)
    benchmark = _benchmark(trx, market)
    share = trx[:, benchmark].sum(axis=1) / np.maximum(market[:, benchmark].sum(axis=1), 1e-9)
    attainable = market * share[:, None, :]
    cells = [
        _cell(brand, name, None, trx[:, row].sum(axis=1), attainable[:, row].sum(axis=1), bool(benchmark[row]))
        for row, name in enumerate(names)
    ]
    for row, name in enumerate(names):
        cells += [_cell(brand, name, band, trx[:, row, at], attainable[:, row, at], bool(benchmark[row])) for at, band in enumerate(BANDS)]
    return cells


def _cell(brand: str, region: str, band: str | None, observed: Reals, attainable: Reals, is_benchmark: bool) -> Cell:
    return Cell(brand, region, band, float(observed[0]), float(attainable[0]), (attainable - observed)[1:], is_benchmark)


def _groups(data: Snapshot, mask: Mask, names: tuple[str, ...]) -> NDArray[np.int64]:
    region = np.searchsorted(np.array(names), data.labels("region")[mask])
    band = np.digitize(data.column("decile")[mask], [3.5, 7.5])
    return (region * len(BANDS) + band).astype(np.int64)


def _benchmark(trx: Reals, market: Reals) -> NDArray[np.bool_]:
    share = trx / np.maximum(market, 1e-9)
    mix = market.sum(axis=1, keepdims=True) / market.sum(axis=(1, 2), keepdims=True)
    standard = (share * mix).sum(axis=2)
    best = int(np.argmax(standard[0]))
    short = standard[1:, [best]] - standard[1:]
    return np.asarray(np.percentile(short, 2.5, axis=0) <= 0.0)
