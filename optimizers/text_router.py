"""What a router version decides of texts by itself, as the service would: text, clauses, language, policy; no LM or agent is asked.

It knows no conversation and no caller. Where the policy would ask an LM, that is the decision; what the LM would say is not known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.catalog.model import Catalog
from service.programs import Router
from service.routing.clauses import Clauses, split, without_lead_in
from service.routing.encoder import Encoder, Encoding
from service.routing.language import foreign_language
from service.routing.policy import Step
from service.routing.student import Reading
from service.routing.wishes import CLAUSE_TOKENS, settle, texts, understand

ASK_LM, CLARIFY, REFUSE = -1, -2, -3  # choices beside the agents, which are numbered from 0
ACTIONS = {ASK_LM: "ask_lm", CLARIFY: "clarify", REFUSE: "refuse"}
_OTHERWISE = {Step.ASK_LM: ASK_LM, Step.CLARIFY: CLARIFY, Step.REFUSE: REFUSE}

Choices = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text as every version on the same encoder reads it, and its clauses where it has several."""

    text: str
    encoding: Encoding
    clauses: Clauses | None
    parts: Sequence[Encoding]


@dataclass(frozen=True, slots=True)
class Decided:
    """What a version decides of n texts.

    Attributes:
        choice: number of an agent, or `ASK_LM`, `CLARIFY`, `REFUSE`; shape (n,).
        agents: calibrated probability that each agent is right, shape (n, agents).
        outside: calibrated probability that no agent is, shape (n,).
    """

    choice: Choices
    agents: Array
    outside: Array

    def right(self, choice: Choices) -> Array:
        """Return the probability that choices of any version are right, shape (n,); to ask is never wrong."""
        of_agent = self.agents[np.arange(len(choice)), np.maximum(choice, 0)]
        return np.select([choice >= 0, choice == REFUSE], [of_agent, self.outside], 1.0)


def encode(some: Sequence[str], encoder: Encoder) -> list[EncodedText]:
    """Encode texts and their clauses."""
    said = [without_lead_in(text) for text in some]
    clauses = [split(text) for text in said]
    parts = [texts(found) if found is not None else [] for found in clauses]
    of_parts = iter(encoder.encode_many([part for own in parts for part in own], most=CLAUSE_TOKENS))
    encodings = encoder.encode_many(said)
    return [
        EncodedText(text, encoding, found, [next(of_parts) for _ in own])
        for text, encoding, found, own in zip(said, encodings, clauses, parts, strict=True)
    ]


class TextRouter:
    """A router version as far as it decides texts by itself.

    Args:
        router: whose student knows the catalogue's intents.
        catalog: its agents are numbered in their order.
        lm: the LM that may be asked, None where none is configured.
    """

    def __init__(self, router: Router, catalog: Catalog, lm: str | None) -> None:
        self.version = router.version
        self._student, self._policy = router.student, router.policy
        self._lm_ready = lm is not None and router.policy.lm_may_decide(lm)
        number = {agent.name: i for i, agent in enumerate(catalog.agents)}
        self._agents = len(number)
        self._serves = {intent.name: number[intent.primary_agent] for intent in catalog.intents}

    def decide(self, encoded: Sequence[EncodedText]) -> Decided:
        """Decide each text."""
        readings = self._student.read_all([one.encoding for one in encoded])
        clauses = [part for one in encoded for part in one.parts]
        parts = iter(self._student.read_all(clauses) if clauses else [])
        choice, outside = np.empty(len(encoded), np.int64), np.empty(len(encoded))
        agents = np.zeros((len(encoded), self._agents))
        for row, (one, whole) in enumerate(zip(encoded, readings, strict=True)):
            choice[row], reading = self._choose(one, whole, parts)
            outside[row] = reading.oos_score
            for intent, probability in reading.probabilities.items():
                agents[row, self._serves[intent]] += probability * (1.0 - reading.oos_score)
        return Decided(choice, agents, outside)

    def _choose(self, one: EncodedText, whole: Reading, parts: Iterator[Reading]) -> tuple[int, Reading]:
        """Return the choice for a text, and the reading that it rests on."""
        student, policy = self._student, self._policy
        wishes = understand(whole, one.clauses, [next(parts) for _ in one.parts], policy)
        if wishes.declined:
            return CLARIFY, whole
        wanted, reading = settle(wishes, wishes.reading.probabilities), wishes.surest
        placed = reading.oos_score <= policy.refuse_above
        step = policy.step(
            wanted.intents[0],
            min(1.0, wanted.confidence),
            reading.oos_score,
            lm_ready=self._lm_ready,
            described=any(intent not in student.practised for intent in wanted.intents),
            foreign=foreign_language(one.text, one.encoding.tokens, student.lexicon, placed=placed) is not None,
        )
        return (self._serves[wanted.intents[0]] if step is Step.ACT else _OTHERWISE[step]), reading
