"""Descriptions: evidence for labels that have no examples, such as an agent that was registered today.

A label is described by some texts (what it is for, what its intents mean). How well a request fits is read off the cosine similarity of
its sentence vector with theirs and off the rare word pieces that it shares with them. Nothing here is fitted on labels, so it serves any
catalogue. NumPy only; knows no student and no agents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from service.routing.calibration import Array, sigmoid, softmax
from service.routing.encoder import Encoder, Encoding
from service.routing.label_free import LabelFree

DIRECTIONS = (
    256  # of the descriptions' vectors that are compared: a catalogue of 10,000 takes a third of the time, and a small one loses nothing
)

_EDGE, _TINY = 0.01, 1e-12

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Likeness:
    """How well n texts fit each described label; each of shape (n, labels).

    Attributes:
        best: highest cosine similarity with a text of the label.
        mean: mean cosine similarity with its texts.
        overlap: sum of the rarities of the word pieces that text and label share: 1 for a piece that no other label uses, 0 for one that
            all use (inverse document frequency over the labels, scaled).
    """

    best: Matrix
    mean: Matrix
    overlap: Matrix


class Descriptions:
    """Described labels, ready to be compared with. Immutable and thread-safe.

    Args:
        words: one or more texts by label.
        encoder: reads them, in one batch.
        learned: what each kind of evidence weighs.
    """

    def __init__(self, words: Mapping[str, Sequence[str]], encoder: Encoder, learned: LabelFree) -> None:
        self._learned = learned
        texts = {label: [t for t in some if t.strip()] or [label] for label, some in words.items()}
        self.labels = tuple(texts)
        counts = [len(some) for some in texts.values()]
        encodings = encoder.encode_many(list(chain.from_iterable(texts.values())))
        vectors = np.stack([e.vector for e in encodings])
        _, directions = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))
        self._projection = np.ascontiguousarray(directions[:, -DIRECTIONS:], np.float32)
        self._vectors = vectors @ self._projection
        self._starts = np.cumsum([0, *counts[:-1]])
        self._counts = np.array(counts, np.float32)
        self._postings = _postings(encodings, np.repeat(np.arange(len(texts)), counts))

    def compare(self, encodings: Sequence[Encoding]) -> Likeness:
        """Compare texts with all labels."""
        cosines = np.stack([e.vector for e in encodings]) @ self._projection @ self._vectors.T
        best = np.maximum.reduceat(cosines, self._starts, axis=1)
        mean = (np.add.reduceat(cosines, self._starts, axis=1) / self._counts).astype(np.float32)
        overlap = np.zeros_like(best)
        for row, encoding in zip(overlap, encodings, strict=True):
            for token in set(encoding.tokens):
                if token in self._postings:
                    labels, rarity = self._postings[token]
                    row[labels] += rarity
        return Likeness(best, mean, overlap)

    def join(
        self, known: Array, outside: Array, scores: npt.NDArray[np.floating], likeness: Likeness, *, knows_outside: bool
    ) -> tuple[Array, Array]:
        """Join the student's reading with the descriptions: probabilities of all labels, shape (n, labels), and out-of-scope scores.

        The labels without examples take a share of the probability; the others divide the rest as the student does. A text is out of scope
        as far as neither examples nor descriptions speak for it.

        Args:
            known: probabilities of the labels with examples, which come first in `labels`; shape (n, known labels).
            outside: out-of-scope scores, shape (n,).
            scores: uncalibrated scores of the labels with examples.
            likeness: of all labels.
            knows_outside: the student was fitted on out-of-scope rows, so that its score tells how strange a text is to its examples; then
                the new labels' share follows it, too.
        """
        evidence = features(scores, likeness) @ np.array(self._learned.join)
        count, (slope, shift) = known.shape[1], self._learned.scope
        shares = softmax(evidence)
        new = shares[:, count:].sum(axis=1)
        odds = new / np.maximum(1.0 - new, _TINY)
        if knows_outside:  # Bayes' rule: two witnesses that the label is new
            stranger = np.clip(outside, _EDGE, 1.0 - _EDGE)
            odds *= stranger / (1.0 - stranger)
        joined = odds / (1.0 + odds)
        shares[:, count:] *= (joined / np.maximum(new, _TINY))[:, None]
        shares[:, :count] = known * (1.0 - joined)[:, None]
        strange = sigmoid(shift - slope * evidence[:, count:].max(axis=1))
        return shares, outside * strange


def features(scores: npt.NDArray[np.floating], likeness: Likeness) -> Array:
    """Return what speaks for each label, shape (n, labels, 5): its score, best and mean similarity, overlap, and 1 for a new label."""
    count = scores.shape[1]
    found = np.zeros((*likeness.best.shape, 5))
    found[:, :count, 0], found[:, count:, 4] = scores, 1.0
    found[:, :, 1], found[:, :, 2], found[:, :, 3] = likeness.best, likeness.mean, likeness.overlap
    return found


def _postings(encodings: Sequence[Encoding], owner: npt.NDArray[np.int64]) -> dict[int, tuple[npt.NDArray[np.int64], np.float32]]:
    """Return the labels that use a word piece and its rarity, by piece; what all use tells nothing."""
    users: dict[int, set[int]] = {}
    for encoding, label in zip(encodings, owner, strict=True):
        for token in encoding.tokens:
            users.setdefault(token, set()).add(int(label))
    labels = int(owner[-1]) + 1 if len(owner) else 0
    return {
        token: (np.array(sorted(some)), np.float32(np.log(labels / len(some)) / np.log(labels)))
        for token, some in users.items()
        if len(some) < labels
    }
