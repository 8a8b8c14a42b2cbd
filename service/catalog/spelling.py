"""When two spellings are the same name: letter case, Unicode form, and blank, hyphen or underscore between words do not matter.

The loader uses it to find terms that collide, the gazetteer to find terms in a text. Knows no term itself.
"""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

_WORD = re.compile(r"(?:[^\W_][\u0300-\u036f]*)+")  # letters and digits, each with the combining marks that follow it
_GAP = re.compile(r"[\s_\-\u2010-\u2015]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A run of letters and digits, text[start:stop], and its folded spelling."""

    start: int
    stop: int
    key: str


def fold(text: str) -> str:
    """Return a text in the form in which spellings are compared."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def words_of(text: str) -> list[Word]:
    """Return the words of a text in order."""
    return [Word(found.start(), found.end(), fold(found[0])) for found in _WORD.finditer(text)]


def gap_key(gap: str) -> str:
    """Return what lies between two words: one blank for blanks, hyphens and underscores; other signs stay."""
    return " " if gap == " " else _GAP.sub(" ", fold(gap))


def spelling_key(text: str) -> str:
    """Return the key that all spellings of a name share. Signs before the first word and after the last one are left out."""
    words = words_of(text)
    parts = [words[0].key] if words else []
    for before, word in pairwise(words):
        parts += (gap_key(text[before.stop : word.start]), word.key)
    return "".join(parts)
