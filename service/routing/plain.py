"""Plain: is a text a plain command, or a plain yes? Asked before work that cannot be undone; whatever is not plain is asked about.

There is no end to the ways of not wanting something, of reporting it, or of meaning something else. So a plain command has to begin a
clause with a command of the catalogue ("..., so roll back the churn model"), and nothing in the text may negate it, take it back, ask about
it, quote it or hide a letter; a list of what may not be there can be long without harm. English; it knows no labels.
"""

import re
from collections.abc import Iterable
from unicodedata import category, name, normalize

MOST_CHARACTERS = 600
MOST_WORDS = 12  # of an agreement
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_AUXILIARY = "do|does|did|is|are|was|were|has|have|had|ca|could|wo|would|should|must|need|sha|ai"
_NEGATES = (  # anywhere in the text
    rf"no(?!-)|not|nor|never|none|neither|nope|nah|nay|cannot|dnt|\w+n['\u2019]t|(?:{_AUXILIARY})n ?t|don",
    r"nicht|nein|kein\w*|ne|pas|n\u00e3o|nao|non|niet|geen|nie|nooit|ikke|inte|aldrig|nunca|jam[a\u00e1]is|niemals",
    r"nvm|nm|j/?k|/s|kidding|joking|psych|(?:undo|scratch|strike|belay) that|disregard|forget|ignore|sorry|oops|mistake|reflection",
    r"thoughts?|rather|wrong (?:chat|window|thread|person)|yeah right|let me|hold (?:on|off)|wait|hesitate|lol|haha|reconsider|skip it",
    r"leave it|if|unless|except|only when|provided|assuming|pending|subject to|as soon as|in lieu|until|over my|already|maybe|perhaps",
)
_STATES = (  # behind the command, in its clause: "deploy v3 failed", "deploy v3 once Maria approves"
    r"fail\w*|crash\w*|seems?|sounds?|timed out|needs approval|requires?|is|was|ended|worked|works|makes me|gives?|takes ages|done|once",
    r"when|after|approves?|sure",
)
_REPORTS = (  # before the command
    r"stop\w*|cancel\w*|abort\w*|halt\w*|cease|quit|ban|veto|reject|scrap|shelve|omit|skip|drop|delay\w*|postpone\w*|call(?:ed)? off",
    r"prevent\w*|prohibit\w*|forbid\w*|refus\w+|refrain\w*|avoid\w*|block\w*|said|says|told|tells?|wrote|writes|repeat|summari[sz]e",
    r"translate|classify|spell|proofread|quote|rephrase|shorten|rate|label|example|sample|e\.g|subject|title|todo|fwd?|suppose|imagine",
    r"pretend|hypothetical\w*|simulate|dry run|afraid|reluctant|unsure|regret\w*|doubt\w*|against|object|kudos|remind|discuss|ask|estimate",
    r"document|too (?:early|soon|risky)|before|after|once|instead|in place|i|he|she",
)
_NEGATED = re.compile(rf"(?<!\w)(?:{'|'.join(_NEGATES)})(?!\w)", re.I)
_STATED = re.compile(rf"\b(?:{'|'.join(_STATES)})\b", re.I)
_REPORTED = re.compile(rf"\b(?:{'|'.join(_REPORTS)})\b", re.I)
_WONDERS = re.compile(
    r"(?:what|who|whom|whose|which|when|where|why|how|whether|should|shall|must|may|might|will|would|(?:can|could) (?!you\b)"
    r"|do (?:i|we|you|they)|(?:is|are|was|were|am|does|did|has|had) )\b",
    re.I,
)
_REQUESTS = re.compile(r"\b(?:can|could) you\b|\bplease\b", re.I)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE = re.compile(r"[.;!?,]+\s+|\s+(?:and|so|then|but|[-\u2013\u2014])\s+", re.I)
_POLITE = re.compile(
    r"(?:(?:hi|hello|hey|good (?:morning|afternoon|evening)|team|everyone|there|all|thanks|thank you|great|perfect|good|fine|ok|okay|well"
    r"|alright|yes|so|then|now|and|also|first|next|please|pls|plz|kindly|just|simply|go ahead and|let's|lets|(?:can|could) (?:you|u)"
    r"|you (?:can|may|should)|(?:i|we)(?:'d like| would like| want| need) you to|time to)\b(?!-)[\s,.!]*)+",
    re.I,
)
_POINTS = frozenset("it that this them these those there here now right away please again".split())  # "stop it" says nothing of what
_QUOTED = r"['\u2018][^'\u2019]*\s[^'\u2019]*['\u2019](?!\w)"
_HIDES = re.compile(rf"[\"\u201c\u201d\u00ab\u00bb<>\[\]{{}}=\\#|~$^@]|//|\w\(|--|^\s*[-*>\u2022]|{_QUOTED}", re.M)
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
    text = normalize("NFKC", text).strip()
    if not all(map(_plain, text)) or _HIDES.search(text):
        return False
    sentences = _SENTENCE.split(text)
    if any(_WONDERS.match(s) or ("?" in s and not (s.endswith("?") and _REQUESTS.search(s))) for s in sentences):
        return False
    begins = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(commands, key=len, reverse=True))) or '(?!)'})\b(?![-'\u2019])", re.I)
    before = ""
    for clause in _CLAUSE.split(text):
        polite = _POLITE.match(clause)
        asked = clause[polite.end() :] if polite else clause
        if found := begins.match(asked):
            says_what = not _POINTS.issuperset(_WORD.findall(asked[found.end() :].lower()))
            return says_what and not (_NEGATED.search(text) or _REPORTED.search(before) or _STATED.search(asked, found.end()))
        before += f"{clause} "
    return False


def plainly_agrees(text: str, commands: Iterable[str]) -> bool:
    """Say whether a text agrees, perhaps with a command ("yes, deploy it"), and says nothing else: no condition, no time, no doubt."""
    words = _WORD.findall(text.lower())
    if not 0 < len(words) <= MOST_WORDS or not all(c.isalnum() or c in " \t.,!'\u2019" for c in text):
        return False
    command = "|".join(map(re.escape, commands))
    return re.fullmatch(rf"{_AGREES}(?: (?:{command}) (?:it|that|this|now))?", " ".join(words)) is not None


def _plain(character: str) -> bool:
    """Say whether a character is an ordinary Latin letter, a digit or a common sign: none that hides a word or stands for one."""
    kind = category(character)
    if kind.startswith("L"):
        named = name(character, "")
        return named.startswith("LATIN") and "SMALL CAPITAL" not in named
    return kind[0] in "NP" or character in " \n\r\t+%"
