"""Descriptions: a label without examples is found by what it is said to be for, and labels with examples keep what they know."""

import numpy as np
import pytest

from optimizers.student import fit
from service.routing.descriptions import Descriptions, Likeness, features
from service.routing.encoder import Encoder
from service.routing.label_free import packaged
from service.routing.student import Student
from tests.small_data import GAP, HEALTH, ROWS

WORDS = {
    "gap_analysis": ["Find where sales lie below potential", "regions under target"],
    "health_check": ["Say whether the platform's services and jobs are running"],
    "weather": ["Weather forecasts for a city", "temperature, rain and wind of a day"],
    "music": ["Find songs and play music", "artist, album and genre of a song"],
}


@pytest.fixture(scope="module")
def plain(encoder: Encoder) -> Student:
    """A student of two labels and out of scope."""
    return fit(ROWS, encoder).student


@pytest.fixture(scope="module")
def student(plain: Student) -> Student:
    """The same with two more labels from descriptions."""
    return plain.knowing(WORDS)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("will it rain in Oslo tomorrow", "weather"),
        ("play something by Miles Davis", "music"),
        (HEALTH[0], "health_check"),
        (GAP[0], "gap_analysis"),
        ("is the nightly pipeline fine", "health_check"),
    ],
)
def test_a_label_is_found_by_examples_or_by_description(student: Student, text: str, label: str) -> None:
    """Whichever it has."""
    reading = student.read(text)

    assert next(iter(reading.probabilities)) == label
    assert sum(reading.probabilities.values()) == pytest.approx(1.0)
    assert reading.probabilities.keys() == WORDS.keys()


def test_labels_with_examples_share_among_themselves_as_before(plain: Student, student: Student) -> None:
    """New labels take their part of the probability; the ratio of the others stays."""
    before, after = plain.read("is it up in every region").probabilities, student.read("is it up in every region").probabilities

    assert after["gap_analysis"] / after["health_check"] == pytest.approx(before["gap_analysis"] / before["health_check"])


def test_what_a_new_label_describes_is_in_scope(plain: Student, student: Student) -> None:
    """More than before, and what nothing speaks for is not."""
    assert student.read("play some jazz music").oos_score < 0.5 < plain.read("play some jazz music").oos_score
    assert student.read("how do I cook rice").oos_score > 0.5


def test_a_text_that_the_examples_know_is_not_taken_for_something_new(student: Student) -> None:
    """The student knows what is strange to its examples, and a new label takes next to nothing of what is not."""
    probabilities = student.read(GAP[1]).probabilities

    assert probabilities["weather"] + probabilities["music"] < 0.01


def test_without_a_new_label_nothing_changes(plain: Student) -> None:
    """Descriptions of labels with examples are no evidence: the student was fitted on them."""
    same = plain.knowing({label: WORDS[label] for label in ("gap_analysis", "health_check")})

    assert same.labels == plain.labels == plain.practised
    assert same.read("is it up").probabilities == plain.read("is it up").probabilities


def test_labels_with_examples_come_first(student: Student) -> None:
    """So that columns mean the same with and without new labels."""
    assert student.practised == ("gap_analysis", "health_check")
    assert student.labels == ("gap_analysis", "health_check", "weather", "music")


def test_a_label_without_words_is_described_by_its_name(plain: Student) -> None:
    """An empty description is not evidence for everything."""
    student = plain.knowing({**WORDS, "music": ["", "  "]})

    assert next(iter(student.read("music please").probabilities)) == "music"


def test_likeness_counts_best_mean_and_rare_words(encoder: Encoder) -> None:
    """The same text has a cosine of 1; a word of one label alone weighs 1, a word of all nothing."""
    described = Descriptions({"a": ["red apple", "green pear"], "b": ["red brick"]}, encoder, packaged())

    likeness = described.compare(encoder.encode_many(["red apple"]))

    assert likeness.best[0, 0] == pytest.approx(1.0, abs=0.01)
    assert likeness.mean[0, 0] < likeness.best[0, 0]
    assert likeness.best[0, 1] == pytest.approx(likeness.mean[0, 1])
    assert likeness.overlap[0].tolist() == [1.0, 0.0]


def test_features_stand_in_the_order_of_their_weights() -> None:
    """Score, best, mean, overlap, new; one label with examples and one without."""
    two = np.array([[0.1, 0.2]], np.float32)

    found = features(np.array([[0.9]]), Likeness(two, two + 1, two + 2))

    assert found[0] == pytest.approx(np.array([[0.9, 0.1, 1.1, 2.1, 0.0], [0.0, 0.2, 1.2, 2.2, 1.0]]))
    assert len(packaged().join) == found.shape[2]
