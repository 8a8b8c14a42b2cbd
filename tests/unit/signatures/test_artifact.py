"""A router version on disk: written, read back, and refused when anything about it is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service.contracts.model import JsonObject
from signatures.artifact import ArtifactError, Manifest, Metric, read_version, write_version

MANIFEST = Manifest(
    label_set=("causal_impact", "explanation"),
    adapter="CompactAdapter",
    dspy_version="3.4.1",
    lm="local/smollm2-135m",
    seed=1,
    data_hash="0" * 64,
    metrics={"accuracy": Metric(value=0.8, low=0.7, high=0.9, n=100)},
    parent_version="6",
)
STATE: JsonObject = {"signature": {"instructions": "x", "fields": []}, "demos": []}


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A router version on disk."""
    folder = tmp_path / "version"
    write_version(folder, MANIFEST, student=b"tensors", policy={"threshold": 0.5}, programs={"intent": STATE})
    return folder


def edit(folder: Path, **changes: object) -> None:
    """Change entries of the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


def _link(folder: Path) -> None:
    (folder.parent / "elsewhere").write_bytes((folder / "policy.json").read_bytes())
    (folder / "policy.json").unlink()
    (folder / "policy.json").symlink_to(folder.parent / "elsewhere")


def _linked_folder(folder: Path) -> None:
    (folder / "programs").rename(folder.parent / "programs")
    (folder / "programs").symlink_to(folder.parent / "programs")


def _fingerprint(folder: Path) -> None:
    prints = json.loads((folder / "manifest.json").read_text())["signature_fingerprints"]
    edit(folder, signature_fingerprints=prints | {"routing": "f" * 64})


def test_a_version_is_read_as_it_was_written(version: Path) -> None:
    """Manifest, student, policy and programs survive the round trip."""
    read = read_version(version)

    assert (read.student, read.policy, read.programs) == (b"tensors", {"threshold": 0.5}, {"intent": STATE})
    assert read.manifest.metrics == MANIFEST.metrics
    assert set(read.manifest.files) == {"student.safetensors", "policy.json", "programs/intent.json"}


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda f: (f / "student.safetensors").write_bytes(b"other"), "student.safetensors was altered"),
        (lambda f: (f / "programs" / "intent.json").write_text("{}"), "programs/intent.json was altered"),
        (lambda f: (f / "policy.json").unlink(), "policy.json is missing"),
        (lambda f: (f / "model.pkl").write_bytes(b""), "model.pkl is not listed"),
        (lambda f: (f / "programs" / "extra.json").write_text("{}"), "programs/extra.json is not listed"),
        (lambda f: (f / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda f: (f / "manifest.json").write_text("{"), "format version is None"),
        (lambda f: (f / "manifest.json").write_text("[" * 100_000), "format version is None"),
        (lambda f: edit(f, format_version=2), "format version is 2"),
        (lambda f: edit(f, seed="one"), "seed"),
        (lambda f: edit(f, surprise=1), "surprise"),
        (lambda f: edit(f, files={"../secret.json": "0" * 64}), "files"),
        (lambda f: edit(f, files={"/etc/passwd": "0" * 64}), "files"),
        (lambda f: edit(f, files={"programs/../../x.json": "0" * 64}), "files"),
        (lambda f: edit(f, files={}), "not listed in the manifest"),
        (_link, "policy.json is not a plain file"),
        (_linked_folder, "programs is not a plain file"),
        (_fingerprint, "signature 'routing' has other fields"),
        (lambda f: edit(f, signature_fingerprints={}), "signature 'intent' has other fields"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_version_that_was_tampered_with_is_refused(version: Path, tamper: Callable[[Path], object], message: str) -> None:
    """Missing, unexpected, altered and linked files, other formats and other signatures all stop it, with the reason."""
    tamper(version)

    with pytest.raises(ArtifactError, match=message.replace(".", r"\.")):
        read_version(version)


def test_everything_that_is_wrong_is_listed_at_once(version: Path) -> None:
    """A person who repairs a version sees all of it."""
    (version / "policy.json").unlink()
    (version / "student.safetensors").write_bytes(b"other")

    with pytest.raises(ArtifactError) as caught:
        read_version(version)

    assert caught.value.problems == ("policy.json is missing", "student.safetensors was altered")


def test_a_program_of_no_signature_is_refused(tmp_path: Path) -> None:
    """A program file must belong to a signature of this code."""
    write_version(tmp_path / "v", MANIFEST, student=b"", policy={}, programs={"poetry": STATE})

    with pytest.raises(ArtifactError, match="'poetry' belongs to no signature"):
        read_version(tmp_path / "v")


@pytest.mark.parametrize("name", ["../intent", "a/b", "", "Intent", "intent.json/x"])
def test_a_program_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    """Names are checked before anything is written."""
    with pytest.raises(ArtifactError):
        write_version(tmp_path / "v", MANIFEST, student=b"", policy={}, programs={name: STATE})

    assert not (tmp_path / "v").exists()


def test_a_version_is_never_written_over_another(version: Path) -> None:
    """Versions are immutable."""
    with pytest.raises(ArtifactError, match="not empty"):
        write_version(version, MANIFEST, student=b"", policy={}, programs={})
