"""Programs that tests start. What is not installed is a failure under CI; elsewhere its tests are skipped with what to install."""

import gc
import multiprocessing
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.adapters.mlflow_client import ENVIRONMENT

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    [  # that take long to import
        "aiohttp",
        "dspy",
        "fastapi",
        "matplotlib.figure",
        "mlflow",
        "mlflow.store.model_registry.sqlalchemy_store",
        "mlflow.store.tracking.sqlalchemy_store",
        "pyarrow.parquet",
        "scipy.stats",
        "sklearn.linear_model",
        "sqlmodel",
        "tokenizers",
        "typer.rich_utils",
        "uvicorn",
    ]
)


def run_program(
    module: str, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, seconds: float = 300.0
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE ARGUMENTS` in a folder to its end, in a process that has the libraries already: they are most of a short run.

    All of our own code is imported there. The environment is that of the tests, where none is given. What serves, gets signals or is
    killed starts Python anew.

    Raises:
        subprocess.TimeoutExpired: It did not end.
    """
    with tempfile.TemporaryDirectory() as name:
        output, errors = Path(name) / "stdout", Path(name) / "stderr"
        known = dict(os.environ if environment is None else environment)
        process = _FORKED.Process(target=_become, args=(module, arguments, folder, known, (output, errors)))
        with pytest.MonkeyPatch.context() as patch:  # the first start makes the process that imports the libraries
            for variable, value in ENVIRONMENT.items():
                patch.setenv(variable, value)
            process.start()
        process.join(seconds)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        if code is None:
            raise subprocess.TimeoutExpired([module, *arguments], seconds, errors.read_text())
        return subprocess.CompletedProcess([module, *arguments], code, output.read_text(), errors.read_text())


def without_settings() -> dict[str, str]:
    """Return the environment without what is set for Pointsman."""
    return {name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")}


def _become(module: str, arguments: tuple[str, ...], folder: Path, environment: dict[str, str], streams: tuple[Path, Path]) -> None:
    """Turn this process into a run of a program."""
    gc.freeze()
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


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
