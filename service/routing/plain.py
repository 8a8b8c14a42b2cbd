"""Plain: is a text a plain command, or a plain yes? Asked before work that cannot be undone; whatever is not plain is asked about.

There is no end to the ways of not wanting something, of reporting it, or of meaning something else, so this is no list of those: a plain
command is one short sentence that begins with a command of the catalogue ("roll back ...") and says what it is for, without a condition,
a time, a doubt or a sign that could hide one. English; it knows no labels.
"""

import re
from collections.abc import Iterable
from unicodedata import category, name, normalize

MOST_CHARACTERS = 200
MOST_WORDS = 20
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_ASKING = re.compile(r"(?:can|could) you\b", re.I)
_POLITE = re.compile(
    r"(?:(?:hi|hello|hey|good (?:morning|afternoon|evening)|team|everyone|there|all|thanks|thank you|great|perfect|good|fine|ok|okay|well"
    r"|alright|yes|so|then|now|and|also|first|next|please|pls|plz|kindly|just|go ahead and|let's|(?:can|could) you|you (?:can|may|should)"
    r"|(?:i|we)(?:'d like| would like| want| need) you to|time to)\b(?!-)[\s,.!]*)+",
    re.I,
)
_POLITE_END = re.compile(
    r"(?:[\s,]*\b(?:please|pls|plz|now|right away|immediately|asap|thanks|thank you|thx|for (?:me|us)))*[\s.!]*$", re.I
)
_POINTS = frozenset("it that this them these those there here now right away please again".split())  # "stop it" says nothing of what
_DOUBTS = (
    r"no|not|nor|never|none|nobody|nothing|nope|nah|nvm|cannot|\w+n't|dont|without|unless|until|till|except|but|rather|instead|nicht|kein\w*",
    r"pas|ne|if|when|whenever|once|after|before|while|as soon as|provided|assuming|pending|subject to|in case|later|soon|tomorrow|tonight",
    r"yesterday|\w+day|next (?:week|month|year|quarter|time)|maybe|perhaps|probably|possibly|eventually",
    r"is|are|was|were|be|been|has|have|had|do|does|did|will|would|can|could|should|shall|may|might|must|needs?|wants?|seems?|looks?|requires?",
    r"fail\w*|crash\w*|works?|worked|takes?|took|timed|done|undo|stop\w*|cancel\w*|abort\w*|skip|drop|wait|hold|forget|ignore|sorry|oops|jk",
    r"kidding|said|says|told|wrote|lol|haha|yeah|thought|sounds?|makes?|gives?|gave|what|who|which|why|how|whether|i|he|she|they|we|you",
)
_DOUBTFUL = re.compile(rf"\b(?:{'|'.join(_DOUBTS)})\b", re.I)
_SIGNS = frozenset(" \t.!'\u2019-%&+")
_YES = (
    r"(?:yes|yep|yeah|yup|sure(?: thing)?|ok|okay|okey|agreed|approved|confirm(?:ed)?|affirmative|absolutely|definitely|certainly|of course"
    r"|go ahead|go for it|do it|do that|do so|proceed|please(?: do| proceed)?|let's (?:go|do (?:it|that))|make it so|by all means|y)"
)
_AGREES = (
    rf"(?:(?:oh|well|right|great|good|fine|perfect|alright|all right) )?{_YES}(?: (?:{_YES}|and|then|now|i do|we do|i am sure|i'm sure"
    r"|right away|thanks|thank you|that one|this one|great|perfect|good|fine|sir|that's (?:right|correct|fine|it)))*"
)


def plainly_commands(text: str, commands: Iterable[str]) -> bool:
    """Say whether a text is a plain command.

    Args:
        text: the user's words.
        commands: verbs in their base form, such as "deploy" and "roll back".
    """
    if not 0 < len(text) <= MOST_CHARACTERS:
        return False
    text = normalize("NFKC", text)
    polite = _POLITE.match(text)
    rest = text[polite.end() :] if polite else text
    may_ask = polite is not None and _ASKING.search(polite[0]) is not None and rest.endswith("?")
    rest = _POLITE_END.sub("", rest.removesuffix("?") if may_ask else rest)
    found = next((c for c in sorted(commands, key=len, reverse=True) if re.match(rf"{re.escape(c)}\b(?![-'\u2019])", rest, re.I)), None)
    if found is None:
        return False
    rest = rest[len(found) :]
    words = _WORD.findall(rest.lower())
    says_what = not _POINTS.issuperset(words) and len(words) <= MOST_WORDS
    return says_what and all(map(_plain, rest)) and _DOUBTFUL.search(rest) is None and re.search(r"[.!?]\s", rest) is None


def plainly_agrees(text: str, commands: Iterable[str]) -> bool:
    """Say whether a text agrees, perhaps with a command ("yes, deploy it"), and says nothing else: no condition, no time, no doubt."""
    words = _WORD.findall(text.lower())
    if not 0 < len(words) <= MOST_WORDS or not all(map(_plain, text.replace(",", ""))):
        return False
    command = "|".join(map(re.escape, commands))
    return re.fullmatch(rf"{_AGREES}(?: (?:{command}) (?:it|that|this|now))?", " ".join(words)) is not None


def _plain(character: str) -> bool:
    """Say whether a character is an ordinary Latin letter, a digit, or a sign of a plain sentence: none that hides a word or quotes one."""
    if category(character) in ("Lu", "Ll"):
        named = name(character, "")
        return named.startswith("LATIN") and "SMALL CAPITAL" not in named
    return character in _SIGNS or character.isdecimal()
