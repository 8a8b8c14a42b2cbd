"""Router versions for the service: the last good one from disk in milliseconds, else the champion from MLflow in seconds.

`var/router/last_good.json` names the folder that served last, so that a start needs no MLflow, and MLflow may be down.
"""

import json
import logging
from pathlib import Path

from pydantic import JsonValue, ValidationError

from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.errors import ConfigurationError
from service.programs import Router
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from service.settings import STATE
from signatures.artifact import STUDENT, ArtifactError, read_version

log = logging.getLogger(__name__)
LAST_GOOD = STATE / "router" / "last_good.json"

NO_CHAMPION = (
    "There is no router version with the alias champion. Run: optimize --bootstrap (with --seed-set FOLDER for a catalogue of your own)"
)


class RouterSource:
    """`ProgramSource` over the registry and the last good version."""

    def __init__(self, mlflow_uri: str, encoder: Encoder, *, last_good: Path = LAST_GOOD) -> None:
        self._uri = mlflow_uri
        self._encoder = encoder
        self._last_good = last_good

    def load_last_good(self) -> Router | None:
        """Load the version that served last, if its folder is whole."""
        remembered = recall(self._uri, self._last_good)
        return self._load(remembered) if remembered is not None else None

    def load_champion(self) -> Router | None:
        """Load the registry's champion, and remember it where that is possible."""
        champion = MlflowRegistry(self._uri).champion()
        if champion is None:
            return None
        router = self._load(champion)
        try:
            remember(self._uri, champion, self._last_good)
        except OSError as exc:
            log.warning("last_good_not_written: %s", exc)  # a cache that cannot be written must not cost the router
        return router

    def _load(self, version: RegisteredVersion) -> Router:
        try:
            content = read_version(version.folder)
            policy = Policy.model_validate(content.policy)
        except (ArtifactError, ValidationError) as exc:
            raise ConfigurationError(f"Router version {version.number} cannot be served: {exc}") from exc
        student = Student.load(version.folder / STUDENT, self._encoder)
        return Router(version.number, student, policy, dict[str, JsonValue](content.programs))


def recall(uri: str, path: Path = LAST_GOOD) -> RegisteredVersion | None:
    """Return the last good version of this registry, if its folder is still there."""
    try:
        data = json.loads(path.read_bytes())
        version = RegisteredVersion(str(data["version"]), Path(data["folder"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return version if data.get("mlflow_uri") == uri and version.folder.is_dir() else None


def remember(uri: str, version: RegisteredVersion, path: Path = LAST_GOOD) -> None:
    """Note the version that serves, by an atomic replacement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"mlflow_uri": uri, "version": version.number, "folder": str(version.folder)}))
    partial.replace(path)
