"""Router versions for the service, from this machine's disk: the one that served last, and the one that the registry's alias names.

`var/router/last_good.json` names the folder of the version that served last, so that a start needs no MLflow. `var/router/champion.json`
says what the registry was last seen to name: `registry_watch.py` and the commands that promote write it, each service looks at it.
`var/router/candidate.json` does the same for a challenger that is tried beside the champion, `var/router/regions.json` for the
intents that the champion's student has given back to the LM. Each names its registry, without a password that is in the address.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, ValidationError

from service.adapters.mlflow_client import shown
from service.adapters.mlflow_registry import RegisteredVersion
from service.errors import ConfigurationError
from service.ports import Noted, NotedCandidate
from service.programs import Router, Stage
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from service.settings import STATE
from signatures.artifact import STUDENT, ArtifactError, read_version

log = logging.getLogger(__name__)
LAST_GOOD = STATE / "router" / "last_good.json"
CHAMPION_NOTE = STATE / "router" / "champion.json"
ASKED = STATE / "router" / "asked"  # its time is when the registry last answered
CANDIDATE_NOTE = STATE / "router" / "candidate.json"
REGIONS_NOTE = STATE / "router" / "regions.json"
REHEARSAL_TOLERANCE = 0.02  # by which a probability may differ on another processor

NO_CHAMPION = (
    "There is no router version with the alias champion. Run: optimize --bootstrap (with --seed-set FOLDER for a catalogue of your own)"
)


class RouterSource:
    """`ProgramSource` over two notes on disk."""

    def __init__(
        self,
        mlflow_uri: str,
        encoder: Encoder,
        *,
        last_good: Path = LAST_GOOD,
        champion: Path = CHAMPION_NOTE,
        candidate: Path = CANDIDATE_NOTE,
        regions: Path = REGIONS_NOTE,
    ) -> None:
        self._uri = mlflow_uri
        self._encoder = encoder
        self._last_good = last_good
        self._champion = champion
        self._candidate = candidate
        self._regions = regions

    def load_last_good(self) -> Router | None:
        """Load the version that served last, if its folder is whole."""
        remembered = recall(self._uri, self._last_good)
        return self.load(remembered) if remembered is not None else None

    def noted(self) -> Noted:
        """Return what the registry was last seen to name."""
        return read_note(self._uri, self._champion)

    def load_noted(self) -> Router | None:
        """Load the version that the registry was last seen to name."""
        version = recall(self._uri, self._champion)
        return self.load(version) if version is not None else None

    def noted_candidate(self) -> NotedCandidate | None:
        """Return which challenger the registry was last seen to try, and how."""
        return read_candidate(self._uri, self._candidate)

    def load_candidate(self) -> Router | None:
        """Load that challenger."""
        version = recall(self._uri, self._candidate)
        return self.load(version) if version is not None else None

    def given_back(self, version: str) -> frozenset[str]:
        """Return the intents that a version's student no longer answers alone."""
        return read_given_back(self._uri, version, self._regions)

    def keep(self, router: Router) -> None:
        """Remember a version that serves."""
        version = recall(self._uri, self._champion)
        if version is None or version.number != router.version:
            return
        try:
            remember(self._uri, version, self._last_good)
        except OSError as exc:
            log.warning("last_good_not_written: %s", exc)  # a cache that cannot be written must not cost the router

    def load(self, version: RegisteredVersion) -> Router:
        """Load a version, check that it is what its manifest says, and let it read the texts that it was rehearsed on.

        Raises:
            ConfigurationError: it cannot be served; the message says why.
        """
        try:
            content = read_version(version.folder)
            policy = Policy.model_validate(content.policy)
        except (ArtifactError, ValidationError) as exc:
            raise ConfigurationError(f"Router version {version.number} cannot be served: {exc}") from exc
        student = Student.load(version.folder / STUDENT, self._encoder)
        if set(student.practised) != set(content.manifest.label_set):
            raise ConfigurationError(f"Router version {version.number} cannot be served: its labels are not those of its manifest.")
        for place, rehearsed in enumerate(content.manifest.rehearsal, 1):
            label, probability = next(iter(student.read(rehearsed.text).probabilities.items()))
            if label != rehearsed.label or abs(probability - rehearsed.probability) > REHEARSAL_TOLERANCE:
                read = f"it reads text {place} of its manifest's rehearsal as {label} ({probability:.2f}), not as {rehearsed.label}"
                raise ConfigurationError(f"Router version {version.number} cannot be served: {read} ({rehearsed.probability:.2f}).")
        return Router(version.number, student, policy, dict[str, JsonValue](content.programs), content.manifest.made_at)


def last_asked() -> float | None:
    """Return when the registry last answered (Unix time); None: not since there is this folder."""
    try:
        return ASKED.stat().st_mtime
    except OSError:
        return None


def recall(uri: str, path: Path = LAST_GOOD) -> RegisteredVersion | None:
    """Return the version that a note names, if it is of this registry and its folder is still there."""
    try:
        data = json.loads(path.read_bytes())
        version = RegisteredVersion(str(data["version"]), Path(data["folder"]))
        return version if data.get("mlflow_uri") == shown(uri) and version.folder.is_dir() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read_note(uri: str, path: Path = CHAMPION_NOTE) -> Noted:
    """Return what the registry was last seen to name as champion."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return Noted()
    if not isinstance(data, dict) or data.get("mlflow_uri") != shown(uri):
        return Noted()
    number, problem = data.get("version"), data.get("problem")
    return Noted(None if number is None else str(number), None if problem is None else str(problem), asked=True)


def remember(uri: str, version: RegisteredVersion, path: Path = CHAMPION_NOTE) -> None:
    """Note a version by an atomic replacement."""
    _write(path, _note_of(uri, version))


def read_candidate(uri: str, path: Path = CANDIDATE_NOTE) -> NotedCandidate | None:
    """Return which challenger is tried, and how; None where there is none, or the note cannot be read."""
    version = recall(uri, path)
    try:
        note = json.loads(path.read_bytes())
        return NotedCandidate(version.number, Stage(note["stage"]), float(note["share"])) if version is not None else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_candidate(uri: str, version: RegisteredVersion | None, stage: Stage, share: float, path: Path = CANDIDATE_NOTE) -> None:
    """Note which challenger is tried by an atomic replacement; None: none is."""
    if version is None:
        path.unlink(missing_ok=True)
        return
    _write(path, _note_of(uri, version) | {"stage": stage.value, "share": str(share)})


def read_given_back(uri: str, version: str, path: Path = REGIONS_NOTE) -> frozenset[str]:
    """Return the intents that a version's student was last seen to have given back."""
    try:
        note = json.loads(path.read_bytes())
        return frozenset(map(str, note["given_back"])) if (note["mlflow_uri"], note["version"]) == (shown(uri), version) else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def note_given_back(uri: str, version: str, intents: frozenset[str], path: Path = REGIONS_NOTE) -> None:
    """Note the intents that a version's student has given back by an atomic replacement."""
    _write(path, {"mlflow_uri": shown(uri), "version": version, "given_back": sorted(intents)})


def note_problem(uri: str, problem: str, path: Path = CHAMPION_NOTE) -> None:
    """Note why the registry names no champion; one that it named before stays."""
    if recall(uri, path) is None:
        _write(path, {"mlflow_uri": shown(uri), "version": None, "problem": problem})


def _note_of(uri: str, version: RegisteredVersion) -> dict[str, object]:
    return {"mlflow_uri": shown(uri), "version": version.number, "folder": str(version.folder)}


def _write(path: Path, note: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(note))
    partial.replace(path)
