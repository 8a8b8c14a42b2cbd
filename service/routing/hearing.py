"""Hearing: what a text means in its conversation, before it is cut into wishes. An offer that the user accepts is read in place of "yes".

Knows readings and thresholds; not what is done about them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.routing.clauses import without_lead_in
from service.routing.encoder import Encoding
from service.routing.history import LEANS, REACTIONS, History, Said
from service.routing.policy import Policy
from service.routing.replies import Reply, offer_of
from service.routing.student import Reading, Student


@dataclass(frozen=True, slots=True)
class Heard:
    """A text in its conversation.

    Attributes:
        text: what is to be read: the user's words without what answers the turn before, or the offer that they accept.
        encoding: of that text.
        alone: its reading without what was said before.
        reading: its reading after what was said before.
        reply: what it does; `ACCEPTS` only where nothing was offered, or more than one thing.
        chosen: the one intent that the assistant asked about, if the text accepts it.
        accepts: the user accepts what was offered, and names nothing.
        in_context: it was read after what was said before.
        leans: it depends on what was said before.
    """

    text: str
    encoding: Encoding
    alone: Reading
    reading: Reading
    reply: Reply = Reply.SAYS
    chosen: str | None = None
    accepts: bool = False
    in_context: bool = False
    leans: bool = False

    def says(self, intent: str, policy: Policy) -> bool:
        """Say whether the user's own words alone speak of an intent; else it is what was said before that does."""
        if self.accepts or self.alone.oos_score > policy.refuse_above:
            return False
        return self.alone.probabilities.get(intent, 0.0) >= policy.clarify_below


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
    whole, said = student.encoder.encode(text), without_lead_in(text)
    encoding = student.encoder.encode(said) if said != text else whole
    alone = student.read_all([encoding])[0]
    heard = Heard(said, encoding, alone, alone)
    if not history.reads(student.encoder):
        return heard
    answer = earlier[-1].text if earlier and not earlier[-1].by_user else ""
    likeliest, probability = next(iter(alone.probabilities.items()))
    surely = alone.oos_score <= policy.refuse_above and policy.is_sure(likeliest, probability)
    worded = any(c.isalpha() for c in text)  # "1" is no yes
    reply = history.reply(whole) if worded and not surely else Reply.SAYS
    if reply is Reply.ACCEPTS and len(offered) == 1:
        return replace(heard, chosen=offered[0], leans=True)
    if reply in REACTIONS or (reply is Reply.ACCEPTS and (offered or not answer)):
        return replace(heard, reply=reply)
    if reply is Reply.ACCEPTS:
        offer = offer_of(answer)
        encoding = student.encoder.encode(offer)
        heard, earlier = Heard(offer, encoding, student.read_all([encoding])[0], alone, accepts=True, leans=True), earlier[:-1]
    if not earlier:
        return replace(heard, reading=heard.alone, in_context=heard.accepts)
    reading = history.read(student, encoding, earlier)
    return replace(
        heard,
        reading=reading,
        in_context=True,
        leans=heard.leans or reply is Reply.CONTINUES or bool(history.depends(encoding.vector[None])[0] >= LEANS),
    )
