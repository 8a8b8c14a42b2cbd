"""Replies: what a short answer to the assistant does: accept, dismiss, thank, ask for more, choose the second option.

Told from the sentence vector by a multinomial logistic regression that knows no labels, so it serves every catalogue; it was learned from
short answers (`datasets/replies`, CLINC150) against requests, see `optimizers/label_free.py`. Options and offers are found by words.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from unicodedata import normalize

import numpy as np

from service.routing.label_free import LabelFree
from service.routing.student import Matrix

QUESTION = "Do you want to"  # how the service asks which intent is meant
MOST_CHARACTERS = 60  # of a choice
MOST_WORDS = 3  # beside those that only say that it is a choice
LEAST_LETTERS = 4
SURE = 0.8  # of 2,840 requests of CLINC150's validation set 3 reach it, of 120 answers 100


class Reply(StrEnum):
    """What a text does in a conversation."""

    SAYS = "says"
    ACCEPTS = "accepts"
    DISMISSES = "dismisses"
    THANKS = "thanks"
    CONTINUES = "continues"


KINDS = tuple(Reply)
_ORDINALS = ("first|1|1st|one|former", "second|2|2nd|two", "third|3|3rd|three", "fourth|4|4th|four", "last|latter|final")
_PLACES = {word: place if place < len(_ORDINALS) - 1 else -1 for place, words in enumerate(_ORDINALS) for word in words.split("|")}
_ABOUT_A_CHOICE = frozenset(
    "the option choice number please pls thanks then just i i'd want would like it to have get some let's do take yes ok okay".split()
)
_ARTICLES = frozenset("a an one".split())
_TOKEN = re.compile(r"(?<!\w)-?[a-z0-9']+")  # "-1" is no place
_LETTER = re.compile(r"(?:option |answer )?\(?([a-e])[).]|(?:option |answer )([a-e])|([b-e])")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_ASKS_ONLY = frozenset(  # "Shall I?", "Is that all right with you?": what is offered stands in the sentence before
    "shall should can may could would will do does is are be i we you me it that this so now please confirm want like wish the to for and"
    " ok okay all right fine good sound with go ahead proceed agree".split()
)
_EMPTY = _ASKS_ONLY | frozenset("what whether which something someone over their time well".split())  # words of options that choose none
_OFFERING = re.compile(
    r"^(?:so |and |or )*(?:(?:shall|should|can|may|could) (?:i|we)|(?:do|would) you (?:want|like|wish)(?: me| us)?(?: to)?|want me to"
    r"|if you (?:like|want|wish),? (?:i|we) (?:can|could|will)|let me know if you(?:'d| would)? (?:like|want)(?: me)?(?: to)?)\s+",
    re.I,
)
_WORD = re.compile(r"[a-z']+")


def read_replies(vectors: Matrix, learned: LabelFree) -> list[Reply]:
    """Say what each text does, from its sentence vector; `SAYS` unless surely something else."""
    scores = vectors @ learned.reply.T + learned.reply_shift
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return [KINDS[row.argmax()] if row.max() >= SURE else Reply.SAYS for row in chances]


def choose(text: str, options: Sequence[str]) -> int | None:
    """Return the place of the one option that words of a text fit, where it holds no others."""
    words = set(_words(text)) - _ARTICLES
    if not 0 < len(words) <= MOST_WORDS:
        return None
    fitting = [i for i, option in enumerate(options) if all(any(_alike(w, o) for o in _WORD.findall(option.lower())) for w in words)]
    return fitting[0] if len(fitting) == 1 else None


def place_of(text: str, options: int) -> int | None:
    """Return the place that a text names ("the second", "2", "b)") among so many options; None where there is one only, or none such."""
    lettered, said = _LETTER.fullmatch(text.strip().lower()), _words(text)
    if lettered:
        place = ord(lettered[lettered.lastindex or 0]) - ord("a")
    elif said and said[0] in _PLACES and said[1:] in ([], ["one"]):
        place = _PLACES[said[0]]
    else:
        return None
    return place % options if options > 1 and place < options else None


def _words(text: str) -> list[str]:
    """Return what a short text that asks nothing says, but for words that only say that it is a choice."""
    if len(text) > MOST_CHARACTERS or "?" in text:
        return []
    return [word for word in _TOKEN.findall(normalize("NFKC", text).lower()) if word not in _ABOUT_A_CHOICE]


def ask(options: Sequence[str]) -> str:
    """Ask which of some options is meant."""
    listed = options[0] if len(options) == 1 else f"{'; '.join(options[:-1])}; or {options[-1]}"
    return f"{QUESTION} {listed}?"


def _alike(word: str, other: str) -> bool:
    """Say whether two words of four letters or more are forms of one: "explain" and "explained"."""
    short, long = sorted((word, other), key=len)
    return len(short) >= LEAST_LETTERS and long.startswith(short) and short not in _EMPTY


def offer_of(answer: str) -> str:
    """Return what the assistant offered: its last question, or the sentence before where that names nothing, or else its last sentence."""
    sentences = [s for s in _SENTENCE.split(answer.strip()) if s.strip()]
    if not sentences:
        return ""
    place = max((i for i, s in enumerate(sentences) if s.endswith("?")), default=len(sentences) - 1)
    if place > 0 and _ASKS_ONLY.issuperset(_WORD.findall(sentences[place].lower())):
        place -= 1
    return _OFFERING.sub("", sentences[place])
