"""What rules and dashboard ask of Prometheus, and which metrics and labels a query names. No parser: it reads selectors and groupings."""

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from service.metrics import Metrics
from tests.ops.conftest import MONITORING, RULES

NAME = r"(?:[a-z_]+:)?orchestrator_\w+(?::\w+)?"
SELECTOR = re.compile(rf"(?P<name>{NAME})(?P<where>\{{[^}}]*\}})?")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
COMPARISON = re.compile(r"\s*(?:>=|<=|==|!=|>|<)\s*[\d.][\d. *]*$")
TARGET = {"namespace", "job", "instance"}  # what Prometheus adds
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
RECORDS = {rule["record"]: str(rule["expr"]) for group in GROUPS for rule in group["rules"] if "record" in rule}
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
EXPRESSIONS = RECORDS | {name: str(rule["expr"]) for name, rule in ALERTS.items()}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@dataclass(frozen=True)
class Selector:
    """A metric and what is asked of its labels."""

    text: str
    name: str
    labels: frozenset[str]


def selectors(query: str) -> list[Selector]:
    """Return the selectors of a query."""
    return [Selector(m[0], m["name"], frozenset(MATCHER.findall(m["where"] or ""))) for m in SELECTOR.finditer(query)]


def groupings(query: str) -> set[str]:
    """Return the labels by which a query groups or joins."""
    return {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",") if label.strip()}


def operands(query: str) -> list[str]:
    """Return the parts of an alert's query without what they are compared with: what has to be there while the alert is silent."""
    parts = re.split(r"\s+(?:and|or|unless)\s+", query.strip())
    return [re.sub(r"^absent\((.*)\)$", r"\1", COMPARISON.sub("", part)) for part in parts]


def panel_queries() -> list[tuple[str, str]]:
    """Return the queries of all panels with the panel's title."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def filled(query: str, interval: str) -> str:
    """Return a panel's query as Grafana would send it: everything chosen, and rates over an interval."""
    return query.replace("$__rate_interval", interval).replace("$namespace", ".*").replace("$job", ".*")


def known() -> dict[str, set[str]]:
    """Return the labels of every series that there is: the service's metrics, and what the rules record."""
    found: dict[str, set[str]] = {}
    for metric in (m for m in Metrics().registry._collector_to_names if isinstance(m, MetricWrapperBase)):
        labels = set(metric._labelnames) | TARGET
        match metric:
            case Counter():
                found[f"{metric._name}_total"] = labels
            case Histogram():
                found |= {f"{metric._name}_bucket": labels | {"le"}, f"{metric._name}_count": labels, f"{metric._name}_sum": labels}
            case _:
                found[metric._name] = labels
    return found | {record: set(record.partition(":")[0].split("_")) for record in RECORDS}
