"""Services under test: started, waited for, and ended."""

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.terminal import terminal

ROOT = Path(__file__).parents[2]
READY_SECONDS = 120.0
console = terminal()


@dataclass(frozen=True)
class System:
    """One orchestrator under test."""

    name: str
    command: list[str]
    port: int
    environment: dict[str, str]
    intent: bool = False
    settle: float = 5.0


@contextmanager
def running(systems: list[System], folder: Path) -> Iterator[list[System]]:
    """Start the systems, wait until they are ready and have settled, and end them."""
    processes = []
    try:
        for system in systems:
            with (folder / f"{file_name(system.name)}.log").open("w") as log:
                environment = {**os.environ, "PYTHONPATH": str(ROOT), **system.environment}
                processes.append(subprocess.Popen(system.command, cwd=ROOT, env=environment, stdout=log, stderr=log))
        for system in systems:
            _wait_until_ready(system)
        console.print(f"waiting {max(s.settle for s in systems):g} s until everything has settled", style="dim")
        time.sleep(max(s.settle for s in systems))
        yield systems
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def file_name(name: str) -> str:
    """Return a name that can be a file's."""
    return re.sub("[^a-z]", "_", name)


def _wait_until_ready(system: System) -> None:
    wait_for(system.port)
    give_up = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{system.port}/readyz", timeout=5) as response:
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


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
