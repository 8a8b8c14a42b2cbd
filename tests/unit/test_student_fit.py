"""Fitting the student: on little, on too much, with what is held out kept out, and the same each time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.dataset import Row
from optimizers.student import Fit, _folds, _thin, describe, fit
from service.routing.encoder import Encoder
from service.routing.student import OUT_OF_SCOPE
from tests.small_data import ROWS, TWO


@pytest.fixture(scope="module")
def fitted(encoder: Encoder) -> Fit:
    """A fit on fifteen rows."""
    return fit(ROWS, encoder)


UNUSABLE = {
    "nothing": ([], "at least two labels"),
    "one label": ([Row("a", "x"), Row("b", "x")], "at least two labels"),
    "one label and out of scope": ([Row("a", "x"), Row("b", "x"), Row("c", "oos"), Row("d", "oos")], "at least two labels"),
    "a label with one row": ([*TWO, Row("train a model", "ml_training")], "ml_training"),
    "a label with one text twice": ([*TWO, Row("train a model", "ml_training"), Row("Train a  model", "ml_training")], "ml_training"),
    "out of scope with one row": ([*TWO, Row("hi", "oos")], "oos"),
}


@pytest.mark.parametrize(("rows", "said"), UNUSABLE.values(), ids=UNUSABLE)
def test_data_that_no_student_can_be_fitted_on_is_refused(encoder: Encoder, rows: list[Row], said: str) -> None:
    """The message names the label."""
    with pytest.raises(ValueError, match=said):
        fit(rows, encoder)


TINY = {
    "two labels, two rows each": [*TWO[:2], *TWO[-2:]],
    "two labels": TWO,
    "an empty text": [*TWO, Row("", "gap_analysis")],
    "the same text twice": [*TWO, TWO[0]],
    "writers": [Row(r.text, r.label, f"w{i % 5}") for i, r in enumerate(ROWS)],
    "writers of one label each": [Row(r.text, r.label, "ab"[i % 2] if r.label == "gap_analysis" else "c") for i, r in enumerate(TWO)],
    "one label by one writer": [Row(r.text, r.label, "x" if r.label == OUT_OF_SCOPE else f"w{i % 3}") for i, r in enumerate(ROWS)],
    "some writers unknown": [Row(r.text, r.label, f"w{i % 5}" if i else None) for i, r in enumerate(ROWS)],
}


@pytest.mark.parametrize("rows", TINY.values(), ids=TINY)
def test_little_data_is_enough_to_fit_on(encoder: Encoder, rows: list[Row]) -> None:
    """Each row gets scores from a fit that did not see it, and the calibration is usable."""
    made = fit(rows, encoder)

    assert made.held_out.values.shape == (len(rows), len(made.student.weights.labels))
    assert np.isfinite(made.held_out.values).all()
    assert [made.student.weights.labels[t] for t in made.targets] == [r.label for r in rows]
    made.student.check()


def test_a_held_out_row_does_not_find_itself(encoder: Encoder) -> None:
    """Its nearest landmark is another row, and its scores are not those of the fit that has seen it."""
    made = fit(TWO, encoder)
    seen_scores = made.student.score([encoder.encode(r.text) for r in TWO])

    assert (made.held_out.nearness < 0.95).all()
    assert (seen_scores.nearness > 0.99).all()
    rows = np.arange(len(TWO))
    assert (made.held_out.values[rows, made.targets] < seen_scores.values[rows, made.targets]).all()


def test_a_held_out_row_does_not_find_its_copy(encoder: Encoder) -> None:
    """They are held out with it, so that nothing near is left."""
    made = fit([*TWO, *(Row(f" {r.text.upper()}", r.label) for r in TWO)], encoder)

    assert (made.held_out.nearness < 0.95).all()


def test_validation_rows_calibrate_when_they_are_given(encoder: Encoder) -> None:
    """Then the held-out scores are theirs; a label that training lacks is marked."""
    validation = [Row("is anything down", "health_check"), Row("which areas fall short", "gap_analysis"), Row("train it", "ml_training")]

    made = fit(TWO, encoder, validation=validation)

    assert made.targets.tolist() == [1, 0, -1]
    expected = made.student.score(encoder.encode_many([r.text for r in validation]))
    np.testing.assert_array_equal(made.held_out.values, expected.values)


def test_validation_rows_of_unknown_labels_only_are_refused(encoder: Encoder) -> None:
    """Nothing can be calibrated on them."""
    with pytest.raises(ValueError, match="No held-out row has a label of the training rows"):
        fit(TWO, encoder, validation=[Row("train it", "ml_training")])


def test_one_row_a_label_is_enough_with_validation_rows(encoder: Encoder) -> None:
    """Nothing has to be held out."""
    made = fit([TWO[0], TWO[-1]], encoder, validation=TWO[1:-1])

    assert made.student.labels == ("gap_analysis", "health_check")


def test_a_description_teaches_what_examples_do_not(encoder: Encoder) -> None:
    """A label whose rows say nothing is found by what it means."""
    rows = [*TWO, Row("qq", "kitchen_help"), Row("zz", "kitchen_help")]
    asked = "how long do I boil pasta"

    named, described = (
        fit(rows, encoder, descriptions=words).student.read(asked).probabilities["kitchen_help"]
        for words in ({"kitchen_help": "zzz"}, {"kitchen_help": "answers questions on cooking food"})
    )

    assert described > named


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("transfer_money", "transfer money"),
        ("reverted_card_payment?", "reverted card payment"),
        ("calendar:set", "calendar set"),
        ("GetAlarms", "get alarms"),
        ("pago_móvil", "pago móvil"),
        ("42", None),
        ("Q3", None),
        ("a-1", None),
        ("", None),
    ],
)
def test_a_label_is_described_by_its_name_when_that_has_words(label: str, words: str | None) -> None:
    """Codes and numbers say nothing and are no evidence."""
    assert describe(label) == words


def test_fitting_twice_gives_the_same_student(encoder: Encoder, fitted: Fit) -> None:
    """The seed decides."""
    again = fit(ROWS, encoder)

    np.testing.assert_array_equal(again.student.weights.by_landmark, fitted.student.weights.by_landmark)
    np.testing.assert_array_equal(again.held_out.values, fitted.held_out.values)
    assert again.student.weights.calibration == fitted.student.weights.calibration


def test_progress_is_reported(encoder: Encoder) -> None:
    """A fit takes long enough to want to know."""
    told: list[str] = []

    fit(TWO, encoder, progress=told.append)

    assert told == ["encoding 10 texts: 0 done", "choosing settings on held-out rows", "fitting 10 rows", "calibrating"]


def test_many_rows_of_rare_labels_can_be_fitted(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held out in parts at random: two rows a label are fewer than there are parts."""
    monkeypatch.setattr("optimizers.student.ROWS_TO_CHOOSE", 8)
    monkeypatch.setattr("optimizers.student.LANDMARKS", 16)
    rows = [
        Row(f"{verb} the {thing}", thing) for thing in "invoice refund ticket parcel budget forecast".split() for verb in ("find", "show")
    ]

    made = fit(rows, encoder)

    assert [len(fold) for fold in made.folds] == [2, 2, *[1] * 8]
    assert len(made.student.weights.landmarks) == 16
    assert np.isfinite(made.held_out.values).all()


def test_too_many_rows_are_thinned_evenly_by_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small labels keep every row, and the same rows stay each time, in their order."""
    monkeypatch.setattr("optimizers.student.MAX_ROWS", 50)
    rows = [Row(f"{label}{i}", label) for label, count in (("a", 500), ("b", 5), ("c", 300)) for i in range(count)]

    kept = _thin(rows, 1)

    assert Counter(r.label for r in kept) == {"a": 23, "b": 5, "c": 22} or Counter(r.label for r in kept) == {"a": 22, "b": 5, "c": 23}
    assert kept == _thin(rows, 1)
    assert [rows.index(r) for r in kept] == sorted(rows.index(r) for r in kept)


@given(
    labels=st.lists(st.integers(0, 2), min_size=12, max_size=40).filter(lambda y: min(np.bincount(y, minlength=3)) >= 2),
    writers=st.integers(3, 6),
    known=st.booleans(),
)
def test_rows_are_held_out_once_and_with_their_writer(labels: list[int], writers: int, known: bool) -> None:
    """Every row is in one fold; where every row names its writer, a fold is a writer, unless that took a label's last rows."""
    rows = [Row(str(i), str(y), f"w{i % writers}" if known or i else None) for i, y in enumerate(labels)]
    targets = np.array(labels)

    folds = _folds(rows, targets, 1)

    assert sorted(i for fold in folds for i in fold) == list(range(len(rows)))
    by_writer = [[i for i in range(len(rows)) if i % writers == w] for w in range(writers)]
    rest_has_all = all({labels[i] for i in range(len(rows)) if i not in fold} == set(labels) for fold in by_writer)
    assert [fold.tolist() for fold in folds] == (by_writer if known and rest_has_all else [[i] for i in range(len(rows))])


@given(texts=st.lists(st.sampled_from("a A ａ b c d e f g h".split()), min_size=3, max_size=40), written=st.booleans(), many=st.booleans())
def test_equal_texts_are_held_out_together(texts: list[str], written: bool, many: bool) -> None:
    """Whoever wrote them, whatever their case or width, in folds of one text and in parts: no copy is left to tell the label."""
    rows = [Row(text, "x", f"w{i % 4}" if written else None) for i, text in enumerate(texts)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optimizers.student.ROWS_TO_CHOOSE", 2 if many else 100)
        folds = _folds(rows, np.zeros(len(rows), np.int64), 1)

    assert sorted(i for fold in folds for i in fold) == list(range(len(rows)))
    fold_of = {i: number for number, fold in enumerate(folds) for i in fold}
    assert all(fold_of[i] == fold_of[j] for i, a in enumerate(rows) for j, b in enumerate(rows) if a.key == b.key)


@pytest.mark.parametrize("validation", [(), ROWS[::4]], ids=["held out", "with validation rows"])
def test_rows_are_taken_out_in_a_few_parts_with_their_copies(encoder: Encoder, validation: list[Row]) -> None:
    """One copy among many texts makes no part of each text, and stands in the part of its like."""
    made = fit([*ROWS, ROWS[0]], encoder, validation=validation)

    parts = [set(part.tolist()) for part in made.groups()]

    assert sorted(i for part in parts for i in part) == list(range(len(ROWS) + 1))
    assert len(parts) == 10
    assert any({0, len(ROWS)} <= part for part in parts)
