"""What is in `k8s/` builds, is what Kubernetes takes, holds no secret, and README.md tells how to use it truly."""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import kubernetes_validate
import pytest
import yaml

from scripts.wrap_rules import wrapped
from service.access.keys import Keys, digest_of
from tests.conftest import ROOT
from tests.ops.cluster import BUILT, COMPONENT, K8S, NAME, OVERLAYS, Manifest, built, kubectl, objects, one, pods

OLDEST = "1.30.0"  # which README.md promises
OPERATORS = "monitoring.coreos.com/"  # the Prometheus operator's kinds: kubernetes-validate does not know them
README = (K8S / "README.md").read_text()
SHELL = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "kubectl" in block]
KUSTOMIZATIONS = sorted(K8S.rglob("kustomization.yaml"))
DASHBOARD = {("ConfigMap", "pointsman-dashboard")}


@pytest.mark.parametrize("folder", BUILT)
@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_every_object_is_one_that_kubernetes_takes(folder: str, version: str) -> None:
    """By the schemas of the oldest version that is promised and of the newest one that is known; a misspelt field is an error."""
    core = [o for o in objects(folder) if not o["apiVersion"].startswith(OPERATORS)]

    assert len(core) >= 20
    for manifest in core:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    """The validation above is strict."""
    manifest = one("base", "StatefulSet", "pointsman")
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 60

    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("folder", BUILT)
def test_all_objects_are_in_one_namespace_and_carry_the_common_labels(folder: str) -> None:
    """So that one label finds all of it, and `kubectl apply --prune` what is left over."""
    (namespace,) = [o for o in objects(folder) if o["kind"] == "Namespace"]
    for manifest in objects(folder):
        metadata = manifest["metadata"]
        assert metadata.get("namespace", namespace["metadata"]["name"]) == namespace["metadata"]["name"], metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "pointsman", metadata["name"]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_generated_configuration_rolls_the_pods(folder: str) -> None:
    """Its name ends with a hash of what it holds, and every reference has that name; what is not generated is a Secret of the operator.

    The dashboard has no hash, and is the only one: no pod reads it.
    """
    made = {(o["kind"], o["metadata"]["name"]) for o in objects(folder) if o["kind"] in {"ConfigMap", "Secret"}}
    named = set(references(folder))
    absent = {name for kind, name in named - made}

    assert {one for one in made if not re.search(r"-[a-z0-9]{10}$", one[1])} == (DASHBOARD if folder == "overlays/prod" else set())
    assert not DASHBOARD & named
    assert {kind for kind, _ in named - made} <= {"Secret"}
    assert absent == ({"pointsman-lm"} if folder == "overlays/dev" else set(secrets_of_the_readme()))
    assert without_hash() == {name for _, name in DASHBOARD}


def without_hash() -> set[str]:
    """Return the names of all generators whose objects get no hash; one that is set for a whole kustomization is called by its file."""
    found = set[str]()
    for path in KUSTOMIZATIONS:
        said = yaml.safe_load(path.read_text())
        generators = said.get("configMapGenerator", []) + said.get("secretGenerator", [])
        found |= {one["name"] for one in generators if "disableNameSuffixHash" in one.get("options", {})}
        found |= {str(path)} if "disableNameSuffixHash" in said.get("generatorOptions", {}) else set()
    return found


def references(folder: str) -> Iterator[tuple[str, str]]:
    """Return the kind and name of each ConfigMap and Secret that a pod reads."""
    for _, pod in pods(folder):
        for volume in pod["spec"].get("volumes", []):
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"]
        for container in pod["spec"]["containers"]:
            for source in container.get("envFrom", []):
                yield "ConfigMap", source["configMapRef"]["name"]
            for variable in container.get("env", []):
                if "secretKeyRef" in variable.get("valueFrom", {}):
                    yield "Secret", variable["valueFrom"]["secretKeyRef"]["name"]


def secrets_of_the_readme() -> dict[str, dict[str, str]]:
    """Run the commands of README.md that make Secrets, without a cluster; return what each holds, by name."""
    (block,) = [text for text in SHELL if "create secret" in text]
    (commands,) = re.findall(r"(kubectl -n pointsman create secret.*)", block, re.DOTALL)
    dry = 'kubectl() { command "$KUBECTL" "$@" --dry-run=client -o json; }\n' + commands
    environment = os.environ | {"KUBECTL": kubectl(), "PASSWORD": "pass", "KEY": "my-key", "LM_KEY": "lm"}
    done = subprocess.run(["bash", "-ec", dry], env=environment, capture_output=True, text=True, check=True, timeout=60)
    decoder, secrets, rest = json.JSONDecoder(), {}, done.stdout.strip()
    while rest:
        secret, end = decoder.raw_decode(rest)
        secrets[secret["metadata"]["name"]] = secret["data"]
        rest = rest[end:].strip()
    return secrets


def test_the_readme_makes_every_secret_that_a_pod_reads() -> None:
    """By name and key; the API keys have the form that the service takes."""
    made = secrets_of_the_readme()
    read = {
        (variable["valueFrom"]["secretKeyRef"]["name"], variable["valueFrom"]["secretKeyRef"]["key"])
        for _, pod in pods("overlays/prod")
        for variable in pod["spec"]["containers"][0].get("env", [])
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    keys = Keys.parse(base64.b64decode(made["pointsman-api-keys"]["POINTSMAN_API_KEYS"]).decode())

    assert read == {(name, key) for name, data in made.items() for key in data}
    assert keys.callers[digest_of("my-key")].tenant == "operators"


def test_no_secret_is_in_git() -> None:
    """The base and the overlay for production make none; the one for development has a password nowhere, and the digest of a known key."""
    dev = {o["metadata"]["name"].rpartition("-")[0]: o for o in objects("overlays/dev") if o["kind"] == "Secret"}
    keys = Keys.parse(_decoded(dev["pointsman-api-keys"], "POINTSMAN_API_KEYS"))

    assert [o for folder in ("base", "overlays/prod") for o in objects(folder) if o["kind"] == "Secret"] == []
    assert keys.callers[digest_of("dev")].tenant == "dev"
    assert "@" not in _decoded(dev["pointsman-registry"], "POINTSMAN_MLFLOW_URI")
    assert re.match(r"postgresql://[^:@/]+@", _decoded(dev["pointsman-database"], "POINTSMAN_DATABASE_URL"))  # a user, no password


def _decoded(secret: Manifest, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def test_the_operators_rules_are_the_rules_that_are_tested() -> None:
    """`prometheus-rule.yaml` is written from `rules.yaml` by `make k8s-rules`."""
    rules = (K8S / "monitoring/rules.yaml").read_text()
    (made,) = [o for o in objects("overlays/prod") if o["kind"] == "PrometheusRule"]

    assert (K8S / "monitoring/prometheus-rule.yaml").read_text() == wrapped(rules)
    assert made["spec"] == yaml.safe_load(rules)


def test_the_dashboard_is_found_by_grafana() -> None:
    """A ConfigMap with the label that the sidecar looks for, and the file as it is, under a name that no other dashboard's file has."""
    (dashboard,) = [o for o in objects("overlays/prod") if o["metadata"]["labels"].get("grafana_dashboard") == "1"]

    assert set(dashboard["data"]) == {"pointsman.json"}
    assert json.loads(dashboard["data"]["pointsman.json"]) == json.loads((K8S / "monitoring/dashboard.json").read_text())


def test_development_is_complete_and_needs_nothing_but_a_cluster() -> None:
    """No kind of an operator, no address elsewhere: database and registry are Services beside it."""
    made = objects("overlays/dev")
    services = {o["metadata"]["name"] for o in made if o["kind"] == "Service"}
    secrets = {o["metadata"]["name"].rpartition("-")[0]: o for o in made if o["kind"] == "Secret"}
    addresses = [
        _decoded(secrets["pointsman-database"], "POINTSMAN_DATABASE_URL"),
        _decoded(secrets["pointsman-registry"], "POINTSMAN_MLFLOW_URI"),
    ]

    assert not [o for o in made if o["apiVersion"].startswith(OPERATORS)]
    assert {urlparse(address).hostname for address in addresses} == services - {"pointsman", "pointsman-agents"}
    assert not [o for o in made if o["kind"] in {"HorizontalPodAutoscaler", "PodDisruptionBudget"}]
    assert one("overlays/dev", "StatefulSet", "pointsman")["spec"]["replicas"] == 1


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The overlay of README.md's last chapter in a copy of `k8s/`, with the packaged catalogue in the place of another company's."""
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    folder = Path(shutil.copytree(K8S, tmp_path / "k8s")) / "overlays/mine"
    shutil.copytree(ROOT / "service/catalog", folder / "catalog", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "requests").mkdir()
    (folder / "requests/all.jsonl").write_text('{"text": "which invoices are open", "label": "invoices"}\n')
    (folder / "kustomization.yaml").write_text(text)
    return folder


def test_a_catalogue_of_ones_own_reaches_all_that_read_it(mine: Path) -> None:
    """The service and every job that learns; the first router is fitted on its requests; the built-in agents are gone."""
    made = list(yaml.safe_load_all(built(mine)))
    readers, catalogue = {}, {"/app/catalog": "pointsman-catalog"}
    for manifest in made:
        if manifest["kind"] in {"StatefulSet", "CronJob", "Job"} and manifest["metadata"]["name"] != "pointsman-migrate":
            spec = manifest["spec"].get("jobTemplate", manifest)["spec"]["template"]["spec"]
            volumes = {v["name"]: v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v}
            readers[manifest["metadata"]["name"]] = {
                mount["mountPath"]: volumes[mount["name"]].rpartition("-")[0]
                for mount in spec["containers"][0]["volumeMounts"]
                if mount["name"] in volumes
            }
    settings = [o["data"] for o in made if o["metadata"]["name"].startswith("pointsman-config-")]
    (catalog,) = [o for o in made if o["metadata"]["name"].startswith("pointsman-catalog-")]

    assert set(catalog["data"]) == {"agents.yaml", "intents.yaml", "entities.yaml"}
    assert [s["POINTSMAN_CATALOG"] for s in settings] == ["/app/catalog"]
    assert readers.pop("pointsman-first-router") == {"/app/catalog": "pointsman-catalog", "/app/requests": "pointsman-requests"}
    assert readers == {name: catalogue for name in ("pointsman", "pointsman-worker", "pointsman-optimize")}
    assert "pointsman-agents" not in {o["metadata"]["name"] for o in made}


def test_the_readme_names_folders_and_objects_that_there_are() -> None:
    """Every folder and file behind `-k` and `-f`, every object of a command, every label that a command selects by."""
    names = {o["metadata"]["name"] for folder in BUILT for o in objects(folder)} | {"pointsman-0", "pointsman-2", "pointsman-4"}
    values = {o["metadata"]["labels"].get(COMPONENT) for o in objects("base")} | {o["metadata"]["labels"][NAME] for o in objects("base")}
    commands = "\n".join(SHELL) + "\n".join(re.findall(r"`(kubectl [^`]*)`", README))
    kinds = "job|statefulset|service|cronjob|pod|exec"

    paths = re.findall(r" -[kf] (\S+)", commands)
    named = re.findall(rf" (?:{kinds})[ /](pointsman\S*)", commands)
    selected = re.findall(r"-l app\.kubernetes\.io/(?:component|name|part-of)=(\S+)", commands)

    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(named) >= 8
    assert [name for name in named if name not in names] == []
    assert set(selected) <= values | {"pointsman"}
