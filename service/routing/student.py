"""The student: a linear, calibrated intent classifier over the sentence vector and lexical features, in a few milliseconds.

This module serves; `optimizers/student.py` fits. It needs NumPy only, because importing scikit-learn takes 3 s (docs/decisions/0002).
It knows nothing of agents, thresholds or requests.
"""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from service.errors import ConfigurationError
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon

OUT_OF_SCOPE = "oos"
FORMAT = 1

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
        probabilities: calibrated probability by in-scope label, given that the text is in scope; best first; sums to 1.
        oos_score: probability that no label fits, 0 to 1.
        vector: the sentence vector, for finding near examples.
    """

    probabilities: dict[str, float]
    oos_score: float
    vector: Matrix


@dataclass(frozen=True, slots=True)
class Weights:
    """The fitted numbers: logits = coef[:, :d] · vector + lexical_weight · coef[:, d:] · tfidf + intercept.

    Attributes:
        labels: one a row of `coef`; may include `oos`.
        coef: shape (labels, d + n), float32.
        intercept: shape (labels,), float32.
        lexical_weight: how much the lexical features count against the unit vector.
        temperature: divides the logits (temperature scaling; Guo et al. 2017).
    """

    labels: tuple[str, ...]
    coef: Matrix
    intercept: Matrix
    lexical_weight: float
    temperature: float


class Student:
    """Reads texts. Immutable and thread-safe.

    Args:
        encoder: must be the one that the weights were fitted on.
        lexicon: the known grams, in the order of the last columns of `weights.coef`.
        examples: labelled texts with their unit vectors, shape (m, d), for `nearest`.
    """

    def __init__(self, encoder: Encoder, lexicon: Lexicon, weights: Weights, examples: tuple[Example, ...], vectors: Matrix) -> None:
        self.encoder = encoder
        self.lexicon = lexicon
        self.weights = weights
        self.examples = examples
        self.vectors = vectors
        self._lexical = np.ascontiguousarray(weights.coef[:, -len(lexicon.keys) :].T) if len(lexicon.keys) else None
        self._dense = np.ascontiguousarray(weights.coef[:, : weights.coef.shape[1] - len(lexicon.keys)])

    @property
    def labels(self) -> tuple[str, ...]:
        """The in-scope labels."""
        return tuple(label for label in self.weights.labels if label != OUT_OF_SCOPE)

    def read(self, text: str) -> Reading:
        """Classify one text."""
        encoding = self.encoder.encode(text)
        return self.interpret(encoding, self.logits(encoding))

    def logits(self, encoding: Encoding) -> Matrix:
        """Return the uncalibrated logits of one encoded text, shape (labels,)."""
        logits: Matrix = self._dense @ encoding.vector + self.weights.intercept
        columns, values = self.lexicon.weigh(encoding.tokens)
        if self._lexical is not None and len(columns):
            logits = logits + self.weights.lexical_weight * (values @ self._lexical[columns])
        return logits

    def interpret(self, encoding: Encoding, logits: Matrix) -> Reading:
        """Turn logits into calibrated probabilities and the out-of-scope score."""
        cooled = dict(zip(self.weights.labels, np.asarray(logits, np.float64) / self.weights.temperature, strict=True))
        shares = _softmax(cooled)
        inside = _softmax({label: value for label, value in cooled.items() if label != OUT_OF_SCOPE})
        best_first = dict(sorted(inside.items(), key=lambda item: (-item[1], item[0])))
        oos_score = shares.get(OUT_OF_SCOPE, 1.0 - next(iter(best_first.values())))
        return Reading(best_first, min(1.0, max(0.0, oos_score)), encoding.vector)

    def nearest(self, vector: Matrix, count: int) -> list[Example]:
        """Return the `count` in-scope examples with the highest cosine similarity, nearest first."""
        if not len(self.vectors):
            return []
        order = np.argsort(-(self.vectors @ vector), kind="stable")
        return list(islice((self.examples[i] for i in order if self.examples[i].label != OUT_OF_SCOPE), count))

    def save(self, path: Path) -> None:
        """Write the student to one safetensors file: arrays as tensors, labels and examples as JSON metadata."""
        tensors: dict[str, npt.NDArray[Any]] = {
            "coef": self.weights.coef,
            "intercept": self.weights.intercept,
            "lexicon.keys": self.lexicon.keys,
            "lexicon.idf": self.lexicon.idf,
            "examples.vectors": self.vectors.astype(np.float16),
        }
        config = {
            "format": FORMAT,
            "encoder": self.encoder.name,
            "labels": self.weights.labels,
            "lexical_weight": self.weights.lexical_weight,
            "temperature": self.weights.temperature,
        }
        metadata = {"config": json.dumps(config), "examples": json.dumps([[e.text, e.label] for e in self.examples])}
        contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}  # save_file writes memory as it lies
        save_file(contiguous, path, metadata=metadata)

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
            config = json.loads(metadata["config"])
            if (config["format"], config["encoder"]) != (FORMAT, encoder.name):
                raise ConfigurationError(
                    f"The student {path} has format {config['format']} and was fitted on encoder {config['encoder']}; "
                    f"this service needs format {FORMAT} and encoder {encoder.name}. Fit it anew with: optimize --bootstrap"
                )
            examples = tuple(Example(text, label) for text, label in json.loads(metadata["examples"]))
            numbers = float(config["lexical_weight"]), float(config["temperature"])
            weights = Weights(tuple(config["labels"]), tensors["coef"], tensors["intercept"], *numbers)
            lexicon = Lexicon(tensors["lexicon.keys"], tensors["lexicon.idf"])
            student = cls(encoder, lexicon, weights, examples, tensors["examples.vectors"].astype(np.float32))
            student.check()
        except (SafetensorError, OSError, LookupError, TypeError, ValueError) as exc:
            raise ConfigurationError(f"The student {path} cannot be read: {exc!r}") from exc
        return student

    def check(self) -> None:
        """Check that the parts fit together and every number is finite, and read a text.

        Raises:
            ValueError: they do not.
        """
        rows, grams = len(self.weights.labels), len(self.lexicon.keys)
        shapes = {
            "coef": (self.weights.coef.shape[:1], (rows,)),
            "intercept": (self.weights.intercept.shape, (rows,)),
            "lexicon.idf": (self.lexicon.idf.shape, (grams,)),
            "examples": (self.vectors.shape[:1], (len(self.examples),)),
        }
        for name, (shape, expected) in shapes.items():
            if shape != expected:
                raise ValueError(f"{name} has shape {shape}, not {expected}")
        numbers = (self.weights.coef, self.weights.intercept, self.lexicon.idf, self.vectors, np.array(self.weights.lexical_weight))
        if not all(np.isfinite(n).all() for n in numbers) or not 0.0 < self.weights.temperature < np.inf:
            raise ValueError("a number is not finite, or the temperature is not positive")
        self.nearest(self.read("rehearsal").vector, 1)


def _softmax(logits: dict[str, float]) -> dict[str, float]:
    values = np.array(list(logits.values()))
    powers = np.exp(values - values.max())
    return dict(zip(logits, (powers / powers.sum()).tolist(), strict=True))
