"""Every pod keeps to the restricted Pod Security Standard, says what it needs, and has the time that its program takes to end."""

from typing import Any

import pytest
import yaml

from service.bootstrap import DRAIN_SECONDS
from service.catalog.loader import load_catalog
from service.settings import Settings
from service.workers import LONGEST_WORK_SECONDS
from tests.ops.cluster import BUILT, COMPONENT, K8S, NAME, Manifest, containers, objects, one, pod_of, pods, seconds_to_sleep

# https://kubernetes.io/docs/concepts/security/pod-security-standards/, Restricted, which includes Baseline
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
LEAST_USER = 10_000  # above the users that a node has itself
LABELS = {NAME: "pointsman", "app.kubernetes.io/part-of": "pointsman"}


def broken_by_pod(spec: Manifest) -> list[str]:
    """Return what of the standard a pod's specification breaks, its containers aside."""
    security = spec.get("securityContext", {})
    rules = {
        "host namespaces": not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "volume types": all(set(volume) - {"name"} <= VOLUMES for volume in spec.get("volumes", [])),
        "seccomp": security.get("seccompProfile", {}).get("type") in {"RuntimeDefault", "Localhost"},
        "non-root": security.get("runAsNonRoot") is True and security.get("runAsUser") != 0,
        "sysctls": not security.get("sysctls"),
        "SELinux and AppArmor": not {"seLinuxOptions", "appArmorProfile", "windowsOptions"} & security.keys(),
    }
    return [rule for rule, kept in rules.items() if not kept]


def broken_by_container(container: Manifest) -> list[str]:
    """Return what of the standard a container breaks, and of the house's rules beyond it: a read-only root."""
    security = container.get("securityContext", {})
    probes = [container.get(name, {}) for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    hooks = list(container.get("lifecycle", {}).values())
    rules = {
        "privileged": not security.get("privileged") and "procMount" not in security,
        "privilege escalation": security.get("allowPrivilegeEscalation") is False,
        "capabilities": security.get("capabilities") == {"drop": ["ALL"]},
        "non-root": security.get("runAsNonRoot") is not False and security.get("runAsUser") != 0,
        "seccomp": security.get("seccompProfile", {"type": "RuntimeDefault"})["type"] in {"RuntimeDefault", "Localhost"},
        "SELinux and AppArmor": not {"seLinuxOptions", "appArmorProfile", "windowsOptions"} & security.keys(),
        "host ports": not any(port.get("hostPort") for port in container.get("ports", [])),
        "hosts of probes": not any("host" in check.get(way, {}) for check in [*probes, *hooks] for way in ("httpGet", "tcpSocket")),
        "read-only root": security.get("readOnlyRootFilesystem") is True,
    }
    return [rule for rule, kept in rules.items() if not kept]


@pytest.mark.parametrize("folder", BUILT)
def test_every_pod_is_restricted(folder: str) -> None:
    """The namespace enforces it, so a pod that breaks a rule would not start."""
    (namespace,) = [o for o in objects(folder) if o["kind"] == "Namespace"]
    broken = {name: broken_by_pod(pod["spec"]) for name, pod in pods(folder)}
    beneath = [(name, c["name"], broken_by_container(c)) for name, c in containers(folder)]

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert len(broken) >= 6
    assert {name: rules for name, rules in broken.items() if rules} == {}
    assert [one for one in beneath if one[2]] == []


@pytest.mark.parametrize(
    ("level", "field", "value", "rule"),
    [
        ("pod", "hostNetwork", True, "host namespaces"),
        ("pod", "volumes", [{"name": "x", "hostPath": {"path": "/"}}], "volume types"),
        ("pod", "securityContext", {"runAsNonRoot": True}, "seccomp"),
        ("pod", "securityContext", {"runAsNonRoot": True, "runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}, "non-root"),
        ("container", "ports", [{"containerPort": 8100, "hostPort": 80}], "host ports"),
        ("container", "securityContext", {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}, "capabilities"),
        ("container", "securityContext", {"allowPrivilegeEscalation": True}, "privilege escalation"),
        ("container", "livenessProbe", {"httpGet": {"host": "example.org", "path": "/", "port": 80}}, "hosts of probes"),
    ],
    ids=["host network", "host path", "no seccomp", "root", "host port", "capability", "escalation", "probe"],
)
def test_a_pod_that_is_not_restricted_is_found(level: str, field: str, value: Any, rule: str) -> None:
    """The check above can fail, for each kind of rule."""
    pod = pod_of(one("base", "StatefulSet", "pointsman"))["spec"]
    checked, broken = (pod, broken_by_pod) if level == "pod" else (pod["containers"][0], broken_by_container)

    assert broken(checked) == []
    assert rule in broken(checked | {field: value})


@pytest.mark.parametrize("folder", BUILT)
def test_nothing_has_a_token_nor_variables_of_other_services(folder: str) -> None:
    """Service links would set POINTSMAN_PORT to an address: the Service is called `pointsman`."""
    for name, pod in pods(folder):
        spec = pod["spec"]
        assert (name, spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (name, False, False)
        assert spec["serviceAccountName"] == "pointsman"
    assert one(folder, "ServiceAccount", "pointsman")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("folder", BUILT)
def test_pods_of_our_image_run_as_its_user_and_write_where_it_may(folder: str) -> None:
    """The user of the Containerfile; `var` and /tmp are volumes, everything else is read-only."""
    ours = [(name, pod["spec"]) for name, pod in pods(folder) if "postgres" not in name]

    assert len(ours) >= 6
    for name, spec in ours:
        (container,) = spec["containers"]
        mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert {spec["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {10_001}, name
        assert mounted == {"/app/var", "/tmp"}, name
        assert spec["securityContext"]["runAsUser"] > LEAST_USER


@pytest.mark.parametrize("folder", BUILT)
def test_every_container_says_what_it_needs_and_what_it_may_take(folder: str) -> None:
    """CPU, memory and disk; what it may take is not less than what it asks for."""
    for name, container in containers(folder):
        resources = container["resources"]
        for kind in ("cpu", "memory", "ephemeral-storage"):
            assert 0 < amount(resources["requests"][kind]) <= amount(resources["limits"][kind]), (name, kind)


@pytest.mark.parametrize("folder", BUILT)
def test_every_volume_that_is_no_claim_is_bounded_within_the_limit(folder: str) -> None:
    """All of a pod's emptyDirs together fit what the container may write, so a full one is no eviction."""
    for name, pod in pods(folder):
        bounds = [amount(v["emptyDir"]["sizeLimit"]) for v in pod["spec"]["volumes"] if "emptyDir" in v]
        limit = sum(amount(c["resources"]["limits"]["ephemeral-storage"]) for c in pod["spec"]["containers"])
        assert 0 < sum(bounds) <= limit, name


def test_the_service_has_the_time_that_it_takes_to_end() -> None:
    """The sleep, the grace of requests, what was cut off, the spool: one after the other, and a fifth to spare."""
    from service.adapters.spooled_store import LAST_SECONDS

    spec = pod_of(one("base", "StatefulSet", "pointsman"))["spec"]
    slept = seconds_to_sleep(spec["containers"][0])

    grace = Settings.model_fields["grace_seconds"].default
    assert slept >= 5  # what proxies need to hear of it
    assert spec["terminationGracePeriodSeconds"] >= 1.2 * (slept + grace + DRAIN_SECONDS + LAST_SECONDS)


def test_agents_have_the_time_of_their_longest_work() -> None:
    """By the catalogue's timeouts."""
    spec = pod_of(one("base", "Deployment", "pointsman-agents"))["spec"]
    longest = max(agent.timeout_ms for agent in load_catalog(None).agents) / 1_000

    assert longest <= LONGEST_WORK_SECONDS
    assert spec["terminationGracePeriodSeconds"] >= LONGEST_WORK_SECONDS + seconds_to_sleep(spec["containers"][0])


def test_what_all_pods_share_is_the_same_for_jobs_that_come_again() -> None:
    """`cronjob-pod.yaml` is `pod.yaml`, deeper."""
    shared = yaml.safe_load((K8S / "base/pod.yaml").read_text())["spec"]["template"]
    deeper = yaml.safe_load((K8S / "base/cronjob-pod.yaml").read_text())["spec"]["jobTemplate"]["spec"]["template"]

    assert deeper == shared
    assert len(shared["spec"]["containers"]) == 1


def test_the_service_keeps_its_volumes() -> None:
    """Also of pods that are scaled away: their spool may hold decisions."""
    spec = one("overlays/prod", "StatefulSet", "pointsman")["spec"]

    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["var"]
    assert "replicas" not in spec  # which the autoscaler sets


@pytest.mark.parametrize("folder", BUILT)
def test_jobs_that_learn_keep_what_the_lm_answered(folder: str) -> None:
    """Each CronJob in a volume of its own, of which there is one pod at a time; of whatever class the cluster has by default."""
    claims = {o["metadata"]["name"]: o for o in objects(folder) if o["kind"] == "PersistentVolumeClaim"}
    mounted = {}
    for manifest in (o for o in objects(folder) if o["kind"] == "CronJob"):
        assert manifest["spec"]["concurrencyPolicy"] == "Forbid"
        volumes = {v["name"]: v["persistentVolumeClaim"] for v in pod_of(manifest)["spec"]["volumes"] if "persistentVolumeClaim" in v}
        assert set(volumes) == {"var"}
        mounted[manifest["metadata"]["name"]] = volumes["var"]["claimName"]
    others = [
        v for name, pod in pods(folder) for v in pod["spec"].get("volumes", []) if "CronJob" not in name and "persistentVolumeClaim" in v
    ]

    assert mounted == {name: f"{name}-var" for name in ("pointsman-worker", "pointsman-optimize")}
    assert set(claims) == set(mounted.values())
    assert others == []
    for claim in claims.values():
        assert claim["metadata"]["labels"] == LABELS | {COMPONENT: "learning"}
        assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}


def amount(quantity: str) -> float:
    """Return a quantity of Kubernetes as a number."""
    units = {"m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
    for unit, factor in units.items():
        if quantity.endswith(unit):
            return float(quantity.removesuffix(unit)) * factor
    return float(quantity)
