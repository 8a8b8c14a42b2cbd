"""From a dataset's observations to what a fit learns from: the texts, and the evidence of their labels in the catalogue's terms. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizers.dataset import Row
from optimizers.label_model import NONE, Claims, Evidence
from optimizers.student import Logged
from service.routing.student import OUT_OF_SCOPE

MOST_TEXTS = 8_000  # that one fit learns from, beside the labelled requests
FEWEST_TEXTS = 5  # that were said to have an intent, before one without labelled requests is learned
SOURCES = {"correction": "corrected", "choice": "chosen", "caller": "caller", "lm": "lm"}  # of claims, and the column of each
NAMES_AN_AGENT = ("correction",)

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Columns:
    """Observations as arrays; `text` numbers the texts of `texts`, and names are left as they are."""

    texts: tuple[str, ...]
    sessions: tuple[str, ...]
    text: Indices
    asked: tuple[str | None, ...]
    codes: Mapping[str, Indices]
    claims: Mapping[str, tuple[str | None, ...]]


def learn_from(observations: pa.Table, serves: Mapping[str, str], *, most: int = MOST_TEXTS) -> Logged | None:
    """Return what a fit learns from observations, or None where there are none.

    Args:
        observations: of one split.
        serves: the agent that serves each intent of the catalogue.
        most: texts at most; those that somebody corrected or chose come first, then those that failed, then the latest.
    """
    columns = read_columns(observations)
    if not columns.texts:
        return None
    kept = _most_telling(columns, most)
    place = np.full(len(columns.texts), NONE)
    place[kept] = np.arange(len(kept))
    of_kept = place[columns.text] >= 0
    texts, sessions = ([of[i] for i in kept] for of in (columns.texts, columns.sessions))
    spoken_of = _spoken_of(columns, of_kept, serves)
    return Logged(tuple(texts), tuple(sessions), lambda labels: _evidence(columns, place, of_kept, labels, serves), spoken_of)


def read_columns(observations: pa.Table) -> Columns:
    """Read a table; texts that are equal (`Row.key`) are one, in the words of the first."""
    texts, sessions = observations["text"].to_pylist(), observations["session"].to_pylist()
    number: dict[str, int] = {}
    of_row = np.array([number.setdefault(Row(text, "").key, len(number)) for text in texts], np.int64)
    first = np.unique(of_row, return_index=True)[1]
    return Columns(
        texts=tuple(texts[i] for i in first),
        sessions=tuple(str(sessions[i]) for i in first),
        text=of_row,
        asked=tuple(observations["asked"].to_pylist()),
        codes={name: observations[name].to_numpy().astype(np.int64) for name in ("outcome", "rating", "again")},
        claims={source: tuple(observations[column].to_pylist()) for source, column in SOURCES.items()},
    )


def _spoken_of(columns: Columns, kept: npt.NDArray[np.bool_], serves: Mapping[str, str]) -> tuple[str, ...]:
    """Return the intents that enough different texts were said to have; a correction speaks of all intents of the agent that it names."""
    texts: dict[str, set[int]] = {}
    for source in ("correction", "choice"):
        for row in np.flatnonzero(kept):
            name = columns.claims[source][row]
            meant = [i for i, agent in serves.items() if agent == name] if source in NAMES_AN_AGENT else [i for i in serves if i == name]
            for intent in meant if name is not None else ():
                texts.setdefault(intent, set()).add(int(columns.text[row]))
    return tuple(sorted(intent for intent, of in texts.items() if len(of) >= FEWEST_TEXTS))


def _most_telling(columns: Columns, most: int) -> Indices:
    size = len(columns.texts)
    said, failed = np.zeros(size, bool), np.zeros(size, bool)
    for source in ("correction", "choice"):
        said[columns.text[[name is not None for name in columns.claims[source]]]] = True
    failed[columns.text[columns.codes["outcome"] == 1]] = True
    order = np.lexsort((-np.arange(size), ~failed, ~said))
    return np.sort(order[:most])


def _evidence(columns: Columns, place: Indices, kept: npt.NDArray[np.bool_], labels: Sequence[str], serves: Mapping[str, str]) -> Evidence:
    rows = np.flatnonzero(kept)
    asked = [columns.asked[i] for i in rows]
    agents = sorted({*serves.values(), *(name for name in asked if name is not None)})
    number = {name: i for i, name in enumerate(agents)}
    own = [None if label == OUT_OF_SCOPE else serves.get(label) for label in labels]
    claims = {source: _claims(columns, source, rows, place, labels, own, len(agents)) for source in SOURCES}
    return Evidence(
        serves=np.array([NONE if name is None else number[name] for name in own]),
        size=int(place.max()) + 1,
        row=place[columns.text[rows]],
        asked=np.array([NONE if name is None else number[name] for name in asked], np.int64),
        **{name: codes[rows] for name, codes in columns.codes.items()},
        claims={source: one for source, one in claims.items() if len(one.rows)},
    )


def _claims(
    columns: Columns, source: str, rows: Indices, place: Indices, labels: Sequence[str], own: Sequence[str | None], agents: int
) -> Claims:
    """Return what a source claimed; of what no label stands for, nothing can be learned."""
    meant = own if source in NAMES_AN_AGENT else labels
    known = {name for name in meant if name is not None}
    said = [(place[columns.text[i]], columns.claims[source][i]) for i in rows if columns.claims[source][i] in known]
    fits = np.array([[name == label for label in meant] for _, name in said], bool).reshape(len(said), len(labels))
    others = agents - 1 if source in NAMES_AN_AGENT else len(labels) - 1
    return Claims(np.array([row for row, _ in said], np.int64), fits, max(1, others))
