"""Measure a student on labelled files: fit on train, choose on validation, evaluate once on test. Pure but for reading files.

What is in the test set never helps: rows of train and validation whose text is in the test set are taken out first.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import f1_score, roc_auc_score
from threadpoolctl import threadpool_limits

from optimizers.dataset import Row, read_descriptions, read_rows, said_before
from optimizers.evaluate import BINS, Figure
from optimizers.policy import HeldOut, acts_alone, fit_policy, read_held_out
from optimizers.student import Fit, fit
from service.routing.encoder import Encoder
from service.routing.history import History
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE, Student

FEWEST_VALIDATION_ROWS = 100
DRAWS = 500  # of test sets on which a calibrated student is measured
TIMED_ROWS = 500
WARM_UP = 20
SHOWN_TEXTS = 3
TOP = 3

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The test rows, each read once.

    Attributes:
        rows: in-scope rows.
        likeliest: the `TOP` best labels of each, best first.
        probability: of the best one, shape (rows,).
        oos_score: of each in-scope row, shape (rows,).
        outside: out-of-scope scores of the out-of-scope rows.
    """

    rows: tuple[Row, ...]
    likeliest: tuple[tuple[str, ...], ...]
    probability: Array
    oos_score: Array
    outside: Array

    @property
    def predicted(self) -> tuple[str, ...]:
        """The best label of each row."""
        return tuple(labels[0] for labels in self.likeliest)

    @property
    def among_top(self) -> Flags:
        """Whether the right label is among the likeliest, shape (rows,)."""
        return np.array([row.label in labels for row, labels in zip(self.rows, self.likeliest, strict=True)], bool)

    @property
    def correct(self) -> Flags:
        """Whether the best label is right, shape (rows,)."""
        return np.array([row.label == label for row, label in zip(self.rows, self.predicted, strict=True)], bool)

    @property
    def oos_auroc(self) -> float | None:
        """Chance that an out-of-scope row scores higher than an in-scope row; None without out-of-scope rows."""
        if not len(self.outside):
            return None
        truth = np.r_[np.zeros(len(self.oos_score)), np.ones(len(self.outside))]
        return float(roc_auc_score(truth, np.r_[self.oos_score, self.outside]))

    @property
    def oos_recall_at_95_inscope(self) -> float | None:
        """Share of out-of-scope rows above the score that 95 % of the in-scope rows stay below; None without out-of-scope rows."""
        if not len(self.outside):
            return None
        return float((self.outside > np.quantile(self.oos_score, 0.95, method="higher")).mean())

    @property
    def held_out(self) -> HeldOut:
        """The same rows as evidence for the policy's thresholds."""
        outside, none = self.outside, np.zeros(len(self.outside))
        return HeldOut(
            np.r_[self.probability, none],
            np.r_[self.correct, none.astype(bool)],
            np.r_[self.oos_score, outside],
            np.arange(len(self.rows) + len(outside)) < len(self.rows),
            np.array([*self.predicted, *([OUT_OF_SCOPE] * len(outside))]),
        )

    def acted(self, policy: Policy) -> Flags:
        """Whether the student would act alone, shape (rows,)."""
        flags: Flags = acts_alone(self.held_out, policy)[: len(self.rows)]
        return flags


@dataclass(frozen=True, slots=True)
class Confusion:
    """One label read as another: how often, how often the student would have acted on it, and some of the texts."""

    label: str
    read: str
    count: int
    acted: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of one run, as `--json` writes them: shares are 0 to 1, and what the data cannot give is None.

    Attributes:
        accuracy: share of in-scope test rows whose best label is right; the interval is Wilson's, 95 %.
        ece: expected calibration error of the best label's probability.
        ece_by_chance: what a perfectly calibrated student would stay below in 95 % of such test sets; an `ece` below it proves no fault.
        coverage_at_risk: share of in-scope test rows that the student acts on alone under the thresholds chosen for `risk_target`.
        risk: share of those that are wrong.
        top3: share of in-scope test rows whose label is among the three likeliest.
        accuracy_first, accuracy_after: of rows without a history, and of rows with one.
        accuracy_new, top3_new: of rows whose label has no training row, only a description; None without such rows.
        oos_auroc, oos_recall_at_95_inscope: how out-of-scope rows are told from in-scope rows.
        latency_ms: p50 and p99 of the whole student, one test row at a time, after its history where it has one, one thread.
        fit_seconds: encoding, fitting, choosing and calibrating.
        peak_rss_mb: of the whole process, MiB.
        removed_rows: rows of train and validation taken out because a later set has the same text.
        chosen_on: "validation", or "held-out training rows" when too few validation rows were left.
    """

    accuracy: float
    accuracy_interval: tuple[float, float]
    macro_f1: float
    top3: float
    accuracy_first: float | None
    accuracy_after: float | None
    accuracy_new: float | None
    top3_new: float | None
    ece: float
    ece_by_chance: float
    coverage_at_risk: float
    risk: float | None
    risk_interval: tuple[float, float]
    risk_target: float
    oos_auroc: float | None
    oos_recall_at_95_inscope: float | None
    latency_ms: dict[str, float]
    fit_seconds: float
    artifact_bytes: int
    peak_rss_mb: float
    test_rows: int
    oos_rows: int
    labels: int
    removed_rows: dict[str, int]
    chosen_on: str
    lexical_weight: float
    noise: float
    act_above: float
    refuse_above: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One run and everything behind its figures."""

    fit: Fit
    student: Student
    policy: Policy
    evaluated: Evaluated
    removed: dict[str, int]
    chosen_on: str
    fit_seconds: float
    latency_ms: dict[str, float]
    artifact_bytes: int
    peak_rss_mb: float
    left_out: int

    def confusions(self) -> list[Confusion]:
        """Return which labels were read as which, those that would have been acted on first, then the most frequent."""
        acted = self.evaluated.acted(self.policy)
        found: dict[tuple[str, str], list[int]] = {}
        for i in np.flatnonzero(~self.evaluated.correct):
            found.setdefault((self.evaluated.rows[i].label, self.evaluated.predicted[i]), []).append(int(i))
        confusions = [
            Confusion(*pair, len(places), int(acted[places].sum()), tuple(self.evaluated.rows[i].text for i in places[:SHOWN_TEXTS]))
            for pair, places in found.items()
        ]
        return sorted(confusions, key=lambda c: (-c.acted, -c.count, c.label, c.read))

    @property
    def figures(self) -> Figures:
        """The numbers."""
        e, correct = self.evaluated, self.evaluated.correct
        acted, after = e.acted(self.policy), np.array([bool(r.history) for r in e.rows])
        new = np.isin([r.label for r in e.rows], self.student.labels[len(self.student.practised) :])
        accuracy = Figure.share(int(correct.sum()), len(correct))
        risk = Figure.share(int((~correct[acted]).sum()), int(acted.sum()))
        return Figures(
            accuracy=accuracy.value,
            accuracy_interval=(accuracy.low, accuracy.high),
            macro_f1=float(f1_score([r.label for r in e.rows], e.predicted, average="macro", zero_division=0.0)),
            top3=float(e.among_top.mean()),
            accuracy_first=_share(correct[~after]),
            accuracy_after=_share(correct[after]),
            accuracy_new=_share(correct[new]),
            top3_new=_share(e.among_top[new]),
            ece=expected_calibration_error(e.probability, correct),
            ece_by_chance=calibration_error_by_chance(e.probability),
            coverage_at_risk=float(acted.mean()),
            risk=risk.value if risk.n else None,
            risk_interval=(risk.low, risk.high),
            risk_target=self.policy.risk_target,
            oos_auroc=e.oos_auroc,
            oos_recall_at_95_inscope=e.oos_recall_at_95_inscope,
            latency_ms=self.latency_ms,
            fit_seconds=self.fit_seconds,
            artifact_bytes=self.artifact_bytes,
            peak_rss_mb=self.peak_rss_mb,
            test_rows=len(e.rows),
            oos_rows=len(e.outside),
            labels=len(self.student.labels),
            removed_rows=self.removed,
            chosen_on=self.chosen_on,
            lexical_weight=self.fit.settings.lexical_weight,
            noise=self.fit.settings.noise,
            act_above=self.policy.act_above,
            refuse_above=self.policy.refuse_above,
        )


def bench(
    train: Path,
    validation: Path | None,
    test: Path,
    outside: Path | None,
    *,
    catalog: Path | None = None,
    encoder: Encoder,
    risk_target: float,
    progress: Progress,
) -> Benchmark:
    """Fit, choose and evaluate once.

    With a catalogue its labels are the candidates: rows of other labels are not fitted on, and labels without rows are told by their
    description. Rows with a history are read after it.

    Raises:
        ValueError, FileNotFoundError: a file cannot be used.
    """
    progress("reading")
    test_rows = read_rows(test) + [Row(r.text, OUT_OF_SCOPE, None, r.history) for r in (read_rows(outside) if outside else [])]
    if all(r.label == OUT_OF_SCOPE for r in test_rows):
        raise ValueError(f"{test} has no in-scope row.")
    rows, validation_rows, removed = keep_apart(read_rows(train), read_rows(validation) if validation else [], test_rows)
    if not rows and removed["train"]:
        raise ValueError(
            f"{train} has no row left: its {removed['train']} texts are test texts too. Test on texts that were not trained on."
        )
    words = read_descriptions(catalog) if catalog else {}
    given = len(rows) + len(validation_rows)
    if words:
        rows, validation_rows = ([r for r in some if r.label in words or r.label == OUT_OF_SCOPE] for some in (rows, validation_rows))
    left_out = given - len(rows) - len(validation_rows)
    if len([r for r in validation_rows if r.label != OUT_OF_SCOPE]) < FEWEST_VALIDATION_ROWS:
        validation_rows = []
    started = time.perf_counter()
    fitted = fit(
        rows, encoder, validation=validation_rows, descriptions={label: texts[0] for label, texts in words.items()}, progress=progress
    )
    student = fitted.student.knowing(words)
    policy = fit_policy(_held_out(fitted, student, validation_rows, words), risk_target=risk_target)
    fit_seconds = time.perf_counter() - started
    progress(f"evaluating once on {len(test_rows)} rows")
    evaluated = evaluate_once(student, test_rows)
    progress("timing single rows")
    latency = time_reading(student, test_rows)
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
        path = Path(folder) / "student.safetensors"
        fitted.student.save(path)
        size = path.stat().st_size
    return Benchmark(
        fitted,
        student,
        policy,
        evaluated,
        removed,
        "validation" if validation_rows else "held-out training rows",
        fit_seconds,
        latency,
        size,
        _peak_rss_mb(),
        left_out,
    )


def _held_out(fitted: Fit, student: Student, validation: Sequence[Row], words: Mapping[str, Sequence[str]]) -> HeldOut:
    """Read held-out rows as test rows are read: with their histories, where they have any."""
    if any(r.history for r in validation):
        return evaluate_once(student, validation).held_out
    if not any(r.history for r in fitted.rows):
        return read_held_out(fitted)
    part = next(some for some in fitted.groups() if any(fitted.rows[i].label != OUT_OF_SCOPE for i in some))
    return evaluate_once(fitted.without(part).knowing(words), [fitted.rows[i] for i in part]).held_out


def evaluate_once(student: Student, rows: Sequence[Row]) -> Evaluated:
    """Read every row, after its history where it has one and the encoder is one that histories are read with."""
    encodings, history = student.encoder.encode_many([r.text for r in rows]), History()
    in_context = history.reads(student.encoder)
    readings = history.read_all(student, encodings, [said_before(r) for r in rows]) if in_context else student.read_all(encodings)
    inside = [(row, reading) for row, reading in zip(rows, readings, strict=True) if row.label != OUT_OF_SCOPE]
    return Evaluated(
        tuple(row for row, _ in inside),
        tuple(tuple(islice(reading.probabilities, TOP)) for _, reading in inside),
        np.array([next(iter(reading.probabilities.values())) for _, reading in inside]),
        np.array([reading.oos_score for _, reading in inside]),
        np.array([reading.oos_score for row, reading in zip(rows, readings, strict=True) if row.label == OUT_OF_SCOPE]),
    )


def expected_calibration_error(probability: Array, correct: Flags, bins: int = BINS) -> float:
    """Return the mean distance of probability and accuracy over bins of equal width, weighted by rows (Naeini et al. 2015)."""
    place = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
    return float(np.abs(np.bincount(place, probability - correct)).sum() / len(probability))


def calibration_error_by_chance(probability: Array) -> float:
    """Return the error that a student which is right as often as it says stays below in 95 % of test sets (Bröcker and Smith 2007)."""
    random = np.random.default_rng(1)
    drawn = [expected_calibration_error(probability, random.random(len(probability)) < probability) for _ in range(DRAWS)]
    return float(np.quantile(drawn, 0.95))


def time_reading(student: Student, rows: Sequence[Row]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds of the whole student, one row at a time, warm, on one thread.

    As in the service a text without a history is read alone, and the encoder remembers the utterances of histories before.
    """
    single, history = student.on(Encoder(student.encoder.folder, threads=1)), History()
    spread = [rows[i] for i in np.linspace(0, len(rows) - 1, min(TIMED_ROWS, len(rows))).astype(int)]
    taken = []
    with threadpool_limits(1):  # of BLAS, as in the service
        for row in spread[:WARM_UP]:
            single.read(row.text)
        for text, earlier in [(row.text, said_before(row)) for row in spread]:
            started = time.perf_counter()
            if earlier and history.reads(single.encoder):
                history.read(single, single.encoder.encode(text), earlier)
            else:
                single.read(text)
            taken.append((time.perf_counter() - started) * 1e3)
    return {"p50": float(np.percentile(taken, 50)), "p99": float(np.percentile(taken, 99))}


def keep_apart(train: list[Row], validation: list[Row], test: list[Row]) -> tuple[list[Row], list[Row], dict[str, int]]:
    """Take the test rows out of train and validation, and the training rows out of validation."""
    tested = {r.key for r in test}
    kept = [r for r in train if r.key not in tested]
    seen = tested | {r.key for r in kept}
    apart = [r for r in validation if r.key not in seen]
    return kept, apart, {"train": len(train) - len(kept), "validation": len(validation) - len(apart)}


def _share(flags: Flags) -> float | None:
    return float(flags.mean()) if len(flags) else None


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0 * 1024.0 if sys.platform == "darwin" else 1024.0)
