"""Learning from a log without labels: outcomes and some corrections take the place of labels, and bring nearly as much."""

import numpy as np
import pytest

from optimizers.dataset import Row, read_rows
from optimizers.label_model import FAILED, NONE, SUCCEEDED, Claims, Evidence
from optimizers.log_fit import draw
from optimizers.policy import read_held_out
from optimizers.student import Fit, Logged, fit
from service.routing.encoder import Encoder
from service.routing.student import OUT_OF_SCOPE
from tests.conftest import ROOT

Split = tuple[list[Row], list[Row], list[Row]]
FEW, LOGGED, TESTED = 10, 60, 40  # rows of each intent


@pytest.fixture(scope="module")
def split() -> Split:
    """A few labelled rows, many that will be logged, and rows to test on; all in scope."""
    rows = [row for row in read_rows(ROOT / "datasets/seed") if row.label != OUT_OF_SCOPE]
    by_label: dict[str, list[Row]] = {}
    for at in np.random.default_rng(5).permutation(len(rows)):
        by_label.setdefault(rows[at].label, []).append(rows[at])
    borders = ((0, FEW), (FEW, FEW + LOGGED), (FEW + LOGGED, FEW + LOGGED + TESTED))
    few, logged, test = ([row for of in by_label.values() for row in of[low:high]] for low, high in borders)
    return few, logged, test


def accuracy(fitted: Fit, rows: list[Row]) -> float:
    """Return the share of rows whose likeliest label is right."""
    readings = fitted.student.read_all(fitted.student.encoder.encode_many([row.text for row in rows]))
    return float(np.mean([next(iter(one.probabilities)) == row.label for one, row in zip(readings, rows, strict=True)]))


def answered(fitted: Fit, rows: list[Row]) -> Logged:
    """Send rows where the student does; the right agent succeeds, with 5 % noise, and 20 % are corrected, a tenth of them wrongly."""
    rng = np.random.default_rng(6)
    readings = fitted.student.read_all(fitted.student.encoder.encode_many([row.text for row in rows]))
    chosen = [next(iter(one.probabilities)) for one in readings]
    noisy, corrects, wrong = (rng.random(len(rows)) < share for share in (0.05, 0.2, 0.1))
    names = sorted({row.label for row in rows})

    def observe(labels: tuple[str, ...] | list[str]) -> Evidence:
        column = {label: i for i, label in enumerate(labels)}
        asked = np.array([column[label] for label in chosen])
        right = np.array([label == row.label for label, row in zip(chosen, rows, strict=True)])
        said = [names[(names.index(row.label) + 1) % len(names)] if w else row.label for row, w in zip(rows, wrong, strict=True)]
        spoken = np.flatnonzero(corrects)
        fits = np.eye(len(labels), dtype=bool)[[column[said[i]] for i in spoken]]
        nothing = np.full(len(rows), NONE)
        claims = {"user": Claims(spoken, fits, others=len(labels) - 1)}
        return Evidence(
            np.arange(len(labels)),
            len(rows),
            np.arange(len(rows)),
            asked,
            np.where(right ^ noisy, SUCCEEDED, FAILED),
            nothing,
            nothing,
            claims,
        )  # type: ignore[arg-type]

    return Logged(tuple(row.text for row in rows), tuple(f"s{i}" for i in range(len(rows))), observe)


@pytest.fixture(scope="module")
def before(encoder: Encoder, split: Split) -> Fit:
    """What the few labelled rows give."""
    return fit(split[0], encoder)


@pytest.fixture(scope="module")
def learned(encoder: Encoder, split: Split, before: Fit) -> Fit:
    """What the few and the log give."""
    few, logged, _ = split
    return fit(few, encoder, logged=answered(before, logged))


def test_a_log_without_labels_brings_most_of_what_labels_would(encoder: Encoder, split: Split, before: Fit, learned: Fit) -> None:
    """At least two thirds of the way from the few labelled rows to labels for everything that was logged."""
    few, logged, test = split

    few_, all_, learned_ = (accuracy(one, test) for one in (before, fit([*few, *logged], encoder), learned))
    assert learned_ - few_ >= 2 / 3 * (all_ - few_) > 0.0, (few_, learned_, all_)


def test_a_learned_fit_serves_calibration_and_policy_like_any_other(encoder: Encoder, split: Split, learned: Fit) -> None:
    """Every logged row has one drawn label, is held out once, and the probabilities are near the truth on new rows."""
    few, logged, test = split

    held_out = read_held_out(learned)
    probabilities, _ = learned.student.calibrate(learned.student.score(encoder.encode_many([row.text for row in test])))

    assert len(learned.rows) == len(few) + len(logged) == len(held_out.probability)
    assert sorted(i for fold in learned.folds for i in fold.tolist()) == list(range(len(learned.rows)))
    assert probabilities.max(axis=1).mean() == pytest.approx(accuracy(learned, test), abs=0.06)


def test_a_label_is_drawn_as_often_as_it_is_believed() -> None:
    """And the same one for the same seed."""
    beliefs = np.tile(np.array([0.5, 0.0, 0.3, 0.2], np.float32), (20_000, 1))

    drawn = draw(beliefs, 1)

    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / len(drawn), beliefs[0], atol=0.01)
    np.testing.assert_array_equal(drawn, draw(beliefs, 1))
