"""The student: reading anything, and a file that reads the same again or is refused."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from optimizers.student import Fit, fit
from service.errors import ConfigurationError
from service.routing.calibration import Calibration
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon
from service.routing.student import OUT_OF_SCOPE, WIDTH, Example, Reading, Student, Weights
from tests.small_data import GAP, HEALTH, OOS, ROWS

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


def a_student(encoder: Encoder, *, labels: tuple[str, ...], scores: list[float], examples: tuple[Example, ...] = ()) -> Student:
    """Return a student that scores every text the same: its one landmark without an example is equally like everything."""
    vectors = [encoder.encode(e.text).vector for e in examples]
    landmarks = np.stack([*vectors, np.zeros(768, np.float32)])
    by_landmark = np.zeros((len(landmarks), len(labels)), np.float32)
    by_landmark[-1] = np.array(scores) / np.exp(-WIDTH)
    weights = Weights(labels, np.eye(768, dtype=np.float32), landmarks, by_landmark, np.zeros((0, len(labels)), np.float32), Calibration())
    return Student(encoder, Lexicon.fit([], most=0), weights, examples)


def test_probabilities_are_given_that_the_text_is_in_scope(encoder: Encoder) -> None:
    """The out-of-scope label takes no share of them."""
    reading = a_student(encoder, labels=("a", "b", OUT_OF_SCOPE), scores=[2.0, 1.0, 5.0]).read("x")

    assert list(reading.probabilities) == ["a", "b"]
    assert sum(reading.probabilities.values()) == pytest.approx(1.0)


def test_evidence_of_being_out_of_scope_raises_the_score(encoder: Encoder) -> None:
    """A label that fits lowers it, the out-of-scope label raises it."""
    plain, fits, foreign = (
        a_student(encoder, labels=("a", "b", OUT_OF_SCOPE), scores=scores).read("x").oos_score
        for scores in ([0.5, 0.1, 0.2], [0.9, 0.1, 0.2], [0.5, 0.1, 0.8])
    )

    assert fits < plain < foreign


def test_labels_of_equal_probability_come_in_the_order_of_the_labels(encoder: Encoder) -> None:
    """Ties are broken the same way each time."""
    assert list(a_student(encoder, labels=("a", "b"), scores=[0.0, 0.0]).read("x").probabilities) == ["a", "b"]


@pytest.mark.parametrize("scores", [[-1e4, -1e4, 1e4], [1e4, -1e4, 0.0]], ids=["nothing fits", "one label only"])
def test_extreme_scores_give_finite_probabilities(encoder: Encoder, scores: list[float]) -> None:
    """No overflow and no division by zero."""
    reading = a_student(encoder, labels=("a", "b", OUT_OF_SCOPE), scores=scores).read("x")

    assert sum(reading.probabilities.values()) == pytest.approx(1.0)
    assert 0.0 <= reading.oos_score <= 1.0


def test_a_text_like_no_example_scores_near_zero_for_every_label(student: Student) -> None:
    """The scores are evidence: they fade where no example is near."""
    near, far = (student.score([student.encoder.encode(text)]).values.max() for text in (HEALTH[0], "zygote quorum fjord 77"))

    assert near > 0.7
    assert far < 0.5


def test_the_nearest_examples_come_first_and_are_in_scope(encoder: Encoder) -> None:
    """Out-of-scope neighbours do not take the place of in-scope ones, however many they are."""
    crowd = tuple(Example(f"is the pipeline up {i}", OUT_OF_SCOPE) for i in range(30))
    near, far = Example("are all services running", "health_check"), Example("find untapped opportunity", "gap_analysis")
    student = a_student(encoder, labels=("gap_analysis", "health_check"), scores=[0.0, 0.0], examples=(far, *crowd, near))

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
    assert a_student(encoder, labels=("a", "b"), scores=[0.0, 0.0]).nearest(np.zeros(768, np.float32), 3) == []


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


def with_content(**changes: Any) -> Callable[[Tensors, Meta], None]:
    """Return a damage to the file's JSON."""

    def damage(tensors: Tensors, meta: Meta) -> None:
        meta["student"] = json.dumps({**json.loads(meta["student"]), **changes})

    return damage


def with_calibration(**changes: float) -> Callable[[Tensors, Meta], None]:
    """Return a damage to the calibration."""
    return with_content(calibration=asdict(Calibration()) | changes)


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
    "another format": (with_content(format=3), "format 3"),
    "another encoder": (with_content(encoder="feedbeef"), "encoder feedbeef"),
    "no content": (with_meta("student", None), "cannot be read"),
    "content is no JSON": (with_meta("student", "{"), "cannot be read"),
    "content is no object": (with_meta("student", "[]"), "cannot be read"),
    "no examples": (with_content(examples=None), "cannot be read"),
    "an example without label": (with_content(examples=[["text"]]), "cannot be read"),
    "examples are numbers": (with_content(examples=[1, 2]), "cannot be read"),
    "more examples than landmarks": (with_content(examples=[["text", "label"]] * 99), "99 examples"),
    "no weights": (with_tensor("by_landmark", lambda _: None), "by_landmark"),
    "weights of a landmark missing": (with_tensor("by_landmark", lambda t: t[:-1].copy()), "by_landmark"),
    "weights of a label missing": (with_tensor("by_landmark", lambda t: t[:, :-1].copy()), "by_landmark"),
    "weights without rows": (with_tensor("by_landmark", lambda t: t[0].copy()), "by_landmark"),
    "weights of a gram missing": (with_tensor("by_gram", lambda t: t[:-1].copy()), "by_gram"),
    "an idf missing": (with_tensor("lexicon.idf", lambda t: t[:-1].copy()), "lexicon.idf"),
    "not a number": (with_tensor("by_landmark", lambda t: np.full_like(t, np.nan)), "finite"),
    "landmarks of another width": (with_tensor("landmarks", lambda t: t[:, :7].copy()), "landmarks"),
    "a projection of another encoder": (with_tensor("projection", lambda t: t[:7].copy()), "cannot be read"),
    "a label missing": (with_content(labels=["gap_analysis", "health_check"]), "by_landmark"),
    "no calibration": (with_content(calibration=None), "cannot be read"),
    "calibration of another kind": (with_calibration(slope=1.0), "slope"),
    "temperature of zero": (with_calibration(temperature=0.0), "calibration"),
    "temperature not finite": (with_calibration(temperature=float("inf")), "finite"),
    "a score that falls with doubt": (with_calibration(scope_slope=-1.0), "rise"),
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


def test_many_texts_score_as_few_do(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken in chunks."""
    encodings = student.encoder.encode_many([*GAP, *HEALTH, *OOS])
    at_once = student.score(encodings)
    monkeypatch.setattr("service.routing.student._CHUNK", 4)

    in_chunks = student.score(encodings)

    np.testing.assert_allclose(in_chunks.values, at_once.values, atol=1e-5)
    np.testing.assert_allclose(in_chunks.nearness, at_once.nearness, atol=1e-5)


def test_an_encoding_without_tokens_has_only_its_vector(student: Student) -> None:
    """No lexical feature, no error."""
    far = student.score([Encoding(np.zeros(768, np.float32), ())])

    np.testing.assert_allclose(far.values[0], np.exp(-WIDTH) * student.weights.by_landmark.sum(axis=0), rtol=1e-4)
