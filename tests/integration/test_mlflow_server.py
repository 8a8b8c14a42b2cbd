"""Router versions on an MLflow server that keeps the artifacts itself, as a platform team runs it: nothing of them lies on this machine."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.registry_watch import look
from service.adapters.router_source import RouterSource, recall
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from signatures.artifact import STUDENT
from tests.integration.conftest import READY_SECONDS, free_port
from tests.integration.office import ASKS, open_office, run

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    """A server's address and its process."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    program = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    kept = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")]
    with (folder / "log").open("wb") as log, subprocess.Popen([*program, *kept], cwd=folder, stdout=log, stderr=log) as process:
        limit = time.monotonic() + READY_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < limit, (folder / "log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", process
        process.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder without a router, and one for temporary files."""
    folder = tmp_path_factory.mktemp("work")
    open_office(folder)
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.chdir(folder)


def test_versions_are_made_tried_and_fetched_over_http(folder: Path, server: "tuple[str, subprocess.Popen[bytes]]") -> None:
    """What `--json` prints is JSON; the report is where the server has it; nothing is left in the folder for temporary files."""
    uri, _ = server
    first = run(folder, "--bootstrap", "--seed-set", "seed.jsonl", "--json", MLFLOW_URI=uri)
    second = run(folder, "--signature", "routing", "--json", MLFLOW_URI=uri)
    shutil.rmtree(folder / "var/router")  # another machine
    registry = MlflowRegistry(uri)
    champion, again = registry.champion(), registry.champion()
    registry.promote("2")
    look(uri, folder / "note.json")
    registry.rollback("rolled_back", "Left by hand.")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert json.loads(first.stdout)["version"] == "1"
    made = json.loads(second.stdout)
    assert (made["version"], made["ruling"], made["dataset"]["labelled"]) == ("2", "reject", 12)
    assert made["report"].startswith("mlflow-artifacts:/")
    assert "<html" in (registry.read_artifact(registry.run_of("2"), "report.html") or "")
    assert json.loads(registry.verdict("2") or "{}")["ruling"] == "reject"
    assert champion is not None
    assert (champion, champion.number) == (again, "1")
    assert getattr(recall(uri, folder / "note.json"), "number", None) == "2"
    assert set(RouterSource(uri, Encoder()).load(champion).student.labels) == set(ASKS)
    assert [one for one in (folder / "tmp").iterdir() if one.is_dir()] == []


def test_a_copy_that_was_damaged_is_fetched_again(folder: Path, server: "tuple[str, subprocess.Popen[bytes]]") -> None:
    """By who looks closely, by a command, and instead of a router fitted anew."""
    uri, _ = server
    registry, note = MlflowRegistry(uri), folder / "var/router/champion.json"
    look(uri)
    champion = registry.champion()
    assert champion is not None
    whole = (champion.folder / STUDENT).read_bytes()
    read = []
    for mend in (
        lambda: look(uri),
        lambda: registry.version("1"),
        lambda: run(folder, "--bootstrap", "--if-missing", "--seed-set", "seed.jsonl", MLFLOW_URI=uri),
    ):
        (champion.folder / STUDENT).write_bytes(whole[:100])
        mend()
        read.append((champion.folder / STUDENT).read_bytes())

    assert read == [whole] * 3
    assert recall(uri, note) == champion
    assert len(registry.versions()) == 2


def test_the_last_good_version_is_there_while_the_server_is_not(folder: Path, server: "tuple[str, subprocess.Popen[bytes]]") -> None:
    """It was kept; what is asked of the server says that it cannot be reached, not that there is no such thing."""
    uri, process = server
    registry = MlflowRegistry(uri)
    champion, run_id = registry.champion(), registry.run_of("1")
    assert champion is not None
    source = RouterSource(uri, Encoder(), last_good=folder / "last_good.json")
    (folder / "last_good.json").write_text(json.dumps({"mlflow_uri": uri, "version": "1", "folder": str(champion.folder)}))
    process.terminate()
    process.wait(30)

    served = source.load_last_good()

    assert served is not None
    assert served.version == "1"
    assert recall(uri, folder / "last_good.json") == champion
    assert champion.folder.is_relative_to(folder / "var/router/versions")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        registry.read_artifact(run_id, "dataset/manifest.json")
