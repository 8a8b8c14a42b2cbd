"""What the log of a start says: what it waits for, in order and for how long, and what the service goes on without."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.access.keys import digest_of
from tests.integration.conftest import READY_SECONDS, Start, free_port

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router


def test_a_start_says_what_it_waits_for_and_goes_on_without_database_and_agents(start_service: Start) -> None:
    """Database, encoder, router, then the agents' addresses; neither an absent database nor silent agents keep it from being ready."""
    gone = free_port()
    settings = {"database_url": f"postgresql://bob:hush@127.0.0.1:{gone}/none", "agents_base_url": f"http://127.0.0.1:{gone}"}
    service = start_service(**settings, api_keys=f"acme:{digest_of('secret')}")  # those of the database nobody knows yet
    limit = time.monotonic() + READY_SECONDS
    while "agents_asked" not in service.log:
        assert time.monotonic() < limit, service.log
        time.sleep(0.1)

    lines = [json.loads(line) for line in service.log.splitlines()]
    waited = [line["waited_for"] for line in lines if line["event"] == "start_goes_on"]
    (asked,) = [line for line in lines if line["event"] == "agents_asked"]
    assert waited == ["database", "encoder", "router"]
    assert all(line["seconds"] >= 0 for line in lines if line["event"] == "start_goes_on")
    assert [line["waits_for"] for line in lines if line["event"] == "start_waits"] == waited
    assert any(line["event"].startswith("store_away") for line in lines)
    assert (asked["level"], asked["silent"]) == ("warning", [f"http://127.0.0.1:{gone}"])
    assert "hush" not in service.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_that_cannot_start_ends_with_2(tmp_path: Path, workers: str) -> None:
    """With one process or several, and says what is missing."""
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(free_port()), "--workers", workers]
    settings = {"POINTSMAN_ENCODER": "lost"}

    done = subprocess.run(command, cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2, done.stderr
    assert "The encoder folder lacks lost/model.onnx" in done.stderr


def test_whoever_is_told_to_end_while_it_starts_ends_at_once(tmp_path: Path) -> None:
    """By a handler of its own, for process 1 of a container has no other: without one the signal would not be heard."""
    command = [
        sys.executable,
        "-c",
        "from service import cli; cli.app = lambda: (print('ready', flush=True), time.sleep(60)); import time; cli.main()",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as starting:
        assert starting.stdout is not None
        assert starting.stdout.readline() == b"ready\n"
        starting.terminate()

    assert starting.returncode == 128 + signal.SIGTERM
