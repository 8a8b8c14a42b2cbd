"""What Pointsman learns from: one `RoutingTrainingSignal` for every decision, and the `Feedback` that completes it later."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, Strict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from service.contracts.decision import Rung
from service.contracts.model import Contract, Milliseconds, Probability
from service.contracts.query import Identifier, Text

FEEDBACK_FIELDS = frozenset({"user_satisfaction", "answer_quality", "was_rerouted", "corrected_agent"})
WEIGHTS = {"routing_accuracy": 0.35, "efficiency": 0.25, "no_rerouting": 0.20, "user_satisfaction": 0.20}


class RoutingTrainingSignal(Contract):
    """One routing decision with its outcome: the specification's fields, and what the reward and credit assignment need besides.

    `agents_unavailable` counts the failed agents that could not be reached: that speaks of availability, not of a wrong choice.
    `was_rerouted` is None until the outcome is known. `asked` is the text that was carried out where it is not the query itself, and
    `from_history` says that the query alone does not tell the intent. `propensity` is the probability with which the logged policy chose as
    it did, by `router_version` and `rung`, and `alternative` the intent that it would have chosen otherwise; `caller_intent` is what the
    caller's own language layer said, and `further_intents` what else was asked for.
    """

    signal_id: UUID
    session_id: Identifier
    query: Text
    query_pattern: str
    intent: str
    entities_extracted: tuple[str, ...] = ()

    agents_selected: tuple[str, ...] = ()
    routing_confidence: Probability
    routing_rationale: str

    agents_succeeded: Annotated[int, Field(ge=0)] = 0
    agents_failed: Annotated[int, Field(ge=0)] = 0
    total_latency_ms: Annotated[float, Field(ge=0.0)] | None = None

    user_satisfaction: Annotated[float, Field(ge=1.0, le=5.0)] | None = None
    answer_quality: Probability | None = None
    was_rerouted: bool | None = None

    agents_unavailable: Annotated[int, Field(ge=0)] = 0
    latency_budget_ms: Milliseconds | None = None
    corrected_agent: str | None = None

    router_version: str = ""
    rung: Rung | None = None
    propensity: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    alternative: str | None = None
    asked: str | None = None
    from_history: bool = False
    caller_intent: str | None = None
    further_intents: tuple[str, ...] = ()

    def compute_reward(self) -> float | None:
        """Return the reward in [0, 1], or None when no component is known.

        The weighted mean of the specification over the components that are known; the weights of the unknown ones drop out and the
        rest are renormalised, so that missing is never good. Satisfaction 1..5 maps linearly to 0..1.
        """
        known = {name: value for name, value in self._components().items() if value is not None}
        if not known:
            return None
        weight = sum(WEIGHTS[name] for name in known)
        return sum(WEIGHTS[name] * value for name, value in known.items()) / weight

    def with_feedback(self, feedback: "Feedback") -> "RoutingTrainingSignal":
        """Return the signal completed by feedback.

        To name another agent than the selected ones means that it was rerouted; to name a selected one after that takes it back.
        """
        said = feedback.model_dump(exclude={"decision_id", "query_id"}, exclude_none=True)
        if feedback.corrected_agent is not None and feedback.corrected_agent not in self.agents_selected:
            said.setdefault("was_rerouted", True)
        elif feedback.corrected_agent is not None and self.corrected_agent not in (None, *self.agents_selected):
            said.setdefault("was_rerouted", False)  # the correction before was a mistake
        return self.model_copy(update=said)

    def _components(self) -> dict[str, float | None]:
        selected = len(self.agents_selected) - self.agents_unavailable  # who was down says nothing about the choice
        finished = self.agents_succeeded + self.agents_failed > self.agents_unavailable
        accuracy = min(1.0, self.agents_succeeded / selected) if selected > 0 and finished else None
        timed = self.total_latency_ms is not None and self.latency_budget_ms and finished
        efficiency = max(0.0, 1.0 - (self.total_latency_ms or 0.0) / (self.latency_budget_ms or 1)) if timed else None
        rerouting = None if self.was_rerouted is None else float(not self.was_rerouted)
        satisfaction = None if self.user_satisfaction is None else (self.user_satisfaction - 1.0) / 4.0
        return {
            "routing_accuracy": accuracy,
            "efficiency": efficiency,
            "no_rerouting": rerouting,
            "user_satisfaction": satisfaction,
        }


class Feedback(Contract):
    """What a user or reviewer says of an answer later. Absent fields change nothing; a repeated one replaces the earlier value."""

    decision_id: UUID | None = None
    query_id: UUID | None = None
    user_satisfaction: Annotated[float, Strict(), Field(ge=1.0, le=5.0)] | None = None
    answer_quality: Annotated[Probability, Strict()] | None = None
    was_rerouted: Annotated[bool, Strict()] | None = None
    corrected_agent: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _names_a_decision_and_says_something(self) -> "Feedback":
        if (self.decision_id is None) == (self.query_id is None):
            raise PydanticCustomError("value_error", "give either decision_id or query_id")
        said = (self.user_satisfaction, self.answer_quality, self.was_rerouted, self.corrected_agent)
        if all(value is None for value in said):
            wanted = "give at least one of user_satisfaction, answer_quality, was_rerouted, corrected_agent"
            raise PydanticCustomError("value_error", wanted)
        return self
