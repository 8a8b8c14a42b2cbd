"""What each signal observed: the store's rows become columns of few codes, one row an observation of one text.

Credit is assigned here as far as a rule can: an agent that could not be had leaves no outcome, a poor answer takes the blame of its rating
off the choice, and a correction stands for itself. How far each kind of observation can be trusted is the label model's business. A signal
that teaches nothing about its text is left out, and counted under the reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from optimizers.label_model import FAILED, NONE, STARS, SUCCEEDED
from optimizers.scrub import Scrubber
from service.contracts.decision import Rung

LONGEST = 2_000  # characters of a text that is learned from; longer ones are documents, which no agent was asked for in so many words
POOR = 0.5  # quality below which an answer was poor in itself
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("session", pa.uint64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("asked", pa.string()),  # the agent that was asked
        ("outcome", pa.int8()),
        ("rating", pa.int8()),
        ("again", pa.int8()),
        ("corrected", pa.string()),  # the agent that it should have been
        ("chosen", pa.string()),  # the intent that the user chose of several
        ("caller", pa.string()),  # the intent that the caller's language layer named
        ("lm", pa.string()),  # the intent that an LM decided for
        ("intent", pa.string()),  # the logged decision, its probability, and what came of it
        ("propensity", pa.float64()),
        ("alternative", pa.string()),  # the intent that exploration would have chosen otherwise
        ("reward", pa.float64()),
        ("router_version", pa.string()),
        ("received", pa.bool_()),  # said to have happened elsewhere; it teaches and brings no evidence
    ]
)
READ = (  # what the rules here read of a logged signal
    *("tenant", "session_id", "user_id", "query", "asked", "from_history", "intent", "rung", "further_intents", "corrected_agent"),
    *("agents_selected", "agents_succeeded", "agents_failed", "agents_unavailable", "was_rerouted", "user_satisfaction", "answer_quality"),
)
TAKEN = {  # columns of an observation that are those of the signal
    "at": "created_at",
    "corrected": "corrected_agent",
    "caller": "caller_intent",
    "propensity": "propensity",
    "alternative": "alternative",
    "reward": "reward",
    "router_version": "router_version",
}
FOUND = ("session", "asked", "outcome", "rating", "again", "chosen", "lm", "intent")  # columns that `_observation` returns
COLUMNS = tuple(dict.fromkeys((*READ, *TAKEN.values())))
Signal = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observed:
    """What one batch of signals brought."""

    rows: pa.RecordBatch
    left_out: Counter[str]


def observe(batches: Iterable[pa.RecordBatch], scrub: Scrubber, *, received: bool = False) -> Iterator[Observed]:
    """Yield the observations of each batch of signals, which has at least `COLUMNS`, their texts scrubbed.

    Args:
        batches: of `SignalLog.batches` or, `received`, of `SignalLog.received`.
        scrub: takes personal data out of their texts.
        received: whether they were said to have happened elsewhere.
    """
    for batch in batches:
        kept: list[int] = []
        texts: list[str] = []
        people: list[tuple[str, str]] = []
        found: list[tuple[Any, ...]] = []
        left_out: Counter[str] = Counter()
        for place, values in enumerate(zip(*(batch.column(name).to_pylist() for name in READ), strict=True)):
            signal = dict(zip(READ, values, strict=True))
            reason = why_not(signal)
            if reason is not None:
                left_out[reason] += 1
                continue
            kept.append(place)
            texts.append(text_of(signal))
            people.append((signal["user_id"], signal["session_id"]))
            found.append(_observation(signal))
        made: dict[str, Sequence[Any]] = dict(zip(FOUND, zip(*found, strict=True) if found else ((),) * len(FOUND), strict=True))
        made |= {"text": scrub.each(texts, people), "received": [received] * len(kept)}
        taken = batch.take(pa.array(kept, pa.int64()))
        arrays = [taken.column(TAKEN[f.name]) if f.name in TAKEN else pa.array(made[f.name], f.type) for f in SCHEMA]
        yield Observed(pa.record_batch(arrays, schema=SCHEMA), left_out)


def why_not(signal: Signal) -> str | None:
    """Return why nothing can be learned from a signal about its text, or None."""
    reason = why_no_text(signal)
    if reason is not None or signal["corrected_agent"] is not None:
        return reason
    if signal["further_intents"]:
        return "several wishes"
    if signal["rung"] == Rung.RULES and signal["asked"] is None:
        return "decided by a rule"
    if signal["rung"] not in (Rung.LM, Rung.CALLER) and outcome_of(signal) == NONE and signal["user_satisfaction"] is None:
        return "nothing observed"
    return None


def why_no_text(signal: Signal) -> str | None:
    """Return why a signal has no text that tells by itself what is wanted, or None."""
    text = text_of(signal)
    if not any(character.isalnum() for character in text):
        return "no words"
    if len(text) > LONGEST:
        return "a document"
    if signal["from_history"]:
        return "told by what was said before"
    if signal["asked"] is not None and signal["rung"] != Rung.RULES:
        return "an offer that was accepted"
    return None


def text_of(signal: Signal) -> str:
    """Return what was asked for: where the query only chose of several, the request before it."""
    return str(signal["query"] if signal["asked"] is None else signal["asked"]).strip()


def outcome_of(signal: Signal) -> int:
    """Return how the chosen agent did; nothing where it could not be had, or where agents did differently and it is not known which."""
    chosen, succeeded, failed = len(signal["agents_selected"]), signal["agents_succeeded"], signal["agents_failed"]
    if chosen == 0 or signal["agents_unavailable"] > 0 or succeeded + failed == 0:
        return NONE
    if failed == 0:
        return SUCCEEDED
    if succeeded == 0:
        return FAILED
    return NONE if signal["was_rerouted"] is None else FAILED if signal["was_rerouted"] else SUCCEEDED


def _observation(signal: Signal) -> tuple[Any, ...]:
    """Return the columns `FOUND`."""
    outcome, intent = outcome_of(signal), signal["intent"]
    return (
        session_key(signal["tenant"], signal["session_id"]),
        signal["agents_selected"][0] if signal["agents_selected"] else None,
        outcome,
        rating_of(signal),
        NONE if signal["corrected_agent"] is not None else again_of(signal, outcome),
        intent if signal["asked"] is not None else None,
        intent if signal["rung"] == Rung.LM else None,
        intent or None,
    )


def session_key(tenant: str, session_id: str) -> int:
    """Return a number for a session that does not tell its id."""
    return int.from_bytes(blake2b(f"{tenant}\0{session_id}".encode(errors="replace"), digest_size=8).digest(), "big")


def rating_of(signal: Signal) -> int:
    """Return the rating of the choice, stars less one; none where the answer was poor in itself."""
    stars, quality = signal["user_satisfaction"], signal["answer_quality"]
    if stars is None or (quality is not None and quality < POOR):
        return NONE
    return min(STARS - 1, max(0, round(float(stars)) - 1))


def again_of(signal: Signal, outcome: int) -> int:
    """Return whether the user had to ask elsewhere, where somebody said so: the service itself only writes down that an agent failed."""
    said = signal["was_rerouted"]
    if said is None or outcome == NONE or said == (outcome == FAILED):
        return NONE
    return int(said)
