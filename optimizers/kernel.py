"""The student's linear algebra: Gaussian-process regression on class indicators, in closed form.

Regression on indicators is least-squares classification (Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, ch. 6.5;
Rifkin and Klautau 2004 find it as accurate as support vector machines). The kernel is exp(WIDTH · (x·z - 1)) on unit vectors, an RBF,
plus `lexical_weight` times the dot product of TF-IDF vectors. Where not every row can be a landmark it goes through the Nyström method with
landmarks from k-means (Zhang, Tsang and Kwok 2008), so that what is served does not grow with the data.

It knows matrices only: no texts, no labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import spotri
from sklearn.cluster import KMeans

from service.routing.student import likeness

Matrix = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

KMEANS_ROUNDS = 5
_CHUNK = 1_024
_JITTER = 1e-4  # keeps the landmarks' kernel positive definite


@dataclass(frozen=True, slots=True)
class Settings:
    """The kernel and the noise of one fit.

    Attributes:
        lexical_weight: how much the words count against the sentence vector.
        noise: variance of the noise in the targets; the ridge penalty.
    """

    lexical_weight: float
    noise: float


def choose_landmarks(vectors: Matrix, most: int, seed: int) -> Indices:
    """Return at most `most` rows that cover the data: all of them, all that differ, or the row nearest to each k-means centre."""
    if len(vectors) <= most:
        return np.arange(len(vectors))
    different = np.sort(np.unique(vectors, axis=0, return_index=True)[1])
    if len(different) <= most:
        return different
    means = KMeans(most, init="random", n_init=1, max_iter=KMEANS_ROUNDS, random_state=seed).fit(vectors[different])
    distance = ((vectors[different] - means.cluster_centers_[means.labels_]) ** 2).sum(axis=1)
    nearest_first = np.lexsort((distance, means.labels_))
    _, first = np.unique(means.labels_[nearest_first], return_index=True)
    return np.sort(different[nearest_first[first]])


def leading_directions(vectors: Matrix, most: int) -> Matrix:
    """Return the at most `most` directions that keep the most of the vectors' inner products, as columns (Eckart and Young 1936)."""
    _, directions = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))
    leading: Matrix = directions[:, ::-1][:, : min(most, len(vectors))].astype(np.float32)
    return leading


class Problem:
    """The rows of a fit. Solves for any settings and targets.

    Args:
        vectors: projected unit vectors of the rows, shape (n, r).
        landmarks: rows that stand for the others in what is served; all of them when they are few.
        lexical: TF-IDF of the rows, shape (n, p).
    """

    def __init__(self, vectors: Matrix, landmarks: Indices, lexical: sparse.csr_matrix) -> None:
        self._lexical = lexical
        self._likeness = likeness(vectors, vectors[landmarks])
        self._whitener: npt.NDArray[np.float64] | None = None
        if len(landmarks) < len(vectors):  # Nyström: K ≈ K_nm K_mm⁻¹ K_mn, so features K_nm L⁻ᵀ with K_mm = L Lᵀ
            self._whitener = cholesky(self._likeness[landmarks] + _JITTER * np.eye(len(landmarks)), lower=True, check_finite=False)
            self._likeness = solve_triangular(self._whitener, self._likeness.T, lower=True, check_finite=False).T.astype(np.float32)

    def solve(self, settings: Settings, targets: Matrix) -> "Solution":
        """Fit with these settings, by a Cholesky factorization: time n³/3, memory 4 n² bytes and as much again to hold rows out.

        Args:
            settings: the kernel's.
            targets: class indicators or the probability of each class, shape (n, labels).
        """
        kernel = self._likeness.copy() if self._whitener is None else self._likeness @ self._likeness.T
        for start in range(0, len(kernel), _CHUNK):  # the whole product of the words at once would take twice the kernel's memory
            words = self._lexical[start : start + _CHUNK] @ self._lexical.T
            kernel[start : start + _CHUNK] += np.float32(settings.lexical_weight) * words.toarray()
        kernel[np.diag_indices(len(kernel))] += np.float32(settings.noise)
        # .T is LAPACK's order of memory, so that nothing is copied
        factor = Factor(cholesky(kernel.T, lower=True, overwrite_a=True, check_finite=False), settings.lexical_weight)
        return self.solve_again(factor, targets)

    def solve_again(self, factor: "Factor", targets: Matrix) -> "Solution":
        """Fit other targets on the same rows with the same settings: a solution's factor serves for all of them."""
        return self._served(factor, targets, cho_solve((factor.lower, True), targets, check_finite=False))

    def _served(self, factor: "Factor", targets: Matrix, duals: Matrix) -> "Solution":
        by_landmark = duals
        if self._whitener is not None:
            moments = self._likeness.T @ duals
            by_landmark = solve_triangular(self._whitener, moments, lower=True, trans="T", check_finite=False).astype(np.float32)
        return Solution(factor, targets, duals, by_landmark, np.float32(factor.lexical_weight) * (self._lexical.T @ duals))

    def without(self, solution: "Solution", fold: Indices) -> "Solution":
        """Return the solution as it would be if the fold's rows had not been there (but for the choice of landmarks and grams).

        By the block inverse: the duals of the other rows lose what the fold's duals explain of them.
        """
        inverse = solution.factor.inverse
        duals = solution.duals - inverse[:, fold] @ np.linalg.solve(inverse[np.ix_(fold, fold)], solution.duals[fold])
        duals[fold] = 0.0
        return self._served(solution.factor, solution.targets, duals)

    def held_out(self, solution: "Solution", folds: Sequence[Indices]) -> Matrix:
        """Return what each fold's rows would score if the fit had not seen that fold, shape (n, labels).

        Exact, without another fit: the held-out residual of a fold is the inverse of its block of the inverse kernel, times its duals
        (Rasmussen and Williams 2006, ch. 5.4.2, for one row). Only the choice of landmarks and grams has seen the rows. Rows in no fold
        keep their targets.
        """
        inverse = solution.factor.inverse
        scores = solution.targets.copy()
        for rows in folds:
            block = inverse[np.ix_(rows, rows)] if len(rows) > 1 else inverse[rows, rows][:, None]
            scores[rows] -= np.linalg.solve(block, solution.duals[rows])
        return scores


@dataclass(frozen=True)
class Factor:
    """Kernel and noise, factorized: `lower` times its transpose, shape (n, n)."""

    lower: Matrix
    lexical_weight: float

    @cached_property
    def inverse(self) -> Matrix:
        """The inverse of kernel and noise, shape (n, n)."""
        inverse, info = spotri(self.lower, lower=True)
        if info != 0:
            raise ValueError(f"The kernel matrix is singular (LAPACK potri: {info}).")
        below = np.tril(inverse)
        whole: Matrix = below + np.tril(below, -1).T
        return whole


@dataclass(frozen=True, slots=True)
class Solution:
    """A fit. `by_landmark` (landmarks, labels) and `by_gram` (grams, labels) are what is served; the rest is for `Problem`."""

    factor: Factor
    targets: Matrix
    duals: Matrix
    by_landmark: Matrix
    by_gram: Matrix
