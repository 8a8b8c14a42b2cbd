"""A router version on disk: one folder with `manifest.json`, `programs/*.json`, `student.safetensors` and `policy.json`.

Written once, verified before anything in it is used. Imports no DSPy (the server reads manifests while it starts) and knows nothing of
what student and policy hold. Files are data: nothing is unpickled or run.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, StringConstraints, ValidationError

from service.contracts.model import Contract, JsonObject
from signatures.fields import expected_fingerprints

FORMAT_VERSION: Final = 1
MANIFEST = "manifest.json"
STUDENT = "student.safetensors"
POLICY = "policy.json"
PROGRAMS = "programs"
MAX_FILE_BYTES = 256 * 1024 * 1024

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^(?:student\.safetensors|policy\.json|programs/[a-z][a-z0-9_]{0,63}\.json)$")]


class ArtifactError(ValueError):
    """A router version cannot be used; `problems` lists everything that is wrong."""

    def __init__(self, folder: Path, problems: list[str]) -> None:
        super().__init__(f"The router version in {folder} cannot be used: {'; '.join(problems)}.")
        self.problems = tuple(problems)


class Metric(Contract):
    """A measured value with its interval, on `n` cases."""

    value: float
    low: float
    high: float
    n: Annotated[int, Field(ge=0)]


class Rehearsed(Contract):
    """A text, and what the version read in it when it was made: a version that reads otherwise is not the one that was tested."""

    text: str
    label: str
    probability: float


class Manifest(Contract):
    """What a router version is made of and made from. `made_at` is None in versions that are older than the field."""

    format_version: Literal[1] = FORMAT_VERSION
    signature_fingerprints: dict[str, Sha256] = Field(default_factory=expected_fingerprints)
    label_set: tuple[str, ...]
    adapter: str
    dspy_version: str
    lm: str | None = None
    seed: int
    data_hash: str
    metrics: dict[str, Metric] = Field(default_factory=dict)
    parent_version: str | None = None
    made_at: AwareDatetime | None = None
    rehearsal: tuple[Rehearsed, ...] = ()
    files: dict[FileName, Sha256] = Field(default_factory=dict)


def write_version(folder: Path, manifest: Manifest, *, student: bytes, policy: JsonObject, programs: Mapping[str, JsonObject]) -> Manifest:
    """Write a router version into a folder that is new or empty, and return the manifest with the files' checksums.

    The manifest is written last: a folder without one is unfinished and never passes verification.

    Raises:
        ArtifactError: the folder holds something, or a program's name is not allowed.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ArtifactError(folder, ["the folder is not empty"])
    contents = {STUDENT: student, POLICY: _dump(policy)}
    contents |= {f"{PROGRAMS}/{name}.json": _dump(state) for name, state in programs.items()}
    try:
        finished = Manifest.model_validate({**manifest.model_dump(), "files": {name: _sha256(data) for name, data in contents.items()}})
    except ValidationError as exc:
        raise ArtifactError(folder, _sentences(exc)) from exc
    (folder / PROGRAMS).mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / MANIFEST).write_bytes(finished.model_dump_json(indent=2).encode())
    return finished


class RouterVersion(Contract):
    """A verified router version, read into memory: what was checked is what is used."""

    manifest: Manifest
    student: bytes
    policy: JsonObject
    programs: dict[str, JsonObject]


def read_version(folder: Path, fingerprints: Mapping[str, str] | None = None) -> RouterVersion:
    """Read and verify a router version. Program states are parsed only after the fingerprints have been found right.

    Args:
        folder: where it lies.
        fingerprints: expected ones by signature name; those of this version of the code when None.

    Raises:
        ArtifactError: a file is missing, unexpected, altered, a link or too large, the manifest is not valid, the format version is
            another one, or a signature has other fields now.
    """
    manifest = _read_manifest(folder)
    wanted = expected_fingerprints() if fingerprints is None else fingerprints
    problems = _fingerprint_problems(manifest, wanted)
    found, strange = _files_of(folder)
    problems += strange
    problems += [f"{name} is missing" for name in sorted({*manifest.files, STUDENT, POLICY} - found)]
    problems += [f"{name} is not listed in the manifest" for name in sorted(found - {*manifest.files, MANIFEST})]
    contents = {}
    for name in sorted(found & set(manifest.files)):
        data = _read(folder / name)
        if data is None or _sha256(data) != manifest.files[name]:
            problems.append(f"{name} was altered")
        else:
            contents[name] = data
    if problems:
        raise ArtifactError(folder, problems)
    return _parse(folder, manifest, contents)


def damage_of(folder: Path) -> str | None:
    """Return what of a version is missing or not as its manifest says, or None. Of which format it is does not matter here."""
    data = _read(folder / MANIFEST)
    try:
        files = dict[str, str](json.loads(data or b"")["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{MANIFEST} cannot be read."
    contents = {name: _read(folder / name) for name in files}
    damaged = sorted(name for name, content in contents.items() if content is None or _sha256(content) != files[name])
    return f"{', '.join(damaged)}: missing, or not as {MANIFEST} says." if damaged else None


def _parse(folder: Path, manifest: Manifest, contents: Mapping[str, bytes]) -> RouterVersion:
    try:
        states = {name: json.loads(data) for name, data in contents.items() if name != STUDENT}
        programs = {PurePosixPath(name).stem: state for name, state in states.items() if name != POLICY}
        return RouterVersion(manifest=manifest, student=contents[STUDENT], policy=states[POLICY], programs=programs)
    except (ValueError, RecursionError) as exc:
        raise ArtifactError(folder, [f"a JSON file is not an object ({type(exc).__name__})"]) from exc


def _read_manifest(folder: Path) -> Manifest:
    data = _read(folder / MANIFEST)
    if data is None:
        raise ArtifactError(folder, [f"{MANIFEST} is missing or not a plain file"])
    try:
        version = _format_version(data)
        if version != FORMAT_VERSION:
            raise ArtifactError(folder, [f"its format version is {version!r}, this code reads {FORMAT_VERSION}"])
        return Manifest.model_validate_json(data)
    except ValidationError as exc:
        raise ArtifactError(folder, _sentences(exc)) from exc


def _format_version(data: bytes) -> object:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed.get("format_version") if isinstance(parsed, dict) else None


def _fingerprint_problems(manifest: Manifest, wanted: Mapping[str, str]) -> list[str]:
    used = {PurePosixPath(name).stem for name in manifest.files if name.startswith(f"{PROGRAMS}/")}
    problems = [f"program {name!r} belongs to no signature" for name in sorted(used - set(wanted))]
    for name in sorted(set(wanted) & (used | {"intent", "routing"})):
        if manifest.signature_fingerprints.get(name) != wanted[name]:
            problems.append(f"signature {name!r} has other fields than the version was made for")
    return problems


def _files_of(folder: Path) -> tuple[set[str], list[str]]:
    found, strange = set(), []
    for place, directories, names in os.walk(folder, followlinks=False):
        for name in (*directories, *names):
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                found.add(relative)
            elif not stat.S_ISDIR(mode):
                strange.append(f"{relative} is not a plain file")
    return found, strange


def _read(path: Path) -> bytes | None:
    """Return a plain file's bytes; a link, a device or a file too large is not read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES else None


def _dump(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sentences(exc: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()]
