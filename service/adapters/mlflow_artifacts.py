"""What MLflow keeps as artifacts: read where it lies when that is this machine, else fetched.

A version's folder is fetched once and stays under `var/router/versions`: a service must be able to start from the last good version while
the registry is down. Anything else that was fetched is gone when it has been read.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from service.adapters.mlflow_client import kind_of, local_path, open_client, readable, shown, told
from service.errors import ConfigurationError
from service.settings import STATE
from signatures.artifact import damage_of

NOTES = STATE / "router"  # where notes on versions lie (`router_source.py`)
VERSIONS = NOTES / "versions"
MOST_KEPT = 8  # versions that were fetched, beside those that a note names


@contextmanager
def artifact(uri: str, run_id: str, path: str) -> Iterator[Path | None]:
    """Give the file or folder of a run, or None where the run has none of that name. What was fetched is removed again.

    Args:
        uri: MLflow's address.
        run_id: the run.
        path: of the artifact in the run.

    Raises:
        ConfigurationError: MLflow, or where it keeps artifacts, cannot be reached.
    """
    place = place_of(uri, run_id, path)
    here = local_path(place) if place is not None else None
    if place is None or here is not None:
        yield here
        return
    with TemporaryDirectory(prefix="pointsman-") as into:
        yield _fetch(uri, place, Path(into))


def place_of(uri: str, run_id: str, path: str) -> str | None:
    """Return the URI of a run's artifact, or None where the run has none of that name; see `artifact`."""
    client, parent = open_client(uri), PurePosixPath(path).parent
    with readable(uri) as found:
        run = client.get_run(run_id)
        if path in {one.path for one in client.list_artifacts(run_id, None if parent == PurePosixPath() else str(parent))}:
            found.append(f"{run.info.artifact_uri}/{path}")
    return str(found[0]) if found else None


def version_folder(uri: str, source: str) -> Path:
    """Return the folder of a version on this machine; from elsewhere it is fetched once, and again when the copy is damaged.

    Args:
        uri: MLflow's address.
        source: the URI of the version's folder.

    Raises:
        ConfigurationError: it is gone, damaged where it comes from, or cannot be fetched or kept.
    """
    here = local_path(source)
    if here is not None:
        if not here.is_dir():
            raise ConfigurationError(f"{here} is gone. Restore it, or make another version champion: pointsman routers promote VERSION")
        return here
    kept = (VERSIONS / hashlib.sha256(f"{uri} {source}".encode()).hexdigest()[:32]).absolute()
    if damage_of(kept) is None:
        with suppress(OSError):  # a disk that is read-only
            kept.touch()
        return kept
    try:
        VERSIONS.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="partial-", dir=VERSIONS) as into:
            fetched = _fetch(uri, source, Path(into))
            damage = damage_of(fetched)
            if damage is not None:
                raise ConfigurationError(f"{source} is damaged where it comes from: {damage}")
            _keep(fetched, kept)
        forget_old()
    except OSError as exc:
        raise ConfigurationError(f"{source} cannot be kept in {VERSIONS}: {exc}") from exc
    return kept


def _keep(fetched: Path, kept: Path) -> None:
    try:
        if kept.exists() and damage_of(kept) is not None:
            shutil.rmtree(kept)
        fetched.rename(kept)
    except OSError:
        if damage_of(kept) is not None:  # or another process was faster
            raise


def forget_old() -> None:
    """Remove the versions that have not been asked for the longest, but none that a note names."""
    named = "".join(note.read_text(encoding="utf-8", errors="replace") for note in NOTES.glob("*.json") if note.is_file())
    kept = sorted((one for one in VERSIONS.iterdir() if one.name.isalnum()), key=lambda one: -one.stat().st_mtime)
    for one in kept[MOST_KEPT:]:
        if one.name not in named:
            shutil.rmtree(one, ignore_errors=True)


def _fetch(uri: str, place: str, into: Path) -> Path:
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        return Path(download_artifacts(artifact_uri=place, dst_path=str(into), tracking_uri=uri))
    except (MlflowException, OSError) as exc:
        raise kind_of(uri, exc)(f"{place} of the MLflow registry {shown(uri)} cannot be fetched: {told(exc, uri)}") from exc
