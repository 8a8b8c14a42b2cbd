"""Regions: taken over where held-out rows prove it, given back where the LM comes to disagree, and nowhere else."""

import numpy as np
import pytest

from optimizers.policy import HeldOut, acts_alone, fit_policy
from optimizers.regions import draw_regions, held_out_regions, live_regions
from service.routing.policy import NEVER, Policy, Step
from service.routing.regions import FEWEST, RegionTally, find_drifted, total
from tests.unit.turns import a_router

TARGET = 0.98


def rows(label: str, count: int, right: float, generator: np.random.Generator, low: float = 0.3) -> HeldOut:
    """Return in-scope rows that read as a label and are right so often whatever their probability."""
    probability = generator.uniform(low, 1.0, count)
    return HeldOut(probability, generator.random(count) < right, np.zeros(count), np.ones(count, bool), np.full(count, label))


def joined(*parts: HeldOut) -> HeldOut:
    """Return the rows of all parts."""
    fields = ("probability", "correct", "oos_score", "in_scope", "read")
    return HeldOut(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def test_a_region_that_is_right_early_is_taken_over_early() -> None:
    """A label whose rows are always right is answered alone from a lower probability on than labels that are often wrong."""
    generator = np.random.default_rng(1)
    policy = fit_policy(joined(rows("invoices", 400, 1.0, generator), rows("refunds", 400, 0.7, generator)))

    assert policy.act_from("invoices") < 0.5
    assert policy.act_from("refunds") > 1.0
    assert policy.step("invoices", 0.6, 0.0, lm_ready=True) is Step.ACT
    assert policy.step("refunds", 0.99, 0.0, lm_ready=True) is Step.ASK_LM


def test_a_region_that_is_wrong_where_all_together_are_right_is_left_to_the_lm() -> None:
    """Few wrong rows vanish among many right ones; the label's own rows tell."""
    generator = np.random.default_rng(2)
    policy = fit_policy(joined(rows("invoices", 5_000, 1.0, generator), rows("refunds", 60, 0.6, generator)))

    assert policy.act_above <= 1.0
    assert policy.act_from("refunds") == NEVER
    assert not policy.is_unsure("refunds", 0.5)  # nothing is proven of it, so nobody can tell


def test_few_rows_prove_nothing_of_their_own() -> None:
    """A label with few rows goes by what holds of all rows together."""
    generator = np.random.default_rng(3)
    policy = fit_policy(joined(rows("invoices", 2_000, 1.0, generator), rows("refunds", 20, 1.0, generator)))

    assert "refunds" not in policy.regions
    assert policy.act_from("refunds") == policy.act_above


def test_what_is_taken_over_keeps_the_promise_on_new_rows() -> None:
    """Of 200 labels whose error falls with the probability, nearly all of those taken over stay within the target on rows not seen."""
    generator, kept, taken = np.random.default_rng(4), 0, 0
    for number in range(200):
        probability, new = generator.beta(6.0, 1.0, 600), generator.beta(6.0, 1.0, 20_000)
        slope = generator.uniform(0.02, 0.3)
        right, new_right = (generator.random(len(p)) > slope * (1.0 - p) for p in (probability, new))
        name = np.full(600, f"label {number}")
        policy = fit_policy(HeldOut(probability, right, np.zeros(600), np.ones(600, bool), name))
        acts_from = policy.act_from(f"label {number}")
        if acts_from <= 1.0:
            taken += 1
            kept += (~new_right[new >= acts_from]).mean() <= policy.risk_target

    assert taken > 100
    assert kept / taken > 0.9


def test_coverage_counts_what_the_regions_act_on() -> None:
    """Of the accepted rows."""
    generator = np.random.default_rng(5)
    data = joined(rows("invoices", 400, 1.0, generator), rows("refunds", 400, 0.7, generator))
    policy = fit_policy(data)

    acted = acts_alone(data, policy)

    assert policy.coverage == pytest.approx(acted.mean())
    assert set(data.read[acted]) == {"invoices"}


def test_a_region_given_back_is_the_lms() -> None:
    """Whatever the probability; without an LM the student answers as it can."""
    policy = a_router(act_above=0.9).policy.model_copy(update={"given_back": frozenset({"gap_analysis"})})

    assert policy.step("gap_analysis", 1.0, 0.0, lm_ready=True) is Step.ASK_LM
    assert policy.step("gap_analysis", 1.0, 0.0, lm_ready=False) is Step.ACT
    assert policy.step("causal_impact", 0.95, 0.0, lm_ready=True) is Step.ACT
    assert (policy.is_sure("gap_analysis", 1.0), policy.is_sure("causal_impact", 0.95)) == (False, True)
    assert "given_back" not in policy.model_dump()  # it is no part of a version


def test_a_region_that_is_never_answered_alone_is_as_sure_as_others_where_something_else_speaks_for_it() -> None:
    """A plain command is carried out without a question as it was before; with an LM the LM is asked."""
    policy = a_router(act_above=0.9, regions={"gap_analysis": NEVER, "drift_check": 0.4}).policy

    assert policy.step("gap_analysis", 0.95, 0.0, lm_ready=True) is Step.ASK_LM
    assert (policy.is_sure("gap_analysis", 0.95), policy.is_sure("gap_analysis", 0.8)) == (True, False)
    assert (policy.is_sure("drift_check", 0.5), policy.is_unsure("drift_check", 0.5)) == (True, False)
    assert (policy.is_unsure("gap_analysis", 0.8), policy.is_unsure("gap_analysis", 0.95)) == (True, False)


def audited(agreed: int, count: int) -> RegionTally:
    """Return a region that was audited so often."""
    return RegionTally(local=count * 50, audited=count, agreed=agreed)


def test_a_region_on_which_the_lm_has_come_to_disagree_is_given_back() -> None:
    """And the reason says the figures; the others stay."""
    found = find_drifted({"gap": audited(60, 120), "drift": audited(198, 200), "health": audited(99, 100)}, TARGET)

    assert set(found) == {"gap"}
    assert "60 of 120" in found["gap"]


QUIET = {
    "nothing was audited": {"gap": RegionTally(local=1_000)},
    "too few tell": {"gap": audited(0, FEWEST - 1), "drift": audited(100, 100)},
    "an LM that errs everywhere alike": {name: audited(150, 200) for name in ("gap", "drift", "health")},
    "a little below, not proven": {"gap": audited(94, 100), "drift": audited(196, 200)},
    "as it should be": {"gap": audited(99, 100), "drift": audited(197, 200)},
}


@pytest.mark.parametrize("tallies", QUIET.values(), ids=QUIET)
def test_nothing_is_given_back_without_proof(tallies: dict[str, RegionTally]) -> None:
    """An LM is no judge by itself: it has to agree elsewhere."""
    assert find_drifted(tallies, TARGET) == {}


def test_looking_often_gives_few_regions_back_wrongly() -> None:
    """Of 200 services whose eight regions all agree by 95 %, at most 5 % ever give one back in 25 looks."""
    generator, wrong = np.random.default_rng(6), 0
    for _ in range(200):
        agreed = (generator.random((8, 500)) < 0.95).cumsum(axis=1)
        looks = ({str(i): audited(int(agreed[i, n - 1]), n) for i in range(8)} for n in range(20, 501, 20))
        wrong += any(find_drifted(look, TARGET) for look in looks)

    assert wrong <= 10


def test_a_region_that_has_drifted_is_found_within_a_few_hundred_audits() -> None:
    """Agreement of 80 % where it is 98 % elsewhere."""
    generator, found = np.random.default_rng(7), 0
    for _ in range(50):
        tallies = {str(i): audited(int((generator.random(300) < (0.8 if i == 0 else 0.98)).sum()), 300) for i in range(4)}
        found += set(find_drifted(tallies, TARGET)) == {"0"}

    assert found >= 48


def test_what_is_saved_is_what_the_calls_would_have_cost_less_the_audits() -> None:
    """At the mean price of an audit; unknown where no price is known."""
    tallies = {"gap": RegionTally(local=1_000, asked=500, audited=20, agreed=19, usd=0.04, priced=20), "drift": RegionTally(local=500)}
    whole = total(tallies)

    assert whole.share_local == 0.75
    assert tallies["gap"].usd_saved == pytest.approx(1_000 * 0.002 - 0.04)
    assert tallies["drift"].usd_saved is None
    assert RegionTally().share_local is None


def test_tables_show_every_region_with_what_is_known_of_it() -> None:
    """The largest first; one that was given back even if nothing was counted since."""
    policy = Policy.model_validate({**a_router().policy.model_dump(), "regions": {"gap": 0.4}})

    shown = live_regions({"gap": audited(19, 20), "drift": RegionTally(local=10, asked=5_000)}, policy, {"health": "why"})

    assert [(one.intent, one.acts_from, one.requests, one.alone, one.given_back) for one in shown] == [
        ("drift", policy.act_above, 5_010, 10, None),
        ("gap", 0.4, 1_000, 1_000, None),
        ("health", NEVER, 0, 0, "why"),
    ]


def test_the_chart_shows_regions_without_any_figure_too() -> None:
    """One without audits, one that was never answered alone, and a fit's own."""
    generator = np.random.default_rng(8)
    data = joined(rows("invoices", 400, 1.0, generator), rows("refunds", 40, 0.5, generator))
    fitted = held_out_regions(data, fit_policy(data))
    live = live_regions({"gap": RegionTally(local=3), "drift": RegionTally(asked=3)}, a_router().policy, {"gap": "why"})

    for regions in (fitted, live, fitted[:1]):
        drawing = draw_regions(regions, TARGET)
        assert [tick.get_text() for tick in drawing.axes[0].get_yticklabels()] == [one.intent for one in regions][::-1]
    assert [one.intent for one in fitted] == ["invoices", "refunds"]
    assert fitted[0].agreement.value == 1.0
