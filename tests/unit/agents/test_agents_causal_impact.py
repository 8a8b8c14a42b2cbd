"""causal_impact finds the documented effects where a plain difference is wrong."""

import dataclasses
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import numpy as np
import pytest

from service.agents.finding import AgentFailure, Finding
from service.agents.kpi import KPIS
from service.agents.sample_data import Snapshot, generate_snapshot

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)  # DoWhy 0.14, when it is compiled at its first import
    from service.agents.causal_model import Effect, Refutation, Study, study_frame

Ask = Callable[..., Finding]

pytestmark = pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")  # DoWhy 0.14 under pandas 3

CALL_EFFECT = {"Kisqali": (1.20, 0.60), "Fabhalta": (0.50, 0.50), "Remibrutinib": (0.90, 0.30)}
"""As docs/agents.md has it: (academic, community)."""


def true_effect(data: Snapshot, brand: str) -> float:
    """Return the call programme's average effect over the brand's HCPs."""
    academic = data.labels("setting")[data.labels("brand") == brand] == "academic"
    return float(np.where(academic, *CALL_EFFECT[brand]).mean())


def output(finding: Finding) -> dict[str, Any]:
    """Return the primary output."""
    return dict(finding.primary_output)


@pytest.mark.parametrize("brand", CALL_EFFECT)
def test_the_interval_of_the_call_programme_holds_the_truth_and_the_naive_difference_does_not(ask: Ask, data: Snapshot, brand: str) -> None:
    """Adjustment turns a difference that is off by more than 1 TRx into an interval around the true effect."""
    found = output(ask("causal_impact", brand=brand, context={"treatment": "call_programme", "outcome": "trx"}))
    truth = true_effect(data, brand)

    low, high = found["confidence_interval"]
    assert low <= truth <= high
    assert high - low < 0.25
    assert found["naive_difference"] - truth > 1.0
    assert found["refutation_passed"] is True
    assert found["p_value"] < 0.001


def test_the_effect_on_conversion_is_found(ask: Ask) -> None:
    """The contract's own example: engagement raises the conversion rate, by 8 percentage points in the data."""
    context = {"treatment": "hcp_engagement_increase", "outcome": "patient_conversion"}
    finding = ask("causal_impact", brand="Kisqali", kpi="conversion_rate", context=context)
    found = output(finding)

    low, high = found["confidence_interval"]
    assert low <= 0.08 <= high
    assert (found["treatment"], found["outcome"]) == ("hcp_engagement_increase", "patient_conversion")
    assert (found["measured_treatment"], found["measured_outcome"]) == ("call_programme", "conversion_rate")
    assert finding.confidence > 0.8


def test_a_programme_without_effect_is_found_to_have_none(ask: Ask) -> None:
    """Emails do nothing in truth; the naive difference says +0.9 TRx, because they go to digital HCPs who write more."""
    finding = ask("causal_impact", context={"raw_query": "Did the email campaign raise TRx?"})
    found = output(finding)

    low, high = found["confidence_interval"]
    assert low <= 0.0 <= high
    assert found["naive_difference"] > 0.5
    assert "did not measurably change" in finding.evidence[0]
    assert finding.confidence > 0.8


def test_the_effect_differs_between_settings_only_where_it_does_in_truth(ask: Ask) -> None:
    """Kisqali's academic HCPs gain twice as much; Fabhalta's gain the same."""
    kisqali = output(ask("causal_impact", brand="Kisqali", kpi="trx"))["effect_by_setting"]
    fabhalta = ask("causal_impact", brand="Fabhalta", kpi="trx")

    for setting, truth in zip(("academic", "community"), CALL_EFFECT["Kisqali"], strict=True):
        low, high = kisqali[setting]["confidence_interval"]
        assert low <= truth <= high
    assert kisqali["academic"]["confidence_interval"][0] > kisqali["community"]["confidence_interval"][1]
    assert any("within what chance gives" in sentence for sentence in fabhalta.evidence)


def test_the_estimate_is_that_of_ordinary_least_squares(ask: Ask, data: Snapshot) -> None:
    """An independent regression by numpy gives the same number."""
    mask = (data.labels("brand") == "Kisqali") & (data.labels("region") == "South")
    columns = [
        np.ones(int(mask.sum())),
        data.column("call_programme")[mask],
        data.weekly["trx"][26:78, mask].mean(axis=0),
        *(data.column(name)[mask] for name in ("decile", "potential", "digital_affinity")),
        (data.labels("setting")[mask] == "academic").astype(float),
    ]
    outcome = data.weekly["trx"][78:, mask].mean(axis=0)
    expected = np.linalg.lstsq(np.column_stack(columns), outcome, rcond=None)[0][1]

    found = output(ask("causal_impact", brand="Kisqali", region="South", kpi="trx"))

    assert found["ate"] == pytest.approx(expected, rel=1e-6)
    assert found["n"] == int(mask.sum())


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Over 24 intervals of other draws about 95 % hold the truth; fewer than 19 would happen once in 2,000."""
    hits = 0
    for seed in range(8):
        data = generate_snapshot(today=date(2026, 6, 17), seed=seed)
        for brand in CALL_EFFECT:
            effect = Study(study_frame(data, data.labels("brand") == brand, "call_programme", KPIS[0])).effect()
            hits += effect.low <= true_effect(data, brand) <= effect.high

    assert hits >= 19


@pytest.mark.parametrize(
    ("placebo_effect", "placebo_p_value", "common_cause_effect", "passed"),
    [
        (0.01, 0.40, 0.81, True),
        (0.02, 0.01, 0.81, True),
        (0.30, 0.01, 0.81, False),
        (0.01, 0.40, 0.60, False),
        (0.01, float("nan"), 0.81, True),
        (0.30, float("nan"), 0.81, False),
    ],
    ids=["both-pass", "placebo-tiny", "placebo-effect", "unstable", "p-unknown-tiny", "p-unknown-effect"],
)
def test_an_estimate_stands_only_when_both_refutations_leave_it(
    placebo_effect: float, placebo_p_value: float, common_cause_effect: float, passed: bool
) -> None:
    """A placebo with an effect, or a random cause that moves the estimate by more than its error, refutes it."""
    effect = Effect(0.80, 0.70, 0.90, 0.001, 3.0, 2.8, 3.2, size=800, treated=400)

    assert Refutation(effect, placebo_effect, placebo_p_value, common_cause_effect, simulations=20).passed is passed


def test_little_time_means_fewer_simulations_and_says_so(ask: Ask) -> None:
    """The latency limit buys fewer runs of the refutations, never a silent cut."""
    hurried = ask("causal_impact", brand="Kisqali", kpi="trx", max_latency_ms=200)
    patient = ask("causal_impact", brand="Kisqali", kpi="trx")

    assert any("4 instead of 20 runs" in caveat for caveat in hurried.caveats)
    assert not any("Time was short" in caveat for caveat in patient.caveats)
    assert output(hurried)["ate"] == output(patient)["ate"]


def test_a_kpi_that_is_the_treatment_is_not_taken_for_the_outcome(ask: Ask) -> None:
    """A language layer may call engagement and calls KPIs; asked is what they do to conversion."""
    question = {"raw_query": "What does HCP engagement do to conversion?"}
    found = output(ask("causal_impact", kpi=["engagement", "call_volume", "conversion_rate"], context=question))

    assert (found["measured_treatment"], found["measured_outcome"]) == ("call_programme", "conversion_rate")


def test_threads_do_not_disturb_each_other(ask: Ask) -> None:
    """The refutations draw random numbers; asked at the same time, they draw the same as alone."""
    alone = ask("causal_impact", brand="Kisqali", kpi="trx", max_latency_ms=500)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda _: ask("causal_impact", brand="Kisqali", kpi="trx", max_latency_ms=500), range(3)))

    assert all(one.evidence == alone.evidence for one in together)


def test_a_programme_that_nobody_is_in_has_no_effect_to_estimate(ask: Ask, data: Snapshot) -> None:
    """Too few HCPs on one side is said, with the numbers, before a model is fitted."""
    nobody = dataclasses.replace(data, hcps=data.hcps.assign(call_programme=0))

    with pytest.raises(AgentFailure, match="0 in the targeted call programme and 800 outside it") as failure:
        ask("causal_impact", on=nobody, brand="Kisqali", kpi="trx")

    assert failure.value.error_type == "insufficient_data"


def test_what_was_assumed_is_a_caveat(ask: Ask) -> None:
    """Brand, region, treatment and outcome that nobody named are all owned up to."""
    caveats = " ".join(ask("causal_impact").caveats)

    for word in ("No brand", "No region", "No treatment", "No outcome"):
        assert word in caveats


@pytest.mark.parametrize(
    ("what", "error_type", "available"),
    [
        ({"brand": "Aspirin"}, "unknown_entity", "Fabhalta"),
        ({"region": "Bavaria"}, "unknown_entity", "Midwest"),
        ({"kpi": "revenue"}, "missing_data", "conversion_rate"),
        ({"context": {"treatment": "price cut"}}, "missing_data", "speaker_programme"),
        ({"context": {"outcome": "mortality"}}, "missing_data", "trx"),
        ({"context": {"outcome": "emails"}}, "missing_data", "trx"),
    ],
    ids=["brand", "region", "kpi", "treatment", "outcome", "not-an-outcome"],
)
def test_what_the_data_do_not_have_is_refused_with_what_they_have(ask: Ask, what: dict[str, Any], error_type: str, available: str) -> None:
    """No effect is invented for a name that is not in the data."""
    with pytest.raises(AgentFailure) as failure:
        ask("causal_impact", **what)

    assert failure.value.error_type == error_type
    assert available in str(failure.value)
