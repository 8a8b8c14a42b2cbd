"""Checks gaps with pandas group sums, and their intervals with a bootstrap of its own (whole HCPs, drawn by index)."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from service.agents.sample_data import Reals, Snapshot
from tests.golden_checks.question import calendar_window, check_period_is_absent, check_scope, check_unknown_name, said_period, words_of

BANDS = {"decile 1-3": (1, 3), "decile 4-7": (4, 7), "decile 8-10": (8, 10)}
MEASURES = ("trx", "nrx", "market_share", "conversion_rate", "calls", "emails", "samples")
DRAWS = 250
NOT_IN_DATA = {
    r"of plan|behind plan|quotas?": "plan",
    r"by state|which states|zips?": "state",
    r"on which plans|preferred status": "payer's plan",
    r"hub|support program": "hub",
    r"industry norm": "norm",
    r"rival": "rival",
}
USUAL_WEEKS = 26


def check(query: str, handoff: dict[str, Any], data: Snapshot) -> None:
    """Verify one answer; raise AssertionError where it does not fit the data."""
    if handoff["execution"]["status"] == "failed":
        _check_refusal(query, handoff["errors"], data)
        return
    found, result = handoff["result"]["primary_output"], handoff["result"]
    rows = check_scope(query, found["scope"], data)
    start, stop = _window(query, found, data)
    brands, regions = (sorted(data.hcps.loc[rows, name].unique()) for name in ("brand", "region"))
    benchmark = {brand: frozenset(row["region"] for row in found["benchmarks"] if row["brand"] == brand) for brand in brands}
    gaps = {brand: _measured(data, brand, start, stop, benchmark[brand]) for brand in brands}
    leading: dict[tuple[str, str], Any] = {}
    for row in found["ranked"]:
        own = gaps[row["brand"]].regions.loc[row["region"]]
        _check_row(row, own, gaps[row["brand"]].drawn_regions[row["region"]])
        leading[row["brand"], row["region"]] = gaps[row["brand"]].drawn_regions[row["region"]]
    expected = {(brand, region) for brand in brands for region in regions if region not in gaps[brand].benchmark}
    assert {(row["brand"], row["region"]) for row in found["ranked"]} == expected, "not every region below the benchmark is listed"
    assert [row["gap"] for row in found["ranked"]] == sorted((row["gap"] for row in found["ranked"]), reverse=True)
    assert [row["rank"] for row in found["ranked"]] == list(range(1, len(found["ranked"]) + 1))
    for row in found["segments"]:
        own = gaps[row["brand"]].cells.loc[(row["region"], row["segment"])]
        _check_row(row, own, gaps[row["brand"]].drawn_cells[row["region"], row["segment"]])
    observed = sum(gaps[brand].regions.loc[regions, "observed"].sum() for brand in brands)
    assert abs(found["observed"] - observed) <= 1e-4 * observed, f"{observed} are observed"
    _check_total(found, gaps, leading)
    _check_confidence(found, result, gaps, leading, regions)
    _check_sentences(found, result)
    _check_detail(query, found, rows, gaps, data, start, stop)


@dataclass(frozen=True, slots=True)
class _Draws:
    """What the regions and bands of bootstrap draws sold, and what the market was (draws × regions × bands)."""

    regions: list[str]
    bands: list[str]
    trx: Reals
    market: Reals

    def gaps(self, benchmark: frozenset[str]) -> Reals:
        """What each cell would sell at the benchmark's share of its band, less what it sells."""
        best = np.isin(self.regions, list(benchmark))
        share = self.trx[:, best].sum(axis=1) / self.market[:, best].sum(axis=1)
        return np.asarray(self.market * share[:, None, :] - self.trx)

    def standard_shares(self) -> Reals:
        """Each region's share at the brand's own mix of bands (draws × regions)."""
        mix = self.market.sum(axis=1) / self.market.sum(axis=(1, 2))[:, None]
        return np.asarray((self.trx / self.market * mix[:, None, :]).sum(axis=2))


def _draw(frame: pd.DataFrame) -> _Draws:
    """Draw as many HCPs as there are, with replacement, and add them up by region and band."""
    draw, size = np.random.default_rng(29), len(frame)
    times = np.array([np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(DRAWS)], np.float64)
    (region, regions), (band, bands) = (pd.factorize(frame[name], sort=True) for name in ("region", "band"))
    is_in = np.eye(len(regions) * len(bands))[region * len(bands) + band]
    trx, market = ((times * frame[name].to_numpy()) @ is_in for name in ("trx", "market_trx"))
    shape = (DRAWS, len(regions), len(bands))
    return _Draws(list(regions), list(bands), trx.reshape(shape), market.reshape(shape))


class _Brand:
    """One brand's regions and cells: observed and attainable TRx a week, and gaps of DRAWS bootstrap draws."""

    def __init__(self, data: Snapshot, brand: str, start: int, stop: int, benchmark: frozenset[str]) -> None:
        inside = (data.hcps["brand"] == brand).to_numpy()
        frame = data.hcps.loc[inside, ["region", "decile"]].copy()
        frame["band"] = [next(name for name, (low, high) in BANDS.items() if low <= decile <= high) for decile in frame["decile"]]
        for name in ("trx", "market_trx"):
            frame[name] = data.weekly[name][start:stop, inside].sum(axis=0) / (stop - start)
        self.benchmark = benchmark
        self.cells = self._measure(frame)
        self.regions = self.cells.groupby(level=0).sum()
        drawn = _draw(frame)
        names = pd.MultiIndex.from_product([drawn.regions, drawn.bands])
        self.drawn_cells = pd.DataFrame(drawn.gaps(benchmark).reshape(DRAWS, -1), columns=names)[self.cells.index]
        self.drawn_regions = self.drawn_cells.T.groupby(level=0).sum().T
        self._check_benchmark(frame, pd.DataFrame(drawn.standard_shares(), columns=drawn.regions))

    def _measure(self, frame: pd.DataFrame) -> pd.DataFrame:
        sums = frame.groupby(["region", "band"])[["trx", "market_trx"]].sum()
        best = sums[sums.index.get_level_values(0).isin(self.benchmark)].groupby(level=1).sum()
        share = (best["trx"] / best["market_trx"]).reindex(sums.index.get_level_values(1)).to_numpy()
        return pd.DataFrame({"observed": sums["trx"], "attainable": sums["market_trx"] * share})

    @staticmethod
    def _standard_share(frame: pd.DataFrame) -> pd.Series:
        """Each region's share at the brand's own mix of decile bands."""
        sums = frame.groupby(["region", "band"])[["trx", "market_trx"]].sum()
        mix = frame.groupby("band")["market_trx"].sum() / frame["market_trx"].sum()
        return (sums["trx"] / sums["market_trx"]).unstack().mul(mix, axis=1).sum(axis=1)

    def _check_benchmark(self, frame: pd.DataFrame, drawn: pd.DataFrame) -> None:
        """The best region belongs to the benchmark; another one does unless it is plainly below it."""
        share = self._standard_share(frame)
        best = share.idxmax()
        assert best in self.benchmark, f"{best} has the highest share and is no benchmark"
        for region in share.index:
            below = np.mean(drawn[best] > drawn[region])
            assert region not in self.benchmark or below <= 0.998 or region == best, f"{region} is below {best} and yet a benchmark"
            assert region in self.benchmark or below >= 0.93, f"{region} is not measurably below {best}"


@lru_cache(maxsize=32)
def _measured(data: Snapshot, brand: str, start: int, stop: int, benchmark: frozenset[str]) -> _Brand:
    return _Brand(data, brand, start, stop, benchmark)


def _check_refusal(query: str, errors: dict[str, Any], data: Snapshot) -> None:
    message = errors["error_message"]
    assert errors["error_type"] in {"unknown_entity", "missing_data"}, errors
    if "no week in" in message:
        check_period_is_absent(message, data)
        return
    check_unknown_name(query, message, data, MEASURES)


def _window(query: str, found: dict[str, Any], data: Snapshot) -> tuple[int, int]:
    stop = next(at for at, end in enumerate(data.week_ends, start=1) if end.isoformat() == found["last_week"])
    start = stop - found["weeks"]
    said = said_period(query)
    window = calendar_window(said, data) if said else None
    if window is not None:
        assert (start, stop) == window, f"the question names {said}, the answer is for the weeks {start} to {stop}"
    elif said is None:
        assert (start, stop) == (data.weeks - USUAL_WEEKS, data.weeks)
    return start, stop


def _check_row(row: dict[str, Any], own: pd.Series, drawn: pd.Series) -> None:
    gap = own["attainable"] - own["observed"]
    for name, value in (("observed", own["observed"]), ("attainable", own["attainable"]), ("gap", gap)):
        assert abs(row[name] - value) <= 0.11, f"{row['brand']} in the {row['region']}: {name} is {value}, not {row[name]}"
    assert abs(row["attainment"] - own["observed"] / own["attainable"]) <= 0.001
    _check_interval((row["low"], row["high"]), drawn)


def _check_interval(told: tuple[float, float], drawn: pd.Series) -> None:
    """Two bootstraps of a few hundred draws agree within a quarter of the interval's width."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    slack = 0.25 * (high - low) + 0.1
    assert abs(told[0] - low) <= slack, f"the interval is {low:.1f} to {high:.1f}, not {told}"
    assert abs(told[1] - high) <= slack, f"the interval is {low:.1f} to {high:.1f}, not {told}"


def _check_total(found: dict[str, Any], gaps: dict[str, _Brand], leading: dict[tuple[str, str], Any]) -> None:
    total = sum(
        float(gaps[brand].regions.loc[region, "attainable"] - gaps[brand].regions.loc[region, "observed"]) for brand, region in leading
    )
    assert abs(found["total_gap"] - total) <= 1e-4 * total + 1e-3, f"the gaps add up to {total}"
    if leading:
        _check_interval(tuple(found["total_gap_interval"]), sum(leading.values()))


def _check_confidence(
    found: dict[str, Any], result: dict[str, Any], gaps: dict[str, _Brand], leading: dict[tuple[str, str], Any], regions: list[str]
) -> None:
    """The share of draws in which the first gap is the widest; without a gap, in which the sum stays within 5 % of the volume."""
    if leading:
        drawn = pd.DataFrame({str(key): value for key, value in leading.items()})
        share = float(((drawn.idxmax(axis=1) == drawn.columns[0]) & (drawn.iloc[:, 0] > 0)).mean())
    else:
        drift = sum(one.drawn_regions[regions].sum(axis=1) for one in gaps.values())
        share = float((drift.abs() < 0.05 * found["observed"]).mean())
    expected = share * found.get("nearness", 1.0)
    assert abs(result["confidence"] - expected) <= 0.12, f"confidence {result['confidence']}, expected {expected}"


def _check_detail(
    query: str,
    found: dict[str, Any],
    rows: np.ndarray[Any, np.dtype[np.bool_]],
    gaps: dict[str, _Brand],
    data: Snapshot,
    start: int,
    stop: int,
) -> None:
    """Splits and lists of HCPs, from each HCP's own market at the benchmark's share of its band."""
    frame = data.hcps[["hcp_id", "brand", "region", "specialty", "setting", "decile"]].copy()
    for name in ("trx", "market_trx", "candidates", "calls"):
        frame[name] = data.weekly[name][start:stop].sum(axis=0)
    frame["band"] = pd.cut(frame["decile"], [0, 3, 7, 10], labels=list(BANDS)).astype(str)
    best = pd.concat([frame[(frame["brand"] == name) & frame["region"].isin(one.benchmark)] for name, one in gaps.items()])
    frame = frame[rows]
    sums = best.groupby(["brand", "band"])[["trx", "market_trx"]].sum()
    share = (sums["trx"] / sums["market_trx"]).reindex(pd.MultiIndex.from_frame(frame[["brand", "band"]])).to_numpy()
    weeks = stop - start
    frame["observed"], frame["attainable"] = frame["trx"] / weeks, frame["market_trx"] * share / weeks
    frame["gap"] = frame["attainable"] - frame["observed"]
    open_pairs = {(row["brand"], row["region"]) for row in found["ranked"]}
    below = frame[[pair in open_pairs for pair in zip(frame["brand"], frame["region"], strict=True)]]
    for column in ("specialty", "setting"):
        own = below.groupby(column)["gap"].sum()
        told = {row[column]: row["gap"] for row in found.get(f"by_{column}", [])}
        assert not told or set(told) == set(own.index)
        assert all(abs(gap - own[name]) <= 0.11 for name, gap in told.items()), f"by {column} the gaps are {own.to_dict()}"
    if found["specialties"]:
        frame = frame[frame["specialty"].isin(found["specialties"])]
        text = query.casefold()
        assert all(any(word.casefold()[:4] in text for word in name.split() if len(word) > 3) for name in found["specialties"])
    if "hcps" in found:
        frame["sure"] = frame["gap"] - 1.645 * np.sqrt(frame["attainable"] / weeks)
        _check_listed(found["hcps"], frame.sort_values("sure", ascending=False, kind="stable"), int((frame["sure"] > 0).sum()))
    if "seldom_called" in found:
        many = frame["candidates"] >= frame["candidates"].quantile(2 / 3)
        chosen = frame[many & (frame["calls"] <= frame["calls"].quantile(1 / 3))]
        assert found["seldom_called_count"] == len(chosen), f"{len(chosen)} HCPs have many patients and few calls"
        assert (
            found["seldom_called_by_region"]
            == chosen["region"].value_counts().reindex(sorted(frame["region"].unique()), fill_value=0).to_dict()
        )
        _check_listed(found["seldom_called"], chosen.sort_values("candidates", ascending=False, kind="stable"), len(chosen))
    for pattern, name in NOT_IN_DATA.items():
        if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", words_of(query)):
            assert found["nearness"] < 1.0, f"the data have no {name}"
    if re.search(r"(?<!\w)(?:specialt(?:y|ies))(?!\w)", words_of(query)) and found["ranked"]:
        assert "by_specialty" in found


def _check_listed(told: list[dict[str, Any]], own: pd.DataFrame, count: int) -> None:
    assert len(told) == min(20, count), f"{count} HCPs qualify, {len(told)} are listed"
    assert [row["hcp_id"] for row in told] == list(own["hcp_id"][: len(told)]), f"the first are {list(own['hcp_id'][:5])}"
    for row, (_, mine) in zip(told, own.iterrows(), strict=False):
        for name in ("observed", "attainable", "gap", *(one for one in ("candidates", "calls") if one in row)):
            assert abs(row[name] - mine[name]) <= 0.011, f"{row['hcp_id']}: {name} is {mine[name]}, not {row[name]}"
        assert (row["brand"], row["region"], row["decile"]) == (mine["brand"], mine["region"], mine["decile"])


def _check_sentences(found: dict[str, Any], result: dict[str, Any]) -> None:
    text = " ".join(result["evidence"]).replace(",", "")
    if not found["ranked"]:
        assert "measurably below" in text
        return
    first = found["ranked"][0]
    assert f"{first['brand']} in the {first['region']}" in text
    told = {int(one) for one in re.findall(r"(?<![\w.-])\d+(?![\w.])", text)}
    for number in (found["total_gap"], found["observed"], first["gap"], first["observed"]):
        assert {round(number), round(number - 0.01), round(number + 0.01), round(number - 0.06), round(number + 0.06)} & told, number
