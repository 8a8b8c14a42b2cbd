"""Router versions in MLflow's model registry: where they lie, and which one an alias names. MLflow takes seconds to import.

A version is a folder of safetensors and JSON (`signatures/artifact.py`), never an MLflow flavour: nothing is unpickled, no model code runs.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from sqlalchemy.exc import SQLAlchemyError

from service.errors import ConfigurationError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

MODEL = "pointsman-router"
EXPERIMENT = "pointsman"
ARTIFACT = "router"
CHAMPION = "champion"
CHALLENGER = "challenger"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ALLOW_MODEL_CODE_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
}


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version in the registry and its folder on this machine."""

    number: str
    folder: Path


class MlflowRegistry:
    """Reads and writes versions. Blocking; for threads and offline jobs."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def champion(self) -> RegisteredVersion | None:
        """Return the version under the alias `champion`, downloaded where it is not on this machine.

        Raises:
            ConfigurationError: the registry cannot be read.
        """
        database = sqlite_path(self._uri)
        if database is not None and not database.is_file():
            return None  # reading must not create a store
        client = self._client()
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        try:
            version = client.get_model_version_by_alias(MODEL, CHAMPION)
        except SQLAlchemyError as exc:
            raise ConfigurationError(f"The MLflow registry {self._uri} cannot be read: {exc}") from exc
        except MlflowException as exc:
            if exc.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                return None
            raise ConfigurationError(f"The MLflow registry {self._uri} cannot be read: {exc}") from exc
        try:
            folder = download_artifacts(artifact_uri=version.source, tracking_uri=self._uri)
        except (MlflowException, OSError) as exc:
            raise ConfigurationError(f"Router version {version.version} cannot be fetched from {version.source}: {exc}") from exc
        return RegisteredVersion(str(version.version), Path(folder))

    def register(self, folder: Path, *, params: dict[str, str], metrics: dict[str, float], promote: bool) -> RegisteredVersion:
        """Log a version's folder as a run and register it.

        The first one gets the alias `champion`; later ones `challenger`, unless they are to be promoted at once.
        """
        client = self._client()
        from mlflow.exceptions import MlflowException

        run = client.create_run(self._experiment(client), run_name=params.get("job", "router"))
        for name, text in params.items():
            client.log_param(run.info.run_id, name, text)
        for name, value in metrics.items():
            client.log_metric(run.info.run_id, name, value)
        client.log_artifacts(run.info.run_id, str(folder), ARTIFACT)
        try:
            client.get_registered_model(MODEL)
        except MlflowException:
            client.create_registered_model(MODEL, description="Router versions of Pointsman")
        source = f"{run.info.artifact_uri}/{ARTIFACT}"
        version = client.create_model_version(MODEL, source, run.info.run_id)
        client.set_terminated(run.info.run_id)
        present = CHAMPION in client.get_registered_model(MODEL).aliases
        alias = CHALLENGER if present and not promote else CHAMPION
        client.set_registered_model_alias(MODEL, alias, version.version)
        return RegisteredVersion(str(version.version), _local(source) or folder)

    def _experiment(self, client: "MlflowClient") -> str:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return str(experiment.experiment_id)
        database = sqlite_path(self._uri)
        location = (database.parent / "artifacts").as_uri() if database else None
        return str(client.create_experiment(EXPERIMENT, artifact_location=location))

    def _client(self) -> "MlflowClient":
        for name, text in _ENVIRONMENT.items():
            os.environ.setdefault(name, text)
        database = sqlite_path(self._uri)
        if database is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            return MlflowClient(tracking_uri=self._uri, registry_uri=self._uri)
        except (MlflowException, SQLAlchemyError) as exc:
            raise ConfigurationError(f"The MLflow registry {self._uri} cannot be opened: {exc}") from exc


def sqlite_path(uri: str) -> Path | None:
    """Return the absolute path of a SQLite file's URI, or None for a server."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///")).absolute()


def _local(uri: str) -> Path | None:
    parsed = urlparse(uri)
    return Path(unquote(parsed.path)) if parsed.scheme in {"", "file"} else None
