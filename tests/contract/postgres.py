"""A PostgreSQL server of the tests' own, on a free port. Under CI its programs must be there; elsewhere its tests are skipped without."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

MISSING = "PostgreSQL is not tested: apt-get install postgresql"
NUMBERS = count(1)


class Server:
    """A server with a data folder of its own, which outlives its process."""

    def __init__(self, programs: Path, folder: Path, port: int, user: str | None) -> None:
        self.address = f"postgresql://tester@127.0.0.1:{port}"
        self._options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
        self._folder, self._user = folder, user
        self._control = [programs / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]

    @property
    def pid(self) -> int:
        """The process that all others of the server are children of."""
        return int((self._folder / "data" / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("-o", self._options, "start")

    def crash(self) -> None:
        """End it at once, without a checkpoint; connections break."""
        self._run("-m", "immediate", "stop")

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._control, *arguments], check=True, capture_output=True, user=self._user, cwd=self._folder)


@contextmanager
def controlled() -> Iterator[Server]:
    """Start a server that can be stopped and started again, and end it."""
    programs = Path(shutil.which("initdb") or next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), "")).resolve().parent
    if not (programs / "initdb").is_file():
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(MISSING)
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    made = [programs / "initdb", "-D", folder / "data", "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    subprocess.run(made, check=True, capture_output=True, user=user, cwd=folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one = Server(programs, folder, port, user)
    one.start()
    try:
        yield one
    finally:
        with suppress(subprocess.CalledProcessError):  # it is down already
            one.crash()
        shutil.rmtree(folder)


@contextmanager
def server() -> Iterator[str]:
    """Start a server, yield the address of it without a database, and end it."""
    with controlled() as one:
        yield one.address


def new_database(address: str, encoding: str = "UTF8") -> str:
    """Make an empty database on a server and return its address."""
    name = f"pointsman_{next(NUMBERS)}"
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING {encoding} TEMPLATE template0")
    return f"{address}/{name}"
