"""Which known word a misspelt word means, if that can be said without guessing.

A word is never taken for a misspelling when English has it: the encoder's WordPiece vocabulary, which lists the some twenty thousand
most frequent words, decides, together with the regular endings. So `mouth`, `teach` and `conversation` never become `South`, `reach` and
`conversion`. Rare words (brands) forgive more than ordinary ones.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

from rapidfuzz import process
from rapidfuzz.distance import OSA

from service.errors import ConfigurationError

VOCABULARY_FILE = Path(__file__).parent / "data" / "tokenizer.json"
SHORTEST = 5
LONGEST = 40
_RARE_CUTOFF, _ORDINARY_CUTOFF = 0.8, 0.83  # one slip in five letters and two in ten; one slip in six
_ENDINGS = ("s", "es", "d", "ed", "ing", "ly", "r", "er", "ers", "ness")


@cache
def load_common_words(file: Path = VOCABULARY_FILE) -> frozenset[str]:
    """Return the whole words of a WordPiece tokenizer file.

    Raises:
        ConfigurationError: The file is missing or has another form.
    """
    try:
        vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
        return frozenset(word for word in vocabulary if len(word) >= SHORTEST - 1 and word.isalpha())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{file} is not a WordPiece tokenizer file; reinstall Pointsman.") from error


class Speller:
    """Corrects words towards a fixed set of known words."""

    def __init__(self, known: Iterable[str], common: Collection[str]) -> None:
        """Sort the known words by first letter, which a misspelling must share.

        Args:
            known: folded words that may be meant.
            common: folded words of ordinary English.
        """
        self._common = common
        self._known = frozenset(known)
        self._by_letter: defaultdict[str, list[str]] = defaultdict(list)
        for word in sorted(self._known):
            if len(word) >= SHORTEST and word.isalpha():
                self._by_letter[word[0]].append(word)

    def correct(self, word: str) -> str | None:
        """Return the known word that a folded word misspells; None where it is right, ordinary, too short, or could mean two."""
        if not SHORTEST <= len(word) <= LONGEST or word in self._known or word[0] not in self._by_letter or self.is_common(word):
            return None
        near = process.extract(
            word, self._by_letter[word[0]], scorer=OSA.normalized_similarity, score_cutoff=_RARE_CUTOFF, limit=2, processor=None
        )
        if not near or (len(near) > 1 and near[0][1] == near[1][1]) or not word.isalpha():
            return None
        best, similarity, _ = near[0]
        if self.is_common(best) and (similarity < _ORDINARY_CUTOFF or OSA.distance(word, best) > 1):
            return None
        return str(best)

    def is_common(self, word: str) -> bool:
        """Say whether a folded word is ordinary English, as it stands or but for a regular ending."""
        if word in self._common:
            return True
        stems = [word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending)]
        return any(stem in self._common or f"{stem}e" in self._common for stem in stems)
