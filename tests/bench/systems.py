"""Services under test: started, waited for, and ended."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from service.catalog.loader import PACKAGED
from service.terminal import terminal
from tests.programs import free_port as free_port

ROOT = Path(__file__).parents[2]
READY_SECONDS = 300.0
SETTLE_SECONDS = 45.0  # after its start the service loads MLflow in the background
console = terminal()
T = TypeVar("T")


@dataclass(frozen=True)
class System:
    """One orchestrator under test; `body` is a kind of `tests.bench.load`."""

    name: str
    command: list[str]
    port: int
    environment: dict[str, str]
    body: str = "question"
    path: str = "/orchestrate"
    settle: float = 5.0
    probe: str = "/readyz"


@contextmanager
def launched(system: System, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start one system in a working folder of its own, its log beside that, and end it; whoever starts it waits until it is ready."""
    home = folder / file_name(system.name)
    home.mkdir(exist_ok=True)
    with (folder / f"{file_name(system.name)}.log").open("w") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **system.environment}
        process = subprocess.Popen(system.command, cwd=home, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def running(systems: list[System], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the systems, wait until they are ready and have settled, and end them."""
    with ExitStack() as stack:
        processes = [stack.enter_context(launched(system, folder)) for system in systems]
        for system in systems:
            _wait_until_ready(system)
        settle = max(s.settle for s in systems)
        console.print(f"waiting {settle:g} s until everything has settled", style="dim")
        time.sleep(settle)
        yield processes


@asynccontextmanager
async def aside(starting: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context that waits, beside an event loop that has something to serve meanwhile."""
    entered = await asyncio.to_thread(starting.__enter__)
    try:
        yield entered
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)


def pointsman(
    name: str, state: Path, agents: str, *options: str, settle: float = SETTLE_SECONDS, body: str = "question", **settings: str
) -> System:
    """Return the service on a free port with the champion of an MLflow store; `settings` become POINTSMAN_*."""
    port, chosen = free_port(), {"agents_base_url": agents, "mlflow_uri": f"sqlite:///{state.resolve()}/mlflow.db", **settings}
    environment = {f"POINTSMAN_{key.upper()}": value for key, value in chosen.items()}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), *options]
    return System(name, command, port, environment, body, settle=settle)


def hasty_catalog(folder: Path, timeout_ms: int) -> Path:
    """Write the packaged catalogue with another timeout for all agents."""
    catalog = folder / "catalog"
    catalog.mkdir()
    for file in PACKAGED.glob("*.yaml"):
        (catalog / file.name).write_text(re.sub(r"timeout_ms: \d+", f"timeout_ms: {timeout_ms}", file.read_text()))
    return catalog


@contextmanager
def echo_agents(folder: Path) -> Iterator[str]:
    """Start agents that answer at once; their address."""
    port = free_port()
    with launched(System("echo agents", [sys.executable, "-m", "tests.bench.echo_agents", str(port)], port, {}), folder):
        wait_for(port)
        yield f"http://127.0.0.1:{port}"


def file_name(name: str) -> str:
    """Return a name that can be a file's."""
    return re.sub("[^a-z]", "_", name)


def _wait_until_ready(system: System) -> None:
    wait_for(system.port)
    give_up = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{system.port}{system.probe}", timeout=5) as response:
                if response.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > give_up:
            raise SystemExit(f"{system.name} is not ready; is there a champion? Run: optimize --bootstrap")
        time.sleep(0.3)


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    give_up = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")
