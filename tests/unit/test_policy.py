"""The policy acts alone only where the error is provably small, and its thresholds keep that promise on data that it has not seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from optimizers.dataset import Row
from optimizers.policy import ACCEPTED_IN_SCOPE, HeldOut, act_threshold, acts_alone, fit_policy, read_held_out
from optimizers.student import fit
from service.routing.encoder import Encoder
from service.routing.policy import Policy, Step
from tests.unit.turns import a_router

POLICY = a_router(refuse_above=0.8, act_above=0.9, clarify_below=0.5).policy

STEPS = {
    "out of scope": (0.99, 0.81, True, Step.REFUSE),
    "out of scope, no LM": (0.99, 0.81, False, Step.REFUSE),
    "at the scope's edge": (0.99, 0.80, False, Step.ACT),
    "sure": (0.95, 0.1, True, Step.ACT),
    "just sure": (0.90, 0.1, True, Step.ACT),
    "unsure, LM": (0.89, 0.1, True, Step.ASK_LM),
    "very unsure, LM": (0.10, 0.1, True, Step.ASK_LM),
    "unsure, no LM": (0.89, 0.1, False, Step.ACT),
    "at the edge of a question": (0.50, 0.1, False, Step.ACT),
    "very unsure, no LM": (0.49, 0.1, False, Step.CLARIFY),
}


@pytest.mark.parametrize(("probability", "oos_score", "lm_ready", "step"), STEPS.values(), ids=STEPS)
def test_the_step_follows_the_thresholds(probability: float, oos_score: float, lm_ready: bool, step: Step) -> None:
    """Refuse, act, ask the LM, or ask the user, in this order."""
    assert POLICY.step("gap_analysis", probability, oos_score, lm_ready=lm_ready) is step


def test_a_threshold_above_one_never_acts_alone() -> None:
    """1.01 is out of reach for a probability of 1."""
    assert POLICY.model_copy(update={"act_above": 1.01}).step("gap_analysis", 1.0, 0.0, lm_ready=True) is Step.ASK_LM


@given(low=st.floats(0.0, 1.0), high=st.floats(0.0, 1.0), oos_score=st.floats(0.0, 1.0), lm_ready=st.booleans())
def test_a_surer_student_is_never_trusted_less(low: float, high: float, oos_score: float, lm_ready: bool) -> None:
    """What acts at a probability acts at every higher one."""
    low, high = sorted((low, high))

    if POLICY.step("gap_analysis", low, oos_score, lm_ready=lm_ready) is Step.ACT:
        assert POLICY.step("gap_analysis", high, oos_score, lm_ready=lm_ready) is Step.ACT


LMS = {
    "hosted": ("openai/gpt-5-mini", (), (), True),
    "local": ("local", (), (), False),
    "local, another file": ("local/qwen", (), (), False),
    "local that has earned it": ("local", ("local",), (), True),
    "hosted that evidence speaks against": ("openai/gpt-5-mini", (), ("openai/gpt-5-mini",), False),
    "evidence against goes before trust": ("local", ("local",), ("local",), False),
    "a hosted one with local in its name": ("openai/local", (), (), True),
}


@pytest.mark.parametrize(("lm", "trusted", "kept_out", "may"), LMS.values(), ids=LMS)
def test_an_lm_may_decide_by_its_kind_and_by_evidence(lm: str, trusted: tuple[str, ...], kept_out: tuple[str, ...], may: bool) -> None:
    """A small local LM has to earn its place; evidence speaks last."""
    policy = POLICY.model_copy(update={"trusted_lms": trusted, "kept_out_lms": kept_out})

    assert policy.lm_may_decide(lm) is may


@pytest.mark.parametrize("fields", [{"act_above": 1.02}, {"refuse_above": -0.1}, {"shortlist": 1}, {"act_above": float("nan")}], ids=str)
def test_a_threshold_out_of_bounds_is_no_policy(fields: dict[str, float]) -> None:
    """A damaged policy.json is refused when it is read."""
    with pytest.raises(ValidationError):
        a_router(**fields)


def test_a_policy_survives_its_file() -> None:
    """What is written to policy.json is what is served."""
    assert Policy.model_validate_json(POLICY.model_dump_json()) == POLICY


def simulate(generator: np.random.Generator, rows: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities and whether each was right; the true error at probability p is (1 - p) * slope."""
    probability = generator.beta(6.0, 1.0, rows)
    return probability, generator.random(rows) > (1.0 - probability) * slope


def true_risk(threshold: float, slope: float) -> float:
    """Return the true error above a threshold: the mean of (1 - p) * slope under the density 6 p^5 from the threshold up."""
    above = 1.0 - threshold**6
    return slope * (above - 6.0 / 7.0 * (1.0 - threshold**7)) / above if threshold < 1.0 else 0.0


@pytest.mark.parametrize("risk_target", [0.02, 0.10])
@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_the_risk_bound_holds_in_nineteen_of_twenty_data_sets(slope: float, risk_target: float) -> None:
    """Over 300 simulated data sets whose risk is known, the promise is broken in no more than 5 %, and a tolerance of chance."""
    generator = np.random.default_rng(7)

    chosen = [act_threshold(*simulate(generator, 4_000, slope), risk_target)[0] for _ in range(300)]

    broken = sum(true_risk(t, slope) > risk_target for t in chosen) / 300
    assert broken <= 0.05 + 2.5 * (0.05 * 0.95 / 300) ** 0.5
    assert sum(t <= 1.0 for t in chosen) > 30


def test_an_honest_student_is_let_act_on_much_of_the_traffic() -> None:
    """The bound is not kept by never acting."""
    probability, correct = simulate(np.random.default_rng(3), 3_000, 0.05)

    threshold, coverage = act_threshold(probability, correct, 0.02)

    assert coverage > 0.95
    assert coverage == pytest.approx(float((probability >= threshold).mean()))


@pytest.mark.parametrize(
    ("probability", "correct"),
    [
        (np.full(1_000, 0.99), np.zeros(1_000, bool)),
        (np.linspace(0, 1, 100), np.ones(100, bool)),
        (np.array([0.9]), np.array([True])),
    ],
    ids=["always wrong", "too few rows to prove anything", "one row"],
)
def test_where_nothing_can_be_proven_the_student_never_acts_alone(probability: np.ndarray, correct: np.ndarray) -> None:
    """1.01, and no coverage."""
    assert act_threshold(probability, correct, 0.02) == (1.01, 0.0)


def test_the_least_number_of_rows_that_can_prove_the_target() -> None:
    """228 rows without an error prove 2 % with 99 % confidence, and 227 do not (0.98 ^ 228 < 0.01); each of five starts may spend 1 %."""
    enough, too_few = (act_threshold(np.full(n, 0.9), np.ones(n, bool), 0.02) for n in (228, 227))

    assert enough == (0.9, 1.0)
    assert too_few == (1.01, 0.0)


def test_a_laxer_target_needs_fewer_rows() -> None:
    """The strictest threshold that is tried depends on the target: 44 rows can prove 10 %, so the top of 1,000 is enough for it."""
    probability = np.linspace(0.0, 1.0, 1_000)
    correct = probability > 0.85

    assert act_threshold(probability, correct, 0.10)[0] < 1.0


def test_a_few_sure_errors_do_not_keep_the_student_from_ever_acting() -> None:
    """Wrong labels at the strictest threshold fail its test, and a laxer start still finds what can be proven."""
    probability = np.linspace(1.0, 0.5, 5_000)
    correct = np.ones(5_000, bool)
    correct[:40] = False

    threshold, coverage = act_threshold(probability, correct, 0.02)

    assert coverage > 0.5
    assert (~correct[probability >= threshold]).mean() <= 0.02


@settings(max_examples=50)
@given(seed=st.integers(0, 1_000), rows=st.integers(1, 400), slope=st.floats(0.0, 3.0))
def test_the_threshold_is_total_and_its_coverage_true(seed: int, rows: int, slope: float) -> None:
    """A threshold in [0, 1] with the share it covers, or none."""
    probability, correct = simulate(np.random.default_rng(seed), rows, slope)

    threshold, coverage = act_threshold(probability, correct, 0.05)

    assert (threshold, coverage) == (1.01, 0.0) or coverage == pytest.approx(float((probability >= threshold).mean()))
    assert 0.0 <= threshold <= 1.01


def held_out(rows: int = 2_000, *, outside: int = 300) -> HeldOut:
    """Return simulated readings; out-of-scope rows have high scores and are never right."""
    generator = np.random.default_rng(5)
    probability, correct = simulate(generator, rows, 0.1)
    return HeldOut(
        np.concatenate([probability, generator.beta(2.0, 2.0, outside)]),
        np.concatenate([correct, np.zeros(outside, bool)]),
        np.concatenate([generator.beta(1.0, 8.0, rows), generator.beta(8.0, 1.0, outside)]),
        np.concatenate([np.ones(rows, bool), np.zeros(outside, bool)]),
        np.full(rows + outside, "gap_analysis"),
    )


@pytest.mark.parametrize("rows", [20, 30, 47, 2_000])
def test_the_refusal_threshold_accepts_nineteen_of_twenty_in_scope_requests(rows: int) -> None:
    """At least 95 % of those in scope, and not many more than that."""
    data = held_out(rows)

    policy = fit_policy(data)

    accepted = float((data.oos_score[data.in_scope] <= policy.refuse_above).mean())
    assert ACCEPTED_IN_SCOPE <= accepted <= ACCEPTED_IN_SCOPE + 1.0 / rows + 1e-9
    assert policy.accepted_in_scope == ACCEPTED_IN_SCOPE


def test_what_is_refused_is_no_part_of_the_risk() -> None:
    """The act threshold is fitted on what the refusal threshold lets through, out-of-scope rows among it counting as errors."""
    data = held_out()

    policy = fit_policy(data)

    through = data.oos_score <= policy.refuse_above
    acted = acts_alone(data, policy)
    assert not (acted & ~through).any()
    assert policy.act_above <= 1.0
    assert (~data.correct[acted]).mean() <= policy.risk_target
    assert policy.coverage == pytest.approx(acted.sum() / through.sum())


def test_held_out_readings_are_what_the_student_would_read(encoder: Encoder) -> None:
    """Best probability, whether it is right, and the score, from the held-out scores."""
    texts = {"gap_analysis": ["where is potential left", "which region lags"], "health_check": ["is it up", "did the job fail"]}
    rows = [Row(t, label) for label, some in texts.items() for t in some] + [Row("a poem", "oos"), Row("a song", "oos")]
    fitted = fit(rows, encoder)

    data = read_held_out(fitted)

    assert data.in_scope.tolist() == [True] * 4 + [False] * 2
    assert not data.correct[4:].any()
    probabilities, oos_scores = fitted.student.calibrate(fitted.held_out)
    assert data.oos_score.tolist() == oos_scores.tolist()
    assert data.probability.tolist() == probabilities.max(axis=1).tolist()
    assert data.correct[:4].tolist() == (probabilities[:4].argmax(axis=1) == fitted.targets[:4]).tolist()
