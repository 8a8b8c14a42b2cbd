"""The student: a calibrated intent classifier over the sentence vector and lexical features, in a few milliseconds.

A text scores for a label by how like it is to landmarks, that is, labelled examples, and by its words:
scores = exp(WIDTH · (landmarks · projection · vector - 1)) · by_landmark + tfidf · by_gram. The weights come from Gaussian-process
regression (`optimizers/kernel.py`), whose scores fall to zero where no example is near: so the best score is evidence of being in scope.

This module serves; `optimizers/student.py` fits. It needs NumPy only, because importing scikit-learn takes 3 s (docs/decisions/0002).
It knows nothing of agents, thresholds or requests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from service.errors import ConfigurationError
from service.routing.calibration import Array, Calibration
from service.routing.descriptions import Descriptions, Likeness
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon
from service.routing.label_free import LabelFree, packaged

OUT_OF_SCOPE = "oos"
FORMAT = 2
WIDTH = 2.0  # how fast likeness fades with distance; accuracy on validation sets is flat from 2 to 4
LISTED = 500  # labels of a reading; to sort thousands that are next to impossible takes longer than to score them
_CHUNK = 1_024
NEARNESS = 0.5  # how much the nearest landmark counts as evidence of being in scope, against the best score

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled request of the training data."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What the student makes of one text.

    Attributes:
        probabilities: calibrated probability by in-scope label, given that the text is in scope; the `LISTED` likeliest, best first.
        oos_score: probability that no label fits, 0 to 1.
        vector: the sentence vector, for finding near examples.
    """

    probabilities: dict[str, float]
    oos_score: float
    vector: Matrix


@dataclass(frozen=True, slots=True)
class Scores:
    """What the student measures before calibration, for n texts.

    Attributes:
        values: score of each label, shape (n, labels), about 1 for a label that fits and 0 for one that does not.
        nearness: cosine similarity to the nearest landmark, shape (n,).
        described: how well each label's description fits, where the student knows descriptions.
    """

    values: Matrix
    nearness: Matrix
    described: Likeness | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """The fitted numbers.

    Attributes:
        labels: one a column; may include `oos`.
        projection: leading directions of the training vectors, shape (d, r), orthonormal columns.
        landmarks: projected vectors, shape (m, r): first those of the examples, then those of label names.
        by_landmark: shape (m, labels).
        by_gram: shape (grams, labels).
        calibration: scores → probabilities.
    """

    labels: tuple[str, ...]
    projection: Matrix
    landmarks: Matrix
    by_landmark: Matrix
    by_gram: Matrix
    calibration: Calibration


class Student:
    """Reads texts. Immutable and thread-safe.

    Args:
        encoder: must be the one that the weights were fitted on.
        lexicon: the known grams, in the order of the rows of `weights.by_gram`.
        examples: the labelled texts of the first landmarks.
        descriptions: of the in-scope labels in `weights`, in their order, and of further ones without examples.

    Attributes:
        inside: columns of the in-scope labels in `weights`.
        practised: the in-scope labels that it was fitted on.
        labels: all in-scope labels, those first; the columns of its probabilities.
    """

    def __init__(
        self,
        encoder: Encoder,
        lexicon: Lexicon,
        weights: Weights,
        examples: tuple[Example, ...],
        descriptions: Descriptions | None = None,
    ) -> None:
        self.encoder = encoder
        self.lexicon = lexicon
        self.weights = replace(weights, landmarks=np.asfortranarray(weights.landmarks))  # or a product with a few texts packs all of them
        self.examples = examples
        self.inside = np.array([i for i, label in enumerate(weights.labels) if label != OUT_OF_SCOPE], np.int64)
        self._outside = np.array([i for i, label in enumerate(weights.labels) if label == OUT_OF_SCOPE], np.int64)
        self._unwanted = np.array([i for i, example in enumerate(examples) if example.label == OUT_OF_SCOPE], np.int64)
        self.practised = tuple(label for label in weights.labels if label != OUT_OF_SCOPE)
        self.labels = descriptions.labels if descriptions is not None else self.practised
        self._descriptions = descriptions

    def knowing(self, words: Mapping[str, Sequence[str]], learned: LabelFree | None = None) -> "Student":
        """Return a student that also tells the labels which it has no examples of.

        Args:
            words: texts that describe each label, those with examples too.
            learned: what descriptions weigh; by default the packaged numbers.
        """
        new = [label for label in words if label not in self.practised and label != OUT_OF_SCOPE]
        if not new:
            return Student(self.encoder, self.lexicon, self.weights, self.examples)
        described = Descriptions({label: words.get(label, ()) for label in (*self.practised, *new)}, self.encoder, learned or packaged())
        return Student(self.encoder, self.lexicon, self.weights, self.examples, described)

    def on(self, encoder: Encoder) -> "Student":
        """Return the same student on another session of its encoder."""
        return Student(encoder, self.lexicon, self.weights, self.examples, self._descriptions)

    def read(self, text: str) -> Reading:
        """Classify one text."""
        return self.read_all([self.encoder.encode(text)])[0]

    def read_all(self, encodings: Sequence[Encoding]) -> list[Reading]:
        """Classify encoded texts."""
        return self.readings(*self.calibrate(self.score(encodings)), encodings)

    def readings(self, probabilities: Array, oos_scores: Array, encodings: Sequence[Encoding]) -> list[Reading]:
        """Return one reading a row."""
        best_first = _best_first(probabilities, LISTED)
        return [
            Reading(dict(zip((self.labels[i] for i in order.tolist()), row[order].tolist(), strict=True)), float(oos), encoding.vector)
            for row, order, oos, encoding in zip(probabilities, best_first, oos_scores, encodings, strict=True)
        ]

    def score(self, encodings: Sequence[Encoding]) -> Scores:
        """Return the uncalibrated scores of encoded texts."""
        values = np.empty((len(encodings), len(self.weights.labels)), np.float32)
        nearness = np.empty(len(encodings), np.float32)
        for start in range(0, len(encodings), _CHUNK):  # many texts times many landmarks would fill the memory
            some = slice(start, start + _CHUNK)
            projected: Matrix = np.stack([e.vector for e in encodings[some]]) @ self.weights.projection
            cosines: Matrix = projected @ self.weights.landmarks.T
            values[some], nearness[some] = likeness_of(cosines) @ self.weights.by_landmark, cosines.max(axis=1)
        for row, encoding in zip(values, encodings, strict=True):
            grams, weights = self.lexicon.weigh(encoding.tokens)
            row += weights @ self.weights.by_gram[grams]
        return Scores(values, nearness, self._descriptions.compare(encodings) if self._descriptions is not None else None)

    def calibrate(self, scores: Scores) -> tuple[Array, Array]:
        """Return the probability of each of `labels`, shape (n, labels), and the out-of-scope scores, shape (n,)."""
        calibration, values = self.weights.calibration, scores.values[:, self.inside]
        known, outside = calibration.probabilities(values), calibration.out_of_scope(self.evidence(scores))
        if self._descriptions is None or scores.described is None:
            return known, outside
        return self._descriptions.join(known, outside, values, scores.described, knows_outside=len(self._outside) > 0)

    def evidence(self, scores: Scores) -> Matrix:
        """Return the evidence that each text is in scope: its best score, its nearest landmark, and that it does not look out of scope."""
        found: Matrix = scores.values[:, self.inside].max(axis=1) + np.float32(NEARNESS) * scores.nearness
        against: Matrix = scores.values[:, self._outside].sum(axis=1)
        return found - against

    def nearest(self, vector: Matrix, count: int) -> list[Example]:
        """Return the `count` in-scope examples with the highest cosine similarity, nearest first."""
        cosines = self.weights.landmarks[: len(self.examples)] @ (vector @ self.weights.projection)
        cosines[self._unwanted] = -np.inf
        most = min(count, len(cosines) - len(self._unwanted))
        if most == 0:
            return []
        chosen = np.argpartition(-cosines, most - 1)[:most]  # a sort of all of them takes ten times longer
        return [self.examples[i] for i in chosen[np.lexsort((chosen, -cosines[chosen]))].tolist()]

    def save(self, path: Path) -> None:
        """Write the student to one safetensors file: arrays as tensors, the rest as JSON metadata."""
        tensors: dict[str, npt.NDArray[Any]] = {
            "projection": self.weights.projection.astype(np.float16),
            "landmarks": self.weights.landmarks.astype(np.float16),
            "by_landmark": self.weights.by_landmark,
            "by_gram": self.weights.by_gram.astype(np.float16),
            "lexicon.keys": self.lexicon.keys,
            "lexicon.idf": self.lexicon.idf,
        }
        content = {
            "format": FORMAT,
            "encoder": self.encoder.name,
            "labels": self.weights.labels,
            "calibration": asdict(self.weights.calibration),
            "examples": [[e.text, e.label] for e in self.examples],
        }
        contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}  # save_file writes memory as it lies
        save_file(contiguous, path, metadata={"student": json.dumps(content)})

    @classmethod
    def load(cls, path: Path, encoder: Encoder) -> "Student":
        """Read a student that `save` wrote.

        Raises:
            ConfigurationError: the file is damaged, of another format, or was fitted on another encoder.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
            content = json.loads(metadata["student"] if "student" in metadata else metadata["config"])  # "config": format 1
            if (content["format"], content["encoder"]) != (FORMAT, encoder.name):
                raise ConfigurationError(
                    f"The student {path} has format {content['format']} and was fitted on encoder {content['encoder']}; "
                    f"this service needs format {FORMAT} and encoder {encoder.name}. Fit it anew with: optimize --bootstrap --promote"
                )
            examples = tuple(Example(text, label) for text, label in content["examples"])
            projection, landmarks, by_gram = (tensors[name].astype(np.float32) for name in ("projection", "landmarks", "by_gram"))
            calibration = Calibration(**content["calibration"])
            weights = Weights(tuple(content["labels"]), projection, landmarks, tensors["by_landmark"], by_gram, calibration)
            student = cls(encoder, Lexicon(tensors["lexicon.keys"], tensors["lexicon.idf"]), weights, examples)
            student.check()
        except (SafetensorError, OSError, LookupError, TypeError, ValueError) as exc:
            raise ConfigurationError(f"The student {path} cannot be read: {exc!r}") from exc
        return student

    @staticmethod
    def is_current(path: Path, encoder: str | None) -> bool:
        """Say whether a file has this version's format and was fitted on this encoder, if one is given, without reading its tensors.

        False for a file that is damaged or not there.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                content = json.loads((file.metadata() or {})["student"])
            return bool(content["format"] == FORMAT and encoder in {None, content["encoder"]})
        except (SafetensorError, OSError, LookupError, TypeError, ValueError):
            return False

    def check(self) -> None:
        """Check that the parts fit together and every number is finite, and read a text.

        Raises:
            ValueError: they do not.
        """
        weights, columns = self.weights, len(self.weights.labels)
        shapes = {
            "landmarks": (weights.landmarks.shape[1:], weights.projection.shape[1:]),
            "by_landmark": (weights.by_landmark.shape, (len(weights.landmarks), columns)),
            "by_gram": (weights.by_gram.shape, (len(self.lexicon.keys), columns)),
            "lexicon.idf": (self.lexicon.idf.shape, self.lexicon.keys.shape),
        }
        for name, (shape, expected) in shapes.items():
            if shape != expected:
                raise ValueError(f"{name} has shape {shape}, not {expected}")
        if len(self.examples) > len(weights.landmarks):
            raise ValueError(f"{len(self.examples)} examples have only {len(weights.landmarks)} landmarks")
        numbers = (weights.projection, weights.landmarks, weights.by_landmark, weights.by_gram, self.lexicon.idf)
        if not all(np.isfinite(n).all() for n in numbers) or not weights.calibration.usable:
            raise ValueError("a number is not finite, or the calibration does not rise")
        self.nearest(self.read("rehearsal").vector, 1)


def _best_first(probabilities: Array, most: int) -> npt.NDArray[np.int64]:
    """Return the columns of the at most `most` highest values of each row, highest first; of equals the first."""
    if probabilities.shape[1] <= most:
        return np.argsort(-probabilities, axis=1, kind="stable")
    chosen = np.sort(np.argpartition(-probabilities, most, axis=1)[:, :most], axis=1)
    order = np.argsort(-np.take_along_axis(probabilities, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def likeness(vectors: Matrix, landmarks: Matrix) -> Matrix:
    """Return the RBF kernel between projected unit vectors, shape (rows, landmarks)."""
    return likeness_of(vectors @ landmarks.T)


def likeness_of(cosines: Matrix) -> Matrix:
    """Return the RBF kernel of cosine similarities."""
    likenesses: Matrix = np.exp(np.float32(WIDTH) * (cosines - np.float32(1.0)))
    return likenesses
