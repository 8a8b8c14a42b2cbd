"""explainer's parts add up, its examples are computed, and it does not talk about nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.agents.decomposition import decompose, volume_and_share
from service.agents.finding import AgentFailure, Finding
from service.agents.glossary import TERMS
from service.agents.kpi import KPIS, normal_form
from service.agents.sample_data import Snapshot

Ask = Callable[..., Finding]


@pytest.mark.parametrize("kpi", KPIS, ids=lambda kpi: kpi.name)
@pytest.mark.parametrize("dimension", ["brand", "region", "specialty", "setting", "decile band"])
def test_contributions_add_up_to_the_change(data: Snapshot, kpi: Any, dimension: str) -> None:
    """For counts and ratios alike nothing is left over."""
    everyone = np.ones(len(data.hcps), dtype=bool)
    change = decompose(data, everyone, kpi, (78, 91), (91, 104), dimension)

    assert sum(part.contribution for part in change.parts) == pytest.approx(change.total, abs=1e-9)
    assert change.total == pytest.approx(change.after - change.before)


def test_the_true_cause_of_a_drop_is_located(ask: Ask, data: Snapshot) -> None:
    """Fabhalta's conversion fell in the Northeast only: it leads, by its own rate, and its rate is the one that numpy gives."""
    finding = ask("explainer", brand="Fabhalta", kpi="conversion_rate", context={"raw_query": "Why did it drop?"})
    found: dict[str, Any] = dict(finding.primary_output)
    first = found["contributions"]["region"][0]
    mask = (data.labels("brand") == "Fabhalta") & (data.labels("region") == "Northeast")
    after = data.weekly["conversions"][91:, mask].sum() / data.weekly["candidates"][91:, mask].sum()

    assert found["change"] < 0
    assert first["group"] == "Northeast"
    assert first["after"] == pytest.approx(after, abs=1e-4)
    assert abs(first["mix"]) < 0.1 * abs(first["rate"])
    assert first["high"] < 0
    assert finding.confidence > 0.95


def test_the_drop_is_located_without_naming_the_brand(ask: Ask) -> None:
    """Over all brands Fabhalta leads, and over all regions the Northeast."""
    found: dict[str, Any] = dict(ask("explainer", context={"raw_query": "What drove the drop in conversion rate?"}).primary_output)

    assert found["contributions"]["brand"][0]["group"] == "Fabhalta"
    assert found["contributions"]["region"][0]["group"] == "Northeast"


def test_volume_and_share_add_up_to_the_change_of_trx(data: Snapshot) -> None:
    """The second split of TRx is exact too."""
    mask = data.labels("brand") == "Kisqali"
    trx = data.weekly["trx"][:, mask].sum(axis=1)

    assert sum(volume_and_share(data, mask, (78, 91), (91, 104))) == pytest.approx(trx[91:].mean() - trx[78:91].mean())


def test_a_change_within_chance_is_not_explained_away(ask: Ask) -> None:
    """Kisqali's conversion did not change in truth; the answer says that its parts mean nothing."""
    finding = ask("explainer", brand="Kisqali", kpi="conversion_rate", context={"raw_query": "Why did it change?"})

    low, high = dict[str, Any](finding.primary_output)["change_interval"]
    assert low < 0 < high
    assert any("within what chance gives" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_term_is_explained_with_a_number_from_the_data(ask: Ask, term: Any) -> None:
    """Every entry is found by its name, and its example depends on the HCPs that were named."""
    question = {"raw_query": f"What does {term.name} mean?"}
    everywhere = ask("explainer", brand="Kisqali", context=question).primary_output
    south = ask("explainer", brand="Kisqali", region="South", context=question).primary_output

    assert everywhere["term"] == term.name
    assert any(letter.isdigit() for letter in str(everywhere["example"]))
    assert str(everywhere["example"]).partition(": ")[2] != str(south["example"]).partition(": ")[2]


def test_no_alias_belongs_to_two_terms() -> None:
    """Otherwise the second could never be asked for by it."""
    names = [normal_form(name) for term in TERMS for name in (term.name, *term.aliases)]

    assert len(names) == len(set(names))


def test_a_question_about_an_effect_is_not_taken_for_one_about_the_word(ask: Ask) -> None:
    """TRx in a question about Kisqali's calls is what is meant, not what is asked."""
    question = {"raw_query": "What is the effect of rep visits on TRx for Kisqali in the South region?"}

    assert ask("explainer", brand="Kisqali", kpi="trx", context=question).primary_output["kind"] == "change"


def test_earlier_results_are_retold_and_no_surer_than_they_were(ask: Ask) -> None:
    """The numbers stand in the sentences, and the lowest confidence is the explanation's."""
    effect = {"treatment": "calls", "outcome": "trx", "ate": 0.12, "confidence_interval": [0.08, 0.16], "refutation_passed": True}
    gap = {"total_gap": 310, "unit": "TRx per week", "ranked": [{"gap": 250, "brand": "Kisqali", "region": "South"}]}
    results = [
        {"agent_id": "causal_impact", "confidence": 0.87, "result": effect},
        {"agent_id": "gap_analyzer", "result": {"primary_output": gap, "confidence": 0.6}},
    ]

    finding = ask("explainer", context={"agent_results": results})

    assert finding.confidence == 0.6
    assert all(number in finding.evidence[0] for number in ("+0.12", "0.08", "0.16", "passed"))
    assert all(number in finding.evidence[1] for number in ("310", "250", "South"))


def test_results_of_the_wrong_shape_are_passed_over(ask: Ask) -> None:
    """What cannot be read is not retold; with nothing else to go by the explainer says so."""
    shapes: tuple[Any, ...] = ("text", 5, [], [None, 3, "x"], {"agent_id": "a"}, [{"result": "text"}], [{"primary_output": {}}])
    for broken in shapes:
        with pytest.raises(AgentFailure, match="nothing to explain"):
            ask("explainer", context={"agent_results": broken})


@pytest.mark.parametrize("question", ["", "explain the analysis", "hello", "?" * 5000], ids=["empty", "vague", "greeting", "noise"])
def test_nothing_to_explain_is_said(ask: Ask, question: str) -> None:
    """The refusal lists what could be asked."""
    with pytest.raises(AgentFailure, match="nothing to explain") as failure:
        ask("explainer", context={"raw_query": question})

    assert "confidence interval" in str(failure.value)


def test_a_period_without_one_before_it_is_refused(ask: Ask) -> None:
    """Two years of data cannot be compared with the two years before."""
    with pytest.raises(AgentFailure, match="no 104 weeks before"):
        ask("explainer", brand="Kisqali", time_period="last 2 years")
