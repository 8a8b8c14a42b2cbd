"""The court: by table, what each finding leads to; by simulation, how often it errs."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pytest

from optimizers.canary import judge_canary
from optimizers.court import Comparison, Watched, judge_integrity, judge_off_policy, judge_shadow, judge_test, rule
from optimizers.off_policy import Answer, Estimate, OffPolicy
from optimizers.paired import compare, compare_slices
from optimizers.ruling import Finding, Found, Rules, Ruling, Step, Verdict, Weight
from service.routing.arms import CHANCE, Arm, Called, compare_arms

OPEN = Rules()
WATCHED = Rules(shadow=Weight.ADVISORY, canary=Weight.ADVISORY)


def finding(step: Step, found: Found) -> Finding:
    """Return a finding."""
    return Finding(step=step, found=found, reason=f"{step.value} found {found.value}")


def findings(**found: Found) -> list[Finding]:
    """Return one finding a step: for the challenger, unless said otherwise."""
    return [finding(step, found.get(step.value, Found.FOR)) for step in Step]


RULINGS: dict[str, tuple[list[Finding], Rules, Ruling]] = {
    "all for it": (findings(), Rules(), Ruling.PROMOTE),
    "damaged": (findings(integrity=Found.AGAINST), Rules(), Ruling.REJECT),
    "worse on the test": (findings(test=Found.AGAINST), Rules(), Ruling.REJECT),
    "no test": (findings(test=Found.NO_VERDICT), Rules(), Ruling.REJECT),
    "no test, which is advisory": (findings(test=Found.NO_VERDICT), Rules(test=Weight.ADVISORY), Ruling.PROMOTE),
    "worse on the test, which is skipped": (findings(test=Found.AGAINST), Rules(test=Weight.SKIPPED), Ruling.PROMOTE),
    "the log cannot say": (findings(off_policy=Found.NO_VERDICT), Rules(), Ruling.PROMOTE),
    "the log cannot say, but has to": (findings(off_policy=Found.NO_VERDICT), Rules(off_policy=Weight.REQUIRED), Ruling.REJECT),
    "the log says no": (findings(off_policy=Found.AGAINST), Rules(), Ruling.REJECT),
    "still in the shadow": (findings(shadow=Found.PENDING), WATCHED, Ruling.WAIT),
    "worse as a canary": (findings(canary=Found.AGAINST), WATCHED, Ruling.REJECT),
    "nothing but whole": (
        [finding(Step.INTEGRITY, Found.FOR), *(finding(step, Found.NO_VERDICT) for step in list(Step)[1:])],
        Rules(test=Weight.ADVISORY),
        Ruling.REJECT,
    ),
}


@pytest.mark.parametrize(("found", "rules", "ruling"), RULINGS.values(), ids=RULINGS)
def test_a_ruling_follows_from_findings_and_rules(found: list[Finding], rules: Rules, ruling: Ruling) -> None:
    """The sentence is the one of the step that decides."""
    got, reason = rule(found, rules)

    assert got is ruling
    assert reason


def test_the_first_step_that_stops_it_is_named() -> None:
    """Later ones do not matter."""
    assert rule(findings(test=Found.AGAINST, canary=Found.AGAINST), Rules())[1].startswith("test:")


def test_damaged_files_speak_against_it() -> None:
    """Every problem is named."""
    assert judge_integrity(["student.safetensors was altered", "x is missing"]).reason == "student.safetensors was altered; x is missing"
    assert judge_integrity([]).found is Found.FOR


def compared(rng: np.random.Generator, n: int, *, gains: float, loses: float) -> Comparison:
    """Return a paired test of two routers that differ with these chances."""
    kind = rng.choice(3, n, p=[gains, loses, 1.0 - gains - loses])
    both = rng.random(n) < 0.9
    champion, challenger = (
        np.where(kind == 0, False, np.where(kind == 1, True, both)),
        np.where(kind == 0, True, np.where(kind == 1, False, both)),
    )
    slices = [f"intent {i}" for i in rng.integers(0, 12, n)]
    return Comparison(compare(champion, challenger), compare_slices(champion, challenger, slices))


def test_a_challenger_that_is_no_better_is_hardly_ever_let_through() -> None:
    """200 that differ by chance only, or are a point worse: at most 5 %; three points better, 10 % differing: at least 80 %."""
    rng = np.random.default_rng(1)
    none_better = [compared(rng, 1_000, gains=0.05, loses=0.05 + 0.01 * (i % 2)) for i in range(200)]
    better = [compared(rng, 1_000, gains=0.065, loses=0.035) for _ in range(100)]

    passed = [sum(judge_test(one, OPEN).found is Found.FOR for one in some) for some in (none_better, better)]

    assert passed[0] <= 0.05 * 200
    assert passed[1] >= 0.80 * 100


def test_a_small_test_is_no_test() -> None:
    """Whatever it shows."""
    found = judge_test(compared(np.random.default_rng(1), 60, gains=0.4, loses=0.0), OPEN)

    assert (found.found, judge_test(None, OPEN).found) == (Found.NO_VERDICT, Found.NO_VERDICT)
    assert "60 requests" in found.reason


def test_better_choices_do_not_make_up_for_asking_back_about_more() -> None:
    """What users get is the right agent at once; asking a little more, within chance, is no reason."""
    made = compared(np.random.default_rng(1), 600, gains=0.1, loses=0.0)
    at = np.arange(600)
    before, timid, alike = at % 100 < 90, at % 100 < 80, (at % 100 < 90) & (at > 1)

    stopped, passed = (judge_test(replace(made, reached=compare(before, after)), OPEN) for after in (timid, alike))

    assert (stopped.found, passed.found) == (Found.AGAINST, Found.FOR)
    assert "80.0% against 90.0% reach the right agent at once" in stopped.reason


def test_a_slice_that_gets_worse_stops_a_challenger_that_is_better_over_all() -> None:
    """And is named."""
    champion, challenger = np.zeros(600, bool), np.ones(600, bool)
    champion[500:], challenger[500:] = True, False
    slices = ["large"] * 500 + ["drift_check"] * 100

    found = judge_test(Comparison(compare(champion, challenger), compare_slices(champion, challenger, slices)), OPEN)

    assert found.found is Found.AGAINST
    assert "drift_check" in found.reason


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer.BETTER, Found.FOR),
        (Answer.WORSE, Found.AGAINST),
        (Answer.NO_DIFFERENCE, Found.NO_VERDICT),
        (Answer.NO_VERDICT, Found.NO_VERDICT),
    ],
)
def test_what_the_log_says_is_taken_for_what_it_is(answer: Answer, found: Found) -> None:
    """No difference is no reason to promote."""
    one = Estimate(0.5, 0.4, 0.6)

    assert judge_off_policy(OffPolicy(one, one, one, one, one, 100.0, 0.1, 0.0, answer, "because")).found is found
    assert judge_off_policy(None).found is Found.NO_VERDICT


@pytest.mark.parametrize(
    ("watched", "found"),
    [
        (None, Found.PENDING),
        (Watched(1.0, 50, 5, 0), Found.PENDING),
        (Watched(30.0, 50, 5, 0), Found.NO_VERDICT),
        (Watched(1.0, 300, 30, 0), Found.FOR),
        (Watched(1.0, 300, 200, 0), Found.AGAINST),
        (Watched(1.0, 50, 0, 10), Found.AGAINST),
    ],
    ids=["nothing yet", "too few", "too few for too long", "enough", "another router", "fails"],
)
def test_the_shadow_is_judged_when_it_has_read_enough(watched: Watched | None, found: Found) -> None:
    """Failing is seen before."""
    assert judge_shadow(watched, Rules()).found is found


def arm(
    rng: np.random.Generator, n: int, *, errors: float = 0.01, reward: float = 0.8, asked_back: int = 0, unavailable: int = 0, **mix: int
) -> Arm:
    """Simulate what came of n requests for which an agent was called, of mixed intents, and of some that were asked back."""
    called = {}
    for intent, share in (mix or {"gap": 1}).items():
        count = n * share // sum(mix.values() or [1])
        rewards = np.clip(rng.normal(reward, 0.2, count // 2), 0.0, 1.0)
        failed = int((rng.random(count) < (0.3 if intent == "flaky" else errors)).sum())
        called[intent] = Called(count, failed, len(rewards), float(rewards.sum()), float((rewards**2).sum()))
    return Arm(n + asked_back + unavailable, int((rng.random(n + asked_back) < 0.03).sum()), unavailable, called)


@pytest.mark.parametrize(
    ("made", "hours", "found"),
    [
        ({"n": 50}, 1.0, Found.PENDING),
        ({"n": 50}, 30.0, Found.NO_VERDICT),
        ({"n": 400}, 1.0, Found.FOR),
        ({"n": 400, "errors": 0.3}, 1.0, Found.AGAINST),
        ({"n": 100, "errors": 0.9}, 1.0, Found.AGAINST),
        ({"n": 800, "reward": 0.4}, 1.0, Found.AGAINST),
    ],
    ids=["too few", "too few for too long", "as good", "more errors", "soon", "less reward"],
)
def test_a_canary_is_stopped_for_what_it_does_worse(made: dict[str, float], hours: float, found: Found) -> None:
    """Errors, fallbacks or reward, each by itself; much worse is seen soon."""
    rng = np.random.default_rng(1)

    judged = judge_canary(arm(rng, 5_000), arm(rng, **made), hours, Rules())  # type: ignore[arg-type]

    assert judged.found is found, judged


def test_a_router_is_not_blamed_for_asking_an_agent_that_fails_whoever_asks_it() -> None:
    """The same intents fail as often as before; there are more of one of them."""
    rng = np.random.default_rng(3)
    before, after = arm(rng, 4_000, gap=9, flaky=1), arm(rng, 4_000, gap=1, flaky=9)

    assert judge_canary(before, after, 1.0, Rules()).found is Found.FOR
    assert judge_canary(before, arm(rng, 4_000, errors=0.3, gap=9, flaky=1), 1.0, Rules()).found is Found.AGAINST


def test_a_router_is_not_blamed_for_answering_what_the_other_asked_back_about() -> None:
    """The champion hardly dares to call anybody; some of what it asked about cannot be answered by anybody."""
    rng = np.random.default_rng(4)
    timid, bold = arm(rng, 100, asked_back=900), arm(rng, 700, errors=0.2, asked_back=300)

    assert judge_canary(timid, bold, 1.0, Rules()).found is Found.FOR
    assert judge_canary(arm(rng, 900, asked_back=100), bold, 1.0, Rules()).found is Found.AGAINST


def test_a_router_that_fails_where_the_other_never_called_is_found_out() -> None:
    """Everything goes to one agent, which can do nothing with it."""
    rng = np.random.default_rng(5)

    assert judge_canary(arm(rng, 2_000, gap=1), arm(rng, 400, errors=0.95, other=1), 1.0, Rules()).found is Found.AGAINST


def test_an_outage_under_the_champion_excuses_nothing() -> None:
    """Whom nobody could reach was not answered; that is no praise of the router that came after."""
    rng = np.random.default_rng(6)

    assert judge_canary(arm(rng, 1_400, unavailable=600), arm(rng, 1_000, errors=0.12), 1.0, Rules()).found is Found.AGAINST


def test_a_router_that_asks_back_about_everything_is_found_out() -> None:
    """It makes no errors, and is of no use; one that refuses a little more is not blamed."""
    rng = np.random.default_rng(7)
    before = arm(rng, 1_900, asked_back=100)

    assert judge_canary(before, arm(rng, 10, asked_back=990), 1.0, Rules()).found is Found.AGAINST
    assert judge_canary(before, arm(rng, 880, asked_back=120), 1.0, Rules()).found is Found.FOR


def test_rare_intents_that_become_frequent_do_not_make_a_router_worse() -> None:
    """A hundred rare ones fail at 40 % whoever calls; the champion had a tenth of its requests of them, the new one three tenths."""
    rng, taken_back = np.random.default_rng(8), 0
    for _ in range(20):
        arms = []
        for n, share in ((2_000, 0.1), (3_000, 0.3)):
            rare = rng.random(n) < share
            intents = np.where(rare, 10 + rng.integers(0, 100, n), rng.integers(0, 10, n))
            arms.append(_arm_of(intents, rng.random(n) < np.where(rare, 0.4, 0.01)))
        taken_back += bool(compare_arms(*arms, 0.02)[0])

    assert taken_back <= 20 * CHANCE


@pytest.mark.parametrize("intents", [1, 12])
def test_a_canary_that_is_no_worse_survives_a_hundred_looks(intents: int) -> None:
    """100 canaries, each looked at 100 times as its requests come in, of intents of which each fails as often as with the champion."""
    rng, stopped = np.random.default_rng(2), 0
    fails = np.linspace(0.0, 0.04 if intents == 1 else 0.4, intents + 2)[1:-1]
    for _ in range(100):
        mixes = rng.dirichlet(np.ones(intents), 2)
        old, new = (rng.choice(intents, size, p=mix) for size, mix in zip((4_000, 1_000), mixes, strict=True))
        champion, failed = _arm_of(old, rng.random(4_000) < fails[old]), rng.random(1_000) < fails[new]
        stopped += any(
            judge_canary(champion, _arm_of(new[:so_far], failed[:so_far]), 1.0, Rules()).found is Found.AGAINST
            for so_far in range(10, 1_001, 10)
        )

    assert stopped <= 100 * CHANCE


def _arm_of(intents: npt.NDArray[np.int64], failed: npt.NDArray[np.bool_]) -> Arm:
    return Arm(len(intents), 0, 0, {str(i): Called(int((intents == i).sum()), int(failed[intents == i].sum())) for i in np.unique(intents)})


def test_a_verdict_keeps_its_evidence() -> None:
    """It is written as JSON and read again the same."""
    said = findings(canary=Found.PENDING)
    ruling, reason = rule(said, Rules())
    now = datetime(2026, 3, 1, tzinfo=UTC)
    verdict = Verdict(champion="1", challenger="2", ruling=ruling, reason=reason, findings=tuple(said), rules=Rules(), decided_at=now)

    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
