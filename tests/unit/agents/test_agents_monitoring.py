"""The numbers that observability_connector makes of histograms, and the time that a question means."""

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from service.agents.monitoring.read import Reading, parse_metrics
from service.agents.monitoring.summary import Group, summarize
from service.agents.monitoring.window import read_window

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
NOW = datetime(2026, 6, 17, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize("values", [np.linspace(0.001, 4.9, 400), np.random.default_rng(3).lognormal(-2, 0.8, 500)], ids=["even", "skewed"])
def test_quantiles_lie_in_the_bucket_of_the_true_quantile(values: np.ndarray) -> None:
    """Interpolated inside the bucket in which the true quantile lies."""
    registry = CollectorRegistry()
    histogram = Histogram("orchestrator_request_seconds", "t", ["status"], buckets=BUCKETS, registry=registry)
    for value in values:
        histogram.labels("success").observe(float(value))
    service = summarize(parse_metrics(generate_latest(registry).decode(), time.time() + 10, "x")).service
    bounds = [0.0, *BUCKETS, np.inf]

    for part in (0.5, 0.95, 0.99):
        exact, found = float(np.quantile(values, part)), service.quantile(part)
        at = int(np.searchsorted(bounds, exact, side="left"))
        assert found is not None
        assert bounds[at - 1] <= found <= min(bounds[at], BUCKETS[-1])


def test_no_calls_have_no_shares_and_no_quantiles() -> None:
    """Nothing is divided by nothing; a histogram without buckets has no quantile."""
    empty = Group("x")

    assert empty.error_share is None
    assert empty.quantile(0.5) is None
    assert empty.row(60.0)["mean_ms"] is None
    assert summarize(Reading("metrics", (), 10.0)).out_of_line == ()


def test_times_above_the_last_bound_are_the_last_bound() -> None:
    """All calls took longer than 5 s: the quantile is at least that, and that is what is told."""
    group = Group("x", buckets={1.0: 0.0, 5.0: 0.0, float("inf"): 9.0})

    assert group.quantile(0.95) == 5.0


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("any errors in the last hour", NOW - timedelta(hours=1), NOW),
        ("uptime for the past month", NOW - timedelta(days=30), NOW),
        ("p95 last hour", NOW - timedelta(hours=1), NOW),
        ("error rate, last 24 hrs", NOW - timedelta(hours=24), NOW),
        ("p95 since noon", NOW.replace(hour=12, minute=0), NOW),
        ("errors yesterday", datetime(2026, 6, 16, tzinfo=UTC), datetime(2026, 6, 17, tzinfo=UTC)),
        ("did everything run over the weekend", datetime(2026, 6, 13, tzinfo=UTC), datetime(2026, 6, 15, tzinfo=UTC)),
        ("uptime for aug", datetime(2025, 8, 1, tzinfo=UTC), datetime(2025, 9, 1, tzinfo=UTC)),
        ("uptime for March", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)),
        ("uptime this month against the 99.5 SLA", datetime(2026, 6, 1, tzinfo=UTC), NOW),
        ("since monday", datetime(2026, 6, 15, tzinfo=UTC), NOW),
        ("down since 8:05 am?", NOW.replace(hour=8, minute=5), NOW),
        ("since 11pm", datetime(2026, 6, 16, 23, tzinfo=UTC), NOW),
        ("thinking for twenty minutes", NOW - timedelta(minutes=20), NOW),
        ("what is out of line right now", NOW - timedelta(minutes=15), NOW),
        ("did last nights load finish", datetime(2026, 6, 16, 18, tzinfo=UTC), NOW.replace(hour=8, minute=0)),
        ("last 9999 years", NOW - timedelta(days=400), NOW),
        ("since 99", NOW - timedelta(hours=1), NOW),
        ("", NOW - timedelta(hours=1), NOW),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_time_of_a_question_is_read(text: str, start: datetime, end: datetime) -> None:
    """In UTC; one hour where none is named."""
    window = read_window(text, NOW)

    assert (window.start, window.end) == (start, end)
