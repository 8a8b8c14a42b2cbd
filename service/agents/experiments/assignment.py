"""Who gets what: a reproducible random draw, stratified by decile band and region, or within matched pairs, and how alike the arms are.

It knows HCPs and regions, because these are what the data have; for other units it gives the strata that a draw needs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.agents.chart import Row
from service.agents.kpi import find_kpi
from service.agents.sample_data import Counts, Mask, Reals, Snapshot

SEED = 20_260
RECENT_WEEKS = 26
BANDS = ("decile 1-3", "decile 4-7", "decile 8-10")
BALANCED = 0.10
"""A standardised mean difference up to this counts as balanced (Austin 2009)."""
MOST_DRAWS = 200
COVARIATES = ("decile", "potential", "digital_affinity", "is_academic", "trx_before")


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """`rows` are rows of the HCPs that take part, `arm` their arm (0 is the control). `pairs` is empty but for a matched design."""

    rows: Counts
    arm: Counts
    strata: tuple[Row, ...]
    balance: tuple[Row, ...]
    pairs: tuple[Row, ...]
    digest: str

    @property
    def largest_difference(self) -> float:
        """The largest standardised mean difference between arms."""
        return max((abs(float(str(row["standardised_difference"]))) for row in self.balance), default=0.0)


def draw(data: Snapshot, mask: Mask, sizes: Sequence[int], names: Sequence[str]) -> Assignment:
    """Return a stratified draw of `sizes` HCPs an arm; together at most those in `mask`.

    HCPs are ordered by stratum and at random within it; each arm takes evenly spaced places, so each stratum gives each arm its
    share. A draw that leaves the arms unlike is repeated (rerandomisation, Morgan and Rubin 2012); the most alike of all is kept.
    """
    labels = strata_of(data, mask)
    rng = np.random.default_rng(SEED)
    rows, covariates = np.flatnonzero(mask), _covariates(data)
    total = min(sum(sizes), len(rows))
    arm = _spread_arms(sizes, total)
    best, least = rows[:total], np.inf
    for _ in range(MOST_DRAWS):
        order = rows[np.lexsort((rng.random(len(rows)), labels[rows]))]
        taken = order[np.floor((np.arange(total) + rng.random()) * len(rows) / max(total, 1)).astype(np.int64)]
        unlike = _largest_gap(covariates[taken], arm, len(names))
        if unlike < least:
            best, least = taken, unlike
        if least <= BALANCED:
            break
    return _finish(data, mask, best, arm, labels, names, ())


def draw_pairs(data: Snapshot, mask: Mask, pairs: int, names: Sequence[str]) -> Assignment:
    """Return `pairs` matched pairs at most, one of each drawn for the control.

    Within brand, region, setting and decile the HCPs next to each other in recent TRx form a pair; the pairs that are most alike
    are taken first.
    """
    rng = np.random.default_rng(SEED)
    rows = np.flatnonzero(mask)
    before = _recent_trx(data)
    keys = [data.labels("setting")[rows], data.labels("region")[rows], data.labels("brand")[rows], data.column("decile")[rows]]
    cell = np.unique(np.array([" ".join(map(str, one)) for one in zip(*keys, strict=True)]), return_inverse=True)[1]
    order = np.lexsort((before[rows], cell))
    found: list[tuple[int, int]] = []
    for one in range(int(cell.max(initial=-1)) + 1):
        members = rows[order[cell[order] == one]]
        found += [(int(members[at]), int(members[at + 1])) for at in range(0, len(members) - 1, 2)]
    found.sort(key=lambda pair: (abs(before[pair[0]] - before[pair[1]]), pair))
    chosen = [pair if rng.random() < 0.5 else pair[::-1] for pair in found[:pairs]]
    taken = np.array([one for pair in chosen for one in pair], dtype=np.int64)
    ids = data.hcps["hcp_id"].to_numpy()
    written = tuple(
        {"pair": number, names[0]: str(ids[first]), names[1]: str(ids[second]), "trx_gap": float(abs(before[first] - before[second]))}
        for number, (first, second) in enumerate(chosen, start=1)
    )
    return _finish(data, mask, taken, np.tile([0, 1], len(chosen)).astype(np.int64), strata_of(data, mask), names, written)


def order_regions(regions: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in a drawn order; the seed makes it repeatable, so nobody picked it."""
    return tuple(str(one) for one in np.random.default_rng(SEED).permutation(sorted(regions)))


def pair_regions(data: Snapshot, mask: Mask, regions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of the regions that are most alike in recent TRx, decile and setting, the control drawn; a rest is left out."""
    left = sorted(regions)
    covariates = _covariates(data)
    spread = np.maximum(covariates[mask].std(axis=0), 1e-9)
    mean = {one: covariates[mask & (data.labels("region") == one)].mean(axis=0) / spread for one in left}
    rng, pairs = np.random.default_rng(SEED), []
    while len(left) > 1:
        candidates = [(float(((mean[a] - mean[b]) ** 2).sum()), a, b) for i, a in enumerate(left) for b in left[i + 1 :]]
        _, first, second = min(candidates)
        left = [one for one in left if one not in {first, second}]
        pairs.append((first, second) if rng.random() < 0.5 else (second, first))
    return tuple(pairs)


def strata_of(data: Snapshot, mask: Mask) -> NDArray[np.str_]:
    """Return each HCP's stratum: region and decile band, and the brand where there are several."""
    band = np.array(BANDS)[np.digitize(data.column("decile"), [3.5, 7.5])]
    region, brand = data.labels("region"), data.labels("brand")
    several = len(set(brand[mask].tolist())) > 1
    parts = [np.char.add(np.char.add(region, ", "), band)]
    return np.char.add(np.char.add(brand, ", "), parts[0]) if several else parts[0]


def _spread_arms(sizes: Sequence[int], total: int) -> Counts:
    """Return arms in an order in which each is as evenly spaced as its size allows."""
    wanted = np.array(sizes, dtype=np.float64)
    counts = np.floor(wanted * total / max(wanted.sum(), 1.0)).astype(np.int64)
    counts[: total - int(counts.sum())] += 1
    places = np.concatenate([(np.arange(size) + 0.5 + 0.01 * arm) / size for arm, size in enumerate(counts) if size])
    arms = np.concatenate([np.full(size, arm) for arm, size in enumerate(counts)])
    return np.asarray(arms[np.argsort(places, kind="stable")], dtype=np.int64)


def _finish(
    data: Snapshot, mask: Mask, taken: Counts, arm: Counts, labels: NDArray[np.str_], names: Sequence[str], pairs: tuple[Row, ...]
) -> Assignment:
    strata: list[Row] = []
    for name in sorted(set(labels[mask].tolist())):
        inside = labels[taken] == name
        counts = {arm_name: int((arm[inside] == at).sum()) for at, arm_name in enumerate(names)}
        strata.append({"stratum": name, "eligible": int((mask & (labels == name)).sum()), **counts})
    ids = data.hcps["hcp_id"].to_numpy()
    listed = "\n".join(f"{ids[row]} {names[at]}" for row, at in sorted(zip(taken.tolist(), arm.tolist(), strict=True)))
    return Assignment(taken, arm, tuple(strata), _balance(data, taken, arm, names), pairs, hashlib.sha256(listed.encode()).hexdigest())


def _balance(data: Snapshot, taken: Counts, arm: Counts, names: Sequence[str]) -> tuple[Row, ...]:
    covariates = _covariates(data)[taken]
    return tuple(
        {"arm": names[other], "covariate": name, "standardised_difference": float(one)}
        for other in range(1, len(names))
        for name, one in zip(COVARIATES, _gaps(covariates, arm, other), strict=True)
    )


def _largest_gap(covariates: Reals, arm: Counts, arms: int) -> float:
    return max(float(np.abs(_gaps(covariates, arm, other)).max()) for other in range(1, arms))


def _gaps(covariates: Reals, arm: Counts, other: int) -> Reals:
    """Return the standardised mean differences of one arm to the control; 0 where an arm has fewer than two HCPs."""
    first, second = covariates[arm == 0], covariates[arm == other]
    if min(len(first), len(second)) < 2:
        return np.zeros(covariates.shape[1])
    pooled = np.sqrt((first.var(axis=0, ddof=1) + second.var(axis=0, ddof=1)) / 2.0)
    return np.asarray((second.mean(axis=0) - first.mean(axis=0)) / np.maximum(pooled, 1e-9))


def _covariates(data: Snapshot) -> Reals:
    academic = (data.labels("setting") == "academic").astype(np.float64)
    columns = [*(data.column(name) for name in COVARIATES[:3]), academic, _recent_trx(data)]
    return np.column_stack(columns)


def _recent_trx(data: Snapshot) -> Reals:
    kpi = find_kpi("trx")
    return kpi.per_hcp(data, data.weeks - RECENT_WEEKS, data.weeks) if kpi else np.zeros(len(data.hcps))
