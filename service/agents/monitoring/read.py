"""Reads the platform's metrics: from Prometheus over its HTTP API, or from a text in Prometheus' format such as the service's /metrics.

No word of a question ever becomes part of an address or of PromQL: queries are fixed, and what is put into them are whole seconds
and metric names that Prometheus itself listed and that have the form of a name. Redirects are not followed, bodies are bounded.
"""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.agents.finding import AgentFailure

LARGEST_BODY = 4 * 1024 * 1024
MOST_NAMES = 80
RESTARTED = 1.5
FRESH_SECONDS = 3600.0
PREFIX = "orchestrator_"
UNREACHABLE = "missing_data"
PROMETHEUS_VARIABLE = "POINTSMAN_PROMETHEUS_URL"
METRICS_VARIABLE = "POINTSMAN_METRICS_URL"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_COUNTED = ("_bucket", "_count", "_sum", "_total")
_ADVICE = f"Set {PROMETHEUS_VARIABLE} to Prometheus' address, or {METRICS_VARIABLE} to the address of the service's /metrics."


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: its name, labels, and what it grew by in the window (counters, buckets) or stands at (gauges)."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Target:
    """A process that Prometheus asks: whether it is up, and the share of the window's checks in which it was."""

    job: str
    instance: str
    up: bool | None
    up_share: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read. `seconds` is the stretch that the samples cover, None when that cannot be told."""

    source: str
    samples: tuple[Sample, ...]
    seconds: float | None
    before: tuple[Sample, ...] = ()
    targets: tuple[Target, ...] = ()
    others: tuple[Sample, ...] = ()
    """What metrics of other systems stand at, where the question names such a system."""
    failed_queries: int = 0
    queries: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Sends bounded GET requests until a deadline (seconds of time.monotonic)."""

    client: httpx.Client
    deadline: float
    counts: dict[str, int] = field(default_factory=lambda: {"asked": 0, "failed": 0})

    def get(self, address: str, params: Mapping[str, str] | None = None) -> bytes:
        """Return a body.

        Raises:
            AgentFailure: The address cannot be reached in time, or answers with another status than 200 or with too much.
        """
        shown, body = shown_address(address), bytearray()
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise AgentFailure(UNREACHABLE, f"There was no time left to ask {shown}. {_ADVICE}")
        try:
            with self.client.stream("GET", address, params=params, timeout=left) as response:
                if response.status_code != httpx.codes.OK:
                    raise AgentFailure(UNREACHABLE, f"{shown} answers with status {response.status_code}. {_ADVICE}")
                for part in response.iter_bytes():
                    body += part
                    if len(body) > LARGEST_BODY:
                        raise AgentFailure(UNREACHABLE, f"{shown} sends more than {LARGEST_BODY // 2**20} MiB. {_ADVICE}")
                    if time.monotonic() > self.deadline:
                        raise AgentFailure(UNREACHABLE, f"{shown} was too slow. {_ADVICE}")
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as problem:
            raise AgentFailure(UNREACHABLE, f"{shown} cannot be reached ({type(problem).__name__}). {_ADVICE}") from problem
        return bytes(body)


def read_prometheus(reader: Reader, base: str, seconds: float, end: float, words: Sequence[str]) -> Reading:
    """Read the window of so many seconds up to `end` (Unix time), and the window of equal length before it.

    `words` are parts of metric names of other systems, from a closed set.

    Raises:
        AgentFailure: Prometheus cannot be reached, or does not answer as Prometheus does.
    """
    window, at = f"{max(1, round(seconds))}s", {"time": f"{end:.3f}"}
    start = {"start": f"{end - seconds:.3f}", "end": f"{end:.3f}"}
    listed = _ask(reader, base, "label/__name__/values", start)
    if not isinstance(listed, list):
        raise AgentFailure(UNREACHABLE, f"{shown_address(base)} does not answer as Prometheus does. {_ADVICE}")
    every = [name for name in listed if isinstance(name, str) and _NAME.fullmatch(name)]
    names = [name for name in every if name.startswith(PREFIX) and not name.endswith("_created")][:MOST_NAMES]
    samples: list[Sample] = []
    before: list[Sample] = []
    for name in names:
        if name.endswith(_COUNTED):
            samples += _growth(reader, base, name, seconds, end, every)
            if name.startswith(("orchestrator_request_seconds", "orchestrator_agent_seconds")):
                before += _vector(reader, base, f"increase({name}[{window}] offset {window})", at, name)
        else:
            samples += _vector(reader, base, f"max by (job, instance) (last_over_time({name}[{window}]))", at, name)
    found = [name for name in every if any(word in name.lower() for word in words) and not name.startswith(PREFIX)]
    others = [one for name in found[:5] for one in _vector(reader, base, f"sum({name})", at, name)]
    covered, notes = _coverage(reader, base, seconds, at)
    return Reading(
        source="prometheus",
        samples=tuple(samples),
        seconds=covered,
        before=tuple(before),
        targets=_targets(reader, base, window, at),
        others=tuple(others),
        failed_queries=reader.counts["failed"],
        queries=max(1, reader.counts["asked"]),
        notes=notes,
    )


def read_metrics(reader: Reader, address: str, now: float) -> Reading:
    """Read a text in Prometheus' format; its counters run since the process started.

    Raises:
        AgentFailure: The address cannot be reached, or its text is no such format.
    """
    return parse_metrics(reader.get(address).decode("utf-8", "replace"), now, shown_address(address))


def parse_metrics(text: str, now: float, shown: str) -> Reading:
    """Return a reading of a text in Prometheus' format.

    Raises:
        AgentFailure: The text is no such format, or has no orchestrator metrics.
    """
    samples: list[Sample] = []
    started: list[float] = []
    process: list[float] = []
    try:
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                if one.name == "process_start_time_seconds":
                    process.append(float(one.value))
                elif one.name.startswith(PREFIX) and one.name.endswith("_created"):
                    started.append(float(one.value))
                elif one.name.startswith(PREFIX):
                    samples.append(Sample(one.name, dict(one.labels), float(one.value)))
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        raise AgentFailure(UNREACHABLE, f"{shown} does not send metrics in Prometheus' text format. {_ADVICE}") from problem
    if not samples:
        raise AgentFailure(UNREACHABLE, f"{shown} has no metrics that begin with {PREFIX}. {_ADVICE}")
    since = min(process or started, default=None)
    return Reading("metrics", tuple(samples), None if since is None else max(1.0, now - since))


def shown_address(address: str) -> str:
    """Return an address without user, password and query, which may be secrets."""
    try:
        parsed = httpx.URL(address)
    except httpx.InvalidURL:
        return "an invalid address"
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii', 'replace')}{parsed.path}"


def _ask(reader: Reader, base: str, path: str, params: Mapping[str, str]) -> object:
    """Return the data of one answer of the HTTP API; None where the answer is an error of this one query."""
    reader.counts["asked"] += 1
    body = reader.get(f"{base.rstrip('/')}/api/v1/{path}", params)
    try:
        answer = json.loads(body)
    except ValueError as problem:
        raise AgentFailure(UNREACHABLE, f"{shown_address(base)} does not answer as Prometheus does. {_ADVICE}") from problem
    if not isinstance(answer, dict) or answer.get("status") != "success":
        reader.counts["failed"] += 1
        return None
    return answer.get("data")


def _vector(reader: Reader, base: str, query: str, at: Mapping[str, str], name: str) -> list[Sample]:
    """Return the samples of an instant query; a malformed part is left out."""
    data = _ask(reader, base, "query", {"query": query, **at})
    rows = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    if not isinstance(rows, list):
        return []
    found = []
    for row in rows:
        try:
            labels = {str(key): str(value) for key, value in row["metric"].items() if key != "__name__"}
            value = float(row["value"][1])
        except (TypeError, KeyError, IndexError, ValueError, AttributeError):
            continue
        if math.isfinite(value):
            found.append(Sample(name, labels, value))
    return found


def _growth(reader: Reader, base: str, name: str, seconds: float, end: float, every: Sequence[str]) -> list[Sample]:
    """Return what each series grew by in the window.

    increase() cannot see what a series held at its first check. A series that was created inside the window, which its `_created`
    series tells, therefore counts with what it stands at, unless a restart in between has made increase() much larger.
    """
    window, at = f"{max(1, round(seconds))}s", {"time": f"{end:.3f}"}
    grown = _vector(reader, base, f"increase({name}[{window}])", at, name)
    created_name = re.sub(r"_(?:bucket|count|sum|total)$", "_created", name)
    if created_name not in every:
        return grown
    created = {_series(one): one.value for one in _vector(reader, base, f"last_over_time({created_name}[{window}])", at, created_name)}
    by_series = {(_series(one), one.labels.get("le")): one for one in grown}
    for one in _vector(reader, base, f"last_over_time({name}[{window}])", at, name):
        key = (_series(one), one.labels.get("le"))
        seen = by_series[key].value if key in by_series else 0.0
        if created.get(key[0], 0.0) >= end - seconds and seen <= RESTARTED * one.value:
            by_series[key] = one
    return list(by_series.values())


def _series(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))


def _targets(reader: Reader, base: str, window: str, at: Mapping[str, str]) -> tuple[Target, ...]:
    """Return the processes that Prometheus asks. A share counts the checks that were made; none is no answer."""
    now = {_key(one): one.value > 0 for one in _vector(reader, base, "up", at, "up")}
    share = {_key(one): one.value for one in _vector(reader, base, f"avg_over_time(up[{window}])", at, "up")}
    return tuple(Target(*key, now.get(key), share.get(key)) for key in sorted(now.keys() | share.keys()))


def _key(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("job", ""), sample.labels.get("instance", "")


def _coverage(reader: Reader, base: str, seconds: float, at: Mapping[str, str]) -> tuple[float, tuple[str, ...]]:
    """Return how many seconds of the window Prometheus has checks for: those since its first one in it."""
    first: list[Sample] = []
    steps = ((seconds, max(5, round(seconds / 500))), (min(seconds, FRESH_SECONDS), 1))
    looks = [f"min(min_over_time(timestamp(up)[{max(1, round(length))}s:{step}s]))" for length, step in steps]
    for look in (*looks, "min(timestamp(up))"):
        if not first:  # between two steps, even of a second, a Prometheus that has just begun has nothing
            first = _vector(reader, base, look, at, "up")
    if not first:
        return seconds, ("Prometheus has no checks (up) in this window, so its coverage is not known.",)
    return min(seconds, max(1.0, float(at["time"]) - first[0].value)), ()
