"""drift_monitor finds the two documented drifts and raises no other alarm."""

import dataclasses
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest

from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot, generate_snapshot
from service.agents.stability import adjust_p_values, ks, psi

Ask = Callable[..., Finding]


def before_the_drift(data: Snapshot) -> Snapshot:
    """Return the data without the last 8 weeks, in which both drifts lie."""
    return dataclasses.replace(data, weekly={name: values[:96] for name, values in data.weekly.items()}, week_ends=data.week_ends[:96])


@pytest.mark.parametrize("brand", ["Kisqali", "Fabhalta", "Remibrutinib", "all brands"])
def test_emails_drifted_and_nothing_else(ask: Ask, brand: str) -> None:
    """Their mean is 1.6 times what it was; season and growth alone are no alarm."""
    found: dict[str, Any] = dict(ask("drift_monitor", brand=brand).primary_output)
    emails = found["features"][0]

    assert found["status"] == "drift"
    assert found["drifted_features"] == ["emails"]
    assert emails["mean_recent"] / emails["mean_before"] == pytest.approx(1.6, abs=0.06)


def test_the_model_is_found_to_fail_where_conversion_dropped(ask: Ask) -> None:
    """Of twelve brands and regions only Fabhalta in the Northeast lost its conversion."""
    found: dict[str, Any] = dict(ask("drift_monitor").primary_output)
    first = found["model"]["groups"][0]

    assert found["model"]["decayed_groups"][0] == "Fabhalta in the Northeast"
    assert set(found["model"]["decayed_groups"]) <= {"Fabhalta in the Northeast", "all HCPs together"}
    assert first["observed"] < 0.7 * first["expected"]


def test_there_is_no_alarm_before_the_drift(ask: Ask) -> None:
    """Six draws cut off before the drift: no feature in any of them."""
    for seed in range(6):
        data = before_the_drift(generate_snapshot(today=date(2026, 6, 17), seed=seed))
        found: dict[str, Any] = dict(ask("drift_monitor", on=data).primary_output)
        assert found["drifted_features"] == []


def test_the_model_is_found_to_hold_where_nothing_changed(ask: Ask) -> None:
    """Six draws of Kisqali, whose conversion did not change: 30 comparisons, none of them an alarm."""
    for seed in range(6):
        found: dict[str, Any] = dict(
            ask("drift_monitor", on=generate_snapshot(today=date(2026, 6, 17), seed=seed), brand="Kisqali").primary_output
        )
        assert found["model"]["decayed_groups"] == []


def test_the_numbers_are_those_of_an_independent_formula(ask: Ask, data: Snapshot) -> None:
    """PSI over the baseline's deciles and the largest gap of two step functions, written out by hand."""
    old, new = data.weekly["emails"][88:96].mean(axis=0), data.weekly["emails"][96:104].mean(axis=0)
    edges = sorted({float(np.quantile(old, q / 10)) for q in range(1, 10)})
    expected_psi = 0.0
    for low, high in zip([-np.inf, *edges], [*edges, np.inf], strict=True):
        a, b = (max(float(np.mean((values >= low) & (values < high))), 1e-4) for values in (old, new))
        expected_psi += (b - a) * np.log(b / a)
    expected_ks = max(abs(float(np.mean(old <= x)) - float(np.mean(new <= x))) for x in np.union1d(old, new))

    found: dict[str, Any] = dict(ask("drift_monitor").primary_output)

    assert found["features"][0]["psi"] == pytest.approx(expected_psi, abs=1e-4)
    assert found["features"][0]["ks"] == pytest.approx(expected_ks, abs=1e-4)


def test_the_same_numbers_have_no_distance() -> None:
    """PSI and Kolmogorov-Smirnov of a sample and itself are 0."""
    values = np.random.default_rng(0).normal(size=500)

    assert psi(values, values) == 0.0
    assert ks(values, values)[0] == 0.0


def test_p_values_are_adjusted_as_benjamini_and_hochberg_have_it() -> None:
    """Worked by hand: 0.010 × 4 / 1 is cut to the next one's 0.012 × 4 / 2; then 0.03 × 4 / 3, and 0.5."""
    adjusted = adjust_p_values(np.array([0.5, 0.010, 0.03, 0.012]))

    assert adjusted == pytest.approx([0.5, 0.024, 0.04, 0.024])


def test_a_model_from_before_the_programmes_is_marked_as_such(ask: Ask) -> None:
    """With quarters as windows it was fitted before the programmes began; their effect would look like decay."""
    finding = ask("drift_monitor", brand="Kisqali", time_period="last quarter")

    assert any("before the programmes began" in caveat for caveat in finding.caveats)


def test_a_window_that_cannot_be_compared_is_replaced_and_said(ask: Ask) -> None:
    """Two years have no two years before them."""
    finding = ask("drift_monitor", time_period="last 2 years")

    assert any("the last 8 weeks were used" in caveat for caveat in finding.caveats)
    assert finding.primary_output["drifted_features"] == ["emails"]


def test_an_unknown_brand_is_refused(ask: Ask) -> None:
    """Drift of a brand that is not there would be that of another."""
    with pytest.raises(AgentFailure, match="Available: Kisqali"):
        ask("drift_monitor", brand="Enbrel")
