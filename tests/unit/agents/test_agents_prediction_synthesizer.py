"""prediction_synthesizer is judged by the eight weeks that it could not see."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.agents.conversion import fit_conversion_model
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot

Ask = Callable[..., Finding]

BRANDS = ("Kisqali", "Fabhalta", "Remibrutinib")


def total(data: Snapshot, brand: str, measure: str = "trx") -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the brand's weekly total."""
    return np.asarray(data.weekly[measure][:, data.labels("brand") == brand].sum(axis=1))


def test_intervals_hold_the_weeks_to_come(ask: Ask, future: Snapshot) -> None:
    """Of the 24 future weeks of three brands, at least 19 lie in their 90 % interval."""
    inside = 0
    for brand in BRANDS:
        found: dict[str, Any] = dict(ask("prediction_synthesizer", brand=brand, kpi="TRx").primary_output)
        actual = total(future, brand)[104:]
        inside += sum(week["low"] <= value <= week["high"] for week, value in zip(found["forecast"], actual, strict=True))

    assert inside >= 19


@pytest.mark.parametrize("brand", BRANDS)
def test_the_forecast_beats_the_last_week_carried_forward(ask: Ask, future: Snapshot, brand: str) -> None:
    """Growth and season lie ahead; the naive rule misses them, and the backtest had said so."""
    found: dict[str, Any] = dict(ask("prediction_synthesizer", brand=brand, kpi="trx").primary_output)
    actual = total(future, brand)[104:]
    error = np.abs([week["value"] - value for week, value in zip(found["forecast"], actual, strict=True)]).mean()

    assert error < 0.7 * np.abs(actual - total(future, brand)[103]).mean()
    assert found["backtest"]["skill"] > 0.2


def test_the_backtest_is_out_of_sample(ask: Ask, data: Snapshot) -> None:
    """Its error is about the size of the weekly noise (Poisson: the root of the mean), not below it by much."""
    found: dict[str, Any] = dict(ask("prediction_synthesizer", brand="Kisqali", kpi="trx").primary_output)
    noise = float(np.sqrt(total(data, "Kisqali")[-20:].mean()) * np.sqrt(2 / np.pi))

    assert 0.6 * noise < found["backtest"]["mean_absolute_error"] < 2.0 * noise


def test_probabilities_of_conversion_are_calibrated_on_the_weeks_to_come(data: Snapshot, future: Snapshot) -> None:
    """In each fifth of the HCPs outside the known break, the share that converts in the next 4 weeks is near the probability given."""
    whole = ~((data.labels("brand") == "Fabhalta") & (data.labels("region") == "Northeast"))
    probability = fit_conversion_model(data).probability[whole]
    converted = future.weekly["conversions"][104:108, whole].sum(axis=0) > 0

    for part in np.array_split(np.argsort(probability), 5):
        assert probability[part].mean() == pytest.approx(converted[part].mean(), abs=0.075)
    assert probability[converted].mean() - probability[~converted].mean() > 0.12


def test_an_hcp_is_answered_with_its_own_probability(ask: Ask, data: Snapshot) -> None:
    """The id counts however it is written, and the second question finds the model fitted."""
    first = ask("prediction_synthesizer", hcp_id="HCP-00012")
    second = ask("prediction_synthesizer", hcp_id="hcp 12")

    assert first.primary_output["probability"] == pytest.approx(fit_conversion_model(data).probability[11])
    assert second.primary_output == first.primary_output
    assert second.cache_hit
    assert 0.5 < first.confidence < 1.0


@pytest.mark.parametrize(
    ("what", "weeks"),
    [
        ({"time_period": "next 12 weeks"}, 12),
        ({"time_period": "next quarter"}, 13),
        ({"context": {"raw_query": "How much NRx will we see in the next two months?"}}, 9),
        ({"time_period": "next 3 years"}, 26),
        ({"time_period": "last month"}, 8),
        ({}, 8),
    ],
    ids=["weeks", "quarter", "in-the-text", "too-long", "in-the-past", "unnamed"],
)
def test_the_horizon_is_the_one_that_is_named(ask: Ask, what: dict[str, Any], weeks: int) -> None:
    """Eight weeks unless named, 26 at the most."""
    found: dict[str, Any] = dict(ask("prediction_synthesizer", brand="Kisqali", **what).primary_output)

    assert len(found["forecast"]) == found["horizon_weeks"] == weeks


def test_a_rate_is_never_forecast_outside_0_and_1(ask: Ask) -> None:
    """A wide interval of a conversion rate stops at what a rate can be."""
    found: dict[str, Any] = dict(
        ask(
            "prediction_synthesizer", brand="Fabhalta", region="Northeast", kpi="conversion rate", time_period="next 26 weeks"
        ).primary_output
    )

    assert all(0.0 <= week["low"] <= week["value"] <= week["high"] <= 1.0 for week in found["forecast"])


@pytest.mark.parametrize(
    ("what", "error_type", "available"),
    [
        ({"hcp_id": "HCP-99999"}, "unknown_entity", "HCP-02400"),
        ({"hcp_id": "HCP-00000"}, "unknown_entity", "HCP-00001"),
        ({"hcp_id": "Dr. Who"}, "unknown_entity", "HCP-00001"),
        ({"patient_id": "P-1"}, "missing_data", "hcp_id"),
        ({"brand": "Kisqali", "kpi": "adherence"}, "missing_data", "market_share"),
    ],
    ids=["beyond", "zero", "no-number", "patient", "kpi"],
)
def test_nobody_and_nothing_unknown_is_predicted(ask: Ask, what: dict[str, Any], error_type: str, available: str) -> None:
    """The refusal says what there is."""
    with pytest.raises(AgentFailure) as failure:
        ask("prediction_synthesizer", **what)

    assert failure.value.error_type == error_type
    assert available in str(failure.value)
