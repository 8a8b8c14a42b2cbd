"""A PgBouncer before the tests' PostgreSQL, pooling by transaction. Under CI it must be there; elsewhere its tests are skipped without."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

MISSING = "PgBouncer is not tested: apt-get install pgbouncer"
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server_port} user=tester
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_lifetime = 3
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pooler(server: str, *, ignored: str = "") -> Iterator[str]:
    """Start a pooler before a server, yield the address of it without a database, and end it.

    Args:
        server: the server's address.
        ignored: parameters of a connection's start that it passes over, of those that it would refuse.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(MISSING)
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = folder / "pgbouncer.ini"
    file.write_text(CONFIGURATION.format(server_port=make_url(server).port, port=port, ignored=ignored))
    if user is not None:
        for path in (folder, file):
            shutil.chown(path, user)
    running = subprocess.Popen([program, "-q", file], user=user, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 20
        while running.poll() is None and not _listens(port):
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert running.poll() is None
        yield f"postgresql://tester@127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait(20)
        shutil.rmtree(folder)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
