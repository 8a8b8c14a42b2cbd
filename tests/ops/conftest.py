"""The monitoring's files, and Prometheus' own programs to check them with."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.conftest import ROOT, begun, free_port, shared_folder, workplace

__all__ = ["begun", "shared_folder", "workplace"]  # fixtures of this ring too

MONITORING = ROOT / "k8s" / "monitoring"
RULES = MONITORING / "rules.yaml"
INSTALL = "apt-get update && apt-get install -y prometheus"
READY_SECONDS = 60.0


def program(name: str) -> str:
    """Return where a program of Prometheus lies. Under CI it has to be there; elsewhere its tests are skipped with what installs it."""
    found = shutil.which(name)
    if found is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"no {name}: run `{INSTALL}`")
    return str(found)


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus under way. Queries are answered as of the Unix time `at`, or else as of now."""

    client: httpx.Client
    at: float | None = None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of a query; what is wrong with the query fails the test."""
        when = {} if self.at is None else {"time": str(self.at)}
        answer = self.client.get("/api/v1/query", params={"query": expression} | when).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        return list(answer["data"]["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its state."""
        groups = self.client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


Watch = Callable[..., Prometheus]


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Start a Prometheus with the rules that looks at services every second; it ends with the module."""
    started, clients = list["subprocess.Popen[bytes]"](), list[httpx.Client]()

    def start(*addresses: str) -> Prometheus:
        folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
        configuration = folder / "prometheus.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}\n"
            f"rule_files: ['{RULES}']\n"
            f"scrape_configs: [{{job_name: pointsman, static_configs: [{{targets: {list(addresses)}}}]}}]\n"
        )
        options = [f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        with (folder / "log").open("wb") as log:
            started.append(subprocess.Popen([program("prometheus"), *options], stdout=log, stderr=log))
        clients.append(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0))
        _wait_ready(clients[-1], started[-1], folder / "log")
        return Prometheus(clients[-1])

    yield start
    for client in clients:
        client.close()
    for one in started:
        one.terminate()
        one.wait(20)


def _wait_ready(client: httpx.Client, process: "subprocess.Popen[bytes]", log: Path) -> None:
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        try:
            if client.get("/-/ready").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"prometheus was not ready:\n{log.read_text(errors='replace')}")
