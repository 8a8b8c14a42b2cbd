"""Makes foreign text safe to quote in a prompt: it is data, so nothing in it may look like the prompt's own structure."""

import re
import unicodedata
from collections.abc import Sequence

from service.contracts.query import ConversationTurn

_FIELD_MARKER = re.compile(r"\[\[\s*##.*?(?:##\s*\]\]|$)", re.MULTILINE)
_CHAT_TOKEN = re.compile(r"<\|.*?\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<\||\|>", re.IGNORECASE)


def quote(text: str, limit: int) -> str:
    """Return the text on one line without field markers, chat-template tokens and control characters, at most `limit` characters long.

    Of a text that is too long the beginning and the end stay, because a request mostly stands in one of the two.
    """
    text = cut(text, 4 * limit)  # bounds the work on a huge text before the costly part
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} else c for c in text)
    previous = None
    while previous != text:  # taking a marker out can join two halves of another one
        previous = text
        text = _CHAT_TOKEN.sub(" ", _FIELD_MARKER.sub(" ", text))
    return cut(" ".join(text.split()), limit)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of the text: three quarters from its beginning, the rest from its end."""
    if len(text) <= limit:
        return text
    gap = " … "
    tail = (limit - len(gap)) // 4
    return text[: limit - len(gap) - tail].rstrip() + gap + text[len(text) - tail :].lstrip()


def quote_history(turns: Sequence[ConversationTurn], count: int, characters: int) -> str:
    """Return the last `count` messages, one a line, each with its role and at most `characters` long."""
    spoken = [(turn.role, quote(turn.content, characters)) for turn in turns[len(turns) - min(count, len(turns)) :]]
    return "\n".join(f"{role}: {content}" for role, content in spoken if content)
