"""History: what a text means after what was said before it ("and for the Midwest?"). One step of a filter for each turn of the user.

The belief of which label the conversation is about is a distribution over labels. A turn moves it by what the turn itself says, what the
answer before it said, and the belief so far, each with a weight that depends on the turn: how sure its own reading is, and whether it reads
like one that depends on what came before. The weights multiply readings and know no label, so they serve every catalogue; they were
learned from the dialogues of Schema-Guided Dialogue (Rastogi et al. 2020), see `optimizers/label_free.py`. This is a conditional logit
(McFadden 1974) with interactions, used as the update of a discriminative belief tracker (Henderson et al. 2014).

NumPy only. It knows no thresholds and no requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.routing.calibration import Array, sigmoid, softmax
from service.routing.encoder import Encoder, Encoding
from service.routing.label_free import LabelFree, packaged
from service.routing.replies import Reply, read_replies
from service.routing.student import Matrix, Reading, Student

UTTERANCES = 4  # the latest ones that are read; what came before them is not known to the student
FORGET = 0.02  # of the belief that is spread over all labels at each turn, so that none becomes impossible
LEANS = 0.5  # chance of depending on what was said before from which a text is in scope where that was
VAGUE = 0.8  # probability of its best label below which "tell me more" names no topic of its own
REACTIONS = (Reply.THANKS, Reply.DISMISSES)  # they say nothing about a topic
EVIDENCE = ("text", "answer", "belief, logarithm", "belief")
WEIGHTS = ("1", "text is sure", "text depends", "text is like the answer", "text and belief agree", "belief is sure", "answer is sure")
_LEAST = 1e-6


class Said(NamedTuple):
    """One earlier utterance."""

    text: str
    by_user: bool


@dataclass(frozen=True, slots=True)
class Turns:
    """One turn of the user in each of n conversations, with the answer before it, as a student reads them.

    Attributes:
        text: probability of each label, shape (n, labels).
        answer: the same for the answer before the turn; uniform where there was none.
        likeness: cosine similarity of text and answer, shape (n,); 0 where there was none.
        depends: chance that the text depends on what was said before, going by its vector alone, shape (n,).
    """

    text: Array
    answer: Array
    likeness: Array
    depends: Array


class History:
    """Reads texts after what was said before them. Immutable and thread-safe.

    Args:
        learned: what evidence weighs; by default the packaged numbers.
    """

    def __init__(self, learned: LabelFree | None = None) -> None:
        self._learned = learned or packaged()

    def reads(self, encoder: Encoder) -> bool:
        """Say whether the numbers were learned on this encoder's vectors."""
        return encoder.name == self._learned.encoder

    def depends(self, vectors: Matrix) -> Array:
        """Return the chance that each text depends on what was said before it, shape (n,)."""
        return sigmoid(vectors @ self._learned.depends + self._learned.depends_shift)

    def move(self, turns: Turns, belief: Array) -> Array:
        """Return the belief after a turn from the one before it; both of shape (n, labels)."""
        return softmax(evidence(turns, belief) @ self._learned.move.ravel())

    def reply(self, text: Encoding) -> Reply:
        """Say what a text does in a conversation."""
        return read_replies(text.vector[None], self._learned)[0]

    def read(self, student: Student, text: Encoding, earlier: Sequence[Said]) -> Reading:
        """Read a text after what was said before it."""
        return self.read_all(student, [text], [earlier])[0]

    def read_all(self, student: Student, texts: Sequence[Encoding], earlier: Sequence[Sequence[Said]]) -> list[Reading]:
        """Read texts, each after what was said before it; a text without a history is read as the student reads it alone.

        What an earlier turn says counts as far as it is in scope. A turn that depends on the one before it is at least as much in scope.
        Thanks and dismissals change nothing: an earlier one is passed over, and the last is in scope only as far as it is by itself.
        "Tell me more" goes on with the topic.
        """
        conversations = [_turns(some) for some in earlier]
        before = student.encoder.encode_short(t for c in conversations for turn in c.turns for t in turn if t)
        belief = np.full((len(texts), len(student.labels)), 1.0 / len(student.labels))
        outside = np.zeros(len(texts))
        for back in range(max((len(c.turns) for c in conversations), default=0), 0, -1):
            rows = np.array([i for i, c in enumerate(conversations) if len(c.turns) >= back])
            latest = [conversations[i].turns[-back] for i in rows]
            said = [texts[i] if back == 1 else before[turn.text] for i, turn in zip(rows, latest, strict=True)]
            own, own_outside = student.calibrate(student.score(said))
            follows = np.array([len(conversations[i].turns) > back or conversations[i].cut for i in rows])
            turns = self._turns(student, own, said, [before.get(turn.answer) for turn in latest])
            replies = np.array(read_replies(np.stack([e.vector for e in said]), self._learned))
            reacts = np.isin(replies, REACTIONS)
            leans = follows & ~reacts & ((turns.depends >= LEANS) | (replies == Reply.CONTINUES))
            known = (1.0 - outside[rows])[:, None] * belief[rows] + (outside[rows] / len(student.labels))[:, None]
            moved = np.where(follows[:, None], self.move(turns, known), own)
            moved_outside = np.where(leans, np.minimum(own_outside, outside[rows]), own_outside)
            vague = (replies == Reply.CONTINUES) & (own.max(axis=1) < VAGUE)
            passes = follows & (own_outside > 0.5) & (vague | (reacts & (back > 1)))
            belief[rows] = np.where(passes[:, None], belief[rows], moved)
            outside[rows] = np.where(passes, outside[rows], moved_outside)
        return student.readings(belief, outside, texts)

    def _turns(self, student: Student, own: Array, said: Sequence[Encoding], answers: Sequence[Encoding | None]) -> Turns:
        vectors = np.stack([e.vector for e in said])
        answer, likeness = np.full_like(own, 1.0 / own.shape[1]), np.zeros(len(own))
        there = [i for i, a in enumerate(answers) if a is not None]
        if there:
            known = [a for a in answers if a is not None]
            answer[there] = student.calibrate(student.score(known))[0]
            likeness[there] = (vectors[there] * np.stack([a.vector for a in known])).sum(axis=1)
        return Turns(own, answer, likeness, self.depends(vectors))


class _Turn(NamedTuple):
    text: str
    answer: str


class _Conversation(NamedTuple):
    """Turns of the user, the one to be read last; `cut` says that something unknown came before the first."""

    turns: list[_Turn]
    cut: bool


def _turns(earlier: Sequence[Said]) -> _Conversation:
    spoken = [u for u in earlier if u.text.strip()]
    turns, answer = list[_Turn](), ""
    for utterance in spoken[-UTTERANCES:]:
        if utterance.by_user:
            turns.append(_Turn(utterance.text, answer))
            answer = ""
        else:
            answer = utterance.text
    return _Conversation([*turns, _Turn("", answer)], len(spoken) >= UTTERANCES)


def evidence(turns: Turns, belief: Array) -> Array:
    """Return the features of each label after a turn, shape (n, labels, weights): every kind of evidence times every kind of weight.

    Evidence for a label: ln of its probability in the text, in the answer before and in the belief so far, and the belief itself.
    What it may weigh: 1, how sure the text is, whether it depends on what came before, its likeness to the answer, how far text and belief
    agree, how sure the belief is, and how sure the answer is.
    """
    count = belief.shape[1]
    kept = (1.0 - FORGET) * belief + FORGET / count
    what = np.stack([np.log(np.maximum(turns.text, _LEAST)), np.log(np.maximum(turns.answer, _LEAST)), np.log(kept), belief], axis=2)
    agree = (turns.text * belief).sum(axis=1)
    weight = np.stack(
        [np.ones(len(belief)), turns.text.max(1), turns.depends, turns.likeness, agree, belief.max(1), turns.answer.max(1)], axis=1
    )
    products: Array = weight[:, None, :, None] * what[:, :, None, :]
    return products.reshape(len(belief), count, -1)
