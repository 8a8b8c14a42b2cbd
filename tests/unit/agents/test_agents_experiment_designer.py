"""experiment_designer plans by textbook numbers, reads what the text gives, and owns up to what it assumes."""

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest

from service.agents.directory import run_agent
from service.agents.experiments.assignment import draw, draw_pairs, order_regions, pair_regions
from service.agents.experiments.looks import looks_inflation, spending_bounds
from service.agents.experiments.numbers import (
    find_baseline,
    find_change,
    find_deadline,
    find_icc,
    find_power,
    find_shares,
    find_weeks,
    plain_numbers,
)
from service.agents.experiments.power import Comparison, rate_effect, wedge_error, wedge_power, wedge_schedule
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot

Ask = Callable[..., Finding]

AGENT = "experiment_designer"


def output(finding: Finding) -> dict[str, Any]:
    """Return the primary output."""
    return dict(finding.primary_output)


def asked(ask: Ask, question: str, **what: Any) -> dict[str, Any]:
    """Ask in words only."""
    return output(ask(AGENT, context={"raw_query": question}, **what))


def test_the_size_for_two_rates_is_the_textbooks() -> None:
    """12 % against 14 % at 80 % power: 4,433 an arm on Cohen's arcsine scale (Fleiss's formula gives 4,437)."""
    found = Comparison(0.05, 0.80, is_rate=True).units_for(rate_effect(0.12, 0.02))

    assert found == 4433


def test_the_size_for_two_means_is_the_textbooks() -> None:
    """Cohen (1988): half a standard deviation needs 64 an arm, a fifth needs 394."""
    comparison = Comparison(0.05, 0.80)

    assert comparison.units_for(0.5) == 64
    assert comparison.units_for(0.2) == 394
    assert comparison.smallest_effect(64) == pytest.approx(0.5, abs=0.002)


def test_clusters_raise_the_size_by_the_design_effect() -> None:
    """20 people a cluster and an ICC of 0.05 nearly double the people: 1.95."""
    comparison = Comparison(0.05, 0.80, cluster_size=20, icc=0.05)

    assert comparison.design_effect == pytest.approx(1.95)
    assert comparison.units_for(0.2) == pytest.approx(394 * 1.95 / 20, abs=2.0)


def test_the_bounds_of_five_looks_are_those_of_lan_and_demets() -> None:
    """The table for alpha 0.05 has 4.877, 3.357, 2.680, 2.290, 2.031; the looks cost 2 to 3 % more units."""
    bounds = spending_bounds(5, 0.05)

    assert bounds == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.001)
    assert spending_bounds(1, 0.05) == pytest.approx([1.960], abs=0.001)
    assert looks_inflation(bounds, 0.05, 0.80) == pytest.approx(1.025, abs=0.005)


def test_the_wedge_has_the_variance_of_generalised_least_squares() -> None:
    """Hussey and Hughes's closed form against the whole covariance matrix."""
    clusters, steps, size, icc = 12, 4, 20.0, 0.05
    treated = wedge_schedule(clusters, steps)
    covariance = np.eye(steps + 1) / size + icc / (1 - icc)
    information = np.zeros((steps + 2, steps + 2))
    for row in treated:
        design = np.column_stack([np.eye(steps + 1), row])
        information += design.T @ np.linalg.solve(covariance, design)

    expected = np.sqrt(np.linalg.inv(information)[-1, -1])

    assert wedge_error(clusters=clusters, steps=steps, cluster_size=size, icc=icc) == pytest.approx(expected)
    assert wedge_power(2.8 * expected, clusters=clusters, steps=steps, cluster_size=size, icc=icc, alpha=0.05) == pytest.approx(
        0.8, abs=0.01
    )
    assert treated[:, 0].sum() == 0
    assert treated[:, -1].sum() == clusters


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "power calc: baseline 12%, hoped for 14%, clusters = reps, icc .05",
            {"baseline": 0.12, "effect": 0.02, "icc": 0.05, "unit": "rep"},
        ),
        ("baseline conv 3%, hoping for 3.6, how many", {"baseline": 0.03, "effect": 0.006}),
        ("from 12 % to 14 % response rate, sample size?", {"baseline": 0.12, "effect": 0.02}),
        ('{"arms": 3, "baseline": 0.08, "mde": 0.015, "power": 0.8} how many per arm', {"baseline": 0.08, "effect": 0.015, "arms": 3}),
        ("36 districts, 8 wks, nbrx primary, power?", {"unit": "district", "weeks": 8.0, "per_arm": 18}),
        ("mde, 6 weeks, 50v50 reps", {"unit": "rep", "per_arm": 50, "weeks": 6.0}),
        ("Calculate the power of a study with 120 clinics per group", {"unit": "clinic", "per_arm": 120}),
        ("A/B subject lines, 2 versions, 5k hcps, enough?", {"unit": "HCP", "per_arm": 2500, "arms": 2}),
        ("four weeks, 1,200 patients, ninety per cent power", {"unit": "patient", "per_arm": 600, "weeks": 4.0}),
    ],
    ids=["cluster-rates", "target", "from-to", "json", "districts", "versus", "per-group", "thousands", "words"],
)
def test_what_the_text_gives_is_in_the_plan(ask: Ask, question: str, expected: dict[str, Any]) -> None:
    """Numbers, units and arms are taken from the text, in whatever form they come."""
    plan = asked(ask, question)
    found = {
        "baseline": (plan["baseline"] or {}).get("value"),
        "effect": plan["effect"]["value"],
        "icc": plan["icc"].get("value"),
        "unit": plan["unit"],
        "weeks": plan["weeks"].get("value"),
        "per_arm": plan["available_per_arm"].get("value"),
        "arms": plan["arms"],
    }

    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_numbers_are_read_in_many_forms() -> None:
    """Thousands, k, words, per cent, points, spans of time, shares, power and deadlines."""
    assert plain_numbers("1,200 docs, 3.5k, Six weeks, 5 per cent, 3 points") == "1200 docs 3500 6 weeks 5% 3 pp"
    assert find_weeks("a three-month pilot".replace("three", "3")) == pytest.approx(13.0)
    assert find_weeks("compared with the last 8 weeks") is None
    assert find_weeks("a 4 day field week") is None
    assert find_shares("5 or 10%") == (0.05, 0.10)
    assert find_shares("a random third of offices") == (pytest.approx(1 / 3),)
    assert find_power("power 90") == 0.9
    assert find_power("80% power") == 0.8
    assert find_icc("icc around 0.04") == 0.04
    assert find_baseline("baseline 250%") is None
    assert find_deadline("by christmas", date(2026, 11, 22)) == ("christmas", 4)
    change = find_change("a 5% lift", None)
    assert change is not None
    assert (change.value, change.relative) == (0.05, True)


def test_baseline_and_spread_are_measured_on_the_data(ask: Ask, data: Snapshot) -> None:
    """TRx of Kisqali over 8 weeks: the data's own mean and spread, and the pre-period takes most of the variance off."""
    plan = asked(ask, "power for 200 doctors per arm, Kisqali TRx, 8 weeks, 5 % lift")
    values = data.weekly["trx"][-8:, data.labels("brand") == "Kisqali"].mean(axis=0)

    assert plan["baseline"] == {"value": pytest.approx(values.mean()), "source": "measured"}
    assert plan["standard_deviation"] == pytest.approx(values.std(ddof=1))
    assert plan["effect"]["value"] == pytest.approx(0.05 * values.mean())
    assert plan["pre_period"]["variance_removed"] > 0.8
    assert plan["pre_period"]["needed_without"] > 5 * plan["needed_per_arm"]


def test_a_plan_holds_in_simulation(ask: Ask, data: Snapshot) -> None:
    """Draw the planned arms from the data 400 times, add the effect: about 80 % of the tests find it, adjusted as planned."""
    plan = asked(ask, "how many doctors per arm for a 5 % lift in Kisqali TRx over 12 weeks")
    inside = np.flatnonzero(data.labels("brand") == "Kisqali")
    after, before = data.weekly["trx"][-12:, inside].mean(axis=0), data.weekly["trx"][-38:-12, inside].mean(axis=0)
    size, rng, found = plan["needed_per_arm"], np.random.default_rng(3), 0
    for _ in range(400):
        rows = rng.choice(len(inside), 2 * size, replace=False)
        treated = np.repeat([0.0, 1.0], size)
        design = np.column_stack([np.ones(2 * size), treated, before[rows]])
        outcome = after[rows] + plan["effect"]["value"] * treated
        inverse = np.linalg.inv(design.T @ design)
        weights = inverse @ design.T @ outcome
        error = np.sqrt(inverse[1, 1] * ((outcome - design @ weights) ** 2).sum() / (2 * size - 3))
        found += abs(weights[1] / error) > 1.97

    assert 0.74 < found / 400 < 0.88


def test_a_draw_is_stratified_balanced_and_repeatable(ask: Ask, make_dispatch: Callable[..., Any]) -> None:
    """The same HCPs come out each time; each stratum gives each arm its share; no covariate is off by more than 0.1."""
    question = "randomize 400 Fabhalta doctors into treatment and control, stratified by decile and region"
    first, second = asked(ask, question), asked(ask, question)
    drawn = first["assignment"]

    assert first == second
    assert drawn["hcps"] == 400
    assert drawn["largest_standardised_difference"] <= 0.1
    assert all(abs(row["control"] - row["test"]) <= 1 for row in drawn["strata"])
    assert len({row["hcp_id"] for row in drawn["listed"]}) == 400
    assert any("seed" in sentence for sentence in ask(AGENT, context={"raw_query": question}).evidence)


def test_matched_pairs_are_alike(data: Snapshot) -> None:
    """Both of a pair share brand, region, setting and decile, and nearly the same recent TRx."""
    everybody = np.ones(len(data.hcps), dtype=bool)
    drawn = draw_pairs(data, everybody, 300, ("control", "test"))
    hcps = data.hcps.set_index("hcp_id")

    assert len(drawn.pairs) == 300
    for pair in drawn.pairs:
        one, other = hcps.loc[pair["control"]], hcps.loc[pair["test"]]
        assert all(one[name] == other[name] for name in ("brand", "region", "setting", "decile"))
        assert float(str(pair["trx_gap"])) < 0.5
    assert drawn.largest_difference < 0.1


def test_uneven_arms_and_too_few_hcps_are_drawn_in_proportion(data: Snapshot) -> None:
    """A holdout of 5 % is 5 % in each stratum; asked for more than there are, all are drawn."""
    everybody = np.ones(len(data.hcps), dtype=bool)
    small = draw(data, everybody, [120, 2280], ("holdout", "test"))
    greedy = draw(data, everybody, [3000, 3000], ("control", "test"))

    assert all(abs(int(str(row["holdout"])) - 0.05 * int(str(row["eligible"]))) <= 1.5 for row in small.strata)
    assert np.bincount(greedy.arm).tolist() == [1200, 1200]


def test_regions_are_ordered_and_paired_by_a_draw(data: Snapshot) -> None:
    """Each region comes once, and the order does not depend on how they are listed."""
    regions = ("South", "West", "Midwest", "Northeast")
    pairs = pair_regions(data, np.ones(len(data.hcps), dtype=bool), regions)

    assert order_regions(regions) == order_regions(regions[::-1])
    assert sorted(order_regions(regions)) == sorted(regions)
    assert sorted(one for pair in pairs for one in pair) == sorted(regions)


@pytest.mark.parametrize(
    ("question", "decision", "design"),
    [
        ("how many docs per arm to detect a 5 % bump", "sample_size", "parallel"),
        ("smallest effect with 80 territories", "smallest_effect", "cluster"),
        ("is six weeks long enough for the Fabhalta pilot", "duration", "parallel"),
        ("power for 36 districts", "power", "cluster"),
        ("should the holdout be 5 or 10 percent", "share", "holdout"),
        ("match doctors and assign a control group on decile", "assignment", "matched"),
        ("stepped wedge or parallel for the regions", "design", "stepped_wedge"),
        ("crossover or parallel for two cadences", "design", "crossover"),
        ("write a test plan for the lunch program", "plan", "parallel"),
        ("reps talk to each other, what now", "plan", "cluster"),
    ],
    ids=["size", "mde", "duration", "power", "share", "match", "wedge", "crossover", "plan", "contamination"],
)
def test_the_decision_is_what_the_question_asks(ask: Ask, question: str, decision: str, design: str) -> None:
    """The plan is always whole; the first sentence answers what was asked."""
    plan = asked(ask, question)

    assert (plan["decision"], plan["design"]) == (decision, design)
    assert plan["needed_per_arm"] is None or plan["needed_per_arm"] >= 2
    assert 0.0 <= plan["power"] <= 1.0


def test_six_weeks_are_judged_with_power_and_build_up(ask: Ask) -> None:
    """Whether doctors need more time is answered from how fast the past programme took effect: at once, in the data."""
    finding = ask(
        AGENT, context={"raw_query": "is six weeks long enough for the Fabhalta pilot or do doctors need more time to change habits"}
    )

    assert finding.evidence[0].startswith("6 weeks")
    assert any("no build-up is seen" in sentence for sentence in finding.evidence)


def test_a_wedge_of_the_regions_has_an_order_and_a_least_p_value(ask: Ask) -> None:
    """Four regions can be ordered in 24 ways: 0.042 is the least p-value; two arms of two regions could not go below 0.33."""
    plan = asked(ask, "Nobody may be denied the card: which order would the regions come in, is a stepped wedge feasible?")

    assert sorted(plan["region_order"]) == ["Midwest", "Northeast", "South", "West"]
    assert plan["stepped_wedge"]["least_p_value"] == pytest.approx(1 / 24)
    assert plan["stepped_wedge"]["steps"] == 4


def test_holdout_shares_are_compared(ask: Ask) -> None:
    """5 % of 2,400 are 120, 10 % are 240; the larger share sees smaller effects."""
    options = asked(ask, "should the holdout be 5 or 10 percent")["holdout_options"]

    assert [row["held_out"] for row in options] == [120, 240]
    assert options[0]["smallest_effect"] > options[1]["smallest_effect"]


def test_a_stopping_rule_is_given_when_it_is_asked_for(ask: Ask) -> None:
    """Looks bring bounds and cost units; without looks there is one analysis."""
    looked = asked(ask, "plan for two Kisqali mailings with stopping rule, 4 looks")
    plain = asked(ask, "plan for two Kisqali mailings")

    assert len(looked["looks"]["bounds"]) == 4
    assert looked["needed_per_arm"] >= plain["needed_per_arm"]
    assert "one analysis" in plain["stopping_rule"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("choose matched control districts", "The data have no districts"),
        ("subject line A vs B, how many", "50 % was taken"),
        ("stepped wedge for Leqvio", "The data have no brand 'Leqvio'"),
        ("400 cardiologists, smallest difference", "The data have no cardiologists"),
        ("sample size, reminder app, 600 patients", "The data have no patients"),
        ("power for NBRx, 40 doctors", "NRx, the nearest"),
        ("as good as a visit? non-inferiority, margin 3 %", "one-sided"),
        ("randomise 5,000 doctors", "more HCPs than the 2,400"),
    ],
    ids=["districts", "open-rate", "brand", "cardiologists", "patients", "nbrx", "non-inferiority", "too-many"],
)
def test_what_the_data_do_not_have_is_a_caveat(ask: Ask, question: str, said: str) -> None:
    """Planning goes on with stand-ins, and says so."""
    brands = {"brand": "Leqvio"} if "Leqvio" in question else {}
    finding = ask(AGENT, context={"raw_query": question}, **brands)

    assert any(said in caveat for caveat in finding.caveats)
    assert finding.confidence < 0.9


def test_confidence_is_the_trust_in_the_inputs(ask: Ask) -> None:
    """All given: 1. Nothing given: only the measured baseline and units count."""
    full = ask(AGENT, context={"raw_query": "power calc: baseline conversion 3%, hoping for 3.6, how many"})
    empty = ask(AGENT)

    assert full.confidence == 1.0
    assert empty.confidence == pytest.approx(2 / 5)


def test_more_units_and_larger_effects_raise_power(ask: Ask) -> None:
    """Power rises with clusters; the needed size falls with the effect; dropout raises enrolment."""
    few, many = (asked(ask, f"power with {count} territories, 8 weeks, 5 % lift in TRx") for count in (10, 60))
    small, large = (asked(ask, f"how many doctors for a {lift} % lift in TRx") for lift in (3, 10))
    lossy = asked(ask, "how many doctors for a 3 % lift in TRx, dropout 20 %")

    assert few["power"] < many["power"]
    assert few["smallest_effect"] > many["smallest_effect"]
    assert small["needed_per_arm"] > 5 * large["needed_per_arm"]
    assert lossy["enrol_per_arm"] == int(np.ceil(lossy["needed_per_arm"] / 0.8))


@pytest.mark.parametrize(
    "question",
    [
        "",
        "?",
        "x" * 10_000,
        "power with 0 doctors, baseline 0 %, icc 0",
        "detect 1000 points with 999999999999 reps for 9999 weeks, icc .99, alpha 0.9, power 0",
        "detect a 0.0001 % lift",
        "1 territory, 1 week",
        "2 hospitals stepped wedge, 1 week",
        "holdout 0 % or 100 %",
        "20 looks, 8 arms, 3 reps",
        "how long? 1 visit a day, baseline 50 %, detect 0.1 points",
        "baseline 99 %, 3 points up",
        "sd 0, diff 4",
        "\x00 {{}} %% ",
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_any_text_gets_a_plan_that_survives_json(make_dispatch: Callable[..., Any], question: str) -> None:
    """Absurd numbers are planned as far as they go; the handoff is the same when it comes back, and twice the same."""
    dispatch = make_dispatch(AGENT, context={"raw_query": question})
    first, second = run_agent(AGENT, dispatch), run_agent(AGENT, dispatch)

    assert first.errors.error_type is None
    assert type(first).model_validate_json(first.model_dump_json()) == first
    assert first.result == second.result
    assert first.artifacts == second.artifacts
