"""Writes k8s/monitoring/dashboard.json: one function a row, in the order of the request path, the time by stage first. `make dashboard`.

Every query keeps to what the variables `namespace` and `job` choose, and adds up instances. Ratios and ages come from the recording rules
(k8s/monitoring/rules.yaml), so that a panel and an alert cannot tell two things.
"""

import json
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

PLACE = Path(__file__).parents[1] / "k8s" / "monitoring" / "dashboard.json"
SOURCE = DataSourceRef("prometheus", "${datasource}")
SCOPE = 'namespace=~"$namespace",job=~"$job"'
WIDTH, HEIGHT = 24, 8
SECONDS, SHARE, PER_SECOND, COUNT, USD = "s", "percentunit", "reqps", "short", "currencyUSD"

Panel = timeseries.Panel | stat.Panel
Query = tuple[str, str]  # PromQL and legend


def latency_by_stage() -> list[Panel]:
    """Where the time of a request goes."""
    shares = [(f"sum by (stage) (rate({series('stage_seconds_sum')}[$__rate_interval]))", "{{stage}}")]
    quantiles = [(quantile(q, "decision_seconds"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]
    return [
        graph("Stages: p95", [(quantile(0.95, "stage_seconds", "stage"), "{{stage}}")], SECONDS),
        graph("Stages: median", [(quantile(0.5, "stage_seconds", "stage"), "{{stage}}")], SECONDS),
        graph("Time by stage", shares, SECONDS, "Seconds spent in each stage in a second, over all requests.", stacked=True),
        graph("Decision (2 s are allowed)", quantiles, SECONDS, "Triage, intent and routing together.", limit=2.0),
        graph("Whole request: p95", [(quantile(0.95, "request_seconds", "status"), "{{status}}")], SECONDS, "By how the answer ended."),
    ]


def objectives() -> list[Panel]:
    """What is promised, and how fast the budget for failures is used up (1: just as fast as allowed)."""
    kept = [
        number(title, [(f"1 - {recorded(f'namespace_job:orchestrator_{ratio}:ratio_rate3d')}", "{{namespace}} {{job}}")], SHARE, below=goal)
        for title, ratio, goal in (
            ("No 5xx, three days (99.9 %)", "failures_per_response", 0.999),
            ("Decisions within 2 s, three days (99.9 %)", "slow_per_decision", 0.999),
            ("Commits, three days (100 %)", "commit_errors_per_commit", 1.0),
        )
    ]
    firing = 'sum(ALERTS{alertname=~"Pointsman.*",alertstate="firing",severity="%s"}) or vector(0)'
    alerts = number("Alerts firing", [(firing % severity, severity) for severity in ("page", "ticket")], COUNT, above=1)
    burning = [
        graph(
            title, [(f"{recorded(f'namespace_job:orchestrator_{ratio}:ratio_rate{w}')} / 0.001", w) for w in ("5m", "1h", "6h", "3d")], "x"
        )
        for title, ratio in (
            ("5xx: use of the budget", "failures_per_response"),
            ("Slow decisions: use of the budget", "slow_per_decision"),
        )
    ]
    return [*kept, alerts, *burning]


def arrival() -> list[Panel]:
    """What comes in, what is refused, and what waits."""
    asked = 'route!~"/healthz|/readyz|/metrics"'
    room = [(total("under_way", "part"), "{{part}} under way"), (total("waiting", "part"), "{{part}} waiting")]
    return [
        graph("Requests by route", [(per_second("responses_total", "route", asked), "{{route}}")], PER_SECOND),
        graph("Responses by status", [(per_second("responses_total", "status", asked), "{{status}}")], PER_SECOND, stacked=True),
        graph("Problems by code", [(per_second("problems_total", "code"), "{{code}}")], PER_SECOND),
        graph("Under way and waiting", room, COUNT),
    ]


def decision() -> list[Panel]:
    """Triage, intent, routing and gate: who decided what."""
    drift = recorded("namespace_job:orchestrator_intent_drift:distance6h")
    default = recorded("namespace_job:orchestrator_safe_defaults_per_decision:ratio_rate10m")
    return [
        graph("Decisions by rung", [(per_second("decisions_total", "rung"), "{{rung}}")], PER_SECOND, stacked=True),
        graph("Decisions by action", [(per_second("decisions_total", "action"), "{{action}}")], PER_SECOND, stacked=True),
        graph("Decisions by intent", [(per_second("decisions_total", "intent"), "{{intent}}")], PER_SECOND, stacked=True),
        graph("Decision by rung: p95", [(quantile(0.95, "decision_seconds", "rung"), "{{rung}}")], SECONDS, limit=2.0),
        graph("Confidence: median", [(quantile(0.5, "confidence", "outcome"), "{{outcome}}")], SHARE, "Of what was dispatched."),
        graph("Warnings by code", [(per_second("warnings_total", "code"), "{{code}}")], PER_SECOND),
        graph(
            "Drift of the intents", [(drift, "{{job}}")], SHARE, "What share of six hours' requests the week does not explain.", limit=0.25
        ),
        graph("Safe default", [(default, "{{job}}")], SHARE, "Share of decisions in ten minutes.", limit=0.05),
    ]


def language_model() -> list[Panel]:
    """What is put to the LM."""
    failing = recorded("namespace_job_program:orchestrator_lm_failures_per_call:ratio_rate10m")
    tokens = [(per_second("lm_tokens_total", "program, direction"), "{{program}} {{direction}}")]
    cost = [(f"sum by (program) (increase({series('lm_usd_total')}[1h]))", "{{program}}")]
    audits = [(f"sum(increase({series('lm_audit_usd_total')}[1h]))", "audits")]
    return [
        graph("LM: runs by outcome", [(per_second("lm_seconds_count", "program, outcome"), "{{program}} {{outcome}}")], PER_SECOND),
        graph("LM: p95", [(quantile(0.95, "lm_seconds", "program"), "{{program}}")], SECONDS),
        graph("LM: failing", [(failing, "{{program}}")], SHARE, "Share of runs in ten minutes.", limit=0.5),
        graph("LM: tokens a second", tokens, COUNT),
        graph("LM: dollars an hour", cost + audits, USD, "As far as prices are known."),
    ]


def agents() -> list[Panel]:
    """Dispatch: the agents, each attempt, and where their work falls."""
    failing = per_second("agent_seconds_count", "agent", 'outcome!="success"')
    failed = f"{failing} / {per_second('agent_seconds_count', 'agent')}"
    breaker = recorded("namespace_job_agent:orchestrator_agent_breaker_open:avg10m")
    fallbacks = recorded("namespace_job:orchestrator_fallbacks_per_dispatch:ratio_rate30m")
    return [
        graph("Agents: attempts", [(per_second("agent_seconds_count", "agent"), "{{agent}}")], PER_SECOND),
        graph("Agents: p95 of an attempt", [(quantile(0.95, "agent_seconds", "agent"), "{{agent}}")], SECONDS),
        graph("Agents: share of attempts that fail", [(failed, "{{agent}}")], SHARE),
        graph("Attempts by outcome", [(per_second("agent_seconds_count", "outcome"), "{{outcome}}")], PER_SECOND),
        graph("Retries and hedges", [(per_second("agent_seconds_count", "attempt"), "{{attempt}}")], PER_SECOND),
        graph("Breakers open", [(breaker, "{{agent}}")], SHARE, "Share of ten minutes.", limit=0.5),
        graph("Fallbacks by reason", [(per_second("fallbacks_total", "agent, reason"), "{{agent}} {{reason}}")], PER_SECOND),
        graph("Fallbacks for each dispatch", [(fallbacks, "{{job}}")], SHARE, "In half an hour.", limit=0.1),
    ]


def answer() -> list[Panel]:
    """Synthesis and commit: how requests end, and whether they are durable."""
    commits = 'stage="commit"'
    spool = [(f"max by (instance) ({series(name)})", f"{{{{instance}}}} {name}") for name in ("spooled", "spool_refused", "spool_limit")]
    return [
        graph("Answers by status", [(per_second("request_seconds_count", "status"), "{{status}}")], PER_SECOND, stacked=True),
        graph("Commits by outcome", [(per_second("stage_seconds_count", "outcome", commits), "{{outcome}}")], PER_SECOND),
        graph("Commit: p99", [(quantile(0.99, "stage_seconds", "stage", commits), "{{stage}}")], SECONDS),
        graph("Spool", spool, COUNT, "Decisions that wait for the database, those that it refuses, and how many fit."),
    ]


def learning() -> list[Panel]:
    """What is learned from what happened."""
    reward = f"{per_second('reward_sum')} / {per_second('reward_count')}"
    return [
        graph("Signals", [(per_second("signals_total", "rewarded"), "rewarded: {{rewarded}}")], PER_SECOND, stacked=True),
        graph("Mean reward", [(reward, "reward")], SHARE, "When the decision was stored, before feedback."),
        graph("Feedback by kind", [(per_second("feedback_total", "kind"), "{{kind}}")], PER_SECOND),
        graph("Shadow reads by outcome", [(per_second("shadow_reads_total", "outcome"), "{{outcome}}")], PER_SECOND),
    ]


def regions() -> list[Panel]:
    """What the student answers without the LM (docs/learning.md)."""
    student, either = 'rung="student"', 'rung=~"student|lm"'
    alone = f"sum(rate({series('decisions_total', student)}[1h])) / sum(rate({series('decisions_total', either)}[1h]))"
    read = series("lm_audits_total", 'outcome!="failed"')
    agreed = series("lm_audits_total", 'outcome="agreed"')
    agreement = f"sum by (intent) (rate({agreed}[1d])) / sum by (intent) (rate({read}[1d]))"
    each = f"sum(increase({series('lm_audit_usd_total')}[1d])) / sum(increase({read}[1d]))"
    saved = f"sum(increase({series('decisions_total', student)}[1d])) * {each}"
    return [
        graph("Answered without the LM", [(alone, "share")], SHARE, "Of what student or LM decided, in an hour."),
        graph("How often the LM agrees", [(agreement, "{{intent}}")], SHARE, "Of what it read after the student had answered, in a day."),
        graph("Dollars saved in a day", [(saved, "saved")], USD, "What the LM would have cost where the student answered."),
        graph(
            "Regions given back",
            [(f"max by (instance) ({series('regions_given_back')})", "{{instance}}")],
            COUNT,
            "Intents left to the LM.",
        ),
    ]


def router() -> list[Panel]:
    """Which router serves, since when, and whether new ones are taken."""
    age = recorded("namespace_job:orchestrator_router_age_seconds:max")
    since = f"time() - max by (instance) ({series('router_since_seconds')} > 0)"
    silence = f"time() - max by (instance) ({series('registry_asked_seconds')} > 0)"
    return [
        graph("Instances by router version", [(total("router_version", "version"), "version {{version}}")], COUNT, stacked=True),
        graph("Reloads", [(f"sum by (outcome) (increase({series('router_reloads_total')}[1h]))", "{{outcome}}")], COUNT, "In an hour."),
        graph("Age of the router", [(age, "made"), (since, "serves on {{instance}}")], SECONDS),
        graph("Instances with a router", [(total("router_loaded", "job"), "{{job}}")], COUNT),
        graph("Silence of the registry", [(silence, "{{instance}}")], SECONDS, "Since it last answered."),
    ]


ROWS: tuple[tuple[str, Callable[[], list[Panel]]], ...] = (
    ("Time by stage", latency_by_stage),
    ("Objectives", objectives),
    ("1 · Arrival", arrival),
    ("2 · Decision: triage, intent, routing, gate", decision),
    ("3 · Language model", language_model),
    ("4 · Dispatch: agents", agents),
    ("5 · Answer: synthesis, commit", answer),
    ("6 · Learning", learning),
    ("7 · Regions: without the LM", regions),
    ("8 · Router", router),
)


def make() -> str:
    """Return the dashboard as JSON."""
    made = (
        dashboard.Dashboard("Pointsman")
        .uid("pointsman")
        .description("The path of a request through Pointsman. Generated by scripts/make_dashboard.py.")
        .tags(["pointsman"])
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Source").type("prometheus"))
    )
    for name in ("namespace", "job"):
        made.with_variable(_choice(name))
    numbers = iter(range(1, 1_000))
    for title, panels in ROWS:
        made.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in _in_lines(panels()):
            made.with_panel(panel.id(next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def series(name: str, where: str = "") -> str:
    """Return a metric of the service, of the chosen installations."""
    return f"orchestrator_{name}{{{SCOPE}{',' if where else ''}{where}}}"


def recorded(name: str) -> str:
    """Return what a recording rule tells of the chosen installations."""
    return f"{name}{{{SCOPE}}}"


def total(name: str, by: str) -> str:
    """Return a gauge, over all instances."""
    return f"sum by ({by}) ({series(name)})"


def per_second(name: str, by: str = "", where: str = "") -> str:
    """Return how fast a counter grows, over all instances."""
    return f"sum by ({by}) (rate({series(name, where)}[$__rate_interval]))"


def quantile(share: float, name: str, by: str = "", where: str = "") -> str:
    """Return what so large a share of a histogram's observations does not exceed."""
    return f"histogram_quantile({share:g}, {per_second(f'{name}_bucket', f'le, {by}' if by else 'le', where)})"


def graph(
    title: str, queries: Sequence[Query], unit: str, text: str = "", *, stacked: bool = False, limit: float | None = None
) -> timeseries.Panel:
    """Return a graph over time; `limit` draws the line at which an alert is near."""
    panel = timeseries.Panel().title(title).description(text).datasource(SOURCE).unit(unit).height(HEIGHT).min(0.0).fill_opacity(10)
    panel.legend(common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM))
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    if limit is not None:
        panel.thresholds(_colours("green", "red", limit))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def number(title: str, queries: Sequence[Query], unit: str, *, below: float | None = None, above: float | None = None) -> stat.Panel:
    """Return the latest values as numbers; they are red below one bound, or from the other on."""
    panel = stat.Panel().title(title).datasource(SOURCE).unit(unit).height(HEIGHT).color_mode(BigValueColorMode.VALUE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if unit == SHARE:
        panel.decimals(3)
    if below is not None:
        panel.thresholds(_colours("red", "green", below))
    if above is not None:
        panel.thresholds(_colours("green", "red", above))
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def _targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    """Return the queries; a measured time shows the traces that it points to."""
    return [
        prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + place)).range().exemplar("_bucket" in query)
        for place, (query, legend) in enumerate(queries)
    ]


def _colours(first: str, then: str, bound: float) -> dashboard.ThresholdsConfig:
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(None, first), Threshold(bound, then)])


def _in_lines(panels: Sequence[Panel]) -> list[Panel]:
    """Return a row's panels with their widths: at most four on a line, and about as many on each."""
    lines = ceil(len(panels) / 4)
    most = ceil(len(panels) / lines)
    return [panel.span(WIDTH // min(most, len(panels) - place // most * most)) for place, panel in enumerate(panels)]


def _choice(name: str) -> dashboard.QueryVariable:
    """Return a variable that chooses among an installation's names; all of them at first, also where there is none."""
    query = f"label_values(orchestrator_router_loaded, {name})"
    choice = (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    return choice.multi(True).include_all(True).all_value(".*")


if __name__ == "__main__":
    PLACE.write_text(make(), encoding="utf-8")
