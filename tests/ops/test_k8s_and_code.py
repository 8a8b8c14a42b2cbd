"""What `k8s/` says of the program is true of the program: ports, probes, variables, commands, metrics, labels, and who may talk to whom."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main
from typer import Typer

import optimizers.cli
import service.cli
from service.agents.app import create_agents_app
from service.agents.health_score import ADDRESSES_VARIABLE
from service.agents.monitoring.read import METRICS_VARIABLE, PROMETHEUS_VARIABLE
from service.api.routes import router
from service.cores import VARIABLE as CORES
from service.metrics import Metrics
from service.settings import Settings
from tests.ops.cluster import BUILT, COMPONENT, K8S, NAME, PORTS, WORKLOADS, Manifest, containers, objects, one, pod_of, pods, selects

ROUTES = {
    "service": {getattr(route, "path", "") for route in router.routes},
    "agents": {getattr(route, "path", "") for route in create_agents_app(warm_up=False).routes},
}
PROGRAMS: dict[str, Typer] = {"pointsman": service.cli.app, "optimize": optimizers.cli.app}
OF_AGENTS = {ADDRESSES_VARIABLE, METRICS_VARIABLE, PROMETHEUS_VARIABLE}
MLFLOW = "mlflow"  # the development overlay's server: another program of the image
SELECTING = ("StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
METRIC = re.compile(r"(?<![:\w])orchestrator_[a-z_]+(?![:\w])")  # a name with colons is what a rule makes


def ours(folder: str) -> Iterator[tuple[str, Manifest, Manifest]]:
    """Return component, pod template and container of what runs service, agents or jobs."""
    for _, pod in pods(folder):
        if pod["metadata"]["labels"][NAME] == "pointsman":
            (container,) = pod["spec"]["containers"]
            yield pod["metadata"]["labels"][COMPONENT], pod, container


@pytest.mark.parametrize("folder", BUILT)
def test_ports_are_those_that_the_programs_take(folder: str) -> None:
    """By default or by the configuration beside them; the Services lead there by name."""
    for component, port in PORTS.items():
        (container,) = [c for name, _, c in ours(folder) if name == component]
        (service_,) = [o for o in objects(folder) if o["kind"] == "Service" and o["metadata"]["labels"][COMPONENT] == component]
        assert container["ports"] == [{"name": "http", "containerPort": port}]
        assert [(p["name"], p["port"], p["targetPort"]) for p in service_["spec"]["ports"]] == [("http", port, "http")]
    said = variables(folder)
    assert said["POINTSMAN_PORT"] == str(PORTS["service"])
    assert said["POINTSMAN_AGENTS_PORT"] == str(PORTS["agents"])


@pytest.mark.parametrize("folder", BUILT)
def test_probes_ask_what_the_programs_answer(folder: str) -> None:
    """By routes of theirs, on the port that they listen on; whether a pod may be sent requests is asked of /readyz."""
    probed = [
        (component, name, container[name]["httpGet"])
        for component, _, container in ours(folder)
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
        if component in PORTS
    ]

    assert len(probed) == 3 * len(PORTS)
    for component, _, asked in probed:
        assert asked["path"] in ROUTES[component]
        assert asked["port"] == "http"
    assert [asked["path"] for component, name, asked in probed if (component, name) == ("service", "readinessProbe")] == ["/readyz"]


def variables(folder: str) -> dict[str, str]:
    """Return all variables of the generated configuration."""
    made = [o for o in objects(folder) if o["kind"] == "ConfigMap" and "-config-" in o["metadata"]["name"]]
    return {name: text for o in made for name, text in o["data"].items()}


@pytest.mark.parametrize("folder", BUILT)
def test_every_variable_is_a_setting(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that the agents read; values from the configuration are ones that the settings take."""
    known = {f"POINTSMAN_{name}".upper() for name in Settings.model_fields}
    told = variables(folder)
    given = {v["name"] for _, _, c in ours(folder) for v in c.get("env", [])}

    assert (given - {CORES}) | (told.keys() - OF_AGENTS) <= known
    for name in told.keys() & known:
        monkeypatch.setenv(name, told[name])
    settings = Settings(_env_file=None)
    assert (settings.host, settings.on_loopback) == ("0.0.0.0", False)


@pytest.mark.parametrize("folder", BUILT)
def test_what_computes_is_told_its_limit_of_cores(folder: str) -> None:
    """Or it would take the node's cores for its own. The agents' work is on one thread each; a migration computes nothing."""
    for component, _, container in ours(folder):
        told = [v.get("valueFrom") for v in container.get("env", []) if v["name"] == CORES]
        wanted = [] if component in {"agents", "migrate"} else [{"resourceFieldRef": {"resource": "limits.cpu"}}]
        assert told == wanted, component
        assert "cpu" in container["resources"]["limits"]


@pytest.mark.parametrize("folder", BUILT)
def test_addresses_lead_to_services_that_there_are(folder: str) -> None:
    """Those of the configuration, by name and port."""
    listening = {(o["metadata"]["name"], port["port"]) for o in objects(folder) if o["kind"] == "Service" for port in o["spec"]["ports"]}
    led_to = {(host, int(port)) for text in variables(folder).values() for host, port in re.findall(r"http://([^:/]+):(\d+)", text)}

    assert led_to == {("pointsman", PORTS["service"]), ("pointsman-agents", PORTS["agents"])}
    assert led_to <= listening


@pytest.mark.parametrize("folder", BUILT)
def test_keys_go_to_the_service_alone(folder: str) -> None:
    """And the database to who reads or writes it: the agents see neither, the migration nothing else."""
    given = {(component, v["name"]) for component, _, c in ours(folder) for v in c.get("env", [])}

    assert {component for component, name in given if name == "POINTSMAN_API_KEYS"} == {"service"}
    assert {component for component, name in given if name == "POINTSMAN_DATABASE_URL"} == {"service", "migrate", "learning"}
    assert {name for component, name in given if component == "migrate"} == {"POINTSMAN_DATABASE_URL"}


@cache
def options_of(program: str, *arguments: str) -> set[str]:
    """Return the options that a command knows."""
    command: Any = typer.main.get_command(PROGRAMS[program])
    for name in arguments:
        command = command.commands[name]
    return {option for parameter in command.params for option in parameter.opts}


def lines(folder: str) -> list[tuple[str, ...]]:
    """Return every command line of our image's containers, the entry point included."""
    return [(*c.get("command", ["pointsman"]), *c.get("args", [])) for _, _, c in ours(folder)]


LINES = ["pointsman serve", "pointsman agents", "pointsman migrate", "optimize --bootstrap", "optimize --pending", "optimize --signature"]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("folder", BUILT)
def test_every_command_is_one_of_the_program(folder: str, line: str) -> None:
    """With options that it has."""
    program, first = line.split()
    (arguments,) = [found[1:] for found in lines(folder) if found[:2] == (program, first)]
    commands = [] if first.startswith("--") else [first]

    known = options_of(program, *commands)
    assert [a for a in arguments if a.startswith("--") and a not in known] == []


@pytest.mark.parametrize("folder", BUILT)
def test_no_command_is_left_unchecked(folder: str) -> None:
    """The list above has all of them."""
    assert sorted(" ".join(line[:2]) for line in lines(folder)) == sorted(LINES)


def test_the_registry_for_development_starts_as_it_is_told() -> None:
    """MLflow has the command, and the options."""
    (container,) = [c for name, c in containers("overlays/dev") if MLFLOW in name]
    command, environment = [sys.executable, "-m", *container["command"], "--help"], os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)

    assert [a for a in container["args"] if a.partition("=")[0] not in done.stdout] == []


def test_metrics_that_are_watched_are_metrics_of_the_service() -> None:
    """In rules and dashboard, by the names under which a histogram and a counter are stored."""
    stored = set()
    for family in Metrics().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        stored |= {f"{family.name}{suffix}" for suffix in suffixes}
    files = [K8S / "monitoring/rules.yaml", K8S / "monitoring/dashboard.json"]
    named = {name for file in files for name in METRIC.findall(file.read_text())}

    assert named
    assert named - stored == set()


@pytest.mark.parametrize("folder", BUILT)
@pytest.mark.parametrize("kind", SELECTING)
def test_selectors_find_pods(folder: str, kind: str) -> None:
    """Each the pods of at least one workload, and a workload its own; an empty selector takes all."""
    labelled = {name: pod["metadata"]["labels"] for name, pod in pods(folder)}
    for manifest in (o for o in objects(folder) if o["kind"] == kind):
        spec = manifest["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        found = {name for name, labels in labelled.items() if selects(selector, labels)}
        assert found, manifest["metadata"]["name"]
        if kind in WORKLOADS:
            assert found == {f"{kind} {manifest['metadata']['name']}"}


def test_the_monitor_scrapes_the_service_and_nothing_twice() -> None:
    """It selects one Service, by its labels and the name of its port, and a path that is a route. An instance is called like its pod."""
    monitor = one("overlays/prod", "ServiceMonitor", "pointsman")["spec"]
    services = [o for o in objects("overlays/prod") if o["kind"] == "Service"]
    (found,) = [o for o in services if selects(monitor["selector"], o["metadata"]["labels"])]
    (endpoint,) = monitor["endpoints"]

    assert endpoint["port"] in {port["name"] for port in found["spec"]["ports"]}
    assert endpoint["path"] in ROUTES["service"]
    assert endpoint["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"}]


def test_the_autoscaler_and_the_budgets_hold_what_there_is() -> None:
    """The autoscaler names the StatefulSet; a budget leaves one pod at least."""
    scaler = one("overlays/prod", "HorizontalPodAutoscaler", "pointsman")["spec"]
    target = scaler["scaleTargetRef"]
    requested = pod_of(one("overlays/prod", target["kind"], target["name"]))["spec"]["containers"][0]["resources"]["requests"]
    budgets = [o["spec"] for o in objects("overlays/prod") if o["kind"] == "PodDisruptionBudget"]

    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    assert [metric["resource"]["name"] for metric in scaler["metrics"]] == ["cpu"]
    assert "cpu" in requested  # which the utilization is a share of
    assert [budget["maxUnavailable"] for budget in budgets] == [1, 1]
    assert one("overlays/prod", "Deployment", "pointsman-agents")["spec"]["replicas"] >= 2
