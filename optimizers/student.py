"""Fit the student: rows → landmarks, weights and calibration. Everything that is chosen or calibrated is read off held-out rows.

Pure functions from data to data. It knows no registry and no service.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import sparse

from optimizers.calibration import fit_probabilities, fit_scope
from optimizers.dataset import Row
from optimizers.kernel import Problem, Settings, Solution, choose_landmarks, leading_directions
from optimizers.label_model import Evidence
from optimizers.log_fit import draw, settle
from service.routing.calibration import Calibration
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon
from service.routing.student import OUT_OF_SCOPE, Example, Matrix, Scores, Student, Weights

CANDIDATES = (Settings(0.1, 0.1), Settings(0.3, 0.2), Settings(1.0, 0.5))  # what the words may weigh; chosen on held-out rows
DIRECTIONS = 256  # of the 768 that a vector has; on validation sets the rest is noise: without it fewer landmarks do
# Validation accuracy of two seeds on CLINC150's 15,000 rows: 3,000 landmarks 96.8 and 97.0, 4,000 97.0, 5,000 97.1 and 97.2; all rows 97.1
LANDMARKS = 4_000
GRAMS = 16_384
MAX_ROWS = 20_000  # rows of one exact fit (1.6 GB of kernel); more are thinned evenly by label
ROWS_TO_CHOOSE = 4_000  # settings are chosen on at most so many rows
PARTS = 10  # that rows are held out in, where neither writers nor single texts can be

Progress = Callable[[str], None]
TOLD_AFTER = 1_000  # texts, as long as they are encoded: some ten seconds
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Logged:
    """Requests that were answered, without a label.

    Attributes:
        texts: none twice, and none among the labelled ones.
        sessions: whose they are; what one user says is held out together.
        evidence: what was observed of them, for these labels in this order.
        labels: those that enough of them were said to have, so that they are learned even where no labelled request has them.
    """

    texts: tuple[str, ...]
    sessions: tuple[str, ...]
    evidence: Callable[[Sequence[str]], Evidence]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded rows and the column of each one's label, -1 for a label that is not known."""

    encodings: tuple[Encoding, ...]
    targets: Indices

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], labels: Sequence[str], encoder: Encoder, progress: Progress = lambda _: None) -> "Batch":
        """Encode pairs of text and label."""
        column = {label: i for i, label in enumerate(labels)}
        encodings: list[Encoding] = []
        for start in range(0, len(pairs), TOLD_AFTER):
            progress(f"encoding {len(pairs):,} texts: {start:,} done")
            encodings += encoder.encode_many([text for text, _ in pairs[start : start + TOLD_AFTER]])
        return cls(tuple(encodings), np.array([column.get(label, -1) for _, label in pairs], np.int64))

    @property
    def vectors(self) -> Matrix:
        """Unit vectors, shape (rows, d)."""
        return np.stack([e.vector for e in self.encodings])

    def pick(self, rows: Indices) -> "Batch":
        """Return some of the rows."""
        return Batch(tuple(self.encodings[i] for i in rows), self.targets[rows])


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything of a fit that does not depend on the settings. Rows and landmarks come first, label names after them."""

    own: Batch
    lexicon: Lexicon
    projection: Matrix
    landmarks: Indices
    vectors: Matrix
    problem: Problem
    indicators: Matrix

    @classmethod
    def of(cls, own: Batch, names: Batch, columns: int, seed: int) -> "Prepared":
        """Choose landmarks and grams and set the problem up."""
        everything = Batch(own.encodings + names.encodings, np.concatenate([own.targets, names.targets]))
        lexicon = Lexicon.fit((e.tokens for e in everything.encodings), most=GRAMS)
        projection = _stored(leading_directions(everything.vectors, DIRECTIONS))
        vectors = _stored(everything.vectors @ projection)
        landmarks = _landmarks(vectors, len(own.targets), seed)
        indicators = np.eye(columns, dtype=np.float32)[everything.targets] * (everything.targets >= 0)[:, None]
        problem = Problem(vectors, landmarks, _tfidf(lexicon, everything.encodings))
        return cls(own, lexicon, projection, landmarks, vectors, problem, indicators.astype(np.float32))

    def student(self, solution: Solution, labels: tuple[str, ...], examples: Sequence[Example], encoder: Encoder) -> Student:
        """Return the uncalibrated student of a solution."""
        by_landmark = np.ascontiguousarray(solution.by_landmark)  # one order of memory, or the sums differ in the last bit after loading
        by_gram = np.ascontiguousarray(_stored(solution.by_gram))
        weights = Weights(labels, self.projection, self.vectors[self.landmarks], by_landmark, by_gram, Calibration())
        shown = tuple(examples[i] for i in self.landmarks if i < len(examples))
        return Student(encoder, self.lexicon, weights, shown)

    def held_out(self, solution: Solution, folds: Sequence[Indices]) -> Scores:
        """Score every row as if its fold had not been there."""
        fold_of = np.full(len(self.vectors), -1, np.int64)
        for number, fold in enumerate(folds):
            fold_of[fold] = number
        rows = np.arange(len(self.own.targets))
        nearness = np.zeros(len(rows), np.float32)
        for chunk in np.array_split(rows, max(1, len(rows) // 2_000)):
            cosines = self.vectors[chunk] @ self.vectors[self.landmarks].T
            cosines[fold_of[chunk][:, None] == fold_of[self.landmarks]] = -1.0
            nearness[chunk] = cosines.max(axis=1)
        return Scores(self.problem.held_out(solution, folds)[rows], nearness)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted student and the held-out rows behind its calibration: no row was scored by a fit that had seen it.

    Attributes:
        rows: what was fitted on.
        held_out: uncalibrated scores of the held-out rows: the validation rows, or else all rows.
        targets: column of `student.weights.labels` by held-out row; -1 for a label that training lacks.
        settings: what was chosen.
        folds: the training rows that were held out together; none with validation rows.
    """

    student: Student
    rows: tuple[Row, ...]
    held_out: Scores
    targets: Indices
    settings: Settings
    folds: tuple[Indices, ...]
    prepared: Prepared
    solution: Solution

    def groups(self) -> list[Indices]:
        """Return the training rows in at most `PARTS` parts, for `without`: the folds, joined at random where they are more."""
        folds = self.folds or _together(r.key for r in self.rows)
        return list(folds) if len(folds) <= PARTS else _parts(folds, seed=1)

    def choices_without_own(self) -> dict[str, str]:
        """Return the likeliest label of each held-out row, by its `key`, by the fit without the rows that were held out with it."""
        if not self.folds:
            return {}
        probabilities, _ = self.student.calibrate(self.held_out)
        return {row.key: self.student.labels[best] for row, best in zip(self.rows, probabilities.argmax(axis=1), strict=True)}

    def without(self, fold: Indices) -> Student:
        """Return the student as it would be if these rows had not been there."""
        weights = self.student.weights
        bare = self.prepared.student(self.prepared.problem.without(self.solution, fold), weights.labels, (), self.student.encoder)
        return Student(bare.encoder, bare.lexicon, replace(bare.weights, calibration=weights.calibration), ())


def fit(
    rows: Sequence[Row],
    encoder: Encoder,
    *,
    validation: Sequence[Row] = (),
    logged: Logged | None = None,
    descriptions: Mapping[str, str] | None = None,
    seed: int = 1,
    progress: Progress = lambda _: None,
) -> Fit:
    """Fit on all rows. Settings and calibration come from `validation`, else from rows held out by writer, text by text, or in parts.

    Rows with equal texts are held out together, or one would tell the other's label.

    `validation` holds labelled rows that are not among `rows`. The labels of `logged` requests are learned from what was observed of them
    (`optimizers/label_model.py`); they come behind the rows, each with a label drawn from what is believed of it. `descriptions` say what a
    label means, in words; a label without one is described by its name. Each counts as one more row.

    Raises:
        ValueError: fewer than two in-scope labels, or, without validation rows, a label with a single text.
    """
    labels = tuple(sorted({*_labels(rows, need_two=not validation), *(logged.labels if logged else ())}))
    rows = _thin(rows, seed)
    words = {label: (descriptions or {}).get(label) or describe(label) for label in labels if label != OUT_OF_SCOPE}
    texts = [*((r.text, r.label) for r in rows), *((text, "") for text in (logged.texts if logged else ()))]
    own = Batch.of(texts, labels, encoder, progress)
    names = Batch.of([(text, label) for label, text in words.items() if text], labels, encoder)
    given = Batch.of([(r.text, r.label) for r in validation], labels, encoder)
    folds = [] if validation else _folds(rows, own.targets[: len(rows)], seed)

    progress("choosing settings on held-out rows")
    prepared = Prepared.of(own, names, len(labels), seed)
    settings = _choose(prepared, names, given, folds, labels, encoder, seed)
    progress(f"fitting {len(own.targets)} rows")
    solution = prepared.problem.solve(settings, prepared.indicators)
    if logged is not None:
        progress(f"learning from {len(logged.texts)} logged requests")
        prepared, solution, rows, folds = _learn(prepared, solution, rows, folds, logged, labels, seed)
    student = prepared.student(solution, labels, [Example(r.text, r.label) for r in rows], encoder)
    progress("calibrating")
    held_out = student.score(given.encodings) if validation else prepared.held_out(solution, folds)
    targets = given.targets if validation else prepared.own.targets
    weights = replace(student.weights, calibration=_calibrate(student, held_out, targets))
    calibrated = Student(encoder, student.lexicon, weights, student.examples)
    return Fit(calibrated, tuple(rows), held_out, targets, settings, tuple(folds), prepared, solution)


def _learn(
    prepared: Prepared, solution: Solution, rows: Sequence[Row], folds: list[Indices], logged: Logged, labels: Sequence[str], seed: int
) -> tuple[Prepared, Solution, Sequence[Row], list[Indices]]:
    """Fit the logged requests' labels too; return everything with them, each with a label drawn from what is believed of it."""
    own = prepared.own
    log_folds = [fold + len(rows) for fold in _parts(_together(logged.sessions), seed)]
    held_out = [*(folds or _parts(_together(r.key for r in rows), seed)), *log_folds]
    evidence = logged.evidence(labels)
    solution, beliefs = settle(prepared.problem, solution, slice(len(rows), len(own.targets)), evidence, held_out)
    drawn = draw(beliefs, seed)
    learned = [Row(text, labels[i], session) for text, i, session in zip(logged.texts, drawn, logged.sessions, strict=True)]
    own = Batch(own.encodings, np.concatenate([own.targets[: len(rows)], drawn]))
    return replace(prepared, own=own), solution, [*rows, *learned], [*folds, *log_folds] if folds else []


def describe(label: str) -> str | None:
    """Return a label's name in words ("transfer_money" → "transfer money"), or None when it holds no word."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_\d]+", " ", label).split()
    return " ".join(parts).lower() if any(len(part) > 2 for part in parts) else None


def _labels(rows: Sequence[Row], *, need_two: bool) -> tuple[str, ...]:
    labels = tuple(sorted({r.label for r in rows}))
    inside = [label for label in labels if label != OUT_OF_SCOPE]
    if len(inside) < 2:
        raise ValueError(f"A student needs at least two labels besides {OUT_OF_SCOPE!r}; the data has {inside}.")
    count = Counter(label for label, _ in {(r.label, r.key) for r in rows})
    rare = [label for label in labels if count[label] < 2] if need_two else []
    if rare:
        raise ValueError(f"Each label needs at least two different texts; these have one: {', '.join(map(repr, rare))}.")
    return labels


def _thin(rows: Sequence[Row], seed: int) -> Sequence[Row]:
    """Return at most `MAX_ROWS` rows: every row of the small labels, and as many of the others as fit, at random."""
    if len(rows) <= MAX_ROWS:
        return rows
    order = np.random.default_rng(seed).permutation(len(rows))
    seen: Counter[str] = Counter()
    rank = np.zeros(len(rows), np.int64)
    for i in order:
        rank[i] = seen[rows[i].label]
        seen[rows[i].label] += 1
    return [rows[i] for i in np.sort(np.lexsort((order, rank))[:MAX_ROWS])]


def _folds(rows: Sequence[Row], targets: Indices, seed: int) -> list[Indices]:
    """Hold out writer by writer where the data names at least three, so that held-out rows are as unlike the rest as a new user's.

    A text that several wrote goes with the first of them.
    """
    if all(r.writer is not None for r in rows):
        first: dict[str, str | None] = {}
        folds = _together(first.setdefault(r.key, r.writer) for r in rows)
        takes_no_label = all(len(set(targets) - set(np.delete(targets, fold))) == 0 for fold in folds)
        if len(folds) >= 3 and takes_no_label:
            return folds
    texts = _together(r.key for r in rows)
    return texts if len(rows) <= ROWS_TO_CHOOSE else _parts(texts, seed)


def _together(names: Iterable[str | None]) -> list[Indices]:
    """Return the row numbers of each name, in order of appearance."""
    places: dict[str | None, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    return [np.array(rows) for rows in places.values()]


def _parts(folds: Sequence[Indices], seed: int) -> list[Indices]:
    """Join folds at random into at most `PARTS` parts."""
    order = np.random.default_rng(seed).permutation(len(folds))
    return [np.concatenate([folds[i] for i in part]) for part in np.array_split(order, PARTS) if len(part)]


def _landmarks(vectors: Matrix, rows: int, seed: int) -> Indices:
    """Choose landmarks among the rows, with all label names behind them; where names would fill half the places, among both."""
    names = np.arange(rows, len(vectors))
    if len(names) > LANDMARKS // 2:
        return choose_landmarks(vectors, LANDMARKS, seed)
    return np.concatenate([choose_landmarks(vectors[:rows], LANDMARKS - len(names), seed), names])


def _choose(
    prepared: Prepared, names: Batch, given: Batch, folds: Sequence[Indices], labels: tuple[str, ...], encoder: Encoder, seed: int
) -> Settings:
    """Return the settings with the most right held-out labels, on some of the rows when there are many; the first of equals."""
    rows = np.flatnonzero(prepared.own.targets >= 0)
    if len(rows) > ROWS_TO_CHOOSE:
        rows = np.sort(np.random.default_rng(seed).choice(rows, ROWS_TO_CHOOSE, replace=False))
    if len(rows) < len(prepared.own.targets):
        prepared = Prepared.of(prepared.own.pick(rows), names, len(labels), seed)
    place = {row: i for i, row in enumerate(rows)}
    kept = [np.array([place[row] for row in fold if row in place], np.int64) for fold in folds]
    right = []
    for settings in CANDIDATES:
        solution = prepared.problem.solve(settings, prepared.indicators)
        student = prepared.student(solution, labels, (), encoder)
        if len(given.targets):
            scores, targets = student.score(given.encodings).values, given.targets
        else:
            scores, targets = prepared.held_out(solution, [fold for fold in kept if len(fold)]).values, prepared.own.targets
        counted = np.isin(targets, student.inside)
        right.append((student.inside[scores[counted][:, student.inside].argmax(axis=1)] == targets[counted]).sum())
    return CANDIDATES[int(np.argmax(right))]


def _calibrate(student: Student, scores: Scores, targets: Indices) -> Calibration:
    inside = student.inside
    in_scope = np.isin(targets, inside)
    if not in_scope.any():
        raise ValueError("No held-out row has a label of the training rows, so nothing can be calibrated.")
    calibration = fit_probabilities(scores.values[in_scope][:, inside], np.searchsorted(inside, targets[in_scope]))
    known = targets >= 0
    return fit_scope(calibration, student.evidence(scores)[known], in_scope[known])


def _stored(array: Matrix) -> Matrix:
    """Round to what the artifact keeps, so that a loaded student reads as the fitted one."""
    return np.ascontiguousarray(array.astype(np.float16).astype(np.float32))


def _tfidf(lexicon: Lexicon, encodings: Sequence[Encoding]) -> sparse.csr_matrix:
    weighed = [lexicon.weigh(e.tokens) for e in encodings]
    pointers = np.cumsum([0, *(len(columns) for columns, _ in weighed)])
    columns, values = np.concatenate([c for c, _ in weighed]), np.concatenate([v for _, v in weighed])
    return sparse.csr_matrix((values, columns, pointers), shape=(len(encodings), len(lexicon.keys)))
