"""The reward is the specification's weighted mean over what is known; what is missing never helps, and who was down is not to blame."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.contracts.signals import WEIGHTS, Feedback, RoutingTrainingSignal


def a_signal(**fields: Any) -> RoutingTrainingSignal:
    """Return a signal of one agent that answered; keywords replace fields."""
    given: dict[str, Any] = {
        "signal_id": UUID(int=1),
        "session_id": "s",
        "query": "q",
        "query_pattern": "p",
        "intent": "i",
        "agents_selected": ("a",),
        "routing_confidence": 0.5,
        "routing_rationale": "r",
        "agents_succeeded": 1,
    }
    return RoutingTrainingSignal.model_validate({**given, **fields})


EVERYTHING = {"total_latency_ms": 500.0, "latency_budget_ms": 1_000, "was_rerouted": False, "user_satisfaction": 5.0}
REWARDS: dict[str, tuple[dict[str, Any], float | None]] = {
    "nothing is known": ({"agents_selected": (), "agents_succeeded": 0}, None),
    "not finished": ({"agents_succeeded": 0}, None),
    "all components": (EVERYTHING, 0.35 + 0.25 * 0.5 + 0.20 + 0.20),
    "accuracy only": ({}, 1.0),
    "failed": ({"agents_succeeded": 0, "agents_failed": 1}, 0.0),
    "half succeeded": ({"agents_selected": ("a", "b"), "agents_failed": 1}, 0.5),
    "one of two not finished": ({"agents_selected": ("a", "b")}, 0.5),
    "more succeeded than were selected": ({"agents_succeeded": 3}, 1.0),
    "accuracy and rerouting": ({"was_rerouted": True}, 0.35 / 0.55),
    "accuracy and latency": ({"total_latency_ms": 250.0, "latency_budget_ms": 1_000}, (0.35 + 0.25 * 0.75) / 0.60),
    "over the budget": ({"total_latency_ms": 9_000.0, "latency_budget_ms": 1_000}, 0.35 / 0.60),
    "no time at all": ({"total_latency_ms": 0.0, "latency_budget_ms": 1_000}, 1.0),
    "latency without budget": ({"total_latency_ms": 10.0}, 1.0),
    "budget without latency": ({"latency_budget_ms": 1_000}, 1.0),
    "a budget of nothing": ({"total_latency_ms": 10.0, "latency_budget_ms": 0}, 1.0),
    "satisfaction 1 is the worst": ({"user_satisfaction": 1.0}, 0.35 / 0.55),
    "satisfaction 3 is the middle": ({"user_satisfaction": 3.0}, (0.35 + 0.10) / 0.55),
    "satisfaction alone": ({"agents_selected": (), "agents_succeeded": 0, "user_satisfaction": 2.0}, 0.25),
    "rerouting alone": ({"agents_selected": (), "agents_succeeded": 0, "was_rerouted": False}, 1.0),
    "answer quality is not in the formula": ({"answer_quality": 0.0}, 1.0),
    "the agent was down": ({"agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1}, None),
    "the agent was down, and it took long": (
        {"agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1, "total_latency_ms": 900.0, "latency_budget_ms": 1_000},
        None,
    ),
    "the agent was down, the user was content": (
        {"agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1, "user_satisfaction": 5.0},
        1.0,
    ),
    "one of two was down": ({"agents_selected": ("a", "b"), "agents_failed": 1, "agents_unavailable": 1}, 1.0),
}


@pytest.mark.parametrize(("fields", "reward"), REWARDS.values(), ids=REWARDS)
def test_the_reward_is_the_weighted_mean_of_what_is_known(fields: dict[str, Any], reward: float | None) -> None:
    """Weights .35, .25, .20, .20, renormalised over the known components."""
    assert a_signal(**fields).compute_reward() == (None if reward is None else pytest.approx(reward))


def test_the_weights_are_the_specifications() -> None:
    """They sum to one."""
    assert WEIGHTS == {"routing_accuracy": 0.35, "efficiency": 0.25, "no_rerouting": 0.20, "user_satisfaction": 0.20}
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


@st.composite
def signals(draw: st.DrawFn) -> RoutingTrainingSignal:
    """Draw any signal whose counts agree."""
    selected = draw(st.integers(0, 4))
    succeeded = draw(st.integers(0, selected))
    failed = draw(st.integers(0, selected - succeeded))
    return a_signal(
        agents_selected=tuple("abcd"[:selected]),
        agents_succeeded=succeeded,
        agents_failed=failed,
        agents_unavailable=draw(st.integers(0, failed)),
        total_latency_ms=draw(st.none() | st.floats(0.0, 1e9)),
        latency_budget_ms=draw(st.none() | st.integers(0, 1_000_000)),
        was_rerouted=draw(st.none() | st.booleans()),
        user_satisfaction=draw(st.none() | st.floats(1.0, 5.0)),
    )


@given(signal=signals())
def test_the_reward_is_in_bounds(signal: RoutingTrainingSignal) -> None:
    """In [0, 1] or unknown, and the same each time."""
    reward = signal.compute_reward()

    assert reward is None or 0.0 <= reward <= 1.0 + 1e-12
    assert reward == signal.compute_reward()


@given(signal=signals(), satisfaction=st.floats(1.0, 5.0))
def test_a_missing_component_never_lifts_the_reward_above_the_best_one_known(signal: RoutingTrainingSignal, satisfaction: float) -> None:
    """Taking a component away leaves the mean of the others: it moves away from the component that went, and no further."""
    without = signal.model_copy(update={"user_satisfaction": None}).compute_reward()
    known = signal.model_copy(update={"user_satisfaction": satisfaction}).compute_reward()

    assert known is not None
    if without is not None:
        value = (satisfaction - 1.0) / 4.0
        assert min(without, value) - 1e-9 <= known <= max(without, value) + 1e-9


@given(signal=signals())
def test_more_satisfaction_never_lowers_the_reward(signal: RoutingTrainingSignal) -> None:
    """Each component counts in its own direction."""
    rewards = [signal.model_copy(update={"user_satisfaction": s}).compute_reward() for s in (1.0, 2.5, 5.0)]

    assert all(r is not None for r in rewards)
    assert rewards == sorted(rewards, key=lambda r: r or 0.0)


@given(signal=signals())
def test_availability_changes_nothing_in_what_is_left(signal: RoutingTrainingSignal) -> None:
    """A signal with agents that were down has the reward of one in which they had not been selected."""
    down = signal.agents_unavailable
    apart = signal.model_copy(
        update={
            "agents_selected": signal.agents_selected[: len(signal.agents_selected) - down],
            "agents_failed": signal.agents_failed - down,
            "agents_unavailable": 0,
        }
    )

    assert signal.compute_reward() == apart.compute_reward()


@pytest.mark.parametrize(
    "fields",
    [
        {"user_satisfaction": 0.5},
        {"user_satisfaction": 5.5},
        {"answer_quality": 1.1},
        {"agents_failed": -1},
        {"total_latency_ms": -1.0},
        {"total_latency_ms": float("nan")},
        {"routing_confidence": 2.0},
    ],
    ids=str,
)
def test_a_signal_out_of_bounds_is_no_signal(fields: dict[str, Any]) -> None:
    """Bad data never reaches the training set."""
    with pytest.raises(ValidationError):
        a_signal(**fields)


FEEDBACK: dict[str, tuple[dict[str, Any], bool]] = {
    "by decision": ({"decision_id": uuid4(), "user_satisfaction": 4}, True),
    "by query": ({"query_id": uuid4(), "was_rerouted": False}, True),
    "both ids": ({"decision_id": uuid4(), "query_id": uuid4(), "answer_quality": 0.0}, False),
    "no id": ({"answer_quality": 0.5}, False),
    "says nothing": ({"decision_id": uuid4()}, False),
    "an empty agent": ({"decision_id": uuid4(), "corrected_agent": ""}, False),
    "quality of zero says something": ({"decision_id": uuid4(), "answer_quality": 0.0}, True),
    "out of bounds": ({"decision_id": uuid4(), "user_satisfaction": 6}, False),
    "unknown field": ({"decision_id": uuid4(), "answer_quality": 1.0, "stars": 5}, False),
}


@pytest.mark.parametrize(("fields", "valid"), FEEDBACK.values(), ids=FEEDBACK)
def test_feedback_names_one_decision_and_says_something(fields: dict[str, Any], valid: bool) -> None:
    """By one id, with at least one finding, within bounds."""
    if valid:
        assert Feedback.model_validate(fields)
    else:
        with pytest.raises(ValidationError):
            Feedback.model_validate(fields)


MERGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "satisfaction": ({"user_satisfaction": 2.0}, {"user_satisfaction": 2.0, "was_rerouted": None}),
    "a later value replaces the earlier": ({"answer_quality": 0.0}, {"answer_quality": 0.0}),
    "another agent was right": ({"corrected_agent": "b"}, {"corrected_agent": "b", "was_rerouted": True}),
    "the selected agent was right": ({"corrected_agent": "a"}, {"corrected_agent": "a", "was_rerouted": None}),
    "another agent, though said not to be rerouted": ({"corrected_agent": "b", "was_rerouted": False}, {"was_rerouted": False}),
}


@pytest.mark.parametrize(("said", "merged"), MERGES.values(), ids=MERGES)
def test_feedback_completes_the_signal(said: dict[str, Any], merged: dict[str, Any]) -> None:
    """What is said is taken, what is not said stays; naming another agent means that the question went to the wrong one."""
    signal = a_signal(answer_quality=0.9)

    completed = signal.with_feedback(Feedback.model_validate({"decision_id": uuid4(), **said}))

    assert {name: getattr(completed, name) for name in merged} == merged
    unsaid = signal.model_dump(exclude=said.keys() | {"was_rerouted"})
    assert completed.model_dump(include=unsaid.keys()) == unsaid


def test_a_correction_that_was_a_mistake_is_taken_back_by_the_right_one() -> None:
    """Naming the agent that was asked says that nobody had to go elsewhere; what the service itself saw of a reroute stays."""
    signal = a_signal(agents_selected=("gap_analyzer",), was_rerouted=None)
    mistaken = signal.with_feedback(Feedback(decision_id=uuid4(), corrected_agent="causal_impact"))
    mended = mistaken.with_feedback(Feedback(decision_id=uuid4(), corrected_agent="gap_analyzer"))
    seen = a_signal(agents_selected=("gap_analyzer",), was_rerouted=True)

    assert (mistaken.was_rerouted, mended.was_rerouted, mended.corrected_agent) == (True, False, "gap_analyzer")
    assert seen.with_feedback(Feedback(decision_id=uuid4(), corrected_agent="gap_analyzer")).was_rerouted is True
