"""heterogeneous_optimizer finds the documented differences between subgroups, and none where there is none."""

import dataclasses
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from service.agents.directory import run_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.kpi import KPIS
from service.agents.sample_data import Snapshot, generate_snapshot
from service.agents.subgroups.analysis import adjust_by_holm
from service.agents.subgroups.model import (
    GroupEffect,
    build_study,
    chances_of_lead,
    check_heterogeneity,
    measure_group,
    measure_signals,
    null_chance,
    shrink,
)
from service.agents.subgroups.ranking import rank_by_effect

Ask = Callable[..., Finding]

AGENT = "heterogeneous_optimizer"
CALL_EFFECT = {"Kisqali": (1.20, 0.60), "Fabhalta": (0.50, 0.50), "Remibrutinib": (0.90, 0.30)}
"""As docs/agents.md has it: (academic, community)."""


def output(finding: Finding) -> dict[str, Any]:
    """Return the primary output."""
    return dict(finding.primary_output)


def asked(ask: Ask, question: str, **what: Any) -> dict[str, Any]:
    """Ask in words only."""
    return output(ask(AGENT, context={"raw_query": question}, **what))


def groups_of(found: dict[str, Any], dimension: str) -> dict[str, dict[str, Any]]:
    """Return a dimension's groups by name."""
    return {one["group"]: one for result in found["dimensions"] if result["dimension"] == dimension for one in result["groups"]}


@pytest.mark.parametrize("brand", CALL_EFFECT)
def test_the_effect_in_each_setting_is_the_documented_one(ask: Ask, brand: str) -> None:
    """Both intervals hold the truth, and a difference is found where there is one: not for Fabhalta."""
    found = asked(ask, "Do calls work better in academic or in community practices?", brand=brand)

    groups = groups_of(found, "setting")
    for setting, truth in zip(("academic", "community"), CALL_EFFECT[brand], strict=True):
        low, high = groups[setting]["confidence_interval"]
        assert low <= truth <= high
    assert found["differs_by"] == ([] if brand == "Fabhalta" else ["setting"])
    assert (found["best_responders"] or {}).get("group") == (None if brand == "Fabhalta" else "academic")


@pytest.mark.parametrize("programme", ["calls", "emails", "samples", "speaker events"])
def test_no_programme_differs_between_regions(ask: Ask, programme: str) -> None:
    """Regions have gaps, but no effect differs between them."""
    found = asked(ask, f"Does the effect of {programme} differ by region?")

    assert found["differs_by"] == []
    assert len(groups_of(found, "region")) == 4


def test_screening_finds_setting_and_brand_and_nothing_else(ask: Ask) -> None:
    """Where no dimension is named all ten are tested, corrected for that; only the two true differences are left."""
    finding = ask(AGENT, context={"raw_query": "Who responds best to rep visits?"})
    found = output(finding)

    assert set(found["differs_by"]) == {"setting", "brand"}
    assert len(found["dimensions"]) == 10
    assert found["best_responders"]["group"] == "academic"
    assert found["crossed"]["dimensions"] == ["brand", "setting"]
    cells = {one["group"]: one["confidence_interval"] for one in found["crossed"]["cells"]}
    for brand, truths in CALL_EFFECT.items():
        for setting, truth in zip(("academic", "community"), truths, strict=True):
            low, high = cells[f"{brand}, {setting}"]
            assert low <= truth <= high
    assert finding.confidence > 0.8


def test_a_ranking_that_is_real_holds_on_unseen_hcps(ask: Ask) -> None:
    """For Kisqali calls the top quarter is the academic one, and gains about twice what the bottom quarter gains."""
    found = asked(ask, "Sort our Kisqali doctors: persuadables, sure things, lost causes for calls")
    ranking = found["ranking"]

    assert ranking["is_real"] is True
    assert ranking["quarters"][-1]["low"] <= 1.20 <= ranking["quarters"][-1]["high"]
    assert ranking["profile"][-1]["share_academic"] > 0.9 > 0.1 > ranking["profile"][0]["share_academic"]
    assert sum(ranking["classes"].values()) == found["overall_effect"]["n"]


def test_a_ranking_of_nothing_does_not_hold(ask: Ask) -> None:
    """Emails do nothing: HCPs cannot be sorted by their response, nobody is persuadable and nobody is harmed."""
    finding = ask(AGENT, context={"raw_query": "persuadables vs lost causes in the email campaign"})
    ranking = output(finding)["ranking"]

    assert ranking["is_real"] is False
    assert ranking["classes"]["persuadables"] == ranking["classes"]["sleeping_dogs"] == 0
    assert any("does not hold on HCPs that the model had not seen" in sentence for sentence in finding.evidence)


def test_two_named_dimensions_are_crossed(ask: Ask) -> None:
    """Asked is where two dimensions meet, so the cells are measured too."""
    found = asked(ask, "Kisqali calls in academic against community practices, by region", brand="Kisqali")

    assert found["asked_dimensions"] == ["setting", "region"]
    assert len(found["crossed"]["cells"]) == 8
    assert sum(one["n"] for one in found["crossed"]["cells"]) == found["overall_effect"]["n"]


def test_two_regions_are_compared_and_one_is_a_filter(ask: Ask) -> None:
    """'South or West' is a comparison, 'in the South' is where to look, 'only in the South' compares it with the rest."""
    both = asked(ask, "Did calls work differently in the South than in the West?")
    one = asked(ask, "Calls by specialty in the South")
    rest = asked(ask, "Do calls work only in the South?")

    assert set(groups_of(both, "region")) == {"South", "West"}
    assert one["scope"].endswith("in the South")
    assert one["asked_dimensions"] == ["specialty"]
    assert len(groups_of(rest, "region")) == 4


def test_specialties_are_tested_within_their_brands(ask: Ask) -> None:
    """Each specialty prescribes one brand; that brands differ must not pass for a difference of specialties."""
    found = asked(ask, "CATE of calls by specialty")

    assert found["dimensions"][0]["test"]["method"] == "Cochran Q within brands"
    assert found["dimensions"][0]["test"]["degrees_of_freedom"] == 3
    assert found["differs_by"] == []


def test_the_specialty_that_is_named_with_another_dimension_is_a_filter(ask: Ask, data: Snapshot) -> None:
    """'Nephrologists by region' looks at nephrologists only."""
    found = asked(ask, "Among nephrologists, does the effect of samples differ by region?")

    assert found["overall_effect"]["n"] == int((data.labels("specialty") == "Nephrology").sum())
    assert found["asked_dimensions"] == ["region"]


@pytest.mark.parametrize(
    ("question", "absent", "nearest"),
    [
        ("Do younger doctors react more to emails?", "age", "digital_affinity"),
        ("Do samples work for women as for men?", "gender", "setting"),
        ("rural or urban: where do calls pay off?", "rural or urban place", "region"),
        ("effect of sampling by payer mix", "insurance or payer", "setting"),
        ("NPs against MDs, speaker dinners", "profession (MD, NP, PA)", "specialty"),
    ],
    ids=["age", "gender", "place", "payer", "profession"],
)
def test_a_dimension_without_data_is_said_to_be_absent(ask: Ask, question: str, absent: str, nearest: str) -> None:
    """The nearest dimension is measured, but the first sentence says that it is not what was asked, and confidence falls."""
    finding = ask(AGENT, context={"raw_query": question})
    found = output(finding)

    assert absent in [one["asked"] for one in found["absent_dimensions"]]
    assert nearest in [one["dimension"] for one in found["dimensions"]]
    assert finding.evidence[0].startswith("The data do not have")
    assert finding.confidence <= 0.5


def test_a_stand_in_is_owned_up_to(ask: Ask) -> None:
    """Webinars are not in the data; speaker events are, and the answer says that it measured these."""
    finding = ask(AGENT, context={"raw_query": "Did the webinar help community docs and backfire at academic centers?"})
    found = output(finding)

    assert (found["treatment"], found["measured_treatment"], found["is_stand_in"]) == ("webinars", "speaker_programme", True)
    assert "webinars" in finding.evidence[0]
    assert any("In no subgroup is the effect clearly below 0" in sentence for sentence in finding.evidence)
    assert finding.confidence < 0.8


def test_the_n_th_call_is_not_what_the_data_tell(ask: Ask) -> None:
    """The programme is measured, and the caveat says how many calls it means."""
    caveats = " ".join(ask(AGENT, context={"raw_query": "For whom is the third call in a month a waste?"}).caveats)

    assert "not that of one further contact" in caveats


def test_an_average_that_the_question_states_is_compared(ask: Ask) -> None:
    """The stated 4 % is held against the interval."""
    finding = ask(AGENT, context={"raw_query": "Overall sampling gave us +4 %. Split it by region."})

    assert any("The +4 % of the question is outside that interval" in sentence for sentence in finding.evidence)


def test_single_deciles_are_taken_where_there_are_hcps_enough(ask: Ask) -> None:
    """Over all brands each decile has enough on both sides of the call programme; for one brand bands are taken."""
    wide = asked(ask, "effect of calls per decile")
    narrow = asked(ask, "effect of calls per decile", brand="Kisqali")

    assert len(groups_of(wide, "decile")) == 10
    assert set(groups_of(narrow, "decile")) <= {"decile 1-3", "decile 4-7", "decile 8-10"}


@pytest.mark.parametrize(
    ("question", "error_type", "said"),
    [
        ("CATE of the copay card by payer", "missing_data", "copay"),
        ("did the TV campaign work better in the West?", "missing_data", "speaker_programme"),
        ("rural vs urban, is the nurse hotline helpful", "missing_data", "nurse hotline"),
        ("who responds to Cosentyx emails", "unknown_entity", "Kisqali"),
        ("do calls work for cardiologists", "unknown_entity", "Nephrology"),
        ("Kisqali calls for nephrologists", "unknown_entity", "Medical Oncology"),
        ("do calls work in the Southeast", "unknown_entity", "South, West"),
    ],
    ids=["copay", "tv", "nurse", "brand", "specialty", "specialty-of-another-brand", "region"],
)
def test_what_the_data_do_not_have_is_refused(ask: Ask, question: str, error_type: str, said: str) -> None:
    """No response is invented for a programme, brand or doctor without data; the message says what there is."""
    with pytest.raises(AgentFailure) as failure:
        ask(AGENT, context={"raw_query": question})

    assert failure.value.error_type == error_type
    assert said in str(failure.value)


@pytest.mark.parametrize(
    "what",
    [{"kpi": "revenue"}, {"brand": "Aspirin"}, {"context": {"treatment": "price cut"}}, {"context": {"outcome": "mortality"}}],
    ids=["kpi", "brand", "treatment", "outcome"],
)
def test_unknown_names_of_the_caller_are_refused(ask: Ask, what: dict[str, Any]) -> None:
    """Entities and context keys are checked as in causal_impact."""
    with pytest.raises(AgentFailure) as failure:
        ask(AGENT, **what)

    assert failure.value.error_type in {"missing_data", "unknown_entity"}


def test_kpis_that_are_treatments_are_not_the_outcome(ask: Ask) -> None:
    """A language layer sends call frequency as a KPI; the outcome stays TRx. NBRx are read as NRx, and that is said."""
    frequency = ask(AGENT, kpi="call_frequency", context={"raw_query": "CATE of call frequency by region"})
    new = ask(AGENT, kpi="NBRx", context={"raw_query": "effect of calls on NBRx by region"})

    assert output(frequency)["measured_outcome"] == "trx"
    assert output(new)["measured_outcome"] == "nrx"
    assert any("NBRx" in caveat for caveat in new.caveats)


def test_a_programme_that_nobody_is_in_is_refused(ask: Ask, data: Snapshot) -> None:
    """Too few HCPs on one side is said with the numbers."""
    nobody = dataclasses.replace(data, hcps=data.hcps.assign(call_programme=0))

    with pytest.raises(AgentFailure, match="0 in the targeted call programme and 800 outside it") as failure:
        ask(AGENT, on=nobody, brand="Kisqali")

    assert failure.value.error_type == "insufficient_data"


def test_groups_that_are_too_small_are_left_out(ask: Ask, data: Snapshot) -> None:
    """A setting with a handful of HCPs is named, not measured; a second dimension still is."""
    setting = np.where(np.arange(len(data.hcps)) % 200 == 0, "academic", "community")
    tiny = dataclasses.replace(data, hcps=data.hcps.assign(setting=setting))

    finding = ask(AGENT, on=tiny, context={"raw_query": "calls by setting and region"})

    assert [one["dimension"] for one in output(finding)["dimensions"]] == ["region"]
    assert any("No test by practice setting" in caveat for caveat in finding.caveats)
    with pytest.raises(AgentFailure, match="cannot be split by practice setting"):
        ask(AGENT, on=tiny, context={"raw_query": "calls by setting"})


def test_little_time_means_fewer_halves_and_says_so(ask: Ask) -> None:
    """The latency limit buys fewer random halves, never a silent cut."""
    hurried = ask(AGENT, context={"raw_query": "who responds best"}, max_latency_ms=400)

    assert output(hurried)["ranking"]["splits"] == 2
    assert any("Time was short: 2 instead of 10" in caveat for caveat in hurried.caveats)


@pytest.mark.parametrize("question", ["", "?", "a" * 10_000, "vs vs vs \x00 %%% 9999999 %"], ids=["empty", "mark", "long", "noise"])
def test_any_text_gets_an_answer_that_survives_json(make_dispatch: Callable[..., Any], question: str) -> None:
    """Nothing named means all is screened; the handoff is the same when it comes back from JSON, and twice the same."""
    dispatch = make_dispatch(AGENT, context={"raw_query": question}, max_latency_ms=400)
    first, second = run_agent(AGENT, dispatch), run_agent(AGENT, dispatch)

    assert first.execution.status == "success"
    assert type(first).model_validate_json(first.model_dump_json()) == first
    assert first.result == second.result
    assert first.artifacts == second.artifacts


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Over 24 intervals of other draws about 95 % hold the truth; fewer than 19 would happen once in 2,000."""
    hits = 0
    for seed in range(4):
        data = generate_snapshot(today=date(2026, 6, 17), seed=seed)
        for brand, truths in CALL_EFFECT.items():
            study = build_study(data, data.labels("brand") == brand, "call_programme", KPIS[0])
            signals, setting = measure_signals(study), data.labels("setting")[study.rows]
            for name, truth in zip(("academic", "community"), truths, strict=True):
                effect = measure_group(study, signals, setting == name, name)
                hits += effect.low <= truth <= effect.high

    assert hits >= 19


def test_the_ranking_of_a_uniform_effect_is_not_real() -> None:
    """Fabhalta's effect is the same for all; of four other draws none may find a ranking."""
    for seed in range(4):
        data = generate_snapshot(today=date(2026, 6, 17), seed=seed)
        study = build_study(data, data.labels("brand") == "Fabhalta", "call_programme", KPIS[0])

        assert not rank_by_effect(data, study, splits=4).is_real


def test_p_values_of_several_tests_are_adjusted_by_holm() -> None:
    """As statsmodels does it, whatever their order, with ties and with what would be above 1."""
    for p_values in ([0.01, 0.04, 0.03, 0.005, 0.5], [0.2, 0.2, 0.001], [0.9, 0.8], [0.03]):
        assert adjust_by_holm(np.array(p_values)) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_shrinkage_pulls_noise_together_and_leaves_real_spread() -> None:
    """Equal effects within errors become one; effects far apart stay."""
    noise = [GroupEffect("a", 0.50, 0.10, 100, 50, 4.0), GroupEffect("b", 0.55, 0.10, 100, 50, 4.0)]
    spread = [GroupEffect("a", 0.20, 0.05, 100, 50, 4.0), GroupEffect("b", 1.20, 0.05, 100, 50, 4.0)]

    assert np.ptp(shrink(noise)) == pytest.approx(0.0, abs=1e-9)
    assert np.ptp(shrink(spread)) > 0.95
    assert chances_of_lead(spread)[0] == [0.0, 1.0]
    assert check_heterogeneity([spread]).p_value < 1e-9
    assert check_heterogeneity([noise]).i_squared == 0.0


def test_a_p_value_just_below_five_per_cent_is_weak_evidence() -> None:
    """The bound of Sellke, Bayarri and Berger: 0.05 leaves at least 29 % for no difference, 0.001 less than 2 %."""
    assert null_chance(0.05) == pytest.approx(0.289, abs=0.001)
    assert null_chance(0.001) < 0.02
    assert null_chance(0.0) == 0.0
