"""The rules: valid, tested in both directions, named by what they tell, and each alert with somewhere to look."""

import re
import subprocess
from itertools import pairwise

import pytest
import yaml

from tests.conftest import ROOT
from tests.ops.conftest import MONITORING, RULES, program
from tests.ops.promql import ALERTS, EXPRESSIONS, GROUPS, RECORDS, groupings, known, operands, selectors

TESTS = MONITORING / "rules_test.yaml"
RUNBOOK = ROOT / "docs" / "runbook.md"
BASE = "{{ $externalLabels.runbooks }}"


def sections() -> dict[str, str]:
    """Return the runbook's sections by their anchor."""
    parts = re.split(r"^## (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def test_prometheus_takes_the_rules() -> None:
    """By its own check."""
    done = subprocess.run([program("promtool"), "check", "rules", RULES], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_each_alert_is_silent_until_it_has_to_fire() -> None:
    """Prometheus' own tests of rules hold."""
    done = subprocess.run([program("promtool"), "test", "rules", TESTS], capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_in_both_directions() -> None:
    """In one and the same test it is silent, and fires later."""
    tested = set[str]()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        ordered = [(check["alertname"], bool(check["exp_alerts"])) for check in test["alert_rule_test"]]
        tested |= {now[0] for before, now in pairwise(ordered) if (before, now) == ((now[0], False), (now[0], True))}

    assert tested == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name: str) -> None:
    """How urgent it is, what happens with a figure, and a section of the runbook that names it and says where to look and what to do."""
    rule = ALERTS[name]
    said = rule["annotations"]
    place = said["runbook_url"].removeprefix(BASE)
    section = sections()[place.removeprefix("docs/runbook.md#")]

    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert said["runbook_url"].startswith(BASE)
    assert said["summary"].endswith(".")
    assert "{{ $value" in said["description"] or re.search(r"\b(five|ten) minutes\b", said["description"])
    assert place.removeprefix("docs/runbook.md#") in {name.lower(), re.sub(r"\d+[hd]$", "", name).lower()}
    assert f"`{name}`" in section
    assert "**Look**" in section
    assert "**Do**" in section


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    """Each section is one alert's, or those of one objective."""
    named = {rule["annotations"]["runbook_url"].partition("#")[2] for rule in ALERTS.values()}

    assert {anchor for anchor in sections() if anchor.startswith("pointsman")} == named


def test_the_runbooks_queries_name_what_there_is() -> None:
    """Metrics and labels of its PromQL are the service's, or recorded."""
    there, strange = known(), []
    for query in re.findall(r"`([^`]*orchestrator_[^`]*)`", RUNBOOK.read_text()):
        strange += [s.text for s in selectors(query) if not s.labels <= there.get(s.name, set())]

    assert strange == []


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_rule_names_metrics_and_labels_that_there_are(name: str) -> None:
    """In service/metrics.py or recorded by another rule; grouped by labels that what it reads has."""
    expression, there = EXPRESSIONS[name], known()
    read = selectors(expression)
    labels = set[str]().union(*(there.get(one.name, set()) for one in read))

    assert read
    assert [one.text for one in read if one.name not in there or not one.labels <= there[one.name]] == []
    assert groupings(expression) <= labels


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_named_by_what_it_holds(name: str) -> None:
    """Level, metric, operation: the level's labels are those that are left, and a window in the name is the window of the query."""
    level, _, operation = name.split(":")
    window = re.search(r"\d+[mhdw]$", operation)
    ranges = set(re.findall(r"\[(\w+)\]", RECORDS[name]))

    assert set(level.split("_")) <= known()[name]
    assert f"by ({', '.join(level.split('_'))})" in RECORDS[name] or RECORDS[name].startswith(("sum_over_time(", "0.5 * sum"))
    assert ranges in (set(), {window[0] if window else ""})


def test_the_groups_are_those_of_a_prometheusrule() -> None:
    """Nothing in them is known to Prometheus alone: a PrometheusRule takes them as its `spec.groups`."""
    keys = {key for group in GROUPS for key in group}
    rules = {key for group in GROUPS for rule in group["rules"] for key in rule}

    assert keys == {"name", "rules"}
    assert rules <= {"record", "alert", "expr", "for", "labels", "annotations"}
    assert len({group["name"] for group in GROUPS}) == len(GROUPS)


def test_what_an_alert_compares_is_found_without_the_comparison() -> None:
    """The live test evaluates that."""
    assert operands("a:orchestrator_b:c > 14.4 * 0.001\n  and d:orchestrator_e:f >= 5\n") == ["a:orchestrator_b:c", "d:orchestrator_e:f"]
    assert operands("absent(last_over_time(a[1d]))") == ["last_over_time(a[1d])"]
    assert operands("max by (job) (last_over_time(a[1w])) > 0\n  unless max by (job) (a)\n  or b") == [
        "max by (job) (last_over_time(a[1w]))",
        "max by (job) (a)",
        "b",
    ]
    assert operands("min by (job) (orchestrator_router_loaded) == 0") == ["min by (job) (orchestrator_router_loaded)"]
