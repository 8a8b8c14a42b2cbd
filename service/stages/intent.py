"""Intent: what the student reads in the text, joined with what the caller says. Pure CPU work; decides nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from service.contracts.decision import Candidate
from service.contracts.query import ConversationTurn, ParsedEntity
from service.programs import Router
from service.routing.clauses import Clauses, split
from service.routing.encoder import Encoding
from service.routing.hearing import Heard, hear
from service.routing.history import History, Said
from service.routing.language import foreign_language
from service.routing.lm_question import EXAMPLES
from service.routing.replies import Reply
from service.routing.student import Example, Reading, Student
from service.routing.wishes import CLAUSE_TOKENS, Wishes, agree, settle, texts, understand
from service.stages.triage import Admitted

TRUSTED_CALLER = 0.7  # a caller's unflagged intent is taken from this confidence on; below, it is weighed
AMBIGUOUS_CALLER = 0.5  # how much an intent that the caller itself flags as ambiguous can weigh at most
WORDS_OF_A_LANGUAGE = 3  # from which a language can be told
LISTED = 50  # candidates that are written down, of a catalogue that may have thousands


@dataclass(frozen=True, slots=True)
class Understanding:
    """What is known of a request before a route is chosen.

    Attributes:
        candidates: the likeliest intents with probability, best first, without those that are not wanted; empty without a router.
        oos_score: of the text, or of the clause that speaks for the first of several intents.
        intents: what is asked for, the first to be carried out first; several only where the text surely asks for several.
        confidence: probability of the first intent.
        ordered: the text says in which order.
        asked: the text that is to be carried out, where the question is a mere answer to something.
        language: ISO 639 code of the language, where it is one that the student does not read.
        declined: all that is named is not wanted.
        described: those of these intents of which the student knows a description only, and was fitted on no example.
        in_context: the text was read after what was said before it.
        carried: it is what was said before that tells the intent, not the text.
        reply: what the text does, where it is a mere answer to the assistant.
        chosen: the intent that it chooses of those that the assistant asked about; nothing else counts then.
        caller_decides: the caller's intent is taken as it is.
        examples: finds the nearest labelled requests, nearest first; only an LM needs them.
    """

    candidates: tuple[Candidate, ...]
    oos_score: float
    caller_decides: bool
    entities: tuple[ParsedEntity, ...]
    examples: Callable[[], Sequence[Example]] = tuple
    intents: tuple[str, ...] = ()
    confidence: float = 0.0
    ordered: bool = False
    declined: bool = False
    described: tuple[str, ...] = ()
    in_context: bool = False
    carried: bool = False
    reply: Reply = Reply.SAYS
    chosen: str | None = None
    language: str | None = None
    asked: str | None = None


class ReadIntent:
    """`Admitted` and the router of this request → `Understanding`."""

    def __init__(self, history: History) -> None:
        self._history = history

    def __call__(self, admitted: Admitted, router: Router | None) -> Understanding:
        """Read the text and weigh the caller's intent."""
        caller = None if admitted.preferences.rung is not None else admitted.caller_intent
        trusted = caller is not None and (
            admitted.unknown_intent or (not admitted.ambiguous and admitted.caller_confidence >= TRUSTED_CALLER)
        )
        if admitted.chosen is not None:
            entities, asked = admitted.entities + admitted.earlier_entities, last_request(admitted.history)
            return Understanding((), 0.0, False, entities, chosen=admitted.chosen, asked=asked)
        in_one_piece = trusted and not admitted.history and split(admitted.text) is None  # no reading could add to what the caller says
        if router is None or admitted.empty or admitted.social or in_one_piece:
            alone = (Candidate(intent=caller, probability=admitted.caller_confidence),) if caller is not None else ()
            return Understanding(alone, 0.0, trusted, admitted.entities)
        student, policy = router.student, router.policy
        earlier = said_before(admitted.history)
        heard = hear(admitted.text, earlier, admitted.offered, student=student, history=self._history, policy=policy)
        wishes = read_wishes(heard.text, heard.encoding, heard.reading, router)
        probabilities, oos_score = wishes.reading.probabilities, wishes.surest.oos_score
        if caller is not None and not trusted:
            confidence = min(admitted.caller_confidence, AMBIGUOUS_CALLER) if admitted.ambiguous else admitted.caller_confidence
            probabilities, oos_score = weigh_caller(probabilities, caller, confidence), weigh_scope(oos_score, confidence)
        wanted = settle(wishes, probabilities)
        intents = wanted.intents
        return Understanding(
            candidates=tuple(Candidate(intent=i, probability=min(1.0, p)) for i, p in islice(wanted.probabilities.items(), LISTED)),
            oos_score=oos_score,
            caller_decides=trusted,
            entities=admitted.entities + (admitted.earlier_entities if heard.leans else ()),
            examples=partial(student.nearest, wishes.reading.vector, EXAMPLES),
            intents=intents,
            confidence=min(1.0, wanted.confidence),
            ordered=wishes.ordered and len(intents) > 1,
            declined=wishes.declined,
            described=tuple(i for i in intents if i not in student.practised),
            in_context=heard.in_context,
            carried=heard.in_context and len(intents) == 1 and not heard.says(intents[0], policy),
            reply=heard.reply,
            chosen=heard.chosen,
            asked=last_request(admitted.history) if heard.chosen is not None else heard.text if heard.accepts else None,
            language=_language(heard, student, placed=oos_score <= policy.refuse_above),
        )


def _language(heard: Heard, student: Student, *, placed: bool) -> str | None:
    """Return the language that is not read; a name of one or two words ("Pluvicto?") that goes on with a topic tells none."""
    if heard.in_context and placed and len(heard.text.split()) < WORDS_OF_A_LANGUAGE:
        return None
    return foreign_language(heard.text, heard.encoding.tokens, student.lexicon, placed=placed)


def said_before(history: Sequence[ConversationTurn]) -> list[Said]:
    """Return what user and assistant have said; a system message is not said to anyone."""
    return [Said(turn.content, turn.role == "user") for turn in history if turn.role != "system" and turn.content.strip()]


def last_request(history: Sequence[ConversationTurn]) -> str | None:
    """Return what the user said last before the assistant asked about it, or None."""
    return next((turn.content for turn in reversed(history) if turn.role == "user" and turn.content.strip()), None)


def read_wishes(text: str, encoding: Encoding, whole: Reading, router: Router) -> Wishes:
    """Join the reading of a text with those of its clauses, where it has several that may ask for different things."""
    student, clauses = router.student, split(text)
    if clauses is None or (not clauses.negated and agree(whole, _in_context(clauses, encoding, student), router.policy)):
        return understand(whole, None, [], router.policy)
    readings = student.read_all(student.encoder.encode_many(texts(clauses), most=CLAUSE_TOKENS))
    return understand(whole, clauses, readings, router.policy)


def _in_context(clauses: Clauses, encoding: Encoding, student: Student) -> list[Reading] | None:
    """Read clauses as parts of the whole text, which costs a tenth of reading each alone; None where one is not found in it."""
    found = [encoding.part(student.encoder.tokens_of(c.text)) or encoding.part(student.encoder.tokens_of(c.raw)) for c in clauses.wanted]
    parts = [part for part in found if part is not None]
    return student.read_all(parts) if len(parts) == len(found) else None


def weigh_scope(oos_score: float, confidence: float) -> float:
    """Lower the out-of-scope score where a caller names an intent with more than even confidence (Bayes' rule); never raise it."""
    sure = min(0.99, max(0.5, confidence))
    outside, inside = oos_score * (1.0 - sure), (1.0 - oos_score) * sure
    return outside / (outside + inside)


def weigh_caller(probabilities: dict[str, float], intent: str, confidence: float) -> dict[str, float]:
    """Join the student's probabilities with the caller's intent as independent evidence (Bayes' rule); best first.

    The caller is taken to name the right intent with probability `confidence`, and else any other with equal chance; a confidence
    at chance level says nothing, and one below it counts against the intent.
    """
    others = max(1, len(probabilities) - 1)
    sure = min(0.99, max(0.01, confidence))
    joint = {name: p * (sure if name == intent else (1.0 - sure) / others) for name, p in probabilities.items()}
    total = sum(joint.values())
    if total <= 0.0:
        return probabilities
    return dict(sorted(((name, p / total) for name, p in joint.items()), key=lambda item: (-item[1], item[0])))
