"""The bootstrap job: labelled requests → dataset → student and policy → evaluation → registry. Each step takes and returns data."""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from optimizers.dataset import Row, read_rows
from optimizers.evaluate import Figure, Report, evaluate
from optimizers.policy import fit_policy, read_held_out
from optimizers.several import fit_several
from optimizers.snapshot import DATASET, Snapshot, labelled_only
from optimizers.student import fit
from service.adapters.mlflow_registry import CASE, CHALLENGER, CHAMPION, MlflowRegistry, RegisteredVersion, UsedDataset
from service.adapters.router_source import remember
from service.catalog.coverage import name_some, without_examples
from service.contracts.model import JsonObject
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE, Student
from signatures.artifact import STUDENT, Manifest, Metric, Rehearsed, write_version

Progress = Callable[[str], None]
SEED = 1
REHEARSED = 12  # texts that a version has to read as it did when it was made


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """What the job made.

    Attributes:
        cross_fitted: accuracy on rows held out by writer.
        golden: one evaluation on the golden set, if given.
        described_only: the catalogue's intents without labelled requests.
    """

    version: RegisteredVersion
    alias: str
    policy: Policy
    cross_fitted: Figure
    golden: Report | None
    described_only: tuple[str, ...]


def bootstrap(
    seed_set: Path,
    golden: Path | None,
    *,
    mlflow_uri: str,
    load_encoder: Callable[[], Encoder],
    descriptions: Mapping[str, str],
    risk_target: float,
    promote: bool,
    progress: Progress,
) -> Bootstrapped:
    """Fit a router and register it; it becomes champion when there is none, or when it is to be promoted.

    `descriptions` say what each intent of the catalogue means; those of intents without rows are not used. The encoder, whose first start
    takes seconds, is loaded when the data can be used.

    Raises:
        ValueError, FileNotFoundError: the seed set or the golden set cannot be used, or has labels that are not the catalogue's.
    """
    rows = read_rows(seed_set)
    test = read_rows(golden) if golden is not None else []
    require_known([*rows, *test], descriptions)
    require_apart(rows, test)
    fitted = fit(rows, load_encoder(), descriptions=descriptions, seed=SEED, progress=progress)
    held_out = read_held_out(fitted)
    progress("fitting the policy")
    policy = fit_several(fitted, fit_policy(held_out, risk_target=risk_target))
    cross_fitted = Figure.share(int(held_out.correct[held_out.in_scope].sum()), int(held_out.in_scope.sum()))
    report = None
    if test:
        progress("evaluating once on the golden set")
        report = evaluate(test, fitted.student.read, policy.refuse_above)
    progress("registering in MLflow (a new store takes some seconds)")
    figures = {"cross_fitted_accuracy": cross_fitted, **{f"golden_{n}": f for n, f in (report.figures() if report else {}).items()}}
    dataset = labelled_only(rows)
    made = Made(fitted.student, policy, fitted.rows, {}, None)
    registered, alias = register(made, figures, dataset, mlflow_uri=mlflow_uri, job="bootstrap", parent=None, promote=promote)
    return Bootstrapped(registered, alias, policy, cross_fitted, report, without_examples(descriptions, fitted.student.labels))


def require_known(rows: Sequence[Row], intents: Iterable[str]) -> None:
    """Refuse labels that the catalogue lacks: no service would load a router that can choose them."""
    known = list(intents)
    foreign = sorted({row.label for row in rows} - {*known, OUT_OF_SCOPE})
    if foreign:
        raise ValueError(
            f"The labelled requests have labels that are no intents of the catalogue: {name_some(foreign)}. It has: {name_some(known)}. "
            "No service would load such a router. Correct the labels, add the intents to the catalogue, or set POINTSMAN_CATALOG to the "
            "folder of the one that has them."
        )


def require_apart(rows: Sequence[Row], golden: Sequence[Row]) -> None:
    """Refuse golden texts that are fitted on: they would test nothing."""
    leaked = {r.key for r in rows} & {r.key for r in golden}
    if leaked:
        raise ValueError(f"{len(leaked)} golden texts are in the seed set too, such as {min(leaked)!r}. Take them out of one.")


def rehearse(student: Student, texts: Sequence[str]) -> tuple[Rehearsed, ...]:
    """Return what a student reads in some texts, each alone."""
    readings = [next(iter(student.read(text).probabilities.items())) for text in texts]
    return tuple(Rehearsed(text=t, label=label, probability=p) for t, (label, p) in zip(texts, readings, strict=True))


@dataclass(frozen=True, slots=True)
class Made:
    """A router version that is to be registered.

    Attributes:
        rows: what the student was fitted on; some of it is rehearsed.
        programs: optimized program states by signature name.
        lm: the language model that the programs were optimized for.
    """

    student: Student
    policy: Policy
    rows: Sequence[Row]
    programs: Mapping[str, JsonObject]
    lm: str | None


def register(
    made: Made,
    figures: Mapping[str, Figure],
    dataset: Snapshot,
    *,
    mlflow_uri: str,
    job: str,
    parent: str | None,
    promote: bool,
    case: str | None = None,
) -> tuple[RegisteredVersion, str]:
    """Write a router version with the dataset that it was made from, register it, and return it with its alias.

    `case` is the fingerprint of what it was made from and is judged by, where the same would come of the same again.
    """
    manifest = Manifest(
        label_set=made.student.labels,
        adapter="json",
        lm=made.lm,
        dspy_version=version("dspy"),
        seed=SEED,
        data_hash=dataset.digest,
        metrics={name: Metric(value=f.value, low=f.low, high=f.high, n=f.n) for name, f in figures.items()},
        parent_version=parent,
        made_at=datetime.now(UTC),
        rehearsal=rehearse(made.student, [row.text for row in made.rows[:: max(1, len(made.rows) // REHEARSED)][:REHEARSED]]),
    )
    registry = MlflowRegistry(mlflow_uri)
    with tempfile.TemporaryDirectory(prefix="pointsman-router-") as scratch:
        made.student.save(Path(scratch) / STUDENT)
        folder, data = Path(scratch) / "version", Path(scratch) / DATASET
        student = (Path(scratch) / STUDENT).read_bytes()
        write_version(folder, manifest, student=student, policy=made.policy.model_dump(mode="json"), programs=made.programs)
        used = UsedDataset(dataset.digest, DATASET, json.dumps(dataset.write(data)))
        params = {"job": job, "data_hash": manifest.data_hash, "seed": str(SEED), "labels": str(len(made.student.labels))}
        params |= {name: text for name, text in (("parent", parent), (CASE, case)) if text is not None}
        values = {name: f.value for name, f in figures.items()}
        registered = registry.register(folder, params=params, metrics=values, promote=promote, attached={DATASET: data}, dataset=used)
    champion = registry.champion()
    if champion is not None and champion.number == registered.number:
        remember(mlflow_uri, registered)
        return registered, CHAMPION
    return registered, CHALLENGER
