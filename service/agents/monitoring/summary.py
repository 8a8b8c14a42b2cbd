"""What the samples say: traffic, failures and latency of the service, its stages and agents, and what is out of line.

It knows samples only, not where they come from. Quantiles are interpolated inside a histogram's bucket, as Prometheus does.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binom, fisher_exact

from service.agents.chart import Row
from service.agents.monitoring.read import Reading, Sample

SUCCESSES = {"success", "partial", "answered", "blocked", "dispatch", "clarify", "refuse", "social", "done", "ok"}
"""Outcomes of an agent's call that are an answer."""
FAILED_WORDS = {"failed", "error", "timeout", "cancelled", "unavailable"}
"""Outcomes of a stage or request that are a failure; a stage names its other outcomes by what it decided."""
QUANTILES = (0.5, 0.95, 0.99)
FEWEST_CALLS = 5
HIGH_ERROR_SHARE = 0.05
CHANCE = 0.01
SLOW_FACTOR = 3.0
SLOW_SECONDS = 1.0
WORSE_FACTOR = 2.0
MOST_OTHERS = 40
KNOWN = ("orchestrator_request_seconds", "orchestrator_agent_seconds", "orchestrator_stage_seconds")


@dataclass(slots=True)
class Group:
    """Calls of one kind in the window: how many by outcome, their time in seconds, and the cumulative counts by bucket bound."""

    name: str
    outcomes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    total_seconds: float = 0.0
    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    only_words: bool = False

    @property
    def calls(self) -> float:
        """All calls."""
        return sum(self.outcomes.values())

    @property
    def failed(self) -> float:
        """The calls that failed."""
        if self.only_words:
            return sum(count for outcome, count in self.outcomes.items() if outcome in FAILED_WORDS)
        return sum(count for outcome, count in self.outcomes.items() if outcome not in SUCCESSES)

    @property
    def error_share(self) -> float | None:
        """The failed part of all calls, None without calls."""
        return self.failed / self.calls if self.calls > 0 else None

    def quantile(self, part: float) -> float | None:
        """Return the time in seconds under which this part of the calls stayed; the last bound where they took longer than all bounds."""
        bounds = sorted(self.buckets)
        if not bounds or not math.isinf(bounds[-1]):
            return None
        counts = np.maximum.accumulate([self.buckets[bound] for bound in bounds])
        rank = part * counts[-1]
        if counts[-1] <= 0:
            return None
        at = int(np.searchsorted(counts, rank, side="left"))
        if math.isinf(bounds[at]):
            return bounds[at - 1] if at > 0 else None
        low, below = (bounds[at - 1], counts[at - 1]) if at > 0 else (0.0, 0.0)
        inside = counts[at] - below
        return float(low + (bounds[at] - low) * ((rank - below) / inside if inside > 0 else 1.0))

    def row(self, seconds: float | None) -> Row:
        """Return the numbers that are shown; times in milliseconds."""
        share = self.error_share
        quantiles = {f"p{round(100 * part)}_ms": self.quantile(part) for part in QUANTILES}
        return {
            "name": self.name,
            "calls": round(self.calls, 1),
            "per_minute": None if seconds is None else round(60.0 * self.calls / seconds, 3),
            "failed": round(self.failed, 1),
            "error_share": None if share is None else round(share, 4),
            "mean_ms": round(1000.0 * self.total_seconds / self.calls, 2) if self.calls > 0 else None,
            **{name: None if value is None else round(1000.0 * value, 2) for name, value in quantiles.items()},
            "outcomes": {name: round(count, 1) for name, count in sorted(self.outcomes.items()) if count > 0},
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """The service as a whole, its agents and stages, counts by label, further metrics, and what is out of line."""

    service: Group
    agents: tuple[Group, ...]
    stages: tuple[Group, ...]
    counts: dict[str, dict[str, float]]
    further: tuple[Row, ...]
    out_of_line: tuple[str, ...]


def summarize(reading: Reading) -> Summary:
    """Return what a reading says."""
    service = _groups(reading.samples, KNOWN[0], None, "status", only_words=True).get("all", Group("all", only_words=True))
    agents = _ordered(_groups(reading.samples, KNOWN[1], "agent", "outcome"))
    stages = _ordered(_groups(reading.samples, KNOWN[2], "stage", "outcome", only_words=True))
    counts = {
        f"{what}_by_{label}": _count(reading.samples, f"orchestrator_{what}_total", label)
        for what, label in (("decisions", "action"), ("decisions", "intent"), ("decisions", "rung"), ("warnings", "code"))
    }
    before = _groups(reading.before, KNOWN[0], None, "status", only_words=True).get("all")
    found = [*_failing(agents), *_slow(agents), *_stages_failing(stages), *_service(service, before), *_down(reading)]
    return Summary(service, agents, stages, counts, _further(reading.samples), tuple(found))


def confidence_of(calls: float, reading: Reading, covered: float) -> float:
    """Return calls / (calls + 20), times the part of the window that is covered, times the share of queries that were answered.

    With 20 calls about one lies above the 95th percentile, so fewer say little of it.
    """
    answered = 1.0 - reading.failed_queries / reading.queries
    return calls / (calls + 20.0) * covered * answered


def _groups(samples: Iterable[Sample], family: str, label: str | None, outcome: str, *, only_words: bool = False) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for one in samples:
        if not one.name.startswith(family):
            continue
        name = "all" if label is None else one.labels.get(label, "")
        group = found.setdefault(name, Group(name, only_words=only_words))
        match one.name.removeprefix(family):
            case "_count":
                group.outcomes[one.labels.get(outcome, "unknown")] += one.value
            case "_sum":
                group.total_seconds += one.value
            case "_bucket":
                try:
                    group.buckets[float(one.labels.get("le", "nan"))] += one.value
                except ValueError:
                    continue
    return found


def _ordered(groups: dict[str, Group]) -> tuple[Group, ...]:
    return tuple(sorted((group for group in groups.values() if group.calls > 0), key=lambda group: (-group.calls, group.name)))


def _count(samples: Iterable[Sample], name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for one in samples:
        if one.name == name and one.value > 0:
            found[one.labels.get(label, "")] += one.value
    return {key: round(value, 1) for key, value in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))}


def _further(samples: Iterable[Sample]) -> tuple[Row, ...]:
    """Return the metrics that are none of the known histograms and no bucket, so that what others add is seen."""
    rows: list[Row] = [
        {
            "metric": one.name,
            "labels": ", ".join(f"{key}={value}" for key, value in sorted(one.labels.items())),
            "value": round(one.value, 3),
        }
        for one in samples
        if not one.name.startswith(KNOWN) and not one.name.endswith("_bucket")
    ]
    return tuple(sorted(rows, key=lambda row: (str(row["metric"]), str(row["labels"])))[:MOST_OTHERS])


def _failing(agents: Sequence[Group]) -> list[str]:
    """An agent fails more than chance: 5 % or more of its calls, and either more than the others or more than 5 % would give."""
    sentences = []
    calls, failed = sum(group.calls for group in agents), sum(group.failed for group in agents)
    for group in agents:
        share = group.error_share or 0.0
        if group.calls < FEWEST_CALLS or share < HIGH_ERROR_SHARE:
            continue
        bad, good = round(group.failed), round(group.calls - group.failed)
        others = (max(0, round(failed - group.failed)), max(0, round(calls - group.calls - failed + group.failed)))
        against_others = float(fisher_exact(np.array([[bad, good], others]), alternative="greater").pvalue) if sum(others) else 1.0
        against_limit = float(binom.sf(bad - 1, bad + good, HIGH_ERROR_SHARE))
        if min(against_others, against_limit) < CHANCE:
            worst = max((pair for pair in group.outcomes.items() if pair[0] not in SUCCESSES), key=lambda pair: pair[1])[0]
            sentences.append(f"{group.name} fails: {bad} of {bad + good} calls ({100 * share:.0f} %), mostly {worst}.")
    return sentences


def _slow(agents: Sequence[Group]) -> list[str]:
    known = {group.name: value for group in agents if group.calls >= FEWEST_CALLS and (value := group.quantile(0.95)) is not None}
    sentences = []
    for name, value in known.items():
        others = [other for key, other in known.items() if key != name]
        if others and value > SLOW_SECONDS and value > SLOW_FACTOR * float(np.median(others)):
            sentences.append(f"{name} is slow: p95 {value:.2f} s, against a median of {np.median(others):.2f} s over the other agents.")
    return sentences


def _stages_failing(stages: Sequence[Group]) -> list[str]:
    return [
        f"The stage {group.name} fails in {group.failed:.0f} of {group.calls:.0f} requests ({100 * (group.error_share or 0):.0f} %)."
        for group in stages
        if group.calls >= FEWEST_CALLS and binom.sf(round(group.failed) - 1, max(round(group.calls), 1), HIGH_ERROR_SHARE) < CHANCE
    ]


def _service(now: Group, before: Group | None) -> list[str]:
    sentences = []
    if now.calls >= FEWEST_CALLS and binom.sf(round(now.failed) - 1, round(now.calls), HIGH_ERROR_SHARE) < CHANCE:
        sentences.append(f"Requests fail: {now.failed:.0f} of {now.calls:.0f} ({100 * (now.error_share or 0):.0f} %).")
    if before is None or min(now.calls, before.calls) < FEWEST_CALLS:
        return sentences
    late, early = now.quantile(0.95), before.quantile(0.95)
    if late is not None and early is not None and late > SLOW_SECONDS and late > WORSE_FACTOR * early:
        sentences.append(f"Requests are slower than in the window before: p95 {late:.2f} s against {early:.2f} s.")
    failures = [[round(now.failed), round(now.calls - now.failed)], [round(before.failed), round(before.calls - before.failed)]]
    if float(fisher_exact(np.array(failures), alternative="greater").pvalue) < CHANCE:
        earlier = 100 * (before.error_share or 0)
        sentences.append(f"More requests fail than in the window before: {100 * (now.error_share or 0):.0f} % against {earlier:.0f} %.")
    return sentences


def _down(reading: Reading) -> list[str]:
    sentences = [f"{one.job} at {one.instance} is down." for one in reading.targets if one.up is False]
    loaded = [one.value for one in reading.samples if one.name == "orchestrator_router_loaded"]
    return sentences + (["No router version is loaded."] if loaded and max(loaded) < 1 else [])
