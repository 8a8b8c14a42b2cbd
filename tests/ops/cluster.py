"""What kustomize builds of `k8s/`, as objects. Programs that tests need must be there under CI; elsewhere tests are skipped without."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.conftest import ROOT

Manifest = dict[str, Any]
K8S = ROOT / "k8s"
OVERLAYS = ("overlays/dev", "overlays/prod")
BUILT = ("base", *OVERLAYS)
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
PORTS = {"service": Settings.model_fields["port"].default, "agents": Settings.model_fields["agents_port"].default}
WORKLOADS = {"StatefulSet", "Deployment", "Job", "CronJob"}


def required(name: str, install: str, *places: Path) -> str:
    """Return the path of a program, or end the test: as failed under CI, elsewhere as skipped."""
    found = shutil.which(name, path=os.pathsep.join([*map(str, places), os.environ.get("PATH", "")]))
    if found is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"no {name}: {install}")
    return str(found)


def kubectl() -> str:
    """Return the path of kubectl."""
    return required("kubectl", "snap install kubectl --classic")


@cache
def built(folder: Path) -> str:
    """Return what a folder builds, as YAML."""
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def objects(folder: str | Path) -> list[Manifest]:
    """Return the objects that a folder of `k8s/` builds."""
    return list(yaml.load_all(built(K8S / folder), Loader=yaml.CSafeLoader))  # ten times faster than the loader in Python


def one(folder: str, kind: str, name: str) -> Manifest:
    """Return the one object of a kind and name."""
    (found,) = [o for o in objects(folder) if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(manifest: Manifest) -> Manifest:
    """Return the template of a workload's pods."""
    spec: Manifest = manifest["spec"]
    return dict(spec["jobTemplate"]["spec"]["template"] if manifest["kind"] == "CronJob" else spec["template"])


def pods(folder: str) -> Iterator[tuple[str, Manifest]]:
    """Return the pod templates that a folder builds, by kind and name of their workload."""
    for manifest in objects(folder):
        if manifest["kind"] in WORKLOADS:
            yield f"{manifest['kind']} {manifest['metadata']['name']}", pod_of(manifest)


def containers(folder: str) -> Iterator[tuple[str, Manifest]]:
    """Return the containers of those pods, also those that run before the others."""
    for name, pod in pods(folder):
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            yield name, container


def seconds_to_sleep(container: Manifest) -> int:
    """Return how long a container sleeps before it is told to end."""
    return int(container["lifecycle"]["preStop"]["sleep"]["seconds"])


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Say whether a selector takes labels; a Service's has no `matchLabels`."""
    wanted = selector if not {"matchLabels", "matchExpressions"} & selector.keys() else selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    return wanted.items() <= labels.items() and all(e["operator"] == "In" and labels.get(e["key"]) in e["values"] for e in expressions)
