"""Groups texts by meaning: average linkage of sentence vectors, cut at a cosine distance. Pure; knows vectors only.

On mixtures of one to six intents of CLINC150 and BANKING77, 6 to 100 texts each and a tenth of strays, this cut finds the intents better
than HDBSCAN, which leaves a quarter of the texts out, and than k-means with the best silhouette, which splits what is one. Unlike Ward's
its distances do not grow with the number of texts, so that one threshold fits small and large groups; no number of groups is chosen and
nothing is drawn by chance. It needs all distances, so of many texts some are grouped and the others join the nearest group.
"""

import numpy as np
import numpy.typing as npt
from sklearn.cluster import AgglomerativeClustering

APART = 0.5  # cosine distance at which groups are different ones, of the packaged encoder's vectors
MOST_LINKED = 2_000  # texts; their distances take 32 MB
LEAST_TEXTS = 5  # of a group that is shown by itself
WORTH_GROUPING = 4 * LEAST_TEXTS
REST = -1

Matrix = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


def group(vectors: Matrix) -> Numbers:
    """Return the group of each row, shape (n,): 0 is the largest; groups too small to be shown by themselves are together `REST`.

    Args:
        vectors: unit vectors, shape (n, d).
    """
    if len(vectors) < WORTH_GROUPING:
        return np.zeros(len(vectors), np.int64)
    linked = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), MOST_LINKED)).astype(np.int64))
    linkage = AgglomerativeClustering(None, metric="cosine", linkage="average", distance_threshold=APART)
    found = linkage.fit_predict(vectors[linked].astype(np.float64))
    sizes = np.bincount(found)
    large = np.flatnonzero(sizes >= LEAST_TEXTS)
    large = large[np.argsort(-sizes[large], kind="stable")]
    groups = np.full(len(vectors), REST, np.int64)
    if not len(large):
        return groups
    number = np.full(len(sizes), REST, np.int64)
    number[large] = np.arange(len(large))
    groups[linked] = number[found]
    others = np.setdiff1d(np.arange(len(vectors)), linked)
    if len(others):
        centres = np.stack([centre(vectors[linked[found == one]]) for one in large])
        likeness = vectors[others] @ centres.T
        near = likeness.max(axis=1) >= 1.0 - APART
        groups[others[near]] = likeness[near].argmax(axis=1)
    return groups


def centre(vectors: Matrix) -> Matrix:
    """Return the unit vector in the middle of some."""
    middle: Matrix = vectors.sum(axis=0, dtype=np.float32)
    return middle / max(float(np.linalg.norm(middle)), 1e-12)


def nearest(vectors: Matrix) -> Numbers:
    """Return the rows in order of their likeness to the middle of all, the most typical first."""
    return np.argsort(-(vectors @ centre(vectors)), kind="stable")
