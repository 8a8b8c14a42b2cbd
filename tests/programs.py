"""Programs of the system that tests start: under CI they must be there, elsewhere their tests are skipped with what to install."""

import os
import shutil
import socket

import pytest


def require_program(name: str, package: str) -> str:
    """Return the path of a program."""
    found = shutil.which(name)
    if found is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"{name} is not there: apt-get update && apt-get install -y --no-install-recommends {package}")
    return found


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
