"""What a question asks beside brand, region and KPI is answered from the data, or the answer says first that they lack it."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.agents.directory import load_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)  # DoWhy 0.14, when it is compiled at its first import
    load_agent("causal_impact")

Ask = Callable[..., Finding]

pytestmark = pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")  # DoWhy 0.14 under pandas 3


def asked(ask: Ask, agent: str, text: str, **entities: Any) -> tuple[dict[str, Any], Finding]:
    """Return an agent's output and finding on a text."""
    finding = ask(agent, context={"raw_query": text}, **entities)
    return dict(finding.primary_output), finding


@pytest.mark.parametrize(
    ("text", "programme", "nearness"),
    [
        ("Did the rep visits raise TRx?", "call_programme", 1.0),
        ("true lift from webinars", "speaker_programme", 0.5),
        ("do reps who run lunch and learns sell more", "speaker_programme", 0.5),
        ("do rep vacancies cost us volume", "call_programme", 0.5),
        ("was it the emails or the competitor", "email_campaign", 0.5),
        ("how much of the fall is the competitor and how much the formulary loss", "call_programme", 0.0),
        ("did the copay card move scripts", "call_programme", 0.0),
    ],
    ids=["own", "near", "nearer", "generic", "one-of-two", "absent", "card"],
)
def test_an_effect_of_something_that_is_not_recorded_is_not_claimed(ask: Ask, text: str, programme: str, nearness: float) -> None:
    """The treatment is the one that was measured, the first sentence says what the data lack, and the confidence shows it."""
    found, finding = asked(ask, "causal_impact", text, brand="Kisqali")

    assert (found["treatment"], found["nearness"]) == (programme, nearness)
    assert ("do not record" in finding.evidence[0]) == (nearness < 1.0)
    assert finding.confidence <= nearness


def test_where_no_cause_is_named_all_programmes_are_estimated(ask: Ask) -> None:
    """What moved TRx is answered with each programme's effect; only the email campaign has none in truth."""
    found, _ = asked(ask, "causal_impact", "What drives TRx?")
    others = found["other_programmes"]

    assert set(others) == {"email_campaign", "speaker_programme", "sample_programme"}
    assert others["email_campaign"]["confidence_interval"][0] < 0 < others["email_campaign"]["confidence_interval"][1]
    assert others["speaker_programme"]["ate"] == pytest.approx(0.40, abs=0.08)


def test_the_effect_is_added_up_for_whoever_asks_how_many(ask: Ask, data: Snapshot) -> None:
    """The total is the effect times the programme's HCPs and weeks; a share has no total."""
    found, finding = asked(ask, "causal_impact", "How many incremental TRx did the speaker programme bring?", brand="Kisqali")
    share, _ = asked(ask, "causal_impact", "What did rep visits do to market share?", brand="Kisqali")

    assert found["total_effect"]["value"] == pytest.approx(found["ate"] * found["n_treated"] * 26)
    assert any("without it" in sentence for sentence in finding.evidence)
    assert share["total_effect"] is None


def test_gaps_are_split_by_what_the_question_names(ask: Ask) -> None:
    """The parts add up to the total gap."""
    found, finding = asked(ask, "gap_analyzer", "Which specialties are below, and is it academic or community?")

    for name in ("by_specialty", "by_setting"):
        assert sum(row["gap"] for row in found[name]) == pytest.approx(found["total_gap"], abs=0.5)
    assert "by specialty" in finding.evidence[0]


def test_single_hcps_are_listed_where_they_are_asked_for(ask: Ask, data: Snapshot) -> None:
    """By the gap that is sure, within the named region and specialty; none where nobody asks."""
    found, _ = asked(ask, "gap_analyzer", "Which nephrology accounts in the West are furthest below?", region="West")
    plain, _ = asked(ask, "gap_analyzer", "What is the gap in the West?", region="West")

    assert found["hcps"]
    assert {(row["region"], row["specialty"]) for row in found["hcps"]} == {("West", "Nephrology")}
    assert "hcps" not in plain


def test_seldom_called_hcps_are_found(ask: Ask, data: Snapshot) -> None:
    """Many candidate patients and few calls, both in thirds of the scope."""
    found, _ = asked(ask, "gap_analyzer", "Who has loads of patients but barely hears from us?", brand="Kisqali")
    calls = data.weekly["calls"][-26:, data.labels("brand") == "Kisqali"].sum(axis=0)

    assert found["seldom_called"]
    assert max(row["calls"] for row in found["seldom_called"]) <= np.quantile(calls, 1 / 3)
    assert sum(found["seldom_called_by_region"].values()) == found["seldom_called_count"]


@pytest.mark.parametrize(
    ("agent", "text", "lacking"),
    [
        ("gap_analyzer", "Where am I behind plan?", "a plan, target or quota"),
        ("gap_analyzer", "Headroom by state", "places below the region"),
        ("gap_analyzer", "On which plans is our pull-through weak?", "payers and their plans"),
        ("gap_analyzer", "Which cardiology groups write too little?", "that specialty"),
        ("drift_monitor", "Is the churn model getting stale?", "a model of that kind"),
        ("drift_monitor", "Have the scores moved?", "logged scores of a model"),
    ],
    ids=["plan", "state", "payer", "specialty", "churn", "scores"],
)
def test_what_the_data_lack_is_said_first_and_costs_confidence(ask: Ask, agent: str, text: str, lacking: str) -> None:
    """The comparison that stands in for it is given, never as the answer itself."""
    found, finding = asked(ask, agent, text)

    assert lacking in found["not_in_data"]
    assert lacking in finding.evidence[0]
    assert finding.confidence <= 0.5


def test_a_budget_plan_that_is_not_asked_for_is_no_plan(ask: Ask) -> None:
    """Only a plan to be compared with is missing."""
    found, _ = asked(ask, "gap_analyzer", "No budget plan please, only where we are below")

    assert found["nearness"] == 1.0


def test_the_models_accuracy_and_the_named_feature_come_first(ask: Ask) -> None:
    """AUC and hit rate before and now, then the feature, even where it has not drifted."""
    found, finding = asked(ask, "drift_monitor", "What is the AUC now, and did the calls drift?")

    assert f"{found['model']['auc_recent']:.3f}" in finding.evidence[0]
    assert finding.evidence[1].startswith("calls (")
    assert 0.5 < found["model"]["auc_before"] < 0.7


def test_health_says_what_it_does_not_measure(ask: Ask) -> None:
    """Response times and jobs are another agent's; asked for the whole, nothing is missing but what could not be read."""
    asked_for, finding = asked(ask, "health_score", "p95 of the scoring endpoint and failed jobs?")
    whole, plain = asked(ask, "health_score", "platform: green or red?")

    assert set(asked_for["asked_but_not_measured"]) >= {"response times", "queues, jobs and pipelines"}
    assert "observability_connector" in finding.evidence[0]
    assert finding.confidence < plain.confidence
    assert whole["asked_and_measured"] == 1.0


def test_hcps_are_ranked_where_the_question_asks_who(ask: Ask, data: Snapshot) -> None:
    """By the chance of a conversion, within brand and specialty, as many as are named."""
    found, _ = asked(ask, "prediction_synthesizer", "Rank the top 7 nephrologists by how likely they are to convert", brand="Fabhalta")

    assert [row["rank"] for row in found["ranked"]] == list(range(1, 8))
    assert {row["specialty"] for row in found["ranked"]} == {"Nephrology"}
    assert found["hcps"] == int(((data.labels("brand") == "Fabhalta") & (data.labels("specialty") == "Nephrology")).sum())


def test_who_stops_is_answered_by_who_may_write_nothing(ask: Ask, data: Snapshot, future: Snapshot) -> None:
    """The chance of no TRx in 8 weeks is calibrated on the weeks to come: about as many write nothing as it says."""
    found, finding = asked(ask, "prediction_synthesizer", "Which docs are about to stop writing?")
    silent = future.weekly["trx"][104:112].sum(axis=0) == 0

    assert found["target"] == "no_trx_within_8_weeks"
    assert abs(found["mean_probability"] * len(silent) - silent.sum()) < 8
    assert any("stands in for it" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize(
    ("text", "error_type", "match"),
    [
        ("Will Dr. Bianchi try Fabhalta?", "unknown_entity", "no doctor 'Dr. Bianchi'"),
        ("Which patients will not come back for their refill?", "missing_data", "no patients"),
        ("Rank the cardiologists by their chance to convert", "unknown_entity", "no specialty 'cardiologists'"),
    ],
    ids=["name", "patients", "specialty"],
)
def test_whom_the_data_do_not_know_is_not_predicted(ask: Ask, text: str, error_type: str, match: str) -> None:
    """A forecast of TRx would be no answer."""
    with pytest.raises(AgentFailure, match=match) as failure:
        asked(ask, "prediction_synthesizer", text)

    assert failure.value.error_type == error_type


def test_a_forecast_answers_for_the_asked_weeks_groups_and_cases(ask: Ask) -> None:
    """A running quarter counts what was seen; each region has its own forecast; low and high case are the interval."""
    found, finding = asked(ask, "prediction_synthesizer", "Q2 TRx for each region, best and worst case", kpi="TRx", time_period="Q2")
    window = found["asked_window"]

    assert window["weeks_seen"] == 11
    assert window["weeks"] == 13
    assert [row["region"] for row in found["by_region"]] == ["Midwest", "Northeast", "South", "West"]
    assert sum(row["value"] for row in found["by_region"]) == pytest.approx(found["forecast"][-1]["value"], rel=0.02)
    assert any("low case" in sentence for sentence in finding.evidence)


def test_a_plan_cannot_be_met_or_missed_in_data_without_one(ask: Ask) -> None:
    """The forecast is given at half its confidence, and the caveat says why."""
    plan, finding = asked(ask, "prediction_synthesizer", "Are we going to make plan?", kpi="TRx")
    plain, other = asked(ask, "prediction_synthesizer", "What will we make?", kpi="TRx")

    assert finding.confidence == pytest.approx(other.confidence / 2)
    assert any("no plan or target" in caveat for caveat in finding.caveats)
    assert plan["forecast"] == plain["forecast"]


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("What does a confidence of 0.62 mean?", "confidence score"),
        ("what is an instrumental variable, used in our Entresto call frequency study", "instrumental variable"),
        ("The bar labelled residual is the largest, help me understand", "waterfall chart"),
        ("Blue line, grey band. In English please.", "band around a line"),
        ("adjusted for what exactly", "adjusted estimate"),
        ("robust up to gamma 1.8, is that good?", "sensitivity analysis"),
    ],
    ids=["confidence", "instrument", "waterfall", "band", "adjusted", "gamma"],
)
def test_terms_are_explained_even_beside_names_that_the_data_lack(ask: Ask, text: str, term: str) -> None:
    """A method needs no data of the brand; that the example is not of it is a caveat."""
    found, finding = asked(ask, "explainer", text, **({"brand": "Entresto"} if "Entresto" in text else {}))

    assert found["term"] == term
    assert ("Entresto" in text) == any("no brand 'Entresto'" in caveat for caveat in finding.caveats)


def test_two_terms_are_compared(ask: Ask) -> None:
    """Both meanings are given where a difference is asked for."""
    found, finding = asked(ask, "explainer", "NBRx vs NRx, what's the difference?", kpi=["NBRx", "NRx"])

    assert {found["term"], *(other["term"] for other in found["compared_with"])} == {"NRx", "NBRx"}
    assert len(finding.evidence) == 3


@pytest.mark.parametrize(
    "text",
    [
        "tl;dr of the Kisqali analysis",
        "How did you arrive at 14 percent for Kisqali?",
        "what the Remibrutinib segmentation write-up is really saying",
    ],
    ids=["summary", "steps", "content"],
)
def test_a_result_that_did_not_come_along_is_not_made_up(ask: Ask, text: str) -> None:
    """A brand in the question is no reason to explain something else about it."""
    with pytest.raises(AgentFailure, match="none came with it"):
        asked(ask, "explainer", text)


def test_a_stand_in_is_not_retold_as_the_answer(ask: Ask) -> None:
    """Who explains an earlier result says what it lacked."""
    found, first = asked(ask, "gap_analyzer", "Where am I behind plan?")

    retold = ask("explainer", context={"agent_results": [{"agent_id": "gap_analyzer", "confidence": first.confidence, "result": found}]})

    assert "do not have a plan, target or quota; instead, the total gap" in retold.evidence[0]


def test_a_measure_that_the_data_lack_is_not_explained_as_a_word_where_its_fall_is_asked_about(ask: Ask) -> None:
    """What NBRx means is no answer to why they fell."""
    with pytest.raises(AgentFailure, match="no KPI 'NBRx'"):
        asked(ask, "explainer", "our NBRx fell off a cliff", kpi="NBRx")
