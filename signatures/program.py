"""`RoutingProgram`: `IntentClassification` and `AgentRouting` joined, the one program that is served and optimized.

It knows neither transport nor deadline policy: which LM answers is the caller's `dspy.context`, how long it may take is an argument.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.utils.exceptions import DSPyError

from service.contracts.lm import LabelledExample, LMQuestion
from service.contracts.model import JsonObject
from signatures.demonstrations import intent_demos, routing_demos
from signatures.intent import SUB_INTENT_CHARACTERS, IntentClassification
from signatures.inventory import INVENTORY, ModelClass
from signatures.narrowing import narrow
from signatures.prompting import PLAIN, ROOMY, Model, PromptBudget
from signatures.quoting import quote, quote_history
from signatures.routing import MAX_SECONDARY_AGENTS, RATIONALE_CHARACTERS, AgentRouting
from signatures.states import load_state, unreadable

SHOWN, READING = "examples", "first_reading"  # keys of a stored state beside those of DSPy
WORTH_BEGINNING = 0.6  # the second call takes about as long as the first: with less than this part of it left, do not begin


class UnusableAnswer(ValueError):
    """The LM's answer has the right shape, but a value that may not be used."""


@dataclass(frozen=True, slots=True)
class _Intent:
    name: str
    sub_intent: str
    confidence: float
    asked: bool


class RoutingProgram(dspy.Module):  # type: ignore[misc]  # dspy is untyped
    """Finds the intent among the question's options, then the agents.

    Attributes:
        intent: the predictor of `IntentClassification`.
        routing: the predictor of `AgentRouting`.
        shown: how many of a question's examples a predictor shows, where it is fewer than fit.
        tells_reading: whether `intent` is told which option is the likeliest so far, as one more example: the question with that label.
    """

    def __init__(self, models: Mapping[ModelClass, Model] | None = None, budget: PromptBudget = ROOMY) -> None:
        """Make an unoptimized program.

        Args:
            models: the LM of each model class, with its style; a class that is missing uses LM and adapter of the `dspy.context`.
            budget: what fits into a prompt for the LM of the context.
        """
        super().__init__()
        self.intent = dspy.Predict(IntentClassification)
        self.routing = dspy.Predict(AgentRouting)
        self.shown: dict[str, int] = {}
        self.tells_reading = False
        self._models = dict(models or {})
        self._budget = budget

    def load_programs(self, programs: JsonObject) -> "RoutingProgram":
        """Load optimized predictor states by signature name (`signatures.states`); names of other programs are ignored.

        Raises:
            ValueError: a state is not a predictor's state.
        """
        for name in ("intent", "routing"):
            given = load_state(self, name, programs)
            try:
                if given.get(SHOWN) is not None:
                    self.shown[name] = int(given[SHOWN])
            except (TypeError, ValueError) as exc:
                raise unreadable(name, exc) from exc
            if name == "intent":
                self.tells_reading = bool(given.get(READING, False))
        return self

    def forward(self, question: LMQuestion) -> dspy.Prediction:
        """Answer one question, for optimizers, which are synchronous."""
        return asyncio.run(self.acall(question=question))

    async def aforward(self, question: LMQuestion, seconds: float | None = None, choose: bool = True) -> dspy.Prediction:
        """Answer one question within `seconds`; without `choose` the intent alone decides, where it has to be found.

        The prediction holds `intent`, `sub_intent`, `primary_agent`, `secondary_agents`, `confidence`, `rationale` and `complete`, which
        is false when the intent alone decided, because the second call failed, came too late or was not worth it. `failure` is what the
        second call raised, for which it had `allowed` seconds.

        Raises:
            DSPyError: the LM failed or its answer cannot be parsed.
            UnusableAnswer: a confidence is out of range.
            TimeoutError: the first call took longer than `seconds`.
        """
        clock = asyncio.get_running_loop().time
        begun = clock()
        deadline = None if seconds is None else begun + seconds
        intent = await self._find_intent(question, deadline)
        if intent.asked and not self.routing.demos and not self._address("routing")[0].unoptimized_routing:
            return _by_intent_alone(question, intent, "this model chooses agents worse than that")
        if intent.asked and not choose:
            return _by_intent_alone(question, intent, "the model that chooses agents is left alone for a while")
        if intent.asked and deadline is not None and deadline - clock() < WORTH_BEGINNING * (clock() - begun):
            return _by_intent_alone(question, intent, "the choice of agents would have come too late")
        allowed = None if deadline is None else deadline - clock()
        try:
            return await self._choose_agents(question, intent, deadline)
        except (DSPyError, UnusableAnswer, TimeoutError) as exc:
            if not intent.asked:
                raise
            late = isinstance(exc, TimeoutError)
            return _by_intent_alone(question, intent, f"the choice of agents {'came too late' if late else 'failed'}", exc, allowed)

    async def _find_intent(self, question: LMQuestion, deadline: float | None) -> _Intent:
        intents = tuple(dict.fromkeys(option.intent for option in question.options))
        if len(intents) == 1:
            return _Intent(intents[0], "", 1.0, asked=False)
        limits, context = self._address("intent")
        async with asyncio.timeout_at(deadline):
            with context:
                answer = await self.intent.acall(
                    signature=narrow(self.intent.signature, intents),
                    demos=intent_demos(
                        self.intent.demos, self._examples(question, "intent", limits.intent_examples), intents, limits.example_characters
                    ),
                    config=self._settings("intent"),
                    query=quote(question.query, limits.query_characters),
                    conversation_context=quote_history(question.history, limits.history_turns, limits.turn_characters),
                )
        sub_intent = quote(str(answer.sub_intent), SUB_INTENT_CHARACTERS)
        return _Intent(str(answer.intent), sub_intent, _probability(answer.confidence), asked=True)

    async def _choose_agents(self, question: LMQuestion, intent: _Intent, deadline: float | None) -> dspy.Prediction:
        agents = tuple(dict.fromkeys(option.name for option in question.options))
        limits, context = self._address("routing")
        async with asyncio.timeout_at(deadline):
            with context:
                answer = await self.routing.acall(
                    signature=narrow(self.routing.signature, agents),
                    demos=routing_demos(
                        self.routing.demos, self._examples(question, "routing", limits.routing_examples), agents, limits.example_characters
                    ),
                    config=self._settings("routing"),
                    query=quote(question.query, limits.query_characters),
                    query_pattern=intent.name,
                    entities=_entities(question, limits.entities_characters),
                    available_agents=_agents(question, limits.description_characters),
                )
        others = [agent for agent in dict.fromkeys(answer.secondary_agents) if agent != answer.primary_agent]
        reason = quote(str(answer.routing_rationale), RATIONALE_CHARACTERS)
        return dspy.Prediction(
            intent=intent.name,
            sub_intent=intent.sub_intent,
            primary_agent=answer.primary_agent,
            secondary_agents=others[:MAX_SECONDARY_AGENTS],
            confidence=min(intent.confidence, _probability(answer.routing_confidence)),
            rationale=reason or f"The language model chose among {len(agents)} agents and gave no reason.",
            complete=True,
            failure=None,
            allowed=None,
        )

    def _examples(self, question: LMQuestion, name: str, most: int) -> Sequence[LabelledExample]:
        shown = question.examples[: max(0, min(most, self.shown.get(name, most)))]
        if name != "intent" or not self.tells_reading:
            return shown
        first = question.options[0]
        return (LabelledExample(text=question.query, intent=first.intent, agent=first.name), *shown)

    def _settings(self, name: str) -> dict[str, Any]:
        model, call = self._models.get(INVENTORY[name].model_class), INVENTORY[name]
        return (model.style if model is not None else PLAIN).settings(call)

    def _address(self, name: str) -> tuple[PromptBudget, AbstractContextManager[None]]:
        model = self._models.get(INVENTORY[name].model_class)
        if model is None:
            return self._budget, nullcontext()
        return model.style.budget, dspy.context(lm=model.lm, adapter=model.style.adapter)


def _by_intent_alone(
    question: LMQuestion, intent: _Intent, why: str, failure: Exception | None = None, allowed: float | None = None
) -> dspy.Prediction:
    agent = next(option.name for option in question.options if option.intent == intent.name)
    return dspy.Prediction(
        intent=intent.name,
        sub_intent=intent.sub_intent,
        primary_agent=agent,
        secondary_agents=[],
        confidence=intent.confidence,
        rationale=f"The intent alone decided: the agent that serves it was taken, because {why}.",
        complete=False,
        failure=failure,
        allowed=allowed,
    )


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise UnusableAnswer(f"the confidence {value!r} is not a number from 0 to 1")
    return float(value)


def _entities(question: LMQuestion, characters: int) -> str:
    return quote("; ".join(f"{e.type.value}: {e.value}" for e in question.entities), characters)


def _agents(question: LMQuestion, characters: int) -> str:
    return "\n".join(f"{option.name} (for {option.intent}): {quote(option.description, characters)}" for option in question.options)
