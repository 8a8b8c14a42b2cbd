"""The agents' models in MLflow's registry: which there are, one more version, an alias moved. MLflow takes seconds to import.

A version is a folder with `model.skops` and `model.json`, never an MLflow flavour. skops builds only types from a list of its own and the
one below, where MLflow's flavour would take that list from the artifact itself. The router's own model is never seen here.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from service.agents.finding import AgentFailure
from service.errors import ConfigurationError
from service.settings import read_settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

ROUTER_MODEL = "pointsman-router"
EXPERIMENT = "agents"
ARTIFACT = "model"
MODEL_FILE = "model.skops"
CARD_FILE = "model.json"
STAGING, PRODUCTION, PREVIOUS, SHADOW, CANARY = "staging", "production", "previous", "shadow", "canary"
TRUSTED_TYPES = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.tree._tree.Tree",
)
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ALLOW_MODEL_CODE_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
}
writing = threading.RLock()
"""Held by an agent from its look at the registry to its last change: two requests in one process do not cross."""


@dataclass(frozen=True, slots=True)
class Version:
    """One registered version with its tags and the aliases that point to it."""

    model: str
    number: int
    run_id: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]

    @property
    def score(self) -> float | None:
        """The test score under which it was registered, or None where none was recorded."""
        try:
            return float(self.tags["score"])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Model:
    """One registered model, its versions in order of their number."""

    name: str
    versions: tuple[Version, ...]

    def under(self, alias: str) -> Version | None:
        """Return the version that an alias points to."""
        return next((one for one in self.versions if alias in one.aliases), None)

    def version(self, number: int) -> Version | None:
        """Return the version with a number."""
        return next((one for one in self.versions if one.number == number), None)


class Registry:
    """Reads and changes the agents' models. Blocking."""

    def __init__(self, uri: str, client: "MlflowClient") -> None:
        """Keep the address and the client."""
        self._uri = uri
        self._client = client

    def models(self) -> tuple[Model, ...]:
        """Return all registered models but the router's, by name."""
        with _translated(self._uri):
            found = sorted(
                (one for one in self._client.search_registered_models(max_results=1_000) if one.name != ROUTER_MODEL),
                key=lambda one: one.name,
            )
            return tuple(self._model(one.name) for one in found)

    def model(self, name: str) -> Model | None:
        """Return one model, or None. The router's is None."""
        return next((one for one in self.models() if one.name == name), None)

    def version_of_dispatch(self, dispatch_id: str) -> Version | None:
        """Return the version that a dispatch registered, or None."""
        return next((one for model in self.models() for one in model.versions if one.tags.get("dispatch_id") == dispatch_id), None)

    def register(
        self, name: str, folder: Path, *, params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> Version:
        """Log a folder as a run of the experiment `agents` and register it as the next version of a model."""
        _refuse_router(name)
        with _translated(self._uri):
            run = self._client.create_run(self._experiment(), run_name=name)
            for key, text in params.items():
                self._client.log_param(run.info.run_id, key, text)
            for key, value in metrics.items():
                self._client.log_metric(run.info.run_id, key, value)
            self._client.log_artifacts(run.info.run_id, str(folder), ARTIFACT)
            if self.model(name) is None:
                self._client.create_registered_model(name, tags={"owner": "model_trainer"})
            made = self._client.create_model_version(name, f"{run.info.artifact_uri}/{ARTIFACT}", run.info.run_id, tags=dict(tags))
            self._client.set_terminated(run.info.run_id)
            return Version(name, int(made.version), run.info.run_id, dict(tags), ())

    def point(self, name: str, alias: str, number: int) -> None:
        """Let an alias point to a version."""
        _refuse_router(name)
        with _translated(self._uri):
            self._client.set_registered_model_alias(name, alias, str(number))

    def unpoint(self, name: str, alias: str) -> None:
        """Remove an alias."""
        _refuse_router(name)
        with _translated(self._uri):
            self._client.delete_registered_model_alias(name, alias)

    def tag(self, name: str, number: int, key: str, text: str) -> None:
        """Set a tag of a version."""
        _refuse_router(name)
        with _translated(self._uri):
            self._client.set_model_version_tag(name, str(number), key, text)

    def tag_model(self, name: str, key: str, text: str) -> None:
        """Set a tag of a model."""
        _refuse_router(name)
        with _translated(self._uri):
            self._client.set_registered_model_tag(name, key, text)

    def model_tags(self, name: str) -> dict[str, str]:
        """Return the tags of a model."""
        with _translated(self._uri):
            return dict(self._client.get_registered_model(name).tags)

    def load(self, version: Version) -> tuple[Any, dict[str, Any]]:
        """Return a version's fitted estimator and its card.

        Raises:
            AgentFailure: The artifact is missing, or holds a type that is not on the list (`missing_data`).
        """
        from mlflow.artifacts import download_artifacts
        from skops.io import load  # type: ignore[import-untyped]  # skops ships no types
        from skops.io.exceptions import UntrustedTypesFoundException  # type: ignore[import-untyped]  # skops ships no types

        _refuse_router(version.model)
        try:
            with TemporaryDirectory(prefix="pointsman-") as into:
                with _translated(self._uri):
                    source = self._client.get_model_version(version.model, str(version.number)).source
                    folder = Path(download_artifacts(artifact_uri=source, dst_path=into, tracking_uri=self._uri))
                return load(folder / MODEL_FILE, trusted=list(TRUSTED_TYPES)), json.loads((folder / CARD_FILE).read_text("utf-8"))
        except (OSError, ValueError, UntrustedTypesFoundException) as exc:
            raise AgentFailure("missing_data", f"{version.model} version {version.number} has no model that can be read.") from exc

    def _model(self, name: str) -> Model:
        aliases = self._client.get_registered_model(name).aliases
        versions = self._client.search_model_versions(f"name = '{name}'", max_results=1_000)
        return Model(
            name,
            tuple(
                Version(
                    name,
                    int(one.version),
                    str(one.run_id or ""),
                    dict(one.tags),
                    tuple(sorted(key for key, at in aliases.items() if int(at) == int(one.version))),
                )
                for one in sorted(versions, key=lambda one: int(one.version))
            ),
        )

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        database = _sqlite_path(self._uri)
        location = (database.parent / "artifacts").as_uri() if database else None
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))


def open_registry(*, create: bool) -> Registry | None:
    """Open the registry of the service's settings; None where there is none yet and it is not to be created.

    Raises:
        AgentFailure: It cannot be opened (`registry_unavailable`).
    """
    try:
        uri = read_settings().mlflow_uri
    except ConfigurationError as exc:
        raise AgentFailure("registry_unavailable", f"The settings cannot be read: {exc}") from exc
    database = _sqlite_path(uri)
    if database is not None and not database.is_file():
        if not create:
            return None
        database.parent.mkdir(parents=True, exist_ok=True)
    with writing:
        return _connect(uri, os.getcwd())


@lru_cache(maxsize=4)
def _connect(uri: str, _folder: str) -> Registry:
    """Connect once an address; a relative one means another store in another working folder."""
    for name, text in _ENVIRONMENT.items():
        os.environ.setdefault(name, text)
    from mlflow.tracking import MlflowClient

    with _translated(uri):
        return Registry(uri, MlflowClient(tracking_uri=uri, registry_uri=uri))


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Turn MLflow's and the database's errors into a failure that names the registry."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as exc:
        first = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
        raise AgentFailure("registry_unavailable", f"The MLflow registry {_without_password(uri)} did not do it: {first}") from exc


def _without_password(uri: str) -> str:
    scheme, mark, rest = uri.partition("://")
    return f"{scheme}{mark}…@{rest.rpartition('@')[2]}" if "@" in rest else uri


def _refuse_router(name: str) -> None:
    if name == ROUTER_MODEL:
        raise AgentFailure("unknown_entity", f"{ROUTER_MODEL} is Pointsman's own model; no agent touches it.")


def _sqlite_path(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")).absolute() if uri.startswith("sqlite:///") else None
