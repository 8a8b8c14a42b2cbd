"""Lexical features: TF-IDF over WordPiece unigrams and bigrams, in the encoder's own tokens. The same code fits and serves.

Sub-word pieces carry spelling (a typo keeps most of its pieces) and bigrams carry phrases; the encoder has made the tokens already, so
they cost nothing. Weighting: sublinear term frequency, smoothed inverse document frequency, L2 norm (Manning et al. 2008, ch. 6).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Tokens = Sequence[int]
_FIRST = 1 << 32  # a bigram (a, b) has the key (a + 1) * 2^32 + b, a unigram b has the key b: no two grams share a key


def grams(tokens: Tokens) -> list[int]:
    """Return the keys of all unigrams and bigrams of a text, repeated ones included."""
    return [*tokens, *((a + 1) * _FIRST + b for a, b in pairwise(tokens))]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The grams that a student knows.

    Attributes:
        keys: sorted gram keys, shape (n,), int64.
        idf: inverse document frequency of each, shape (n,), float32.
    """

    keys: npt.NDArray[np.int64]
    idf: npt.NDArray[np.float32]

    @classmethod
    def fit(cls, documents: Iterable[Tokens], *, most: int) -> "Lexicon":
        """Collect the `most` grams that are in the most texts, and how rare each is."""
        frequency: Counter[int] = Counter()
        count = 0
        for tokens in documents:
            frequency.update(set(grams(tokens)))
            count += 1
        keys = np.array(sorted(sorted(frequency, key=lambda gram: (-frequency[gram], gram))[:most]), np.int64)
        seen = np.array([frequency[int(k)] for k in keys], np.float64)
        return cls(keys, (np.log((1 + count) / (1 + seen)) + 1).astype(np.float32))

    def known_pairs(self, tokens: Tokens) -> float:
        """Return the share of the bigrams of a text that the lexicon knows, 0 to 1; 1 for a text without any."""
        pairs = np.array(grams(tokens)[len(tokens) :], np.int64)
        return float(self._find(pairs)[1].mean()) if len(pairs) else 1.0

    def weigh(self, tokens: Tokens) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the columns of the known grams of a text and their weights, which have L2 norm 1 (or are empty)."""
        found = np.unique(np.array(grams(tokens), np.int64), return_counts=True)
        columns, known = self._find(found[0])
        columns, counts = columns[known], found[1][known]
        weights = (1.0 + np.log(counts)) * self.idf[columns]
        norm = float(np.linalg.norm(weights))
        return columns, (weights / norm if norm > 0.0 else weights).astype(np.float32)

    def _find(self, keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the column of each key, and whether it is one; the keys are sorted, so a search of the sorted ones is enough."""
        columns = np.searchsorted(self.keys, keys)
        known = columns < len(self.keys)
        known[known] = self.keys[columns[known]] == keys[known]
        return columns, known
