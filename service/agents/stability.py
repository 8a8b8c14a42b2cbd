"""Two measures of how far a distribution moved: population stability index and Kolmogorov-Smirnov. It knows no data set."""

import numpy as np
from scipy.stats import ks_2samp

from service.agents.sample_data import Reals

PSI_BINS = 10
SMALLEST_SHARE = 1e-4
_BELOW_THE_VALUE = 1e-8


def bin_edges(baseline: Reals) -> Reals:
    """Return inner bin edges at the baseline's deciles; equal ones (many ties) are merged.

    Interpolation may miss a tied value by its last digit. So edges are compared after rounding, and lie just below their value.
    """
    deciles = np.quantile(baseline, np.linspace(0.0, 1.0, PSI_BINS + 1)[1:-1])
    return np.unique(np.round(deciles, 9)) - _BELOW_THE_VALUE


def psi(baseline: Reals, recent: Reals) -> float:
    """Return the population stability index: the sum over bins of (recent - baseline share) times ln(recent / baseline share)."""
    edges = bin_edges(baseline)
    shares = [np.bincount(np.digitize(values, edges), minlength=len(edges) + 1) / len(values) for values in (baseline, recent)]
    return float(psi_of_shares(shares[0], shares[1]))


def psi_of_shares(baseline: Reals, recent: Reals) -> Reals:
    """Return the index from the shares of the bins (last axis)."""
    old, new = np.maximum(baseline, SMALLEST_SHARE), np.maximum(recent, SMALLEST_SHARE)
    return np.asarray(((new - old) * np.log(new / old)).sum(axis=-1))


def ks(baseline: Reals, recent: Reals) -> tuple[float, float]:
    """Return the largest distance of the two empirical distributions and its p-value."""
    found = ks_2samp(baseline, recent, method="asymp")
    return float(found.statistic), float(found.pvalue)


def adjust_p_values(p_values: Reals) -> Reals:
    """Return p-values adjusted for their number by Benjamini and Hochberg (false discovery rate)."""
    count = len(p_values)
    order = np.argsort(p_values)
    scaled = p_values[order] * count / np.arange(1, count + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
