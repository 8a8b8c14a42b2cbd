"""resource_optimizer finds the documented response curves, and its splits are the best ones under the limits that the text names."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from service.agents import directory, sample_data, truth
from service.agents.allocation import channel_truth as true
from service.agents.allocation.channel_data import TIER_CHANNELS, generate_channel_data, load_channel_data
from service.agents.allocation.curves import Curves, FittedLines, fit_lines
from service.agents.allocation.split import Bound, Problem, allocate
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus

Ask = Callable[..., Finding]
NAMES = ("Northeast", "Midwest", "South", "West", "Kisqali", "Fabhalta", "Remibrutinib")


def optimize(ask: Ask, text: str, **entities: Any) -> tuple[dict[str, Any], Finding]:
    """Ask a question; return the output and the finding."""
    finding = ask("resource_optimizer", context={"raw_query": text}, **entities)
    return dict(finding.primary_output), finding


def split_of(output: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return today's and the recommended amount of each group."""
    return {row["group"]: (row["current"], row["recommended"]) for row in output["groups"]}


def true_curves(lines: FittedLines, by: str) -> Curves:
    """Return the documented curves of some lines."""
    top, half = [], []
    for brand, group, channel in zip(lines.brand.tolist(), lines.group.tolist(), lines.channel.tolist(), strict=True):
        at = true.CHANNELS.index(channel)
        if by == "tier":
            tier = true.TIERS.index(group)
            weights = (true.TIER_TOP[tier], true.TIER_HALF[tier])
        else:
            weights = (true.REGION_WEIGHT[brand][truth.REGIONS.index(group)],) * 2
        top.append(true.TOP[brand][at] * weights[0])
        half.append(true.HALF[brand][at] * weights[1])
    return Curves(np.array(top), np.array(half), np.array([true.SHAPE[channel] for channel in lines.channel.tolist()]))


def spend_of(output: dict[str, Any], column: str = "recommended_k_per_week") -> np.ndarray:
    """Return one column of the lines as an array, in the order of the fitted lines."""
    return np.array([row[column] for row in output["lines"]])


def test_the_data_are_the_same_in_every_draw_and_hold_every_line() -> None:
    """65 weeks of 60 lines by region and 36 by tier; another seed gives other noise."""
    data, again, other = load_channel_data(), generate_channel_data(), generate_channel_data(seed=1)

    assert len(data.by_region) == 65 * 3 * 4 * 5
    assert len(data.by_tier) == 65 * 3 * 3 * len(TIER_CHANNELS)
    assert data.by_region.equals(again.by_region)
    assert not data.by_region["incremental_trx"].equals(other.by_region["incremental_trx"])


@pytest.mark.parametrize("by", ["region", "tier"])
def test_the_fit_finds_the_true_curves(by: str) -> None:
    """At today's spending at least 85 % of the 95 % intervals hold the true return and the true marginal return."""
    lines = fit_lines(by)
    known = true_curves(lines, by)

    for measure in (Curves.value, Curves.marginal):
        low, high = np.percentile(measure(lines.replicates, lines.current), [2.5, 97.5], axis=0)
        exact = measure(known, lines.current)
        assert np.mean((low <= exact) & (exact <= high)) >= 0.85
    assert lines.curves.value(lines.current).sum() == pytest.approx(known.value(lines.current).sum(), rel=0.02)


def test_shapes_of_the_channels_are_found() -> None:
    """Speakers need a critical mass, samples do not: the fitted shapes lie within 3 standard errors of the truth."""
    lines = fit_lines("region")

    for channel, shape in true.SHAPE.items():
        at = int(np.flatnonzero(lines.channel == channel)[0])
        assert abs(lines.curves.shape[at] - shape) < 3 * lines.replicates.shape[:, at].std()


@pytest.mark.parametrize("total", [50.0, 120.0, 300.0, 800.0, 1500.0], ids=str)
def test_no_other_optimizer_finds_a_better_split(total: float) -> None:
    """SLSQP from ten starts gets no more than dynamic programming with water-filling, and the total is kept."""
    lines = fit_lines("region")
    curves, size = lines.curves, len(lines.current)
    found = allocate(Problem(curves, np.ones(size), np.zeros(size), lines.largest_tried, total))
    rng = np.random.default_rng(0)
    best = 0.0
    for _ in range(10):
        start = lines.current * rng.uniform(0.05, 2.0, size)
        start *= min(1.0, total / start.sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SLSQP steps over its own bounds and says so
            other = minimize(
                lambda spend: -curves.value(spend).sum(),
                start,
                jac=lambda spend: -curves.marginal(spend),
                bounds=list(zip(np.zeros(size), lines.largest_tried, strict=True)),
                constraints=[{"type": "ineq", "fun": lambda spend: total - spend.sum(), "jac": lambda spend: -np.ones(size)}],
                method="SLSQP",
                options={"maxiter": 200},
            )
        if other.x.sum() <= total * (1 + 1e-6):
            best = max(best, -float(other.fun))

    assert found.sum() == pytest.approx(total, rel=1e-6)
    assert curves.value(found).sum() >= best - 1e-4 * best


def test_the_next_dollar_returns_the_same_in_every_line_that_can_move() -> None:
    """The condition of an optimum: equal marginal returns inside the limits."""
    lines = fit_lines("region")
    size = len(lines.current)
    spend = allocate(Problem(lines.curves, np.ones(size), np.zeros(size), lines.largest_tried, float(lines.current.sum())))
    inside = (spend > 1e-6) & (spend < lines.largest_tried - 1e-6)

    marginal = lines.curves.marginal(spend)[inside]

    assert np.ptp(marginal) < 1e-6 * marginal.mean()
    assert (lines.curves.marginal(spend)[spend >= lines.largest_tried - 1e-6] >= marginal.mean() - 1e-6).all()


def test_whole_units_are_split_as_the_best_of_all_splits() -> None:
    """Seven units over three S-shaped lines: no other of the 36 splits is better."""
    curves = Curves(np.array([10.0, 8.0, 6.0]), np.array([2.0, 1.0, 4.0]), np.array([1.6, 1.2, 2.0]))
    found = allocate(Problem(curves, np.ones(3), np.zeros(3), np.full(3, 7.0), 7.0, unit=1.0))
    every = [np.array([a, b, 7 - a - b], dtype=float) for a in range(8) for b in range(8 - a)]

    assert curves.value(found).sum() == pytest.approx(max(curves.value(one).sum() for one in every))
    assert found == pytest.approx(found.round())


def test_bounds_on_groups_of_lines_are_kept() -> None:
    """At least 60 for e-mails, at most 300 for calls; what bounds cannot keep is an error."""
    lines = fit_lines("region")
    size = len(lines.current)
    bounds = (Bound(lines.channel == "emails", 60.0, np.inf), Bound(lines.channel == "calls", 0.0, 300.0))
    problem = Problem(lines.curves, np.ones(size), np.zeros(size), lines.largest_tried, 790.0, bounds)
    spend = allocate(problem)

    assert spend[lines.channel == "emails"].sum() == pytest.approx(60.0, abs=1e-6)
    assert spend[lines.channel == "calls"].sum() == pytest.approx(300.0, abs=1e-6)
    assert spend.sum() == pytest.approx(790.0, abs=1e-4)
    impossible = (Bound(lines.channel == "emails", 5000.0, np.inf),)
    with pytest.raises(ValueError, match="no split keeps all limits"):
        allocate(Problem(lines.curves, np.ones(size), np.zeros(size), lines.largest_tried, 790.0, impossible))


def test_a_budget_is_split_over_the_named_channels_only(ask: Ask) -> None:
    """2.4M over 13 weeks for Fabhalta's digital, speaker and samples: all of it, and no calls."""
    output, finding = optimize(ask, "I have 2.4M for Q4, how do I divide it over digital, speaker programs and samples", brand="Fabhalta")
    weekly = spend_of(output)

    assert set(split_of(output)) == {"emails", "paid_search", "speaker", "samples"}
    assert {row["brand"] for row in output["lines"]} == {"Fabhalta"}
    assert weekly.sum() * 13 == pytest.approx(2400.0, rel=1e-3)
    assert output["weeks"] == 13
    assert any("digital" in caveat for caveat in finding.caveats)


def test_today_s_money_is_better_split_in_truth_too(ask: Ask) -> None:
    """Judged by the documented curves the recommended split beats today's by what the interval says."""
    output, finding = optimize(ask, "best channel mix, total stays flat")
    known = true_curves(fit_lines("region"), "region")
    gain = output["weeks"] * float(known.value(spend_of(output)).sum() - known.value(spend_of(output, "current_k_per_week")).sum())
    low, high = output["gain"]["interval"]

    assert output["total"]["recommended"] == pytest.approx(output["total"]["current"], rel=1e-6)
    assert low - 0.25 * (high - low) <= gain <= high + 0.25 * (high - low)
    assert output["gain"]["share_of_replicates_better"] > 0.99
    assert 0.8 < finding.confidence < 1.0
    assert split_of(output)["emails"][1] < split_of(output)["emails"][0]
    assert split_of(output)["speaker"][1] > split_of(output)["speaker"][0]


def test_regions_get_near_their_documented_weights(ask: Ask) -> None:
    """Within one brand and channel the best split over regions is by the documented weights."""
    output, _ = optimize(ask, "best deployment of the 120 reps over the regions", brand="Kisqali")
    split = split_of(output)

    assert sum(after for _, after in split.values()) == pytest.approx(120.0)
    for region, weight in zip(truth.REGIONS, true.REGION_WEIGHT["Kisqali"], strict=True):
        assert split[region][1] == pytest.approx(120 * weight, abs=4.0)
        assert split[region][1] == pytest.approx(round(split[region][1]))


def test_a_cut_touches_nothing_upwards_and_starts_where_the_last_dollar_brings_least(ask: Ask) -> None:
    """15 % less: no line rises, and e-mails lose the largest part."""
    output, finding = optimize(ask, "cut 15% from promo, where do I take it")
    before, after = spend_of(output, "current_k_per_week"), spend_of(output)
    parts = {name: change[1] / change[0] for name, change in split_of(output).items()}

    assert (after <= before + 1e-6).all()
    assert after.sum() == pytest.approx(0.85 * before.sum(), rel=1e-4)
    assert output["cut_first"][0]["group"] == min(parts, key=lambda name: parts[name]) == "emails"
    assert finding.evidence[0].startswith("A cut of $1.54M")
    assert output["expected_return"]["recommended"] > output["expected_return"]["current_split_same_total"]


def test_an_addition_takes_nothing_away(ask: Ask) -> None:
    """Another 1.2M: no line falls."""
    output, _ = optimize(ask, "Finance offered an additional 1.2 million for H2, what should it go into")

    assert (spend_of(output) >= spend_of(output, "current_k_per_week") - 1e-6).all()
    assert output["total"]["recommended"] - output["total"]["current"] == pytest.approx(1200.0, rel=1e-4)


def test_whole_events_are_given(ask: Ask) -> None:
    """40 speaker slots: whole numbers in every region, 40 in all."""
    output, _ = optimize(ask, "distribution of the 40 speaker slots over the regions for the quarter")
    after = [change[1] for change in split_of(output).values()]

    assert sum(after) == pytest.approx(40.0)
    assert after == pytest.approx([round(one) for one in after])


def test_visits_move_from_the_low_tier_to_the_high_one(ask: Ask) -> None:
    """Tier C gets fewer visits an HCP, tier A more; the truth has tier C at a tenth of the return."""
    output, finding = optimize(ask, "What number of visits per tier gets us the most NRx with the headcount we've got?")
    rows = {row["group"]: row for row in output["groups"]}

    assert output["objective"] == "NRx"
    assert rows["C"]["recommended_per_hcp_month"] < 0.6 * rows["C"]["current_per_hcp_month"]
    assert rows["A"]["recommended_per_hcp_month"] > 1.2 * rows["A"]["current_per_hcp_month"]
    assert any(sentence.startswith("Per HCP and month") for sentence in finding.evidence)


def test_limits_on_single_channels_are_kept(ask: Ask) -> None:
    """At least 1M for e-mails, at most 20 % for calls, samples untouched, in one sentence each."""
    text = "split 9m over the quarter, at least 1m for email, at most 20% for calls, keep samples untouched"
    output, finding = optimize(ask, text)
    split = split_of(output)

    assert output["total"]["recommended"] == pytest.approx(9000.0, rel=1e-3)
    assert split["emails"][1] >= 1000.0 - 1.0
    assert split["calls"][1] <= 1800.0 + 1.0
    assert split["samples"][1] == pytest.approx(split["samples"][0], rel=1e-6)
    assert any("emails gets at least 1m" in caveat for caveat in finding.caveats)


def test_profit_leaves_money_that_does_not_pay(ask: Ask) -> None:
    """With a cap and ROI as the aim, no line is paid more than it brings, and the rest is not placed."""
    output, finding = optimize(ask, "marginal ROI curves by channel, total capped at $11.5M, return spend vector")

    assert output["total"]["not_placed"] > 1000.0
    moving = [
        row
        for row in output["lines"]
        if row["lowest_k_per_week"] + 0.001 < row["recommended_k_per_week"] < row["highest_k_per_week"] - 0.001
    ]
    assert [row["marginal_return"] for row in moving] == pytest.approx([1.0] * len(moving), abs=0.01)
    assert any("not placed" in caveat for caveat in finding.caveats)
    assert {table["title"] for table in finding.tables} >= {"Response curves"}


def test_the_switch_between_two_channels_is_where_their_next_dollars_meet(ask: Ask) -> None:
    """Paid search up to the point at which its marginal return is what speakers return today: near the documented one."""
    output, _ = optimize(ask, "At what weekly spend do I stop adding to paid search and put the next dollar into peer-to-peer?")
    found = next(one for one in output["switch_points"] if one["from"] == "paid_search")
    lines = fit_lines("region")
    known = true_curves(lines, "region")
    search, speaker = lines.channel == "paid_search", lines.channel == "speaker"
    target = np.average(known.part(speaker).marginal(lines.current[speaker]), weights=lines.current[speaker])
    spend = lines.current[search] * found["k_per_week"] / lines.current[search].sum()

    assert np.average(known.part(search).marginal(spend), weights=spend) == pytest.approx(target, rel=0.12)


@pytest.mark.parametrize(
    ("text", "entities", "error", "message"),
    [
        ("split our Leqvio money", {"brand": "Leqvio"}, "unknown_entity", "no brand 'Leqvio'"),
        ("split the money", {"region": "Southeast"}, "unknown_entity", "no region 'Southeast'"),
        ("our 12 nurse educators do 25 visits a week each, divide them", {}, "missing_data", "no 'nurse educators'"),
        ("put the MSLs where they count", {}, "missing_data", "no 'msls'"),
        ("print or congress, which one", {}, "missing_data", "'print' and 'congress'"),
        ("cut 900m from promo", {}, "infeasible_limits", "more than the"),
        ("split 1m over the quarter, at least 3m for email", {}, "infeasible_limits", "no split keeps all limits"),
    ],
    ids=["brand", "region", "educators", "msls", "channels", "cut", "limit"],
)
def test_what_the_data_cannot_tell_is_refused(ask: Ask, text: str, entities: dict[str, str], error: str, message: str) -> None:
    """The message says what there is; nothing is invented."""
    with pytest.raises(AgentFailure, match=message) as failure:
        optimize(ask, text, **entities)

    assert failure.value.error_type == error


@pytest.mark.parametrize(
    ("text", "caveat"),
    [
        ("should money go out of print into email, total stays flat", "nothing on 'print'"),
        ("I've got 9 reps and 14 counties. Who goes where?", "no 'counties'"),
        ("how many lunch-and-learns for each of the five regions, sixty in total", "speaks of 5 regions; the data have 4"),
        ("best channel mix for adherence", "Nothing measures 'adherence'"),
        ("remi channel mix, 5 mio for the year", "read as Remibrutinib"),
        ("best use of the 600 calls my team still has this month", "only your part"),
        ("split a billion dollars over the channels this quarter: $1bn", "not placed"),
    ],
    ids=["print", "counties", "regions", "adherence", "remi", "part", "billion"],
)
def test_what_is_only_nearly_answered_is_said(ask: Ask, text: str, caveat: str) -> None:
    """The nearest answer that the data support comes with a plain caveat."""
    _, finding = optimize(ask, text)

    assert any(caveat in one for one in finding.caveats)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "split",
        "🙂 " * 50,
        "0 dollars",
        "cut 100% of promo",
        "cut 250% of promo",
        "$0.000001",
        "-5 reps",
        "999999999999999999 calls",
        "1 call",
        "a" * 20_000,
        "at least at most 5% 5% 5% of of calls emails",
        "from 0 to 10 reps",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_odd_texts_get_a_plan_or_a_reason(ask: Ask, text: str) -> None:
    """No text breaks the agent; money is never spent twice or below nothing."""
    try:
        output, finding = optimize(ask, text)
    except AgentFailure:
        return

    assert (spend_of(output) >= -1e-9).all()
    assert output["total"]["recommended"] <= output["total"]["available"] * (1 + 1e-6) + 1e-6
    assert 0.0 <= finding.confidence <= 1.0


def test_the_answer_is_the_same_each_time_and_survives_json(
    data: Snapshot, make_dispatch: Callable[..., AgentDispatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through run_agent twice: equal results, and the handoff's JSON reads back as the same handoff."""
    monkeypatch.setattr(sample_data, "load_snapshot", lambda: data)
    dispatch = make_dispatch("resource_optimizer", context={"raw_query": "cut 10% from promo"}, brand="Kisqali")
    first, second = (directory.run_agent("resource_optimizer", dispatch) for _ in range(2))

    assert first.execution.status is HandoffStatus.SUCCESS
    assert first.result == second.result
    assert first.artifacts == second.artifacts
    assert AgentHandoff.model_validate_json(first.model_dump_json()) == first


def test_little_time_skips_the_checks_and_says_so(data: Snapshot, make_dispatch: Callable[..., AgentDispatch]) -> None:
    """Under 1.5 s the other half of the weeks is not asked."""
    dispatch = make_dispatch("resource_optimizer", context={"raw_query": "best channel mix"}, max_latency_ms=800)
    finding = directory.load_agent("resource_optimizer")(dispatch, data)

    assert any("Time was short" in caveat for caveat in finding.caveats)
    assert finding.primary_output["gain"]["confirmed_on_other_weeks"] is None  # type: ignore[index]
