"""The student: fitting on little, reading anything, and a file that reads the same again or is refused."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from optimizers.dataset import Row
from optimizers.student import Fit, _folds, fit, temperature
from service.errors import ConfigurationError
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon
from service.routing.student import OUT_OF_SCOPE, Example, Reading, Student, Weights

GAP = (
    "where are we below potential; which regions lag their target; find untapped opportunity; who trails the benchmark; "
    "where do we leave sales"
).split("; ")
HEALTH = (
    "is the pipeline up; are all services running; did the nightly job fail; any errors in the platform; is the system healthy"
).split("; ")
OOS = "what is the capital of France; book me a flight; write a poem about cats; who won the match; how do I cook rice".split("; ")
ROWS = [Row(t, label) for label, texts in (("gap_analysis", GAP), ("health_check", HEALTH), (OUT_OF_SCOPE, OOS)) for t in texts]
TWO = [row for row in ROWS if row.label != OUT_OF_SCOPE]
ODD_TEXTS = {
    "empty": "",
    "emoji": "🙂🚀",
    "German": "Läuft die Datenpipeline?",
    "Chinese": "系统正常吗",
    "Arabic": "هل النظام يعمل؟",
    "100,000 characters": "is the pipeline up " * 5_263,
    "100,000 letters": "x" * 100_000,
}


@pytest.fixture(scope="module")
def fitted(encoder: Encoder) -> Fit:
    """A fit on fifteen rows."""
    return fit(ROWS, encoder)


@pytest.fixture(scope="module")
def student(fitted: Fit) -> Student:
    """The student of that fit."""
    return fitted.student


def seen(reading: Reading) -> tuple[list[tuple[str, float]], float]:
    """Return what can be compared of a reading."""
    return list(reading.probabilities.items()), reading.oos_score


@pytest.mark.parametrize(("text", "label"), [("which districts are below target", "gap_analysis"), ("is every service up", "health_check")])
def test_fifteen_rows_suffice_for_an_easy_question(student: Student, text: str, label: str) -> None:
    """Sentence vectors generalize from few examples."""
    assert next(iter(student.read(text).probabilities)) == label


def test_what_is_out_of_scope_scores_higher_than_what_is_in(student: Student) -> None:
    """The score separates, even when fitted on five examples."""
    assert student.read("recommend a restaurant in Rome").oos_score > student.read("did any service fail").oos_score


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_any_text_is_read_in_bounded_time(student: Student, text: str) -> None:
    """Probabilities over the in-scope labels, best first, summing to 1; the score in [0, 1]."""
    started = time.perf_counter()

    reading = student.read(text)

    assert time.perf_counter() - started < 10.0
    assert reading.probabilities.keys() == {"gap_analysis", "health_check"}
    assert sum(reading.probabilities.values()) == pytest.approx(1.0)
    assert list(reading.probabilities.values()) == sorted(reading.probabilities.values(), reverse=True)
    assert 0.0 <= reading.oos_score <= 1.0


@settings(max_examples=30)
@given(text=st.text(max_size=100))
def test_reading_is_total_and_deterministic(student: Student, text: str) -> None:
    """The same text is read the same way."""
    assert seen(student.read(text)) == seen(student.read(text))


def test_labels_are_the_in_scope_ones_in_order(student: Student) -> None:
    """`oos` is no label that a request can be routed to."""
    assert student.labels == ("gap_analysis", "health_check")
    assert student.weights.labels == ("gap_analysis", "health_check", OUT_OF_SCOPE)


def a_student(encoder: Encoder, *, labels: tuple[str, ...], intercept: list[float], examples: tuple[Example, ...] = ()) -> Student:
    """Return a student that reads the same in every text: its intercepts."""
    coef = np.zeros((len(labels), 384), np.float32)
    weights = Weights(labels, coef, np.array(intercept, np.float32), 1.0, 1.0)
    vectors = np.stack([encoder.encode(e.text).vector for e in examples]) if examples else np.zeros((0, 384), np.float32)
    return Student(encoder, Lexicon.fit([]), weights, examples, vectors)


def test_probabilities_are_given_that_the_text_is_in_scope(encoder: Encoder) -> None:
    """The out-of-scope share is taken out and the rest scaled up."""
    reading = a_student(encoder, labels=("a", "b", OUT_OF_SCOPE), intercept=list(np.log([0.3, 0.1, 0.6]))).read("x")

    assert reading.probabilities == pytest.approx({"a": 0.75, "b": 0.25})
    assert reading.oos_score == pytest.approx(0.6)


def test_without_an_out_of_scope_label_doubt_is_the_score(encoder: Encoder) -> None:
    """One minus the best probability."""
    assert a_student(encoder, labels=("a", "b"), intercept=list(np.log([0.7, 0.3]))).read("x").oos_score == pytest.approx(0.3)


def test_labels_of_equal_probability_come_in_order_of_name(encoder: Encoder) -> None:
    """Ties do not depend on the order of the data."""
    assert list(a_student(encoder, labels=("b", "a"), intercept=[0.0, 0.0]).read("x").probabilities) == ["a", "b"]


def test_when_everything_speaks_for_out_of_scope_the_labels_share_equally(encoder: Encoder) -> None:
    """No division by zero."""
    reading = a_student(encoder, labels=("a", "b", OUT_OF_SCOPE), intercept=[-1e4, -1e4, 1e4]).read("x")

    assert (reading.probabilities, reading.oos_score) == ({"a": 0.5, "b": 0.5}, 1.0)


def test_the_temperature_divides_the_logits(encoder: Encoder, student: Student) -> None:
    """Twice as hot, half as sure: the odds become their square root."""
    weights = student.weights
    hot = Student(
        encoder,
        student.lexicon,
        Weights(weights.labels, weights.coef, weights.intercept, weights.lexical_weight, weights.temperature * 2),
        student.examples,
        student.vectors,
    )
    cold_reading, hot_reading = student.read("is it up").probabilities, hot.read("is it up").probabilities

    ratio = cold_reading["health_check"] / cold_reading["gap_analysis"]
    assert hot_reading["health_check"] / hot_reading["gap_analysis"] == pytest.approx(ratio**0.5, rel=1e-3)


def test_the_nearest_examples_come_first_and_are_in_scope(encoder: Encoder) -> None:
    """Out-of-scope neighbours do not take the place of in-scope ones, however many they are."""
    crowd = tuple(Example(f"is the pipeline up {i}", OUT_OF_SCOPE) for i in range(30))
    near, far = Example("are all services running", "health_check"), Example("find untapped opportunity", "gap_analysis")
    student = a_student(encoder, labels=("gap_analysis", "health_check"), intercept=[0.0, 0.0], examples=(far, *crowd, near))

    found = student.nearest(encoder.encode("is the pipeline up").vector, 2)

    assert found == [near, far]


@pytest.mark.parametrize(("count", "found"), [(0, 0), (1, 1), (3, 3), (100, 10)])
def test_no_more_examples_are_returned_than_there_are(student: Student, count: int, found: int) -> None:
    """Ten in-scope rows were fitted on."""
    nearest = student.nearest(student.read("is it up").vector, count)

    assert len(nearest) == found
    assert OUT_OF_SCOPE not in {e.label for e in nearest}


def test_a_student_without_examples_has_no_nearest(encoder: Encoder) -> None:
    """An empty matrix is not searched."""
    assert a_student(encoder, labels=("a", "b"), intercept=[0.0, 0.0]).nearest(np.zeros(384, np.float32), 3) == []


def test_a_saved_student_reads_the_same_again(student: Student, encoder: Encoder, tmp_path: Path) -> None:
    """To the last bit, and it knows the same examples."""
    student.save(tmp_path / "s.safetensors")

    loaded = Student.load(tmp_path / "s.safetensors", encoder)

    for text in [*GAP, *HEALTH, *OOS, *ODD_TEXTS.values()]:
        assert seen(loaded.read(text)) == seen(student.read(text))
    assert (loaded.examples, loaded.labels) == (student.examples, student.labels)
    vector = student.read("is it up").vector
    assert loaded.nearest(vector, 3) == student.nearest(vector, 3)


Tensors = dict[str, Any]
Meta = dict[str, Any]


def with_config(**changes: Any) -> Callable[[Tensors, Meta], None]:
    """Return a damage to the file's configuration."""

    def damage(tensors: Tensors, meta: Meta) -> None:
        meta["config"] = json.dumps({**json.loads(meta["config"]), **changes})

    return damage


def with_tensor(name: str, change: Callable[[Any], Any]) -> Callable[[Tensors, Meta], None]:
    """Return a damage to one tensor; a change to None takes it out."""

    def damage(tensors: Tensors, meta: Meta) -> None:
        changed = change(tensors.pop(name))
        if changed is not None:
            tensors[name] = changed

    return damage


def with_meta(name: str, value: str | None) -> Callable[[Tensors, Meta], None]:
    """Return a damage to the metadata."""

    def damage(tensors: Tensors, meta: Meta) -> None:
        del meta[name]
        if value is not None:
            meta[name] = value

    return damage


DAMAGES: dict[str, tuple[Callable[[Tensors, Meta], None], str]] = {
    "another format": (with_config(format=2), "format 2"),
    "another encoder": (with_config(encoder="feedbeef"), "encoder feedbeef"),
    "no config": (with_meta("config", None), "config"),
    "config is no JSON": (with_meta("config", "{"), "cannot be read"),
    "config is no object": (with_meta("config", "[]"), "cannot be read"),
    "no examples": (with_meta("examples", None), "examples"),
    "an example without label": (with_meta("examples", '[["text"]]'), "cannot be read"),
    "examples are numbers": (with_meta("examples", "[1, 2]"), "cannot be read"),
    "fewer examples than vectors": (with_meta("examples", "[]"), "examples"),
    "no coefficients": (with_tensor("coef", lambda _: None), "coef"),
    "coefficients of another width": (with_tensor("coef", lambda t: t[:, :-1].copy()), "cannot be read"),
    "coefficients of a label missing": (with_tensor("coef", lambda t: t[:1].copy()), "coef"),
    "coefficients without rows": (with_tensor("coef", lambda t: t[0].copy()), "cannot be read"),
    "an intercept missing": (with_tensor("intercept", lambda t: t[:-1].copy()), "intercept"),
    "an idf missing": (with_tensor("lexicon.idf", lambda t: t[:-1].copy()), "lexicon.idf"),
    "not a number": (with_tensor("coef", lambda t: np.full_like(t, np.nan)), "finite"),
    "vectors of another encoder": (with_tensor("examples.vectors", lambda t: t[:, :7].copy()), "cannot be read"),
    "a label missing": (with_config(labels=["gap_analysis", "health_check"]), "coef"),
    "no lexical weight": (with_config(lexical_weight=None), "cannot be read"),
    "temperature of zero": (with_config(temperature=0.0), "temperature"),
    "temperature not finite": (with_config(temperature=float("inf")), "temperature"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_does_not_fit_is_refused_when_it_is_loaded(
    student: Student, encoder: Encoder, tmp_path: Path, damage: Callable[[Tensors, Meta], None], said: str
) -> None:
    """Before a request finds out."""
    path = tmp_path / "s.safetensors"
    student.save(path)
    with safe_open(path, framework="numpy") as file:
        meta = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    damage(tensors, meta)
    save_file(tensors, path, metadata=meta)

    with pytest.raises(ConfigurationError, match=said):
        Student.load(path, encoder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x80\x04pickled"),
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:]),
    ],
    ids=["missing", "empty", "something else", "cut off", "header of monstrous length"],
)
def test_a_file_that_is_no_student_is_refused(student: Student, encoder: Encoder, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """With the file's name, as a configuration error."""
    path = tmp_path / "s.safetensors"
    student.save(path)
    spoil(path)

    with pytest.raises(ConfigurationError, match=r"s\.safetensors cannot be read"):
        Student.load(path, encoder)


UNUSABLE = {
    "nothing": ([], "at least two labels"),
    "one label": ([Row("a", "x"), Row("b", "x")], "at least two labels"),
    "one label and out of scope": ([Row("a", "x"), Row("b", "x"), Row("c", "oos"), Row("d", "oos")], "at least two labels"),
    "a label with one row": ([*TWO, Row("train a model", "ml_training")], "ml_training"),
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
    """Each row gets logits from a model that did not see it; the temperature is positive and finite."""
    made = fit(rows, encoder)

    assert made.logits.shape == (len(rows), len(made.student.weights.labels))
    assert np.isfinite(made.logits).all()
    assert [made.student.weights.labels[t] for t in made.targets] == [r.label for r in rows]
    assert 0.0 < made.student.weights.temperature < np.inf
    made.student.check()


def test_fitting_twice_gives_the_same_student(encoder: Encoder, fitted: Fit) -> None:
    """The seed decides."""
    again = fit(ROWS, encoder)

    np.testing.assert_array_equal(again.student.weights.coef, fitted.student.weights.coef)
    np.testing.assert_array_equal(again.logits, fitted.logits)


def test_progress_is_reported(encoder: Encoder) -> None:
    """A fit takes long enough to want to know."""
    told: list[str] = []

    fit(TWO, encoder, progress=told.append)

    assert told[0] == "encoding 10 texts"
    assert told[-1] == "fitting on all rows"


def test_two_classes_are_as_sure_as_logistic_regression_makes_them(encoder: Encoder) -> None:
    """scikit-learn keeps one row for two classes; split in two, the probabilities must be those of the sigmoid."""
    weights = fit(TWO, encoder).student.weights

    np.testing.assert_array_equal(weights.coef[0], -weights.coef[1])
    np.testing.assert_array_equal(weights.intercept[0], -weights.intercept[1])


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_the_temperature_undoes_a_wrong_scale(scale: float) -> None:
    """Logits that are too sure by a factor are cooled by that factor."""
    generator = np.random.default_rng(1)
    true = generator.normal(size=(2_000, 3)) * 2
    shares = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    targets = np.array([generator.choice(3, p=p) for p in shares])

    assert temperature(true * scale, targets) == pytest.approx(scale, rel=0.15)


@given(
    labels=st.lists(st.integers(0, 2), min_size=12, max_size=40).filter(lambda y: min(np.bincount(y, minlength=3)) >= 2),
    writers=st.integers(3, 6),
    known=st.booleans(),
)
def test_rows_are_held_out_once_and_with_their_writer(labels: list[int], writers: int, known: bool) -> None:
    """Every row is tested once; where every row names its writer, no writer is on both sides, unless a side would lack a class."""
    rows = [Row(str(i), str(y), f"w{i % writers}" if known or i else None) for i, y in enumerate(labels)]
    targets = np.array(labels)

    folds = _folds(rows, targets, 1)

    assert sorted(i for _, test in folds for i in test) == list(range(len(rows)))
    for train, test in folds:
        assert not set(train) & set(test)
        assert len(set(targets[train])) > 1
        if known and len(labels) >= 4 * writers:
            assert not {rows[i].writer for i in train} & {rows[i].writer for i in test}


def test_an_encoding_without_tokens_has_only_its_vector(student: Student) -> None:
    """No lexical feature, no error."""
    empty = Encoding(np.zeros(384, np.float32), (), 0.0)

    np.testing.assert_array_equal(student.logits(empty), student.weights.intercept)
