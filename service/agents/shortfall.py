"""Gaps below the region: of single HCPs, and of specialties or settings; and HCPs with many patients whom few calls reach."""

from dataclasses import dataclass

import numpy as np

from service.agents.attainment import BANDS, Cell
from service.agents.chart import Row
from service.agents.resampling import draw_weights, interval, sum_by_group
from service.agents.sample_data import Mask, Reals, Snapshot

MOST_HCPS = 20
ONE_SIDED = 1.645


@dataclass(frozen=True, slots=True, eq=False)
class Shortfall:
    """Observed and attainable TRx a week of every HCP; attainable is its own market at the benchmark's share of its decile band."""

    observed: Reals
    attainable: Reals
    weeks: int

    @property
    def sure_gap(self) -> Reals:
        """The gap less 1.645 Poisson errors of the observation, so that chance alone puts few HCPs above 0."""
        return self.attainable - self.observed - ONE_SIDED * np.sqrt(self.attainable / self.weeks)


def measure_hcps(data: Snapshot, benchmarks: list[Cell], start: int, stop: int) -> Shortfall:
    """Return the shortfall of every HCP of the brands that the benchmarks cover; the other HCPs have 0 attainable."""
    brand, region = data.labels("brand"), data.labels("region")
    band = np.digitize(data.column("decile"), [3.5, 7.5])
    observed = np.asarray(data.weekly["trx"][start:stop].mean(axis=0))
    market = np.asarray(data.weekly["market_trx"][start:stop].mean(axis=0))
    attainable = np.zeros(len(brand))
    for name in {cell.brand for cell in benchmarks}:
        best = (brand == name) & np.isin(region, [cell.region for cell in benchmarks if cell.brand == name])
        for code in range(len(BANDS)):
            inside = best & (band == code)
            share = observed[inside].sum() / max(market[inside].sum(), 1e-9)
            group = (brand == name) & (band == code)
            attainable[group] = market[group] * share
    return Shortfall(observed, attainable, stop - start)


def split_gap(data: Snapshot, shortfall: Shortfall, mask: Mask, column: str) -> list[Row]:
    """Return the gap of each group of a column within `mask`, the widest first.

    The intervals draw the HCPs of `mask` anew; the benchmark is held, so they are a little too narrow.
    """
    names, group = np.unique(data.labels(column)[mask], return_inverse=True)
    weights = draw_weights(int(mask.sum()))
    observed = sum_by_group(shortfall.observed[mask], group.astype(np.int64), len(names), weights)
    attainable = sum_by_group(shortfall.attainable[mask], group.astype(np.int64), len(names), weights)
    gaps = attainable - observed
    rows: list[Row] = []
    for at in np.argsort(-gaps[0]):
        low, high = interval(gaps[1:, at])
        parts = {"observed": observed[0, at], "attainable": attainable[0, at], "gap": gaps[0, at], "low": low, "high": high}
        rows.append({column: str(names[at]), **{key: round(float(value), 1) for key, value in parts.items()}})
    return rows


def widest_hcps(data: Snapshot, shortfall: Shortfall, mask: Mask) -> list[Row]:
    """Return the HCPs with the widest gaps that are wider than chance gives."""
    rows = np.flatnonzero(mask)
    order = rows[np.argsort(-shortfall.sure_gap[rows], kind="stable")][:MOST_HCPS]
    return [_row(data, at, shortfall) for at in order if shortfall.sure_gap[at] > 0.0]


def seldom_called(data: Snapshot, mask: Mask, start: int, stop: int) -> Mask:
    """Return the HCPs of `mask` in the upper third by candidate patients and in the lower third by calls, thirds taken over `mask`."""
    patients = data.weekly["candidates"][start:stop].sum(axis=0)
    calls = data.weekly["calls"][start:stop].sum(axis=0)
    many, few = np.quantile(patients[mask], 2 / 3), np.quantile(calls[mask], 1 / 3)
    return np.asarray(mask & (patients >= many) & (calls <= few))


def list_seldom_called(data: Snapshot, chosen: Mask, shortfall: Shortfall, start: int, stop: int) -> list[Row]:
    """Return the chosen HCPs with the most candidate patients."""
    patients = data.weekly["candidates"][start:stop].sum(axis=0)
    rows = np.flatnonzero(chosen)
    order = rows[np.argsort(-patients[rows], kind="stable")][:MOST_HCPS]
    calls = data.weekly["calls"][start:stop].sum(axis=0)
    return [{**_row(data, at, shortfall), "candidates": int(patients[at]), "calls": int(calls[at])} for at in order]


def _row(data: Snapshot, at: int, shortfall: Shortfall) -> dict[str, object]:
    columns = ("hcp_id", "brand", "region", "specialty", "setting", "decile")
    gap = shortfall.attainable[at] - shortfall.observed[at]
    parts = {"observed": shortfall.observed[at], "attainable": shortfall.attainable[at], "gap": gap}
    return {**{name: data.hcps[name].iloc[at] for name in columns}, **{key: round(float(value), 2) for key, value in parts.items()}}
