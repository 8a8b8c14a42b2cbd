"""Each dependency taken away alone and in pairs from the real service: no 500, no hang; docs/degradation.md shows what was seen."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from itertools import combinations
from pathlib import Path

import httpx
import pytest

from tests.conftest import body
from tests.contract.postgres import controlled, new_database
from tests.integration.conftest import ROOT, Program, free_port
from tests.integration.ladder import DEPENDENCIES, ONE, ORDER, Door, Ladder, Seen, answer_as_lm, observe, page
from tests.integration.test_lm_faults import served
from tests.programs import run_program, without_settings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
States, Starts = dict[frozenset[str], Seen], dict[frozenset[str], str]
PAGE = ROOT / "docs/degradation.md"
RENEW = "RENEW_SNAPSHOT=1 python -m pytest tests/integration/test_degradation.py"


def start_mlflow(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start an MLflow server on a folder's registry."""
    port = free_port()
    program = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    kept = ["--backend-store-uri", f"sqlite:///{folder}/mlruns/mlflow.db", "--artifacts-destination", str(folder / "mlruns/artifacts")]
    with (folder / "mlflow.log").open("wb") as log:
        return subprocess.Popen([*program, *kept], cwd=folder, stdout=log, stderr=log), port


def note_router(folder: Path, uri: str) -> None:
    """Note the router as if the registry at this address had named it: the service then starts before MLflow does."""
    note = json.loads((folder / "var/router/champion.json").read_bytes()) | {"mlflow_uri": uri}
    for name in ("champion.json", "last_good.json"):
        (folder / "var/router" / name).write_text(json.dumps(note))


def settings(ports: dict[str, int], database: str, folder: Path) -> dict[str, str]:
    """Return the settings of a service whose dependencies are at these ports."""
    catalog = folder / "catalog"
    shutil.copytree(ROOT / "service/catalog", catalog, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
    agents = (ROOT / "service/catalog/agents.yaml").read_text().replace("127.0.0.1:8101", f"127.0.0.1:{ports['agents']}")
    own = f"127.0.0.1:{ports['agents']}/agents/{ONE}"
    assert own in agents
    (catalog / "agents.yaml").write_text(agents.replace(own, f"127.0.0.1:{ports['agent']}/agents/{ONE}"))
    return {
        "POINTSMAN_CATALOG": str(catalog),
        "POINTSMAN_DATABASE_URL": database,
        "POINTSMAN_MLFLOW_URI": f"http://127.0.0.1:{ports['mlflow']}",
        "POINTSMAN_LM": "openai/any",
        "POINTSMAN_LM_API_BASE": f"http://127.0.0.1:{ports['lm']}/v1",
        "POINTSMAN_LM_API_KEY": "none",
        "POINTSMAN_LM_AUDIT": "0",
        "POINTSMAN_DECISION_BUDGET_MS": "20000",  # deciding may take its time here: it is not the machine that is away
    }


@pytest.fixture(scope="module")
async def ladder(workplace: Path, agents: Program, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ladder]:
    """The service, everything that it depends on, and a door before each."""
    folder = tmp_path_factory.mktemp("ladder")
    for name in ("var", "mlruns"):
        shutil.copytree(workplace / name, folder / name)
    async with AsyncExitStack() as stack:
        blocking = stack.enter_context(ExitStack())
        server = blocking.enter_context(controlled())
        mlflow, mlflow_port = start_mlflow(folder)
        blocking.callback(mlflow.wait)
        blocking.callback(mlflow.terminate)
        behind = {"mlflow": mlflow_port, "lm": httpx.URL(await stack.enter_async_context(served(answer_as_lm))).port or 0}
        behind |= dict.fromkeys(("agent", "agents"), httpx.URL(agents.url).port or 0)
        doors = {name: Door(port) for name, port in behind.items()}
        for door in doors.values():
            await door.open()
            stack.push_async_callback(door.shut)
        chosen = settings({name: door.port for name, door in doors.items()}, new_database(server.address), folder)
        note_router(folder, chosen["POINTSMAN_MLFLOW_URI"])
        port = free_port()
        probe = f"http://127.0.0.1:{port}/readyz"
        service = await asyncio.to_thread(Program, ["serve", "--port", str(port)], folder, chosen, probe)
        blocking.callback(service.stop)
        earlier = httpx.post(f"{service.url}/orchestrate", json=body("hello"), timeout=30.0).json()["decision_id"]
        yield Ladder(service.url, doors, server, earlier)


@pytest.fixture(scope="module")
async def seen(ladder: Ladder) -> States:
    """What was seen in each state."""
    found = {}
    for state in ORDER:
        await ladder.take_away(state)
        found[state] = await observe(ladder)
    return found


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    """What becomes of a start without the encoder's file, alone and with each other dependency away."""
    folder, gone = tmp_path_factory.mktemp("starts"), free_port()
    away = {
        "lm": {"POINTSMAN_LM": "openai/any", "POINTSMAN_LM_API_BASE": f"http://127.0.0.1:{gone}/v1", "POINTSMAN_LM_API_KEY": "none"},
        "mlflow": {"POINTSMAN_MLFLOW_URI": f"http://127.0.0.1:{gone}"},
        "database": {"POINTSMAN_DATABASE_URL": f"postgresql://nobody@127.0.0.1:{gone}/none"},
        "agent": {"POINTSMAN_CATALOG": str(_catalog_without(folder / "catalog", gone))},
        "agents": {"POINTSMAN_AGENTS_BASE_URL": f"http://127.0.0.1:{gone}"},
    }

    def start(names: dict[str, str]) -> str:
        clean = without_settings()
        environment = clean | names | {"POINTSMAN_ENCODER": "lost", "POINTSMAN_LOG_LEVEL": "ERROR"}
        done = run_program("service.cli", "serve", "--port", str(free_port()), folder=folder, environment=environment)
        return f"exit code {done.returncode}: {' '.join(done.stderr.split())}"

    found = {frozenset({"encoder"}): start({})}
    return found | {frozenset({"encoder", name}): start(names) for name, names in away.items()}


def _catalog_without(folder: Path, closed: int) -> Path:
    """Return the packaged catalogue in which nobody listens where one agent should."""
    shutil.copytree(ROOT / "service" / "catalog", folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    text = (folder / "agents.yaml").read_text()
    moved = text.replace("127.0.0.1:8101/agents/gap_analyzer", f"127.0.0.1:{closed}/agents/gap_analyzer")
    assert moved != text
    (folder / "agents.yaml").write_text(moved)
    return folder


async def test_every_dependency_is_taken_away_alone_and_in_pairs(seen: States, starts: Starts) -> None:
    """In no state there is a 500, and nothing takes for ever: the clients of the ladder would give up."""
    states = {frozenset(), *(frozenset({name}) for name in DEPENDENCIES), *map(frozenset, combinations(DEPENDENCIES, 2))}

    assert seen.keys() | starts.keys() == states
    assert [cell for one in seen.values() for cell in one.cells.values() if cell.startswith("500")] == []
    assert [text for text in starts.values() if not text.startswith("exit code 2: The encoder folder lacks lost/model.onnx.")] == []


async def test_the_page_shows_what_was_seen(seen: States, starts: Starts) -> None:
    """docs/degradation.md is generated; the message of this test says how to renew it."""
    text = page(seen, starts)
    if os.environ.get("RENEW_SNAPSHOT"):
        PAGE.write_text(text, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == text, RENEW
