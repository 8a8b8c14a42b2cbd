"""Bootstrap over HCPs: the unit that repeats is the HCP, so whole HCPs are drawn, never single weeks."""

import numpy as np
from numpy.typing import NDArray

from service.agents.sample_data import Reals

SEED = 11
REPLICATES = 300


def draw_weights(count: int, replicates: int = REPLICATES) -> Reals:
    """Return an array of replicates by HCPs: how often each HCP is drawn. The same numbers come back each time."""
    rng = np.random.default_rng(SEED)
    return rng.multinomial(count, np.full(count, 1.0 / count), size=replicates).astype(np.float64)


def sum_by_group(values: Reals, group: NDArray[np.int64], groups: int, weights: Reals) -> Reals:
    """Return the sums of `values` by group: row 0 of the data themselves, the further rows of the replicates in `weights`."""
    spread = np.zeros((len(values), groups))
    spread[np.arange(len(values)), group] = values
    return np.vstack([spread.sum(axis=0), weights @ spread])


def interval(replicates: Reals) -> tuple[float, float]:
    """Return the 95 % percentile interval."""
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def share_true(hits: NDArray[np.bool_]) -> float:
    """Return the share of replicates in which something holds, drawn in from 0 and 1 by one pseudo-observation each."""
    return float((hits.sum() + 1.0) / (hits.size + 2.0))
