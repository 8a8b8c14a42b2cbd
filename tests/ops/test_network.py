"""The network policies let through what the pods need, and nothing else: each connection is looked up as a cluster would."""

from ipaddress import ip_address, ip_network

import pytest

from tests.ops.cluster import BUILT, COMPONENT, NAME, PORTS, Manifest, objects, selects

Labels = dict[str, str]
DATABASE, REGISTRY, HTTPS, DNS, OTLP, PROMETHEUS = 5432, 5000, 443, 53, 4318, 9090
KUBE_SYSTEM, NODE_LOCAL = {"kubernetes.io/metadata.name": "kube-system"}, "169.254.20.10"


def pointsman(component: str) -> Labels:
    """Return the labels of a component's pods."""
    return {NAME: "pointsman", COMPONENT: component}


def policies(folder: str, labels: Labels, direction: str) -> list[Manifest]:
    """Return the policies that hold for a pod."""
    specs = [o["spec"] for o in objects(folder) if o["kind"] == "NetworkPolicy"]
    return [spec for spec in specs if direction in spec["policyTypes"] and selects(spec["podSelector"], labels)]


def may_send(
    folder: str,
    sender: Labels,
    port: int,
    *,
    pod: Labels | None = None,
    namespace: Labels | None = None,
    ip: str = "",
    protocol: str = "TCP",
) -> bool:
    """Say whether a pod may open a connection: to a pod here, a namespace elsewhere, or an address."""
    rules = [rule for spec in policies(folder, sender, "Egress") for rule in spec.get("egress", [])]
    return any(_through(rule, "to", (protocol, port), pod, namespace, ip) for rule in rules)


def may_receive(folder: str, receiver: Labels, port: int, *, pod: Labels | None = None, namespace: Labels | None = None) -> bool:
    """Say whether a pod takes a connection from a pod here or a namespace elsewhere."""
    rules = [rule for spec in policies(folder, receiver, "Ingress") for rule in spec.get("ingress", [])]
    return any(_through(rule, "from", ("TCP", port), pod, namespace, "") for rule in rules)


def _through(rule: Manifest, side: str, port: tuple[str, int], pod: Labels | None, namespace: Labels | None, ip: str) -> bool:
    if "ports" in rule and port not in {(allowed["protocol"], allowed["port"]) for allowed in rule["ports"]}:
        return False
    for peer in rule[side]:
        if pod is not None and "podSelector" in peer and "namespaceSelector" not in peer and selects(peer["podSelector"], pod):
            return True
        if namespace is not None and "namespaceSelector" in peer and selects(peer["namespaceSelector"], namespace):
            return True
        if ip and "ipBlock" in peer and _within(peer["ipBlock"], ip):
            return True
    return False


def _within(block: Manifest, ip: str) -> bool:
    address = ip_address(ip)
    return address in ip_network(block["cidr"]) and not any(address in ip_network(one) for one in block.get("except", []))


@pytest.mark.parametrize("folder", ["base", "overlays/prod"])
@pytest.mark.parametrize(
    ("component", "port", "ip"),
    [
        ("service", DATABASE, "10.20.0.5"),
        ("service", REGISTRY, "10.20.0.6"),
        ("service", HTTPS, "10.20.0.6"),
        ("service", HTTPS, "104.18.7.192"),
        ("agents", REGISTRY, "10.20.0.6"),
        ("migrate", DATABASE, "10.20.0.5"),
        ("learning", DATABASE, "10.20.0.5"),
        ("learning", REGISTRY, "10.20.0.6"),
        ("learning", HTTPS, "104.18.7.192"),
    ],
)
def test_pods_reach_what_is_outside_of_the_cluster(folder: str, component: str, port: int, ip: str) -> None:
    """Database, registry and LM."""
    assert may_send(folder, pointsman(component), port, ip=ip)


@pytest.mark.parametrize("folder", BUILT)
@pytest.mark.parametrize("component", ["service", "agents", "migrate", "learning"])
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_pods_can_ask_for_names(folder: str, component: str, protocol: str) -> None:
    """The cluster's DNS or the node's own cache of it, and nobody else; nor can they send anything else there."""
    sender = pointsman(component)

    assert may_send(folder, sender, DNS, namespace=KUBE_SYSTEM, protocol=protocol)
    assert may_send(folder, sender, DNS, ip=NODE_LOCAL, protocol=protocol)
    assert not may_send(folder, sender, HTTPS, namespace=KUBE_SYSTEM, protocol=protocol)
    assert not may_send(folder, sender, HTTPS, ip=NODE_LOCAL, protocol=protocol)
    for elsewhere in ("169.254.20.11", "169.254.169.254", "104.18.7.192"):
        assert not may_send(folder, sender, DNS, ip=elsewhere, protocol=protocol)


@pytest.mark.parametrize(
    ("component", "port", "ip"),
    [
        ("service", HTTPS, "169.254.169.254"),
        ("service", 80, "169.254.169.254"),
        ("service", 6443, "10.0.0.1"),
        ("agents", DATABASE, "10.20.0.5"),
        ("migrate", REGISTRY, "10.20.0.6"),
        ("migrate", HTTPS, "104.18.7.192"),
        ("learning", PORTS["agents"], "10.0.0.1"),
    ],
)
def test_pods_reach_nothing_else(component: str, port: int, ip: str) -> None:
    """Not the cloud's metadata, not the cluster's API, and no component what only another one needs."""
    assert not may_send("overlays/prod", pointsman(component), port, ip=ip)


@pytest.mark.parametrize("folder", ["base", "overlays/dev", "overlays/prod"])
@pytest.mark.parametrize(("sender", "receiver"), [("service", "agents"), ("agents", "service")])
def test_service_and_agents_reach_each_other(folder: str, sender: str, receiver: str) -> None:
    """Both sides let it through, at the port that the receiver listens on."""
    assert may_send(folder, pointsman(sender), PORTS[receiver], pod=pointsman(receiver))
    assert may_receive(folder, pointsman(receiver), PORTS[receiver], pod=pointsman(sender))


@pytest.mark.parametrize(
    ("namespace", "receiver", "through"),
    [
        ({"pointsman-client": "true"}, "service", True),
        ({"kubernetes.io/metadata.name": "monitoring"}, "service", True),
        ({"kubernetes.io/metadata.name": "default"}, "service", False),
        ({"pointsman-client": "true"}, "agents", False),
        ({"kubernetes.io/metadata.name": "monitoring"}, "agents", False),
    ],
)
def test_only_callers_and_prometheus_get_in(namespace: Labels, receiver: str, through: bool) -> None:
    """And to the service alone: agents check no keys."""
    assert may_receive("overlays/prod", pointsman(receiver), PORTS[receiver], namespace=namespace) is through


@pytest.mark.parametrize(
    ("labels", "port"),
    [({"pointsman-agents": "true"}, 8201), ({"kubernetes.io/metadata.name": "monitoring"}, OTLP)],
    ids=["agents", "traces"],
)
def test_the_service_reaches_agents_of_ones_own_and_the_collector(labels: Labels, port: int) -> None:
    """In the namespaces that are marked so; others cannot be reached at that port."""
    assert may_send("overlays/prod", pointsman("service"), port, namespace=labels)
    assert not may_send("overlays/prod", pointsman("service"), port, namespace={"kubernetes.io/metadata.name": "default"})


@pytest.mark.parametrize("folder", BUILT)
@pytest.mark.parametrize(("component", "through"), [("service", True), ("learning", True), ("agents", False), ("migrate", False)], ids=str)
def test_who_asks_an_lm_reaches_a_model_server_in_the_cluster(folder: str, component: str, through: bool) -> None:
    """In the namespaces that are marked so, at whatever port; others cannot be reached there, by name or by address."""
    for port in (8000, 11434):
        assert may_send(folder, pointsman(component), port, namespace={"pointsman-lm": "true"}) is through
        assert not may_send(folder, pointsman(component), port, namespace={"pointsman-lm": "false"})
        assert not may_send(folder, pointsman(component), port, namespace={"kubernetes.io/metadata.name": "default"})
        assert not may_send(folder, pointsman(component), port, ip="10.0.0.1")


def test_agents_reach_prometheus() -> None:
    """Where observability_connector is told of it."""
    assert may_send("overlays/prod", pointsman("agents"), PROMETHEUS, namespace={"kubernetes.io/metadata.name": "monitoring"})


@pytest.mark.parametrize(
    ("component", "receiver", "port"),
    [
        ("service", {NAME: "postgres", COMPONENT: "database"}, DATABASE),
        ("migrate", {NAME: "postgres", COMPONENT: "database"}, DATABASE),
        ("learning", {NAME: "postgres", COMPONENT: "database"}, DATABASE),
        ("service", {NAME: "mlflow", COMPONENT: "registry"}, REGISTRY),
        ("agents", {NAME: "mlflow", COMPONENT: "registry"}, REGISTRY),
        ("learning", {NAME: "mlflow", COMPONENT: "registry"}, REGISTRY),
    ],
)
def test_in_development_database_and_registry_take_calls(component: str, receiver: Labels, port: int) -> None:
    """Of our pods, and of nobody else."""
    assert may_send("overlays/dev", pointsman(component), port, pod=receiver)
    assert may_receive("overlays/dev", receiver, port, pod=pointsman(component))
    assert not may_receive("overlays/dev", receiver, port, namespace={"pointsman-client": "true"})
    assert not may_send("overlays/dev", receiver, HTTPS, ip="104.18.7.192")
