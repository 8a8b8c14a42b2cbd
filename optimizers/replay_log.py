"""The requests of the log that can be replayed, in columns: a text once, and for each request what was decided then and what came of it.

A request whose text does not tell by itself what is wanted is left out, and counted by reason. What a user chose of several offers is no
request of its own but says who was right about the one before. Columns are Arrow's and NumPy's: a million requests, each with a text of
its own, take 1.2 GiB at the most.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizers.label_model import FAILED, NONE, SUCCEEDED
from optimizers.observations import Signal, again_of, outcome_of, rating_of, text_of, why_no_text
from optimizers.trial import UNHAPPY
from service.contracts.decision import Rung

READ = (  # columns of the log; the others are not made Python objects of
    *("query", "asked", "user_id", "session_id", "intent", "rung", "router_version", "agents_selected", "further_intents"),
    *("agents_succeeded", "agents_failed", "agents_unavailable", "total_latency_ms"),
    *("user_satisfaction", "answer_quality", "was_rerouted", "corrected_agent", "from_history"),
)
REQUEST = pa.schema(
    [
        ("text", pa.large_string()),
        ("user", pa.large_string()),
        ("session", pa.large_string()),
        ("agent", pa.large_string()),  # the first that was asked; null: nobody
        ("rung", pa.large_string()),
        ("version", pa.large_string()),
        ("outcome", pa.int8()),
        ("corrected", pa.large_string()),  # the agent that it should have been
    ]
)
CHOICE = pa.schema([("text", pa.large_string()), ("intent", pa.large_string())])


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests that can be replayed, oldest first.

    Attributes:
        texts: the different texts.
        text: number of the text of each request, shape (n,).
        columns: the rest of `REQUEST`; `outcome` is `SUCCEEDED` or `FAILED` of the logged agent as far as is known, else `NONE`.
        choices: text and the intent that a user chose for it.
        left_out: requests that cannot be replayed, by reason.
        latency_ms: mean observed latency of each agent that worked alone.
        found: requests that could be replayed, of which the latest are here.
    """

    texts: pa.LargeStringArray
    text: npt.NDArray[np.int64]
    columns: pa.Table
    choices: pa.Table
    left_out: Mapping[str, int]
    latency_ms: Mapping[str, float]
    found: int

    def __len__(self) -> int:
        return len(self.text)

    def writers(self, text: int) -> set[str]:
        """Return the ids of the users and sessions that said a text."""
        of_text = self.columns.filter(pa.array(self.text == text)).select(["user", "session"])
        return {name for column in of_text.columns for name in column.to_pylist()}


@dataclass(slots=True)
class _Latencies:
    total: Counter[str] = field(default_factory=Counter)
    count: Counter[str] = field(default_factory=Counter)

    def add(self, signal: Signal) -> None:
        """Count an agent that worked alone and answered, well or not."""
        latency, agents = signal["total_latency_ms"], signal["agents_selected"]
        finished = signal["agents_succeeded"] + signal["agents_failed"] > 0 and signal["agents_unavailable"] == 0
        if latency is not None and len(agents) == 1 and finished:
            self.total[agents[0]] += latency
            self.count[agents[0]] += 1


def read_requests(batches: Iterable[pa.RecordBatch], most: int, progress: Callable[[str], None]) -> Requests:
    """Read the batches of `SignalLog.batches` and keep the latest `most` requests that can be replayed."""
    kept, choices = deque[pa.RecordBatch](), list[pa.RecordBatch]()
    left_out, latencies, signals, found, held = Counter[str](), _Latencies(), 0, 0, 0
    for batch in batches:
        requests, chosen = list[tuple[object, ...]](), list[tuple[object, ...]]()
        for signal in batch.select(list(READ)).to_pylist():
            latencies.add(signal)
            if signal["rung"] == Rung.RULES and signal["asked"] is not None and signal["intent"]:
                chosen.append((signal["asked"].strip(), signal["intent"]))
            reason = why_not_alone(signal)
            if reason is None:
                requests.append(_request(signal))
            else:
                left_out[reason] += 1
        kept.append(_batch(requests, REQUEST))
        choices.append(_batch(chosen, CHOICE))
        signals, found, held = signals + batch.num_rows, found + len(requests), held + len(requests)
        while held - kept[0].num_rows >= most:
            held -= kept.popleft().num_rows
        progress(f"{signals:,} signals read")
    table = pa.Table.from_batches(kept, schema=REQUEST)
    table = table.slice(max(0, table.num_rows - most)).combine_chunks()
    encoded = pc.dictionary_encode(table["text"].combine_chunks())
    latency_ms = {agent: latencies.total[agent] / count for agent, count in latencies.count.items()}
    return Requests(
        encoded.dictionary,
        encoded.indices.to_numpy().astype(np.int64),
        table.drop_columns("text"),
        pa.Table.from_batches(choices, schema=CHOICE),
        left_out,
        latency_ms,
        found,
    )


def why_not_alone(signal: Signal) -> str | None:
    """Return why a request's text did not decide it by itself, or None."""
    reason = why_no_text(signal)
    if reason is not None:
        return reason
    if signal["asked"] is not None:
        return "an answer to a question"
    if signal["rung"] == Rung.RULES:
        return "decided by a rule"
    if signal["rung"] == Rung.CALLER:
        return "decided by the caller"
    if signal["further_intents"]:
        return "several wishes"
    if not signal["intent"]:
        return "an answer that starts nothing"
    return None


def _request(signal: Signal) -> tuple[object, ...]:
    agents = signal["agents_selected"]
    outcome = outcome_of(signal)
    wrong = outcome == FAILED or again_of(signal, outcome) == 1 or 0 <= rating_of(signal) <= UNHAPPY
    return (
        text_of(signal),
        signal["user_id"],
        signal["session_id"],
        agents[0] if agents else None,
        signal["rung"],
        signal["router_version"],
        FAILED if wrong else SUCCEEDED if outcome == SUCCEEDED else NONE,
        signal["corrected_agent"],
    )


def _batch(rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return pa.record_batch([pa.array(values, column.type) for values, column in zip(columns, schema, strict=True)], schema=schema)
