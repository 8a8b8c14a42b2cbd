"""Plain: does a text ask, or agree, in so many words? Asked before work that cannot be undone.

A rule that errs on one side: what holds a negator, a second thought, a question, reported speech or a character that hides one is not
plain, whatever it means. English closed-class words; it knows no labels.
"""

import re
from unicodedata import category, name, normalize

from service.routing.clauses import MOST_CHARACTERS, cut

_APOSTROPHE = "['\u2019\u02bc\u2018`\u00b4\u2032\uff07 ]?"
_AUXILIARY = "do|does|did|is|are|was|were|has|have|had|ca|could|wo|would|should|must|need|sha|ai"
_DOUBTS = (
    rf"no|not|nor|never|none|neither|nobody|nothing|nope|nah|naw|cannot|dnt|(?:{_AUXILIARY})n{_APOSTROPHE}t|(?:\w ){{3}}\w",  # "d o n t"
    r"nicht|nein|kein\w*|ne|pas|n\u00e3o|niet|geen|ikke|inte",
    r"(?<!early )stop(?:s|ping)?|cancel\w*|abort\w*|halt\w*|hold|wait|paus\w+|freez\w+|block|prevent\w*|prohibit\w*|forbid\w*|refus\w+",
    r"refrain\w*|avoid\w*|postpone\w*|call(?:ed)? off|forget|disregard|ignore\w*|strike that|terminat\w+|interrupt\w*|kill|hands off|leave",
    r"keep (?:\w+ )?(?:current|existing|present|old|version|model)|against|object to|doubt\w*|regret\w*|premature\w*|too (?:early|soon)",
    r"rather|unless|unable|except|but|less|reflection|thoughts?|mistake|oops|wrong (?:chat|window|thread)|kidding|joking",
    r"wish|if|suppose|imagine|said|says|told|tell (?!me\b)|wrote|writes|translat\w+",
)
_DOUBTFUL = re.compile(rf"\b(?:{'|'.join(_DOUBTS)})\b", re.I)
_FEWEST_WORDS = 2  # "version" asks for nothing
_MOST_WORDS = 12  # of an agreement
_WORD = re.compile(r"[\w']+")
_YES = (
    r"(?:yes|yep|yeah|yup|sure(?: thing)?|ok|okay|okey|agreed|approved|confirm(?:ed)?|affirmative|absolutely|definitely|certainly|of course"
    r"|go ahead|go for it|do it|do that|do so|proceed|please(?: do| proceed)?|let's (?:go|do (?:it|that))|make it so|by all means|y)"
)
_AGREES = re.compile(
    rf"(?:(?:oh|well|right|great|good|fine|perfect|alright|all right) )?{_YES}(?: (?:{_YES}|and|then|now|i do|we do|i am sure|i'm sure"
    r"|right away|thanks|thank you|that one|this one|great|perfect|good|fine|sir|that's (?:right|correct|fine|it)|it is))*"
)
_POLITE = re.compile(r"\b(?:can|could|would|will|might) (?:you|we|i|someone|somebody|anyone)\b|\bplease\b", re.I)
_WONDERS = re.compile(
    r"(?:(?:what|who|whom|whose|which|when|where|why|how|whether|should|shall|must|may)\b|do (?:i|we|you|they)\b"
    r"|(?:is|are|was|were|am|does|did|has|had) (?:the|there|it|this|that|these|those|they|we|i|you|he|she|my|our|any)\b)",
    re.I,
)
_PART = re.compile(r"[,:]\s+")
_HANDLE = re.compile(r"\s*@\w+[:,]?\s*")
_CODE = frozenset("<>{}=|\\")
_EMPHASIS = re.compile(r"[*_`]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_QUOTES = '"\u201c\u201d\u00ab\u00bb'
_QUOTED = re.compile(rf"^\s*>|[{_QUOTES}][^{_QUOTES}]*\s[^{_QUOTES}]*[{_QUOTES}]|~~", re.M)


def plainly_asks(text: str) -> bool:
    """Say whether a text plainly asks for something to be done; False wherever there is a doubt."""
    if len(text) > MOST_CHARACTERS:
        return False
    text = normalize("NFKC", text)
    text = _EMPHASIS.sub(" ", text[handle.end() :] if (handle := _HANDLE.match(text)) else text)
    if len(_WORD.findall(text)) < _FEWEST_WORDS or not all(map(_shown, text)) or _DOUBTFUL.search(text) or _QUOTED.search(text):
        return False
    sentences = _SENTENCE.split(text.strip())
    if any(_WONDERS.match(s) or (s.endswith("?") and not _POLITE.search(s)) for s in sentences):
        return False
    return any(clause.asks for part in _PART.split(text) for clause in cut(part))


def plainly_agrees(text: str) -> bool:
    """Say whether a text agrees and says nothing else: no condition, no time, no doubt."""
    words = _WORD.findall(text.lower())
    return "?" not in text and 0 < len(words) <= _MOST_WORDS and _AGREES.fullmatch(" ".join(words)) is not None


def _shown(character: str) -> bool:
    """Say whether a character is a Latin letter, a digit, a common sign or a blank: none that hides a word or stands for one."""
    kind = category(character)
    if kind.startswith("L"):
        return name(character, "").startswith("LATIN")
    return character not in _CODE and (kind[0] in "NPZ" or kind in ("Sm", "Sc", "Sk") or character in "\n\r\t")
