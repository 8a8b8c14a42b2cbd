"""The image: what the Containerfile copies is there and tracked, what it starts exists, and the wheel has all that the program reads."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.ops.cluster import one, pod_of

CONTAINERFILE = (ROOT / "Containerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
STAGES = re.split(r"^(?=FROM )", CONTAINERFILE, flags=re.MULTILINE)[1:]
FINAL = STAGES[-1]
USE_WHAT_IS_PACKED = """
import asyncio, service, service.cli, optimizers.cli
from service.adapters.sql_store import SqlStore
from service.catalog.loader import load_catalog
from service.routing.encoder_file import TOKENIZER_FILE
asyncio.run(SqlStore("sqlite:///var/pointsman.db").open())
print(service.__file__, len(load_catalog(None).agents), TOKENIZER_FILE.is_file())
"""
PACKAGES = ("service", "signatures", "optimizers")


def instructions(stage: str, name: str) -> list[str]:
    """Return the arguments of the instructions of a name, lines joined."""
    joined = stage.replace("\\\n", " ")
    return [line.removeprefix(f"{name} ").strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


def copied() -> list[str]:
    """Return what is copied from the build context."""
    lines = [line for stage in STAGES for line in instructions(stage, "COPY") if not line.startswith("--from")]
    return [source for line in lines for source in line.split()[:-1]]


def tracked(*paths: str) -> list[str]:
    """Return the files that git tracks, or would track, under paths."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *paths], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_everything_that_is_copied_is_in_git_and_nothing_else_is_sent() -> None:
    """`.containerignore` lets through what is copied, and no more."""
    let_through = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]

    assert [source for source in copied() if not tracked(source)] == []
    assert sorted(let_through) == sorted(set(copied()))


def test_the_image_runs_as_a_user_without_rights_and_starts_the_program() -> None:
    """A number, so that Kubernetes can tell that it is not root: the one of the manifests."""
    (user,) = instructions(FINAL, "USER")
    spec = pod_of(one("base", "StatefulSet", "pointsman"))["spec"]
    security = spec["securityContext"]

    assert user == f"{security['runAsUser']}:{security['runAsGroup']}" == "10001:10001"
    assert instructions(FINAL, "ENTRYPOINT") == ['["pointsman"]']
    assert "command" not in spec["containers"][0]
    assert {"pointsman", "optimize"} <= PROJECT["project"]["scripts"].keys()
    assert set(instructions(FINAL, "EXPOSE")[0].split()) == {"8100", "8101"}


def test_state_lies_where_the_manifests_mount_it() -> None:
    """The working folder's `var`, which belongs to the user where nothing is mounted."""
    (workdir,) = instructions(FINAL, "WORKDIR")
    mounts = pod_of(one("base", "StatefulSet", "pointsman"))["spec"]["containers"][0]["volumeMounts"]

    assert f"{workdir}/var" in {mount["mountPath"] for mount in mounts}
    assert f"-o 10001 -g 10001 {workdir}/var {workdir}/mlruns" in FINAL
    assert "HOME=/tmp" in FINAL  # libraries keep caches there


def test_what_is_installed_is_what_the_lock_says() -> None:
    """By hashes and from wheels, as `make install` does; the base image has a version, and is named once."""
    installs = re.findall(r"pip install [^&]*", CONTAINERFILE.replace("\\\n", " "))
    bases = [line.split()[0] for stage in STAGES for line in instructions(stage, "FROM")]

    assert [i for i in installs if "requirements" in i and not {"--require-hashes", "--no-deps"} <= set(i.split())] == []
    assert len([i for i in installs if "requirements" in i]) == 2
    assert [base for base in bases if "/" in base] == [bases[0]]
    assert re.fullmatch(r"docker\.io/library/python:3\.(\d+)\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", bases[0])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a copy of what the Containerfile copies: built as there, but in a folder that is thrown away."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in tracked("pyproject.toml", "README.md", "LICENSE", *PACKAGES):
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), "."]
    subprocess.run(command, cwd=folder / "source", capture_output=True, check=True, timeout=110)
    (made,) = folder.glob("*.whl")
    return zipfile.ZipFile(made)


def test_the_wheel_has_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    """Catalogue, tokenizer, templates and migrations too; whatever is added to a package has to be packed."""
    packed = {name for name in wheel.namelist() if not fnmatch(name, "*.dist-info/*")}

    assert packed == set(tracked(*PACKAGES))
    assert {Path(name).suffix for name in packed} > {".py", ".yaml", ".json", ".j2"}


def test_the_wheel_works_without_the_source_tree(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """In an empty folder: it finds its catalogue, its encoder's tokenizer and its migrations, which make a database."""
    wheel.extractall(tmp_path / "site")
    work = tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {USE_WHAT_IS_PACKED}"]
    done = subprocess.run(command, cwd=work, env=bare(), capture_output=True, text=True, timeout=110, check=False)

    assert done.stdout.split() == [str(tmp_path / "site/service/__init__.py"), "16", "True"], done.stderr
    assert (work / "var/pointsman.db").is_file()


def bare() -> dict[str, str]:
    """Return an environment in which nothing points at the source tree, nor sets anything."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONPATH" and not name.startswith("POINTSMAN_")}
