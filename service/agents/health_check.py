"""The single checks of health_score. Each returns a component with its weight, its score (None: could not be measured) and a sentence."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date

import httpx
import numpy as np

from service.agents.process_state import memory_limit_bytes, resident_bytes, uptime_seconds
from service.agents.sample_data import Mask, Snapshot

FRESH_DAYS = 10
STALE_DAYS = 38
WORST_RANGE_SHARE = 0.01
WARM_SECONDS = 60
COMFORTABLE_MEMORY = 0.70
CRITICAL_MEMORY = 0.95
MOST_URLS = 10
LONGEST_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the score."""

    name: str
    weight: float
    score: float | None
    sentence: str


def check_freshness(data: Snapshot, today: date) -> Component:
    """Score 1 up to 10 days after the last week's end (a week and its loading), then falling to 0 at 38 days."""
    age = (today - data.week_ends[-1]).days
    score = _fall(age, FRESH_DAYS, STALE_DAYS)
    return Component("data_freshness", 0.25, score, f"The data end with the week to {data.week_ends[-1].isoformat()}, {age} days ago.")


def check_completeness(data: Snapshot, mask: Mask) -> Component:
    """Score the share of HCPs with every attribute and of weeks with a row for every HCP (the lower of the two)."""
    frame = data.hcps[mask]
    missing = frame.isna()
    complete = 1.0 - float(missing.any(axis=1).mean())
    gaps = sum((b - a).days != 7 for a, b in zip(data.week_ends, data.week_ends[1:], strict=False))
    weeks = 1.0 - gaps / max(len(data.week_ends) - 1, 1)
    worst = missing.sum()
    named = ", ".join(f"{name} for {int(count)}" for name, count in worst.items() if count) or "nothing"
    sentence = (
        f"{100 * complete:.1f} % of {len(frame):,} HCPs have every attribute (missing: {named}); {gaps} of {len(data.week_ends)} weeks "
        "are missing."
    )
    return Component("data_completeness", 0.25, min(complete, weeks), sentence)


def check_ranges(data: Snapshot, mask: Mask) -> Component:
    """Score 1 with every value in its range, 0 when 1 % or more of one measure's values are out."""
    weekly = {name: values[:, mask] for name, values in data.weekly.items()}
    faults = {f"{name} below 0": float((values < 0).sum()) for name, values in weekly.items()}
    for part, whole in (("nrx", "trx"), ("trx", "market_trx"), ("conversions", "candidates")):
        faults[f"{part} above {whole}"] = float((weekly[part] > weekly[whole]).sum())
    decile = data.column("decile")[mask]
    faults["decile outside 1 to 10"] = float(((decile < 1) | (decile > 10)).sum()) * data.weeks
    cells = float(mask.sum()) * data.weeks
    found = {name: count for name, count in faults.items() if count}
    named = ", ".join(f"{name} in {int(count)}" for name, count in found.items()) or "none"
    share = max(faults.values()) / max(cells, 1.0)
    return Component(
        "data_ranges", 0.20, _fall(share, 0.0, WORST_RANGE_SHARE), f"Values out of range, of {int(cells):,} a measure: {named}."
    )


def check_uptime() -> Component:
    """Score 1 after a minute; a process that has just started scores from 0.5, because a restart loop looks like this."""
    seconds = uptime_seconds()
    if seconds is None:
        return Component("process_uptime", 0.05, None, "The process's uptime cannot be read on this system.")
    score = 0.5 + 0.5 * min(1.0, seconds / WARM_SECONDS)
    written = (
        f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
    )
    return Component("process_uptime", 0.05, score, f"The agents' process has been up for {written}.")


def check_memory() -> Component:
    """Score 1 up to 70 % of the memory limit, then falling to 0 at 95 %."""
    used, limit = resident_bytes(), memory_limit_bytes()
    if used is None or limit is None:
        return Component("process_memory", 0.10, None, "The process's memory cannot be read on this system.")
    share = used / limit
    sentence = f"The agents' process uses {used / 2**20:,.0f} MiB, {100 * share:.1f} % of its limit of {limit / 2**20:,.0f} MiB."
    return Component("process_memory", 0.10, _fall(share, COMFORTABLE_MEMORY, CRITICAL_MEMORY), sentence)


def check_addresses(urls: list[str], wait_s: float, transport: httpx.BaseTransport | None = None) -> Component:
    """Score the share of health addresses that answer with a status below 400, all asked at once."""
    if not urls:
        return Component("dependencies", 0.15, None, "No health addresses are configured (POINTSMAN_HEALTH_URLS).")
    asked = urls[:MOST_URLS]
    with (
        httpx.Client(timeout=max(0.05, min(LONGEST_WAIT_S, wait_s)), trust_env=False, transport=transport) as client,
        ThreadPoolExecutor(len(asked)) as pool,
    ):
        answers = list(pool.map(lambda url: _ask(client, url), asked))
    healthy = sum(problem is None for problem in answers)
    problems = "; ".join(f"{_shown(url)}: {problem}" for url, problem in zip(asked, answers, strict=True) if problem is not None)
    sentence = f"{healthy} of {len(asked)} health addresses answer" + (f" ({problems})." if problems else ".")
    return Component("dependencies", 0.15, healthy / len(asked), sentence)


def _ask(client: httpx.Client, url: str) -> str | None:
    try:
        status = client.get(url).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        return type(problem).__name__
    return None if status < 400 else f"status {status}"


def _shown(url: str) -> str:
    """Return the address without user, password and query, which may be secrets."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "an invalid address"
    return f"{parsed.scheme}://{parsed.netloc.decode()}{parsed.path}"


def _fall(value: float, full: float, empty: float) -> float:
    return float(np.clip((empty - value) / (empty - full), 0.0, 1.0))
