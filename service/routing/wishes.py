"""Wishes: join the reading of a whole request with those of its clauses into what is wanted, in which order, and what is not.

A second intent is reported only if its clause alone reads as surely as a threshold asks that was read off held-out requests with one
intent, and only beside the intent that the whole text speaks of. Pure: readings in, `Wishes` out; it knows no words and no agents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.routing.clauses import Clause, Clauses
from service.routing.policy import Policy
from service.routing.student import Reading

CLAUSE_TOKENS = 48  # of a clause that is read alone
HINT = 0.05  # of another intent, in a clause read in its context, from which on the clause is read alone


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request asks for.

    Attributes:
        intents: the first is primary; empty where nothing is in scope, or all that is named is not wanted.
        ordered: they are to be carried out in this order.
        negated: labels that the speaker does not want.
        declined: something is named, but only as not wanted.
        reading: of the text without what is negated.
        surest: of several intents, the reading of the clause that speaks most surely for the first; else `reading`.
    """

    intents: tuple[str, ...]
    ordered: bool
    negated: frozenset[str]
    declined: bool
    reading: Reading
    surest: Reading


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is decided of a request's wishes.

    Attributes:
        probabilities: of the intents that are not negated, best first.
        intents: what is asked for, the first to be carried out first.
        confidence: probability of the first.
    """

    probabilities: dict[str, float]
    intents: tuple[str, ...]
    confidence: float


def settle(wishes: Wishes, probabilities: dict[str, float]) -> Wanted:
    """Return what is wanted by the probabilities of the wishes' reading, joined with what else is known."""
    left = {i: p for i, p in probabilities.items() if i not in wishes.negated} or probabilities
    best, confidence = next(iter(left.items()))
    intents = wishes.intents if best in wishes.intents else (best,)
    return Wanted(left, intents, wishes.surest.probabilities[intents[0]] if len(intents) > 1 else confidence)


def texts(clauses: Clauses) -> list[str]:
    """Return what has to be read besides the whole text: the clauses, and the rest where something is negated."""
    rest = [clauses.rest] if clauses.negated and clauses.rest else []
    return [*(c.text for c in clauses.wanted), *(c.text for c in clauses.negated), *rest]


def agree(whole: Reading, parts: Sequence[Reading] | None, policy: Policy) -> bool:
    """Say whether clauses, read as parts of the whole text, speak of what the whole speaks of and of nothing else.

    Where they do, reading each alone would find no second intent: of 335 requests with several clauses that the router was not fitted on
    this spares 135, and none of the 110 that their clauses change (`datasets/several`, `near` and `golden`).
    """
    if parts is None:
        return False
    held = _alone(whole, policy)
    return all((1.0 - r.oos_score) * p < HINT for r in parts for label, p in r.probabilities.items() if label not in held)


def understand(whole: Reading, clauses: Clauses | None, readings: Sequence[Reading], policy: Policy) -> Wishes:
    """Join the reading of the whole text with those of its `texts`."""
    if clauses is None:
        return _one(whole, frozenset(), policy)
    wanted, after = readings[: len(clauses.wanted)], readings[len(clauses.wanted) :]
    unwanted, rest = after[: len(clauses.negated)], after[len(clauses.negated) :]
    negated = frozenset(_best(r)[0] for r in unwanted if r.oos_score <= policy.refuse_above and _best(r)[1] >= policy.clarify_below)
    taken_back = {_best(r)[0] for r, c in zip(unwanted, clauses.negated, strict=True) if "retracts" in c.marks} & negated
    reading, declined = whole, False
    if clauses.negated:
        reading, declined = _without(whole, rest[0] if rest else None, negated, any(c.firm for c in clauses.negated), policy)
        declined = declined or _best(reading)[0] in taken_back
    if declined:
        return Wishes((), False, negated, True, reading, reading)
    alone = _alone(reading, policy)
    surest = _surest(wanted)
    held = set(alone) - taken_back  # a negated label that the text wants all the same
    several = tuple(label for label, r in surest.items() if strength(r) >= policy.several_above and label not in negated - held)
    beside_chatter = not alone and _best(reading)[0] in several  # a wish beside small talk, or two that look strange as one text
    if not beside_chatter and (len(several) < 2 or not alone or alone[0] not in several):
        return _one(reading, negated, policy)
    if not (beside_chatter or clauses.ordered or _leads(several[0], clauses.wanted, wanted)):
        several = (alone[0], *(label for label in several if label != alone[0]))
    return Wishes(several, clauses.ordered and len(several) > 1, negated - set(several), False, reading, surest[several[0]])


def _one(reading: Reading, negated: frozenset[str], policy: Policy) -> Wishes:
    alone = _alone(reading, policy)
    return Wishes(alone, False, negated - set(alone), False, reading, reading)


def _leads(label: str, parts: Sequence[Clause], readings: Sequence[Reading]) -> bool:
    """Say whether the first clause of a label surely is a wish: it asks in so many words, or the next is joined to it by "and"."""
    first = next(i for i, r in enumerate(readings) if _best(r)[0] == label)
    return parts[first].clear or (first + 1 < len(parts) and bool(parts[first + 1].marks & {"link", "also"}))


def _surest(readings: Sequence[Reading]) -> dict[str, Reading]:
    """Return the clause reading that speaks most surely for each label, in the order of the clauses."""
    found: dict[str, Reading] = {}
    for reading in readings:
        label = _best(reading)[0]
        if label not in found or strength(reading) > strength(found[label]):
            found[label] = reading
    return found


def strength(reading: Reading) -> float:
    """Return the probability that a text is a request in scope with the reading's best label."""
    return (1.0 - reading.oos_score) * _best(reading)[1]


def _without(whole: Reading, rest: Reading | None, negated: frozenset[str], firm: bool, policy: Policy) -> tuple[Reading, bool]:
    """Choose between the reading of the whole text and of the rest; say whether nothing is wanted.

    The whole text is trusted unless it speaks of what is negated, or is unsure where the rest is sure: cutting costs context.
    """
    label, probability = _best(whole)
    if rest is None:
        return whole, label not in policy.says_no
    if rest.oos_score > policy.refuse_above:
        return whole, firm and label in negated - set(policy.says_no)
    other, of_other = _best(rest)
    surer = policy.is_sure(other, of_other) and not policy.is_sure(label, probability)
    return (rest, False) if label in negated or surer else (whole, False)


def _alone(reading: Reading, policy: Policy) -> tuple[str, ...]:
    return (_best(reading)[0],) if reading.oos_score <= policy.refuse_above else ()


def _best(reading: Reading) -> tuple[str, float]:
    return next(iter(reading.probabilities.items()))
