"""The bootstrap job: seed set → student and policy → evaluation → version folder → registry. Each step takes and returns data."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from optimizers.dataset import hash_rows, read_rows
from optimizers.evaluate import Figure, Report, evaluate
from optimizers.policy import fit_policy, read_held_out
from optimizers.several import fit_several
from optimizers.student import Fit, fit
from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.adapters.router_source import remember
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from signatures.artifact import STUDENT, Manifest, Metric, write_version

Progress = Callable[[str], None]
SEED = 1


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """What the job made. `cross_fitted` is the accuracy on rows held out by writer; `golden` one evaluation on the golden set, if given."""

    version: RegisteredVersion
    alias: str
    policy: Policy
    cross_fitted: Figure
    golden: Report | None


def bootstrap(
    seed_set: Path,
    golden: Path | None,
    *,
    mlflow_uri: str,
    encoder: Encoder,
    descriptions: Mapping[str, str],
    risk_target: float,
    promote: bool,
    progress: Progress,
) -> Bootstrapped:
    """Fit a router and register it; it becomes champion when there is none, or when it is to be promoted.

    `descriptions` say what a label means; those of labels without rows are not used.

    Raises:
        ValueError, FileNotFoundError: the seed set or the golden set cannot be used.
    """
    rows = read_rows(seed_set)
    test = read_rows(golden) if golden is not None else []
    leaked = {r.text.strip().lower() for r in rows} & {r.text.strip().lower() for r in test}
    if leaked:
        raise ValueError(f"{len(leaked)} golden texts are in the seed set too, such as {min(leaked)!r}. Take them out of one.")
    fitted = fit(rows, encoder, descriptions=descriptions, seed=SEED, progress=progress)
    held_out = read_held_out(fitted)
    progress("fitting the policy")
    policy = fit_several(fitted, fit_policy(held_out, risk_target=risk_target))
    cross_fitted = Figure.share(int(held_out.correct[held_out.in_scope].sum()), int(held_out.in_scope.sum()))
    report = None
    if test:
        progress("evaluating once on the golden set")
        report = evaluate(test, fitted.student.read, policy.refuse_above)
    progress("registering in MLflow (a new store takes some seconds)")
    registered, alias = _register(fitted, policy, cross_fitted, report, data_hash=hash_rows(rows), mlflow_uri=mlflow_uri, promote=promote)
    return Bootstrapped(registered, alias, policy, cross_fitted, report)


def _register(
    fitted: Fit, policy: Policy, cross_fitted: Figure, report: Report | None, *, data_hash: str, mlflow_uri: str, promote: bool
) -> tuple[RegisteredVersion, str]:
    figures = {"cross_fitted_accuracy": cross_fitted, **{f"golden_{n}": f for n, f in (report.figures() if report else {}).items()}}
    manifest = Manifest(
        label_set=fitted.student.labels,
        adapter="json",
        dspy_version=version("dspy"),
        seed=SEED,
        data_hash=data_hash,
        metrics={name: Metric(value=f.value, low=f.low, high=f.high, n=f.n) for name, f in figures.items()},
    )
    registry = MlflowRegistry(mlflow_uri)
    with tempfile.TemporaryDirectory(prefix="pointsman-router-") as scratch:
        fitted.student.save(Path(scratch) / STUDENT)
        folder = Path(scratch) / "version"
        student = (Path(scratch) / STUDENT).read_bytes()
        write_version(folder, manifest, student=student, policy=policy.model_dump(mode="json"), programs={})
        params = {"job": "bootstrap", "data_hash": data_hash, "seed": str(SEED), "labels": str(len(fitted.student.labels))}
        registered = registry.register(folder, params=params, metrics={name: f.value for name, f in figures.items()}, promote=promote)
    champion = registry.champion()
    if champion is not None and champion.number == registered.number:
        remember(mlflow_uri, registered)
        return registered, "champion"
    return registered, "challenger"
