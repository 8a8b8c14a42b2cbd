"""gap_analyzer finds the documented regional gaps, in their order and size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot

Ask = Callable[..., Finding]

GAPS = {
    ("Kisqali", "Midwest"): (0.40, 0.0020, 0.92),
    ("Kisqali", "South"): (0.40, 0.0020, 0.78),
    ("Fabhalta", "West"): (0.30, 0.0035, 0.80),
    ("Remibrutinib", "Midwest"): (0.25, 0.0028, 0.85),
    ("Remibrutinib", "South"): (0.25, 0.0028, 0.92),
}
"""As docs/agents.md has it: base share, weekly growth, attained part. All other brands and regions attain 1."""


def true_gap(data: Snapshot, brand: str, region: str) -> float:
    """Return the gap in TRx a week over the last 26 weeks, from the documented process and the observed market."""
    base, growth, attained = GAPS[brand, region]
    mask = (data.labels("brand") == brand) & (data.labels("region") == region)
    market = data.weekly["market_trx"][-26:, mask].mean(axis=0)
    share = (
        base * (0.8 + 0.04 * data.column("decile")[mask]) * (1 + 0.3 * (data.column("digital_affinity")[mask] - 0.5)) * (1 - 12.5 * growth)
    )
    return float((market * share * (1 - attained)).sum())


def test_every_true_gap_is_found_and_no_other(ask: Ask) -> None:
    """Five regions are below the attainable share; the rest are the benchmark."""
    found = ask("gap_analyzer").primary_output

    assert {(row["brand"], row["region"]) for row in found["ranked"]} == set(GAPS)  # type: ignore[attr-defined]
    assert len(found["benchmarks"]) == 12 - len(GAPS)  # type: ignore[arg-type]


def test_intervals_hold_the_true_gaps(ask: Ask, data: Snapshot) -> None:
    """Each region's interval and the total's hold what the documented process gives."""
    found: dict[str, Any] = dict(ask("gap_analyzer").primary_output)

    for row in found["ranked"]:
        assert row["low"] <= true_gap(data, row["brand"], row["region"]) <= row["high"]
    low, high = found["total_gap_interval"]
    assert low <= sum(true_gap(data, *where) for where in GAPS) <= high


def test_gaps_are_ranked_and_add_up_to_the_total(ask: Ask) -> None:
    """The widest comes first, and the total is the sum of the rows."""
    found: dict[str, Any] = dict(ask("gap_analyzer").primary_output)
    gaps = [row["gap"] for row in found["ranked"]]

    assert gaps == sorted(gaps, reverse=True)
    assert (found["ranked"][0]["brand"], found["ranked"][0]["region"]) == ("Kisqali", "South")
    assert found["total_gap"] == pytest.approx(sum(gaps), abs=0.5)


def test_hcps_of_the_same_size_are_compared(ask: Ask, data: Snapshot) -> None:
    """Done again with loops: band by band, the South's own market at the share of Northeast and West."""
    brand, region, decile = data.labels("brand"), data.labels("region"), data.column("decile")
    expected = 0.0
    for low, high in ((1, 3), (4, 7), (8, 10)):
        band = (brand == "Kisqali") & (decile >= low) & (decile <= high)
        best = band & np.isin(region, ["Northeast", "West"])
        south = band & (region == "South")
        share = data.weekly["trx"][-26:, best].sum() / data.weekly["market_trx"][-26:, best].sum()
        expected += data.weekly["market_trx"][-26:, south].sum() / 26 * share - data.weekly["trx"][-26:, south].sum() / 26

    found: dict[str, Any] = dict(ask("gap_analyzer", brand="kisqali", region="SOUTH").primary_output)

    assert found["total_gap"] == pytest.approx(expected, rel=1e-6)


def test_confidence_falls_where_two_gaps_are_close(ask: Ask) -> None:
    """Kisqali's leading gap is certain; Remibrutinib's two are nearer to each other."""
    assert ask("gap_analyzer", brand="Kisqali").confidence > 0.99
    assert ask("gap_analyzer", brand="Remibrutinib").confidence < ask("gap_analyzer", brand="Kisqali").confidence


def test_a_region_without_gap_gets_none(ask: Ask) -> None:
    """The best region is told that it is the benchmark."""
    finding = ask("gap_analyzer", brand="Kisqali", region="West")

    assert finding.primary_output["ranked"] == []
    assert finding.primary_output["total_gap"] == 0
    assert "no region" in finding.evidence[0]


def test_a_period_outside_the_data_is_refused(ask: Ask) -> None:
    """A gap for 2019 would be an invention."""
    with pytest.raises(AgentFailure, match="they cover the weeks ending 2024") as failure:
        ask("gap_analyzer", brand="Kisqali", time_period="Q1 2019")

    assert failure.value.error_type == "missing_data"
