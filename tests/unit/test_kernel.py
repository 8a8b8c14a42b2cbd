"""The fit's algebra against the slow way: solving again without the rows that are held out."""

import numpy as np
import pytest
from scipy import sparse

from optimizers.kernel import Problem, Settings, choose_landmarks
from service.routing.student import likeness

SETTINGS = Settings(lexical_weight=0.5, noise=0.3)


def data(rows: int, seed: int = 1) -> tuple[np.ndarray, sparse.csr_matrix, np.ndarray]:
    """Return unit vectors, lexical features and indicators of three labels."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(rows, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lexical = sparse.random(rows, 30, 0.2, "csr", dtype=np.float32, random_state=seed)
    return vectors, lexical, np.eye(3, dtype=np.float32)[generator.integers(0, 3, rows)]


def kernel(vectors: np.ndarray, lexical: sparse.csr_matrix) -> np.ndarray:
    """Return the kernel matrix, written down plainly."""
    return likeness(vectors, vectors) + 0.5 * (lexical @ lexical.T).toarray()


def served(targets: np.ndarray, vectors: np.ndarray, landmarks: np.ndarray, lexical: sparse.csr_matrix) -> np.ndarray:
    """Return the scores of the rows by the weights that are served."""
    solution = Problem(vectors, landmarks, lexical).solve(SETTINGS, targets)
    return likeness(vectors, vectors[landmarks]) @ solution.by_landmark + lexical @ solution.by_gram


def test_with_every_row_a_landmark_the_fit_is_exact() -> None:
    """K (K + noise)⁻¹ Y."""
    vectors, lexical, targets = data(40)
    every = np.arange(40)

    scores = served(targets, vectors, every, lexical)

    plain = kernel(vectors, lexical)
    np.testing.assert_allclose(scores, plain @ np.linalg.solve(plain + 0.3 * np.eye(40), targets), atol=1e-4)


@pytest.mark.parametrize("fold", [[3], [0, 5, 17, 39]], ids=["one row", "a group"])
def test_held_out_scores_are_those_of_a_fit_without_the_fold(fold: list[int]) -> None:
    """The closed form is the slow way."""
    vectors, lexical, targets = data(40)
    problem = Problem(vectors, np.arange(40), lexical)

    scores = problem.held_out(problem.solve(SETTINGS, targets), [np.array(fold)])[fold]

    rest = np.setdiff1d(np.arange(40), fold)
    plain = kernel(vectors, lexical)
    slow = plain[np.ix_(fold, rest)] @ np.linalg.solve(plain[np.ix_(rest, rest)] + 0.3 * np.eye(len(rest)), targets[rest])
    np.testing.assert_allclose(scores, slow, atol=1e-4)


def test_a_solution_without_a_fold_is_that_of_a_fit_without_it() -> None:
    """Scores of rows that neither fit has seen."""
    vectors, lexical, targets = data(44)
    known, rest, new = np.arange(40), np.arange(10, 40), np.arange(40, 44)
    problem = Problem(vectors[known], known, lexical[known])
    smaller = Problem(vectors[rest], np.arange(30), lexical[rest])

    taken_out, never_there = problem.without(problem.solve(SETTINGS, targets[known]), np.arange(10)), smaller.solve(SETTINGS, targets[rest])

    scores = likeness(vectors[new], vectors[known]) @ taken_out.by_landmark + lexical[new] @ taken_out.by_gram
    expected = likeness(vectors[new], vectors[rest]) @ never_there.by_landmark + lexical[new] @ never_there.by_gram
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_other_targets_are_fitted_with_the_factor_of_the_first() -> None:
    """As if they had been there from the start, and with a held-out score of their own."""
    vectors, lexical, targets = data(40)
    problem, others = Problem(vectors, np.arange(40), lexical), np.roll(targets, 1, axis=1)

    again = problem.solve_again(problem.solve(SETTINGS, targets).factor, others)

    fresh = problem.solve(SETTINGS, others)
    np.testing.assert_array_equal(again.by_landmark, fresh.by_landmark)
    np.testing.assert_array_equal(problem.held_out(again, [np.arange(5)]), problem.held_out(fresh, [np.arange(5)]))


def test_some_landmarks_stand_for_the_rest() -> None:
    """Half of the rows as landmarks score all rows nearly as all would."""
    vectors, lexical, targets = data(300)
    every, some = np.arange(300), choose_landmarks(vectors, 150, 1)

    exact = served(targets, vectors, every, lexical)
    close = served(targets, vectors, some, lexical)

    assert len(some) == 150
    assert np.corrcoef(exact.ravel(), close.ravel())[0, 1] > 0.9


def test_landmarks_are_distinct_rows_in_order() -> None:
    """The same ones for the same seed; all rows when they are few."""
    vectors, _, _ = data(200)

    chosen = choose_landmarks(vectors, 20, 1)

    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert chosen.tolist() == choose_landmarks(vectors, 20, 1).tolist()
    assert choose_landmarks(vectors, 200, 1).tolist() == list(range(200))


def test_repeated_rows_can_be_landmarks() -> None:
    """A singular kernel between landmarks is no obstacle."""
    vectors, lexical, targets = data(60)
    vectors[:30] = vectors[0]
    landmarks = np.arange(0, 60, 2)

    scores = served(targets, vectors, landmarks, lexical)

    assert np.isfinite(scores).all()
