"""A PostgreSQL server of the tests' own, on a free port; where its programs or the driver are missing, tests are skipped."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

MISSING = "PostgreSQL is not tested: apt-get install postgresql, .venv/bin/pip install 'psycopg[binary]'"
NUMBERS = count(1)


@contextmanager
def server() -> Iterator[str]:
    """Start a server, yield the address of it without a database, and end it."""
    programs = Path(shutil.which("initdb") or next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), "")).resolve().parent
    if not (programs / "initdb").is_file() or find_spec("psycopg") is None:
        pytest.skip(MISSING)
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
    import psycopg

    name = f"pointsman_{next(NUMBERS)}"
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{address}/{name}"
