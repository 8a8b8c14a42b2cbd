"""Nothing that checkov or hadolint finds in what is built and in the Containerfile, but for what `k8s/checkov.yaml` gives a reason for."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.ops.cluster import K8S, OVERLAYS, built, required

CONFIGURATION = K8S / "checkov.yaml"
LEAST_REASON = 30  # characters


@pytest.fixture(scope="module")
def checkov() -> str:
    """Return the path of checkov, which has an environment of its own: it wants old versions of libraries."""
    return required("checkov", "make checkov", ROOT / ".venv-checkov/bin")


def check(program: str, folder: Path) -> dict[str, Any]:
    """Run checkov over a folder; return its results by framework."""
    command = [program, "-d", str(folder), "--config-file", str(CONFIGURATION), "--skip-download", "--compact", "-o", "json"]
    done = subprocess.run(
        [*command, "--framework", "kubernetes", "dockerfile"], capture_output=True, text=True, timeout=100, check=False, cwd=folder
    )
    found = json.loads(done.stdout)
    return {one["check_type"]: one for one in (found if isinstance(found, list) else [found])}


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A folder with what each overlay builds and the Containerfile, by the name that checkov knows. The base alone has no image's tag."""
    for folder in OVERLAYS:
        (tmp_path / f"{folder.replace('/', '-')}.yaml").write_text(built(K8S / folder))
    shutil.copy(ROOT / "Containerfile", tmp_path / "Dockerfile")
    return tmp_path


def test_checkov_finds_nothing(checkov: str, everything: Path) -> None:
    """And it has looked: at every workload of every overlay, and at the Containerfile."""
    results = check(checkov, everything)
    failed = [(f["check_id"], f["check_name"], f["resource"]) for one in results.values() for f in one["results"]["failed_checks"]]

    assert failed == []
    assert results["kubernetes"]["summary"]["passed"] > 1_000
    assert results["dockerfile"]["summary"]["passed"] > 20
    assert [one["summary"]["parsing_errors"] for one in results.values()] == [0, 0]


def test_checkov_finds_what_is_wrong(checkov: str, tmp_path: Path) -> None:
    """With the same configuration: a container that may become privileged is a failed check."""
    whole = built(K8S / "overlays/prod")
    (tmp_path / "prod.yaml").write_text(whole.replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"))

    failed = {f["check_id"] for f in check(checkov, tmp_path)["kubernetes"]["results"]["failed_checks"]}

    assert failed == {"CKV_K8S_20"}


def test_every_check_that_is_left_out_has_a_reason() -> None:
    """On its line."""
    lines = [line for line in CONFIGURATION.read_text().splitlines() if line.startswith("  - ")]
    reasons = [re.fullmatch(r"  - (CKV\w+)  # (.+)", line) for line in lines]

    assert lines
    assert [line for line, reason in zip(lines, reasons, strict=True) if reason is None or len(reason[2]) < LEAST_REASON] == []


def test_hadolint_finds_nothing() -> None:
    """In the Containerfile, with all of its rules."""
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, "--no-color", str(ROOT / "Containerfile")], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
