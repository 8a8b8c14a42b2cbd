"""observability_connector (tier 3): traffic, failures and latency of the platform, read from Prometheus or from the service's /metrics."""

import os
import re
import time
from datetime import UTC, datetime

import httpx

from service.agents.chart import Row, Spec, bar_chart, table
from service.agents.directory import AGENTS
from service.agents.finding import AgentFailure, Finding
from service.agents.kpi import normal_form
from service.agents.monitoring.read import (
    METRICS_VARIABLE,
    PROMETHEUS_VARIABLE,
    Reader,
    Reading,
    read_metrics,
    read_prometheus,
)
from service.agents.monitoring.summary import Group, Summary, confidence_of, summarize
from service.agents.monitoring.window import Window, read_window
from service.agents.sample_data import Snapshot
from service.agents.scope import question_of, quoted, resolve_scope
from service.contracts.dispatch import AgentDispatch

DEFAULT_METRICS_URL = "http://127.0.0.1:8100/metrics"
LONGEST_WAIT_S = 5.0
SHARE_OF_TIME = 0.6
"""Of the time that the dispatch leaves, this part goes into reading."""
SHOWN_AGENTS = 6
_NICKNAMES = {
    "causal_impact": "causal agent|causal impact",
    "gap_analyzer": "gap finder|gap agent|gap analyzer",
    "drift_monitor": "drift monitor|drift agent",
    "experiment_designer": "experiment designer|experiment agent|experiment monitor",
    "prediction_synthesizer": "forecast agent|forecasting service|forecasting agent|prediction service|prediction agent",
    "health_score": "health score agent|health agent",
    "resource_optimizer": "call plan agent|optimizer agent|budget agent|allocation agent",
}
_ELSEWHERE = re.compile(
    r"\b(?:kafka|redis|postgres|airflow|mlflow|feast|veeva|iqvia|queues?|queue depth|jobs?|dags?|pipelines?|pods?|dashboards?|home page|"
    r"pages?|claims|refresh|load|loads|feeds?|files?|cache|database|connections|disk|gpu|memory|scheduler|etl|sync|scoring|endpoint|"
    r"connectors?|consumer lag|incidents?)\b"
)
"""Systems that the service's own metrics say nothing about."""
_MEASURED = re.compile(
    r"\b(?:agents?|platform|services?|orchestrator|systems?|everything|anything|something|all|whole|latency|response times?|errors?|"
    r"failing|requests?|slow|crawling|lagging|sluggish|p50|p9\d|5xx|50\d|down|up|green|status|outages?|timeouts?|components?|componets)\b"
)
"""What a question may name that the metrics do tell."""
_METRIC_WORDS = ("kafka", "redis", "postgres", "pg_", "airflow", "mlflow", "queue", "job", "pod", "disk", "gpu", "memory", "cache")
"""Parts of names under which their exporters publish."""


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Tell rate, error share and latency of the service, its stages and its agents, and what is out of line.

    Confidence is calls / (calls + 20) for the calls behind the answer, times the part of the window that is covered, times the
    share of the queries that Prometheus answered, times the part of what the question names that the metrics know.

    Raises:
        AgentFailure: Neither Prometheus nor the service's metrics can be read, and the message says what to set; or a brand or region
            that is named is not in the data.
    """
    resolve_scope(dispatch, data)  # refuses unknown names as every agent does; the metrics know no brand
    question, now = question_of(dispatch), datetime.now(UTC)
    words = normal_form(question)
    window = read_window(question, now)
    wait = min(LONGEST_WAIT_S, SHARE_OF_TIME * dispatch.payload.constraints.max_latency_ms / 1000.0)
    with httpx.Client(follow_redirects=False, trust_env=False, headers={"User-Agent": "pointsman-agents"}) as client:
        reading, notes = observe(Reader(client, time.monotonic() + wait), window, words, now)
    return describe(reading, window, words, notes, now)


def observe(reader: Reader, window: Window, words: str, now: datetime) -> tuple[Reading, list[str]]:
    """Read Prometheus where it is configured, else the service's metrics; the service's metrics also where Prometheus fails.

    Raises:
        AgentFailure: Neither can be read.
    """
    base = os.environ.get(PROMETHEUS_VARIABLE, "").strip()
    address = os.environ.get(METRICS_VARIABLE, "").strip()
    notes: list[str] = []
    if base:
        named = [word for word in _METRIC_WORDS if word.rstrip("_") in words]
        try:
            return read_prometheus(reader, base, window.seconds, window.end.timestamp(), named), notes
        except AgentFailure as failure:
            if not address:
                raise
            notes.append(f"{failure} The service's own metrics were read instead.")
    else:
        notes.append(f"{PROMETHEUS_VARIABLE} is not set; the service's own metrics were read, which begin with its process.")
    return read_metrics(reader, address or DEFAULT_METRICS_URL, now.timestamp()), notes


def describe(reading: Reading, window: Window, words: str, notes: list[str], now: datetime) -> Finding:
    """Return the finding for a reading."""
    summary = summarize(reading)
    asked = _named_agents(words)
    span = window.label if reading.source == "prometheus" else _since(reading)
    calls = sum(group.calls for group in summary.agents if group.name in asked) if asked else summary.service.calls
    elsewhere = [] if reading.others else list(dict.fromkeys(found[0] for found in _ELSEWHERE.finditer(words)))
    known = len(asked) + len(set(_MEASURED.findall(words)))
    told = known / (known + len(elsewhere)) if elsewhere else 1.0
    return Finding(
        primary_output=_output(reading, window, summary, asked, span),
        confidence=confidence_of(calls, reading, _covered(reading, window, now)) * told,
        evidence=_evidence(reading, summary, asked, span, elsewhere if known == 0 else []),
        caveats=[*notes, *reading.notes, *_caveats(reading, window, words, summary, elsewhere)],
        visualizations=_charts(summary, reading),
        tables=(
            table("Agents", [_flat(group, reading) for group in summary.agents]),
            table("Stages", [_flat(group, reading) for group in summary.stages]),
            table("Further metrics", summary.further),
        ),
        model_used=f"{reading.source} histograms",
    )


def _covered(reading: Reading, window: Window, now: datetime) -> float:
    """Return the part of the asked window that was read, and of what was read that was asked: the overlap over the union."""
    if reading.seconds is None or (window.assumed and reading.source == "metrics"):
        return 1.0
    if reading.source == "prometheus":
        return min(1.0, reading.seconds / window.seconds)
    started = now.timestamp() - reading.seconds
    overlap = min(now.timestamp(), window.end.timestamp()) - max(started, window.start.timestamp())
    return max(0.0, overlap) / (now.timestamp() - min(started, window.start.timestamp()))


def _output(reading: Reading, window: Window, summary: Summary, asked: list[str], span: str) -> dict[str, object]:
    state = "no_traffic" if summary.service.calls < 1 else "attention" if summary.out_of_line else "ok"
    called = {group.name for group in summary.agents}
    return {
        "state": state,
        "source": reading.source,
        "window": span,
        "window_seconds": window.seconds if reading.source == "prometheus" else reading.seconds,
        "covered_seconds": reading.seconds,
        "service": summary.service.row(reading.seconds),
        "agents": [group.row(reading.seconds) for group in summary.agents],
        "agents_not_called": [name for name in AGENTS if name not in called],
        "asked_agents": asked,
        "stages": [group.row(reading.seconds) for group in summary.stages],
        "out_of_line": list(summary.out_of_line),
        **summary.counts,
        "targets": [{"job": one.job, "instance": one.instance, "up": one.up, "up_share": one.up_share} for one in reading.targets],
        "other_systems": [{"metric": one.name, "value": one.value} for one in reading.others],
        "further_metrics": list(summary.further),
    }


def _evidence(reading: Reading, summary: Summary, asked: list[str], span: str, untold: list[str]) -> list[str]:
    sentences = []
    if untold:
        named = ", ".join(quoted(one) for one in untold[:SHOWN_AGENTS])
        sentences.append(f"The metrics cannot answer this: they have nothing on {named}. They tell of this service only, as follows.")
    sentences += [_asked_sentence(summary, name, span) for name in asked]
    service = summary.service
    if service.calls < 1:
        sentences.append(f"0 requests were counted {_in(span)}.")
    else:
        count = len(summary.out_of_line)
        verdict = "Nothing is out of line" if not count else "One thing is out of line" if count == 1 else f"{count} things are out of line"
        rate = "" if reading.seconds is None else f" ({60 * service.calls / reading.seconds:.2f} a minute)"
        sentences.append(
            f"{verdict} {_in(span)}: {service.calls:.0f} requests{rate}, {service.failed:.0f} failed "
            f"({100 * (service.error_share or 0):.1f} %), {_times(service)}."
        )
    sentences += summary.out_of_line
    if summary.agents:
        listed = "; ".join(f"{group.name} {group.calls:.0f} calls, {group.failed:.0f} failed, {_times(group)}" for group in summary.agents)
        sentences.append(f"{len(summary.agents)} of {len(AGENTS)} agents were called: {listed}.")
    uncalled = [name for name in AGENTS if name not in {group.name for group in summary.agents}]
    if uncalled:
        sentences.append(f"{len(uncalled)} agents were not called, so nothing is known of them: {', '.join(uncalled)}.")
    if summary.stages:
        slowest = max(summary.stages, key=lambda group: group.total_seconds / group.calls)
        sentences.append(f"The slowest stage is {slowest.name}: {1000 * slowest.total_seconds / slowest.calls:.0f} ms in the mean.")
    shares = [one for one in reading.targets if one.up_share is not None]
    if shares:
        listed = ", ".join(f"{one.job} at {one.instance} {100 * (one.up_share or 0):.2f} %" for one in shares[:SHOWN_AGENTS])
        sentences.append(f"Share of Prometheus' checks that were answered: {listed}.")
    if summary.counts["warnings_by_code"]:
        listed = ", ".join(f"{code} {count:.0f}" for code, count in list(summary.counts["warnings_by_code"].items())[:SHOWN_AGENTS])
        sentences.append(f"Warnings given: {listed}.")
    sentences += [f"{one.name} stands at {one.value:,.6g}." for one in reading.others]
    return sentences


def _asked_sentence(summary: Summary, name: str, span: str) -> str:
    group = next((one for one in summary.agents if one.name == name), None)
    if group is None:
        return f"{name} was not called {_in(span)}, so the metrics cannot tell whether it answers."
    verdict = "answers" if group.failed < group.calls else "has not answered once"
    return (
        f"{name} {verdict} {_in(span)}: {group.calls:.0f} calls, {group.failed:.0f} failed "
        f"({100 * (group.error_share or 0):.1f} %), {_times(group)}."
    )


def _caveats(reading: Reading, window: Window, words: str, summary: Summary, elsewhere: list[str]) -> list[str]:
    caveats = []
    if reading.source == "metrics" and not window.assumed:
        caveats.append(f"Without Prometheus only the time since the process started can be told, not {window.label}.")
    elif reading.source == "prometheus" and window.assumed:
        caveats.append(f"No time was named; {window.label} was taken.")
    elif "UTC" in window.label:
        caveats.append("Times of day and days are UTC.")
    if reading.source == "prometheus" and reading.seconds is not None and reading.seconds < 0.9 * window.seconds:
        caveats.append(f"Prometheus has data for {_length(reading.seconds)} of the {_length(window.seconds)} only.")
    if reading.source == "metrics" and reading.seconds is None:
        caveats.append("When the counting began is not known, so there is no rate.")
    if elsewhere:
        named = ", ".join(quoted(one) for one in elsewhere[:5])
        caveats.append(f"The metrics have nothing on {named}; they cover this service's requests, stages and agents.")
    if "uptime" in words.split() and not reading.targets:
        caveats.append("Uptime needs Prometheus' checks (up); there are none here.")
    if reading.failed_queries:
        caveats.append(f"Prometheus did not answer {reading.failed_queries} of {reading.queries} queries.")
    if summary.agents:
        caveats.append("A call is one attempt; retries count again, and an agent that refuses for missing data counts as failed.")
    return caveats


def _charts(summary: Summary, reading: Reading) -> tuple[Spec, ...]:
    groups = (Group("service", summary.service.outcomes, summary.service.total_seconds, summary.service.buckets, True), *summary.agents)
    rows = [_flat(group, reading) for group in groups]
    return (
        bar_chart("agent_latency", "p95 of the service and its agents (ms)", rows, value="p95_ms", label="name"),
        bar_chart("agent_failures", "Failed share of the service and its agents", rows, value="error_share", label="name"),
    )


def _flat(group: Group, reading: Reading) -> Row:
    return {key: value for key, value in group.row(reading.seconds).items() if key != "outcomes"}


def _named_agents(words: str) -> list[str]:
    """Return the agents that a question names, by name or by what people call them; a "health score" is not the agent of that name."""
    return [
        name
        for name in AGENTS
        if (name != "health_score" and f" {normal_form(name.replace('_', ' '))} " in f" {words} ")
        or re.search(rf"\b(?:{_NICKNAMES.get(name, 'no nickname')})\b", words)
        or re.search(rf"\b{name.split('_')[0]} agent\b", words)
    ]


def _times(group: Group) -> str:
    found = [(part, group.quantile(part)) for part in (0.5, 0.95, 0.99)]
    return ", ".join(f"p{100 * part:.0f} {_written(value)}" for part, value in found if value is not None) or "no times"


def _written(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _since(reading: Reading) -> str:
    return "since the process started" if reading.seconds is None else f"in the {_length(reading.seconds)} since the process started"


def _in(span: str) -> str:
    return span if span.startswith(("since", "in ")) else f"in {span}"


def _length(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
