"""Hearing: what a text means in its conversation, before it is cut into wishes. An offer that the user accepts is read in place of "yes".

Knows readings and thresholds; not what is done about them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.routing.encoder import Encoding
from service.routing.history import LEANS, REACTIONS, History, Said
from service.routing.policy import Policy
from service.routing.replies import Reply, chosen_of, offer_of
from service.routing.student import Reading, Student

ASKED = 0.05  # odds against an answer being off the topic that it was asked about


@dataclass(frozen=True, slots=True)
class Heard:
    """A text in its conversation.

    Attributes:
        text: what is to be read: the user's words, or the offer that they accept.
        encoding: of that text.
        alone: its reading without what was said before.
        reading: its reading after what was said before.
        reply: what it does; `ACCEPTS` only where nothing was offered, or more than one thing.
        chosen: the intent that it chooses of those that the assistant asked about.
        in_context: it was read after what was said before.
        leans: it depends on what was said before.
    """

    text: str
    encoding: Encoding
    alone: Reading
    reading: Reading
    reply: Reply = Reply.SAYS
    chosen: str | None = None
    in_context: bool = False
    leans: bool = False

    def says(self, intent: str, policy: Policy) -> bool:
        """Say whether the text alone speaks of an intent; else it is what was said before that does."""
        return self.alone.oos_score <= policy.refuse_above and self.alone.probabilities.get(intent, 0.0) >= policy.clarify_below


def hear(text: str, earlier: Sequence[Said], offered: Sequence[str], *, student: Student, history: History, policy: Policy) -> Heard:
    """Read a text after what was said before it.

    Args:
        text: the user's words.
        earlier: what was said before, oldest first.
        offered: the intents that the assistant asked about just before.
        student: reads.
        history: joins.
        policy: a text that is in scope by itself is no mere answer.
    """
    encoding = student.encoder.encode(text)
    alone = student.read_all([encoding])[0]
    heard = Heard(text, encoding, alone, alone)
    if not history.reads(student.encoder):
        return heard
    answer = earlier[-1].text if earlier and not earlier[-1].by_user else ""
    reply = Reply.SAYS if alone.oos_score <= policy.refuse_above else history.reply(encoding)
    chosen = chosen_of(text, offered) or (offered[0] if reply is Reply.ACCEPTS and len(offered) == 1 else None)
    if chosen is not None:
        return replace(heard, chosen=chosen, leans=True)
    if reply in REACTIONS or (reply is Reply.ACCEPTS and (offered or not answer)):
        return replace(heard, reply=reply)
    if reply is Reply.ACCEPTS:
        offer = offer_of(answer)
        encoding = student.encoder.encode(offer)
        heard, earlier = Heard(offer, encoding, student.read_all([encoding])[0], alone, leans=True), earlier[:-1]
    if not earlier:
        return replace(heard, reading=heard.alone)
    reading = history.read(student, encoding, earlier)
    return replace(
        heard,
        reading=_of_offered(reading, alone, offered) if offered else reading,
        in_context=True,
        leans=heard.leans or bool(history.depends(encoding.vector[None])[0] >= LEANS),
    )


def _of_offered(reading: Reading, alone: Reading, offered: Sequence[str]) -> Reading:
    """Take an answer to a choice as one of the options, where the text alone speaks of one first."""
    if next(iter(alone.probabilities)) not in offered:
        return reading
    total = sum(alone.probabilities[label] for label in offered)
    among = {label: p / total for label, p in alone.probabilities.items() if label in offered}
    strange = ASKED * alone.oos_score
    return replace(reading, probabilities=among, oos_score=strange / (strange + 1.0 - alone.oos_score))
