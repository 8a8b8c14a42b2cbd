"""A running service follows the registry: a promotion is served within seconds, a version that is not whole never is."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from service.adapters.mlflow_registry import CHAMPION, MODEL, MlflowRegistry
from signatures.artifact import MANIFEST, STUDENT
from tests.integration.conftest import Program, free_port
from tests.integration.test_optimize import AGENTS, INTENTS, TEXTS
from tests.programs import run_program

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
FOLLOWS_SECONDS = 10.0
SLOW_MACHINE = 30.0  # until the watcher has been started and has imported MLflow


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory, begun: Path) -> Path:
    """A working folder with a small catalogue and its first router."""
    folder = Path(shutil.copytree(begun, tmp_path_factory.mktemp("office"), dirs_exist_ok=True))
    lines = [json.dumps({"text": text, "label": label}) for label, texts in TEXTS.items() for text in texts]
    (folder / "seed.jsonl").write_text("\n".join(lines))
    (folder / "catalog").mkdir()
    for name, text in (("agents", AGENTS), ("intents", INTENTS), ("entities", "terms: {}")):
        (folder / "catalog" / f"{name}.yaml").write_text(text)
    (folder / ".env").write_text("POINTSMAN_CATALOG=catalog\n")
    run(folder, "optimizers.cli", "--bootstrap", "--seed-set", "seed.jsonl")
    return folder


@pytest.fixture(scope="module")
def service(office: Path) -> Iterator[Program]:
    """A service in that folder."""
    port = free_port()
    program = Program(["serve", "--port", str(port)], office, {}, f"http://127.0.0.1:{port}/readyz")
    yield program
    program.stop()


def run(folder: Path, program: str, *arguments: str) -> None:
    """Run a program of the system in a folder."""
    done = run_program(program, *arguments, folder=folder)
    assert done.returncode == 0, done.stderr


def registry(office: Path) -> MlflowRegistry:
    """Return the folder's registry."""
    return MlflowRegistry(f"sqlite:///{office}/mlruns/mlflow.db")


def register(office: Path, scratch: Path, spoil: Callable[[Path], object] = lambda _: None) -> str:
    """Register a copy of the first version, spoiled or not, and return its number."""
    first = registry(office).version("1")
    assert first is not None
    shutil.copytree(first.folder, scratch / "copy")
    spoil(scratch / "copy")
    return registry(office).register(scratch / "copy", params={}, metrics={}, promote=False).number


def served(service: Program) -> str:
    """Return the version that serves."""
    return str(httpx.get(f"{service.url}/readyz", timeout=5.0).json()["router_version"])


def reloads(service: Program, outcome: str) -> float:
    """Return how many versions were loaded with an outcome."""
    text = httpx.get(f"{service.url}/metrics", timeout=5.0).text
    name = f'orchestrator_router_reloads_total{{outcome="{outcome}"}} '
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Say whether something comes to hold within a time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if holds():
            return True
        time.sleep(0.1)
    return holds()


def test_a_promotion_on_this_machine_is_served_within_seconds(office: Path, service: Program, tmp_path: Path) -> None:
    """And going back is, too: one command each."""
    number = register(office, tmp_path)

    run(office, "service.cli", "routers", "promote", number)
    assert wait_until(lambda: served(service) == number, FOLLOWS_SECONDS)
    run(office, "service.cli", "routers", "rollback")
    assert wait_until(lambda: served(service) == "1", FOLLOWS_SECONDS)


def test_who_runs_everything_in_a_terminal_is_told_which_router_serves(office: Path, tmp_path: Path) -> None:
    """`pointsman run` shows an answer first, and then each swap."""
    port, agents_port = free_port(), free_port()
    settings = {"POINTSMAN_PORT": str(port), "POINTSMAN_AGENTS_PORT": str(agents_port)}
    terminal = Program(["run", "--question", "where is the parcel"], office, settings, f"http://127.0.0.1:{port}/readyz")
    before, number = served(terminal), register(office, tmp_path)
    assert wait_until(lambda: "Stop with Ctrl-C" in terminal.log, SLOW_MACHINE)

    run(office, "service.cli", "routers", "promote", number)
    told = wait_until(lambda: f"router version {number} serves now, in place of {before}" in terminal.log, FOLLOWS_SECONDS)
    run(office, "service.cli", "routers", "rollback")
    terminal.stop()

    assert told, terminal.log
    assert terminal.process.returncode == 0


def test_an_alias_that_somebody_else_moves_is_followed(office: Path, service: Program, tmp_path: Path) -> None:
    """Such as a colleague in MLflow's own interface."""
    number = register(office, tmp_path)

    registry(office)._client().set_registered_model_alias(MODEL, CHAMPION, number)

    assert wait_until(lambda: served(service) == number, SLOW_MACHINE + FOLLOWS_SECONDS)


def _lies(folder: Path) -> None:
    """Let the manifest say of its own texts what the student does not read."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["rehearsal"] = [{**one, "label": "refunds" if one["label"] == "invoices" else "invoices"} for one in manifest["rehearsal"]]
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _rewrite(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, **changes}))


SPOILED: dict[str, Callable[[Path], object]] = {
    "altered": lambda folder: (folder / STUDENT).write_bytes((folder / STUDENT).read_bytes()[:-8] + b"\0" * 8),
    "cut off": lambda folder: (folder / STUDENT).write_bytes((folder / STUDENT).read_bytes()[:1_000]),
    "without a manifest": lambda folder: (folder / MANIFEST).unlink(),
    "of another format": lambda folder: _rewrite(folder, format_version=9),
    "with other labels than it says": lambda folder: _rewrite(folder, label_set=["invoices", "shipping"]),
    "that reads otherwise than it says": _lies,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_version_that_is_not_what_it_says_is_never_served(
    office: Path, service: Program, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """The one before goes on, the metric rises once, and the next good version is taken."""
    before, refused = served(service), reloads(service, "refused")
    number = register(office, tmp_path, spoil)

    registry(office).promote(number)

    assert wait_until(lambda: reloads(service, "refused") == refused + 1, SLOW_MACHINE + FOLLOWS_SECONDS)
    assert served(service) == before
    run(office, "service.cli", "routers", "promote", "1")
    assert wait_until(lambda: served(service) == "1", FOLLOWS_SECONDS)
    assert reloads(service, "refused") == refused + 1
