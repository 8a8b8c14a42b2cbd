"""Every figure of the student on public data, in one run: `make bench-intents DATA=FOLDER` or `python -m tests.bench.intents --help`.

Each set is fitted on its training rows, chosen and calibrated on its validation rows, and evaluated once on its test rows. The folder has
clinc150, banking77, hwu64, clinc_single_domain_oos and sgd_routing, as JSON lines; which files are read stands in the constants below.
"""

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from optimizers.bench import Benchmark, Figures, bench
from optimizers.dataset import read_rows
from optimizers.student import fit
from service.routing.encoder import Encoder

SETS = {
    "clinc150": ("val", "oos_test"),
    "banking77": ("val_fewshot", None),
    "hwu64": ("val", None),
}
WITH_OUTSIDE = {"train": "oos_train_plus", "val": "oos_val"}  # CLINC150's published condition OOS+: out-of-scope rows are trained on
SIZES = {"full": "train", "10-shot": "train_10shot", "5-shot": "train_5shot"}
DOMAINS = ("banking", "credit_cards")

Flags = npt.NDArray[np.bool_]
console = Console(highlight=False)


def intents(data: Path, encoder: Encoder, sets: list[str]) -> dict[str, Any]:
    """Measure the intent sets in every size."""
    table = Table(title="intents", title_justify="left")
    for column in ("set and size", "accuracy", "ECE", "coverage", "risk", "OOS AUROC", "OOS recall at 95 %", "fit, s", "MiB", "peak, MiB"):
        table.add_column(column, justify="left" if column == "set and size" else "right")
    found: dict[str, Figures] = {}
    for name in sets:
        validation, outside = SETS[name]
        for size, train in SIZES.items():
            files = [data / name / f"{part}.jsonl.gz" if part else None for part in (train, validation, "test", outside)]
            found[f"{name} {size}"] = _bench(files, encoder).figures
    if "clinc150" in sets:
        with tempfile.TemporaryDirectory() as scratch:
            for part, outside in WITH_OUTSIDE.items():
                (Path(scratch) / part).mkdir()
                for file in (part, outside):
                    (Path(scratch) / part / f"{file}.jsonl.gz").symlink_to((data / "clinc150" / f"{file}.jsonl.gz").absolute())
            files = [*(Path(scratch) / part for part in WITH_OUTSIDE), *(data / f"clinc150/{p}.jsonl.gz" for p in ("test", "oos_test"))]
            found["clinc150 full, OOS+"] = _bench(files, encoder).figures
    for name, f in found.items():
        shares = (f.accuracy, f.ece, f.coverage_at_risk, f.risk, f.oos_auroc, f.oos_recall_at_95_inscope)
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        table.add_row(name, *cells, f"{f.fit_seconds:.0f}", f"{f.artifact_bytes / 2**20:.1f}", f"{f.peak_rss_mb:.0f}")
    console.print(table)
    return {name: asdict(figures) for name, figures in found.items()}


def near_scope(data: Path, encoder: Encoder) -> dict[str, Any]:
    """Measure near out-of-scope rows: AUROC of the student's score, and of the maximum probability of the student and of plain models."""
    table = Table(title="near out of scope (5 intents held back of each domain), AUROC", title_justify="left")
    for column in ("domain", "in-scope accuracy", "student", "its maximum probability", "embedding + LR", "TF-IDF + LR"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    found = {}
    for domain in DOMAINS:
        train, validation, test, outside = (
            read_rows(data / "clinc_single_domain_oos" / f"{domain}_{part}.jsonl.gz") for part in ("train", "valid", "test", "id-oos_test")
        )
        student = fit(train, encoder, validation=validation).student
        encodings = encoder.encode_many([r.text for r in (*test, *outside)])
        readings = student.read_all(encodings)
        truth = np.arange(len(readings)) >= len(test)
        vectors = np.stack([e.vector for e in encodings])
        labels = [r.label for r in train]
        embedded = LogisticRegression(C=10, max_iter=1_000).fit(
            np.stack([e.vector for e in encoder.encode_many([r.text for r in train])]), labels
        )
        words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=20, max_iter=1_000))
        words.fit([r.text for r in train], labels)
        scores = {
            "student": np.array([r.oos_score for r in readings]),
            "its maximum probability": -np.array([next(iter(r.probabilities.values())) for r in readings]),
            "embedding + LR": -embedded.predict_proba(vectors).max(axis=1),
            "TF-IDF + LR": -words.predict_proba([r.text for r in (*test, *outside)]).max(axis=1),
        }
        figures = {name: float(roc_auc_score(truth, score)) for name, score in scores.items()}
        right = np.mean([next(iter(reading.probabilities)) == row.label for reading, row in zip(readings, test, strict=False)])
        found[domain] = {"accuracy": float(right), **figures}
        table.add_row(domain, *(f"{100 * value:.1f}" for value in found[domain].values()))
    console.print(table)
    return found


def dialogues(data: Path, encoder: Encoder) -> dict[str, Any]:
    """Measure which service a turn is for: with its history, against repeating the label before and against the text alone."""
    folder = data / "sgd_routing"
    files = [folder / "train.jsonl.gz", None, folder / "dev.jsonl.gz", None]
    measured = _bench(files, encoder, catalog=folder / "dev_services.json")
    with gzip.open(folder / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    before: list[str | None] = []
    for i, row in enumerate(rows):
        same = i > 0 and rows[i - 1]["id"].rsplit(".", 1)[0] == row["id"].rsplit(".", 1)[0]
        before.append(rows[i - 1]["label"] if same else None)
    alone = measured.student.read_all(encoder.encode_many([r["text"] for r in rows]))
    first = np.array([b is None for b in before])
    kinds: dict[str, Flags] = {
        "all": np.ones(len(rows), bool),
        "first": first,
        "after the first": ~first,
        "switch": np.array([bool(r["switch"]) for r in rows]) & ~first,
        "change of label": np.array([b is not None and b != r["label"] for b, r in zip(before, rows, strict=True)]),
        "seen service": np.array([not r["unseen"] for r in rows]),
        "unseen service": np.array([bool(r["unseen"]) for r in rows]),
        "unseen, first": np.array([bool(r["unseen"]) for r in rows]) & first,
    }
    answers: dict[str, tuple[Flags, Flags]] = {
        "label before repeated": (_is(rows, lambda i: [before[i] or ""]), _is(rows, lambda i: [before[i] or ""])),
        "text alone": (
            _is(rows, lambda i: list(alone[i].probabilities)[:1]),
            _is(rows, lambda i: list(alone[i].probabilities)[:3]),
        ),
        "text and history": (measured.evaluated.correct, measured.evaluated.among_top),
    }
    table = Table(title=f"dialogues: {len(rows)} turns of dev, accuracy (right service among the three likeliest)", title_justify="left")
    table.add_column("kind of turn")
    table.add_column("turns", justify="right")
    for name in answers:
        table.add_column(name, justify="right")
    table.add_column("acted on (errors)", justify="right")
    acted = measured.evaluated.acted(measured.policy)
    found: dict[str, Any] = {"figures": asdict(measured.figures)}
    for kind, some in kinds.items():
        found[kind] = {
            name: {"accuracy": float(best[some].mean()), "top3": float(top[some].mean())} for name, (best, top) in answers.items()
        }
        cells = [f"{100 * f['accuracy']:.1f} ({100 * f['top3']:.1f})" for f in found[kind].values()]
        coverage, risk = _mean(acted[some]), _mean(~measured.evaluated.correct[some & acted])
        found[kind]["acted on"] = {"coverage": coverage, "risk": risk}
        table.add_row(kind, str(int(some.sum())), *cells, f"{100 * coverage:.1f} ({100 * risk:.1f})")
    console.print(table)
    return found


def _mean(flags: Flags) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _is(rows: list[dict[str, Any]], answer: Callable[[int], list[str]]) -> Flags:
    return np.array([row["label"] in answer(i) for i, row in enumerate(rows)], bool)


def _bench(files: list[Path | None], encoder: Encoder, *, catalog: Path | None = None) -> Benchmark:
    train, validation, test, outside = files
    if train is None or test is None:
        raise ValueError("Training and test rows are needed.")
    console.print(f"{train.parent.name} {train.name}", style="dim")
    return bench(train, validation, test, outside, catalog=catalog, encoder=encoder, risk_target=0.02, progress=lambda _: None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the student on public data.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the public sets")
    parser.add_argument("--only", default="intents,near,dialogues", help="which parts, separated by commas")
    parser.add_argument("--sets", default=",".join(SETS), help="which intent sets")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args()
    encoder = Encoder(threads=os.cpu_count() or 1)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "intents": lambda: intents(given.data, encoder, given.sets.split(",")),
        "near": lambda: near_scope(given.data, encoder),
        "dialogues": lambda: dialogues(given.data, encoder),
    }
    found = {name: parts[name]() for name in given.only.split(",")}
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
