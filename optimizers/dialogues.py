"""Dialogues: turns of Schema-Guided Dialogue (Rastogi et al. 2020) as a student reads them, for learning what history says."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.routing.calibration import Array
from service.routing.descriptions import features
from service.routing.encoder import Encoder, Encoding
from service.routing.history import UTTERANCES, History, Turns, evidence
from service.routing.student import Student

# What a turn to another label counts. On dialogues kept apart 1, 2 and 4 gave 88.6, 88.8 and 88.8 % of all turns and 71, 76 and 79 % of
# the changes (students of all turns); on the conversations of `datasets/conversations/dev.jsonl` 91, 84 and 78 % of the follow-ups
CHANGE = 2.0

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spoken:
    """One turn of the user: `answer` was said before it, `before` is the label of the turn before; both empty at the first."""

    dialogue: str
    text: str
    answer: str
    before: str
    label: str

    @property
    def stands_alone(self) -> bool:
        """Whether the turn is about something new."""
        return self.before != self.label


def read_dialogues(path: Path) -> dict[str, list[Spoken]]:
    """Read a file of turns, in order."""
    dialogues: dict[str, list[Spoken]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            name = row["id"].rsplit(".", 1)[0]
            turns = dialogues.setdefault(name, [])
            answer = row["history"][-1].removeprefix("S: ") if row["history"] else ""
            turns.append(Spoken(name, row["text"], answer, turns[-1].label if turns else "", row["label"]))
    return dialogues


def describe(service: dict[str, Any]) -> list[str]:
    """Return the texts that describe a service."""
    parts = [service["description"], *(i["description"] for i in service["intents"]), *(s["description"] for s in service["slots"])]
    return [str(part) for part in parts]


@dataclass(frozen=True, slots=True)
class Choices:
    """Rows of a conditional logit: features of each label, the right one, and what the row counts."""

    features: npt.NDArray[np.float32]
    target: npt.NDArray[np.int64]
    weight: Weights


class Cache:
    """Encodes every text once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._known: dict[tuple[str, bool], Encoding] = {}

    def __call__(self, texts: Sequence[str], *, short: bool = False) -> list[Encoding]:
        """Encode texts; `short` reads as much as of an earlier utterance."""
        missing = list(dict.fromkeys(t for t in texts if (t, short) not in self._known))
        for start in range(0, len(missing), 5_000):
            some = missing[start : start + 5_000]
            encodings = self.encoder.encode_short(some).values() if short else self.encoder.encode_many(some)
            self._known |= {(t, short): e for t, e in zip(some, encodings, strict=True)}
        return [self._known[t, short] for t in texts]


class Read:
    """Dialogues as one student reads them: turns whose label the student knows, whole dialogues only."""

    def __init__(self, student: Student, dialogues: Sequence[Sequence[Spoken]], vectors: Cache, history: History) -> None:
        column = {label: i for i, label in enumerate(student.labels)}
        self.turns = [t for d in dialogues if all(t.label in column for t in d) for t in d]
        self.target = np.array([column[t.label] for t in self.turns])
        self.before = np.array([column.get(t.before, -1) for t in self.turns])
        self.new = self.target >= len(student.practised)
        self.parent = np.where(self.before >= 0, np.arange(len(self.turns)) - 1, -1)
        self.change = (self.before >= 0) & (self.before != self.target)
        self.labels = len(column)
        texts, answers = vectors([t.text for t in self.turns]), vectors([t.answer for t in self.turns], short=True)
        scores = student.score(texts)
        self.features = features(scores.values[:, student.inside], scores.described) if scores.described is not None else None
        read, said = student.calibrate(scores)[0], student.calibrate(student.score(answers))[0]
        there = np.array([bool(t.answer) for t in self.turns])
        stacked, spoken = np.stack([e.vector for e in texts]), np.stack([e.vector for e in answers])
        said[~there] = 1.0 / self.labels
        self.heard = Turns(read, said, (stacked * spoken).sum(axis=1) * there, history.depends(stacked))

    def described(self, *, alone: bool) -> Choices:
        """Return turns as choices between labels from descriptions and examples; those that stand alone only, where `alone`."""
        if self.features is None:
            raise ValueError("The student knows no descriptions.")
        rows = np.flatnonzero(self.change | (self.parent < 0)) if alone else np.arange(len(self.turns))
        return Choices(self.features[rows].astype(np.float32), self.target[rows], np.ones(len(rows)))

    def at(self, rows: npt.NDArray[np.int64], *, silent: bool) -> Turns:
        """Return some turns, as if nothing had been answered before them where `silent`."""
        heard = self.heard
        some = Turns(heard.text[rows], heard.answer[rows], heard.likeness[rows], heard.depends[rows])
        return replace(some, answer=self.even(len(rows)), likeness=np.zeros(len(rows))) if silent else some

    def even(self, count: int) -> Array:
        """Return beliefs that know nothing."""
        return np.full((count, self.labels), 1.0 / self.labels)

    def known(self) -> Array:
        """Return the beliefs of one who was told the label of the turn before."""
        belief, told = self.even(len(self.turns)), np.flatnonzero(self.before >= 0)
        belief[told] = np.eye(self.labels)[self.before[told]]
        return belief

    def window(self, history: History, *, silent: bool = False) -> Array:
        """Return the beliefs before each turn of one who heard the last `UTTERANCES` utterances only."""

        def after(rows: npt.NDArray[np.int64], left: int) -> Array:
            if left == 0:  # the oldest turn: what came before it is unknown, if anything did
                oldest = self.at(rows, silent=True)
                return np.where(self.parent[rows, None] >= 0, history.move(oldest, self.even(len(rows))), oldest.text)
            moved = history.move(self.at(rows, silent=silent), before(rows, left))
            return np.where(self.parent[rows, None] >= 0, moved, self.heard.text[rows])

        def before(rows: npt.NDArray[np.int64], left: int) -> Array:
            belief, later = self.even(len(rows)), self.parent[rows] >= 0
            if later.any():
                belief[later] = after(self.parent[rows][later], left - 1)
            return belief

        return before(np.arange(len(self.turns)), UTTERANCES // 2)

    def final(self, history: History, belief: Array) -> Array:
        """Return the beliefs after each turn."""
        moved = history.move(self.at(np.arange(len(self.turns)), silent=False), belief)
        return np.where(self.parent[:, None] >= 0, moved, self.heard.text)

    def examples(self, belief: Array, weight: float, *, silent: bool = False) -> Choices:
        """Return the turns after the first as choices between labels."""
        rows = np.flatnonzero(self.parent >= 0)
        weights = np.where(self.change[rows], CHANGE, 1.0) * weight
        return Choices(evidence(self.at(rows, silent=silent), belief[rows]).astype(np.float32), self.target[rows], weights)
