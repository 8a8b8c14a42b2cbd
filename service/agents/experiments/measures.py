"""What the sample data lend a plan: baseline, spread, what the pre-period explains, likeness within regions, season, build-up.

All values are of the last weeks of the data, each HCP one value: the weekly mean of a count, or the ratio of the sums.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import f as f_distribution

from service.agents.kpi import Kpi, find_kpi
from service.agents.sample_data import Mask, Reals, Snapshot

PRE_PERIOD_WEEKS = 26
LONGEST = 52


@dataclass(frozen=True, slots=True)
class Measures:
    """Planning values for a test of `weeks`. `explained` is the share of variance that brand and the pre-period take off."""

    weeks: int
    mean: float
    spread: float
    correlation: float
    explained: float
    icc: float
    icc_high: float
    size: int

    @property
    def residual(self) -> float:
        """The standard deviation that is left after adjusting for brand and pre-period."""
        return float(self.spread * np.sqrt(1.0 - self.explained))


def measure(data: Snapshot, mask: Mask, kpi: Kpi, weeks: int) -> Measures:
    """Return the planning values of one KPI; HCPs without a value (a ratio without denominator) are left out."""
    length = int(np.clip(weeks, 1, LONGEST))
    after = kpi.per_hcp(data, data.weeks - length, data.weeks)
    before = kpi.per_hcp(data, data.weeks - length - PRE_PERIOD_WEEKS, data.weeks - length)
    kept = mask & np.isfinite(after) & np.isfinite(before)
    brand, region = data.labels("brand")[kept], data.labels("region")[kept]
    outcome, earlier = after[kept], before[kept]
    brands = sorted(set(brand.tolist()))
    design = np.column_stack([*((brand == one).astype(np.float64) for one in brands), earlier])
    residual = outcome - design @ np.linalg.lstsq(design, outcome, rcond=None)[0]
    spread = float(outcome.std(ddof=1))
    group = np.unique([f"{one} {other}" for one, other in zip(brand, region, strict=True)], return_inverse=True)[1]
    icc, icc_high = _likeness(residual, group)
    return Measures(
        weeks=length,
        mean=float(outcome.mean()),
        spread=spread,
        correlation=float(np.corrcoef(outcome, earlier)[0, 1]),
        explained=float(np.clip(1.0 - residual.var() / max(outcome.var(), 1e-12), 0.0, 0.999)),
        icc=icc,
        icc_high=icc_high,
        size=len(outcome),
    )


def season_swing(data: Snapshot) -> float:
    """Return the yearly cycle of the market's volume as a part of its mean: half the way from trough to peak."""
    market = data.weekly["market_trx"].sum(axis=1).astype(np.float64)
    week = np.arange(len(market))
    angle = 2.0 * np.pi * week / 52.0
    design = np.column_stack([np.ones(len(week)), week, np.sin(angle), np.cos(angle)])
    weights = np.linalg.lstsq(design, np.log(np.maximum(market, 1.0)), rcond=None)[0]
    return float(np.hypot(weights[2], weights[3]))


def build_up(data: Snapshot, mask: Mask, weeks: int) -> tuple[float, float, float, float]:
    """Return the call programme's adjusted TRx effect in its first `weeks` and in the weeks after, each with its standard error."""
    kpi, start = find_kpi("trx"), data.programme_start
    split = start + int(np.clip(weeks, 1, data.weeks - start - 1))
    found: list[float] = []
    if kpi is None:
        return 0.0, 0.0, 0.0, 0.0
    for first, last in ((start, split), (split, data.weeks)):
        value, error = _adjusted_effect(data, mask, kpi.per_hcp(data, first, last), kpi.per_hcp(data, start - LONGEST, start))
        found += [value, error]
    return found[0], found[1], found[2], found[3]


def weekly_reach(data: Snapshot, mask: Mask) -> float:
    """Return the share of HCPs that get at least one e-mail in a week, over the last 26 weeks."""
    return float((data.weekly["emails"][-26:][:, mask] > 0).mean())


def _likeness(residual: Reals, group: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> tuple[float, float]:
    """Return the intra-class correlation by analysis of variance, and the upper end of its 95 % interval (Searle 1971); 0 at least."""
    sizes = np.bincount(group).astype(np.float64)
    groups, total = len(sizes), float(sizes.sum())
    if groups < 2 or total <= groups:
        return 0.0, 0.0
    means = np.bincount(group, weights=residual) / sizes
    between = float((sizes * (means - residual.mean()) ** 2).sum()) / (groups - 1)
    within = float(((residual - means[group]) ** 2).sum()) / (total - groups)
    size = (total - float((sizes**2).sum()) / total) / (groups - 1)
    ratio = between / max(within, 1e-12)
    low = float(f_distribution.ppf(0.025, groups - 1, total - groups))
    return max(0.0, (ratio - 1.0) / (ratio - 1.0 + size)), max(0.0, (ratio / low - 1.0) / (ratio / low - 1.0 + size))


def _adjusted_effect(data: Snapshot, mask: Mask, after: Reals, before: Reals) -> tuple[float, float]:
    brand, region = data.labels("brand"), data.labels("region")
    columns = [data.column("call_programme"), before, data.column("decile"), data.column("potential"), data.column("digital_affinity")]
    columns += [(brand == one).astype(np.float64) for one in sorted(set(brand[mask].tolist()))]
    columns += [(region == one).astype(np.float64) for one in sorted(set(region[mask].tolist()))[1:]]
    design = np.column_stack(columns)[mask]
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ design.T @ after[mask]
    residual = after[mask] - design @ weights
    variance = float((residual**2).sum()) / max(1, len(residual) - design.shape[1])
    return float(weights[0]), float(np.sqrt(variance * inverse[0, 0]))
