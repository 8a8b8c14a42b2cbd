"""Fit the student and its policy: scikit-learn for the linear model, cross-fitted logits for everything that is read off held-out data.

Pure functions from data to data. It knows no registry and no service.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from optimizers.dataset import Row
from service.routing.encoder import Encoder, Encoding
from service.routing.features import Lexicon
from service.routing.student import OUT_OF_SCOPE, Example, Matrix, Student, Weights

LEXICAL_WEIGHT = 2.5  # chosen by leave-one-writer-out accuracy on the seed set among 0, .8, 1.2, 1.8, 2.5; never on the golden set
INVERSE_REGULARIZATION = 15.0  # likewise, among 5, 15, 40
MAX_FOLDS = 5

Progress = Callable[[str], None]
Logits = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted student, and its cross-fitted logits: each row's logits come from a model that saw neither the row nor its writer.

    Attributes:
        logits: shape (rows, labels), uncalibrated.
        targets: index into `student.weights.labels` by row, shape (rows,).
    """

    student: Student
    logits: Logits
    targets: npt.NDArray[np.int64]


def fit(rows: Sequence[Row], encoder: Encoder, *, seed: int = 1, progress: Progress = lambda _: None) -> Fit:
    """Fit on all rows, and calibrate on cross-fitted logits by temperature scaling (Guo et al. 2017).

    Raises:
        ValueError: fewer than two in-scope labels, or a label with a single row.
    """
    labels = tuple(sorted({r.label for r in rows}))
    inside = [label for label in labels if label != OUT_OF_SCOPE]
    if len(inside) < 2:
        raise ValueError(f"A student needs at least two labels besides {OUT_OF_SCOPE!r}; the data has {inside}.")
    targets = np.array([labels.index(r.label) for r in rows], np.int64)
    rare = [label for i, label in enumerate(labels) if (targets == i).sum() < 2]
    if rare:
        raise ValueError(f"Each label needs at least two rows; these have one: {', '.join(rare)}.")
    progress(f"encoding {len(rows)} texts")
    encodings = encoder.encode_many([r.text for r in rows])
    held_out = np.zeros((len(rows), len(labels)))
    folds = _folds(rows, targets, seed)
    for number, (train, test) in enumerate(folds, 1):
        progress(f"cross-fitting fold {number} of {len(folds)}")
        lexicon, coef, intercept = _train([encodings[i] for i in train], targets[train], len(labels), seed)
        partial = Student(encoder, lexicon, Weights(labels, coef, intercept, LEXICAL_WEIGHT, 1.0), (), np.zeros((0, 1), np.float32))
        held_out[test] = [partial.logits(encodings[i]) for i in test]
    progress("fitting on all rows")
    lexicon, coef, intercept = _train(encodings, targets, len(labels), seed)
    weights = Weights(labels, coef, intercept, LEXICAL_WEIGHT, temperature(held_out, targets))
    vectors = np.stack([e.vector for e in encodings])
    examples = tuple(Example(r.text, r.label) for r in rows)
    return Fit(Student(encoder, lexicon, weights, examples, vectors), held_out, targets)


def temperature(logits: Logits, targets: npt.NDArray[np.int64]) -> float:
    """Return the temperature that minimizes the negative log-likelihood of held-out logits."""

    def loss(log_t: float) -> float:
        return float(-log_softmax(logits / np.exp(log_t), axis=1)[np.arange(len(targets)), targets].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x))


def _folds(rows: Sequence[Row], targets: npt.NDArray[np.int64], seed: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Split by writer where the data names at least three, so that held-out rows are as unlike the training rows as a new user's."""
    writers = [r.writer for r in rows]
    names = {w for w in writers if w is not None}
    if len(names) >= 3 and None not in writers:
        folds = list(GroupKFold(n_splits=min(MAX_FOLDS, len(names))).split(targets, targets, writers))
        if all(len(np.unique(targets[train])) > 1 for train, _ in folds):  # else writers of one label each leave a fold with one class
            return folds
    count = min(MAX_FOLDS, int(np.bincount(targets).min()))
    return list(StratifiedKFold(n_splits=count, shuffle=True, random_state=seed).split(targets, targets))


def _train(encodings: Sequence[Encoding], targets: npt.NDArray[np.int64], labels: int, seed: int) -> tuple[Lexicon, Matrix, Matrix]:
    lexicon = Lexicon.fit(e.tokens for e in encodings)
    weighed = [lexicon.weigh(e.tokens) for e in encodings]
    pointers = np.cumsum([0, *(len(columns) for columns, _ in weighed)])
    columns = np.concatenate([c for c, _ in weighed])
    values = np.concatenate([v for _, v in weighed])
    lexical = sparse.csr_matrix((values, columns, pointers), shape=(len(encodings), len(lexicon.keys)))
    dense = sparse.csr_matrix(np.stack([e.vector for e in encodings]))
    features = sparse.hstack([dense, LEXICAL_WEIGHT * lexical]).tocsr()
    with threadpool_limits(1):  # matrices this small are faster by ten on one thread when the cores are busy
        model = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=1_000, random_state=seed).fit(features, targets)
    coef, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps one row for two classes; the student wants one row a label
        coef, intercept = np.vstack([-coef / 2, coef / 2]), np.concatenate([-intercept / 2, intercept / 2])
    if len(model.classes_) != labels:  # a fold may lack a rare label: it gets the least likely row
        full, bias = np.zeros((labels, coef.shape[1])), np.full(labels, intercept.min() - 10.0)
        full[model.classes_], bias[model.classes_] = coef, intercept
        coef, intercept = full, bias
    return lexicon, coef.astype(np.float32), intercept.astype(np.float32)
