"""Calibration: probabilities that mean what they say, maps that keep the order, and little data that breaks nothing."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.calibration import fit_probabilities, fit_scope, temperature
from service.routing.calibration import Calibration, softmax

finite = st.floats(-5, 5)


def drawn(rows: int, labels: int, *, seed: int = 1, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, and labels drawn with the probabilities that these give."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(rows, labels)) * sharpness
    return logits, np.array([generator.choice(labels, p=p) for p in softmax(logits)])


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_the_temperature_undoes_a_wrong_scale(scale: float) -> None:
    """Scores that are too sure by a factor are cooled by that factor."""
    logits, targets = drawn(2_000, 3)

    assert temperature((logits * scale).astype(np.float32), np.eye(3, dtype=np.float32)[targets]) == pytest.approx(scale, rel=0.15)


DISTORTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hot": lambda x: x * 4,
    "flat": lambda x: np.sign(x) * np.abs(x) ** 0.5,
    "shifted": lambda x: x - 30,
}


@pytest.mark.parametrize("distort", DISTORTIONS.values(), ids=DISTORTIONS)
def test_the_best_label_is_right_as_often_as_its_probability_says(distort: Callable[[np.ndarray], np.ndarray]) -> None:
    """On rows that the calibration did not see, whatever the scores were done to."""
    logits, targets = drawn(8_000, 5)
    scores = distort(logits).astype(np.float32)

    calibration = fit_probabilities(scores[:4_000], targets[:4_000])

    probabilities = calibration.probabilities(scores[4_000:])
    top, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets[4_000:]
    for low, high in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        inside = (top >= low) & (top < high)
        assert inside.sum() > 100
        assert top[inside].mean() == pytest.approx(right[inside].mean(), abs=0.05)


@given(
    scores=st.lists(st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=3), min_size=1, max_size=5),
    numbers=st.tuples(st.floats(0.01, 10), st.floats(0, 5), st.floats(0, 5), finite),
)
def test_the_best_label_stays_the_best(scores: list[list[float]], numbers: tuple[float, float, float, float]) -> None:
    """Each row sums to one, and calibration never changes which label is best."""
    given_scores = np.array(scores, np.float32)

    probabilities = Calibration(*numbers).probabilities(given_scores)

    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (probabilities >= 0.0).all()
    rows, best = np.arange(len(scores)), softmax(given_scores.astype(np.float64) / numbers[0]).argmax(axis=1)
    np.testing.assert_array_less(probabilities.max(axis=1) - 1e-6, probabilities[rows, best])


@pytest.mark.parametrize("right", [True, False], ids=["all right", "all wrong"])
def test_rows_that_are_all_right_or_all_wrong_leave_the_temperature_alone(right: bool) -> None:
    """There is nothing to tell apart."""
    scores = np.array([[2.0, 0.0], [1.5, 0.0], [1.0, 0.2]], np.float32)

    made = fit_probabilities(scores, np.array([0, 0, 0] if right else [1, 1, 1]))

    assert made.usable
    assert (made.rise, made.fall, made.shift) == (1.0, 1.0, 0.0)


@given(seed=st.integers(0, 200), rows=st.integers(4, 30))
def test_few_rows_give_a_usable_calibration(seed: int, rows: int) -> None:
    """Whatever is drawn: finite numbers and maps that rise."""
    generator = np.random.default_rng(seed)

    made = fit_probabilities(generator.normal(size=(rows, 4)).astype(np.float32), generator.integers(0, 4, rows))

    assert made.usable


def test_out_of_scope_rows_decide_the_score_when_there_are_some() -> None:
    """Half way between the two kinds it is one half, whatever their numbers."""
    evidence = np.concatenate([np.linspace(0.8, 1.2, 900), np.linspace(0.2, 0.6, 50)]).astype(np.float32)

    made = fit_scope(Calibration(), evidence, np.arange(950) < 900)

    assert made.out_of_scope(np.array([1.0, 0.4])).tolist() == pytest.approx([0.0, 1.0], abs=0.05)
    assert made.out_of_scope(np.array([0.7]))[0] == pytest.approx(0.5, abs=0.1)


def test_without_out_of_scope_rows_one_half_accepts_95_percent() -> None:
    """The score is placed by the in-scope rows alone."""
    evidence = np.linspace(0.0, 1.0, 1_001).astype(np.float32)

    made = fit_scope(Calibration(), evidence, np.ones(1_001, bool))

    assert (made.out_of_scope(evidence) <= 0.5).mean() == pytest.approx(0.95, abs=0.002)
    assert made.out_of_scope(np.array([-9.0, 9.0])).tolist() == pytest.approx([1.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("mixed", [False, True], ids=["in scope only", "both"])
def test_evidence_that_says_nothing_gives_a_usable_score(mixed: bool) -> None:
    """The same evidence everywhere, or evidence that points the wrong way."""
    same = fit_scope(Calibration(), np.full(9, 0.5, np.float32), np.arange(9) < (5 if mixed else 9))
    wrong = fit_scope(Calibration(), np.arange(9, dtype=np.float32), np.arange(9) < (5 if mixed else 9))

    assert same.usable
    assert wrong.usable
