"""Real programs on free loopback ports: a bootstrapped working folder, the service, the agents, and servers that misbehave."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

from service.adapters.mlflow_client import open_client
from service.routing.encoder_file import CACHE, served_model
from tests.programs import free_port as free_port
from tests.programs import without_settings

ROOT = Path(__file__).parents[2]
Share = Callable[[str, Callable[[Path], None]], Path]
READY_SECONDS = 90.0
SPECIFIED = {  # the routing table's primary agents
    "causal_impact": "causal_impact",
    "gap_analysis": "gap_analyzer",
    "heterogeneous": "heterogeneous_optimizer",
    "experiment_design": "experiment_designer",
    "prediction": "prediction_synthesizer",
    "explanation": "explainer",
    "health_check": "health_score",
    "drift_check": "drift_monitor",
    "resource_optimize": "resource_optimizer",
    "ml_training": "scope_definer",
    "feature_analysis": "feature_analyzer",
    "model_deploy": "model_deployer",
}


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The small language model's file. Under CI it has to be there; elsewhere its tests are skipped with the command that fetches it."""
    path = Path(os.environ.get("POINTSMAN_LM_GGUF") or ROOT / "var/models/smollm2-135m.gguf")
    if not path.is_file():
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"no language model at {path}: run `make lm`")
    return path


class Program:
    """A program of the system under way; `log` is what it has written."""

    def __init__(self, arguments: list[str], folder: Path, environment: dict[str, str], probe: str) -> None:
        self.url = probe.rsplit("/", 1)[0]
        self._log = folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            clean = without_settings()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", *arguments], cwd=folder, env=clean | environment, stdout=log, stderr=log
            )
        self._wait(probe)

    @property
    def log(self) -> str:
        """What the program has written so far."""
        return self._log.read_text(errors="replace")

    def _wait(self, probe: str) -> None:
        limit = time.monotonic() + READY_SECONDS
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise RuntimeError(f"the program ended with {self.process.returncode}:\n{self.log}")
            try:
                if httpx.get(probe, timeout=2.0).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{probe} was not ready:\n{self.log}")

    def kill(self) -> None:
        """End the program at once, as the kernel would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        """Ask the program to end, and wait."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Share:
    """Return a folder of a name that all processes of the tests share; the first one that asks for it fills it."""
    base = tmp_path_factory.getbasetemp()

    def share(name: str, fill: Callable[[Path], None]) -> Path:
        folder = (base if worker_id == "master" else base.parent) / name
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                folder.mkdir()
                fill(folder)
        return folder

    return share


@pytest.fixture(scope="session")
def begun(shared_folder: Share) -> Path:
    """A working folder in which nothing was done but what takes seconds the first time: the encoder's 8 bits and an empty registry."""

    def fill(folder: Path) -> None:
        served_model(folder / CACHE)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The ``noload`` loader strategy")  # MLflow under SQLAlchemy 2.1
            open_client(f"sqlite:///{folder}/mlruns/mlflow.db")

    return shared_folder("begun", fill)


@pytest.fixture(scope="session")
def workplace(begun: Path, shared_folder: Share, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a router version fitted from the whole seed set; fitted once, whichever process is first."""

    def fill(folder: Path) -> None:
        shutil.copytree(begun, folder, dirs_exist_ok=True)
        program = [sys.executable, "-m", "optimizers.cli", "--bootstrap", "--seed-set", str(ROOT / "datasets" / "seed")]
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr

    shared = shared_folder("bootstrapped", fill)
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("workplace") / "work"))


@pytest.fixture(scope="session")
def agents(workplace: Path) -> Iterator[Program]:
    """The built-in agents."""
    port = free_port()
    program = Program(["agents", "--port", str(port)], workplace, {}, f"http://127.0.0.1:{port}/healthz")
    yield program
    program.stop()


Start = Callable[..., Program]


@pytest.fixture
def start_service(workplace: Path, agents: Program) -> Iterator[Start]:
    """Start services with given options and settings; they end with the test."""
    started: list[Program] = []

    def start(*options: str, **settings: str) -> Program:
        started.append(_serve(workplace, agents, *options, **settings))
        return started[-1]

    yield start
    for program in started:
        program.stop()


@pytest.fixture(scope="module")
def service(workplace: Path, agents: Program) -> Iterator[Program]:
    """A service with the built-in agents behind it, for all tests of a module that need no settings of their own."""
    program = _serve(workplace, agents)
    yield program
    program.stop()


def _serve(workplace: Path, agents: Program, *options: str, **settings: str) -> Program:
    port = free_port()
    environment = {f"POINTSMAN_{name.upper()}": text for name, text in settings.items()}
    environment.setdefault("POINTSMAN_AGENTS_BASE_URL", agents.url)
    return Program(["serve", "--port", str(port), *options], workplace, environment, f"http://127.0.0.1:{port}/readyz")


@pytest.fixture(scope="module")
def hanging_port() -> Iterator[int]:
    """A port that accepts every connection and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield int(listener.getsockname()[1])


@pytest.fixture
def closed_port() -> int:
    """A port that nothing listens on."""
    return free_port()


async def gather_answers(url: str, bodies: list[dict[str, object]]) -> list[httpx.Response | httpx.TransportError]:
    """Post all bodies at once; a broken connection is returned, not raised."""
    async with httpx.AsyncClient(timeout=60.0, limits=httpx.Limits(max_connections=None)) as client:

        async def post(body: dict[str, object]) -> httpx.Response | httpx.TransportError:
            try:
                return await client.post(url, json=body)
            except httpx.TransportError as exc:
                return exc

        return await asyncio.gather(*(post(body) for body in bodies))
