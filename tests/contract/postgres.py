"""A PostgreSQL server of the tests' own, on a free port. Under CI its programs must be there; elsewhere its tests are skipped without."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

MISSING = "PostgreSQL is not tested: apt-get install postgresql"
NUMBERS = count(1)


@contextmanager
def server() -> Iterator[str]:
    """Start a server, yield the address of it without a database, and end it."""
    programs = Path(shutil.which("initdb") or next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), "")).resolve().parent
    if not (programs / "initdb").is_file():
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(MISSING)
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    made = [programs / "initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    subprocess.run(made, check=True, capture_output=True, user=user, cwd=folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    control = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True, user=user, cwd=folder)
    try:
        yield f"postgresql://tester@127.0.0.1:{port}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, user=user, cwd=folder)
        shutil.rmtree(folder)


def new_database(address: str) -> str:
    """Make an empty database on a server and return its address."""
    name = f"pointsman_{next(NUMBERS)}"
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{address}/{name}"
