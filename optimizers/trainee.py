"""`Trainee`: the served program as DSPy's optimizers want it, with only the predictors that are to be made better open to them."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dspy

from optimizers.questions import Asked
from service.contracts.lm import LMQuestion
from service.contracts.model import JsonObject
from signatures.inventory import INVENTORY, ModelClass
from signatures.program import READING, SHOWN, RoutingProgram
from signatures.prompting import Model
from signatures.quoting import quote

LONGEST_SHOWN = 300  # characters of a text in a prompt that asks for a better instruction

Right = Callable[[dspy.Example, dspy.Prediction], bool]


def finds_intent(example: dspy.Example, answer: dspy.Prediction) -> bool:
    """Say whether the intent is right."""
    return bool(answer.intent == example.intent)


def finds_agent(example: dspy.Example, answer: dspy.Prediction) -> bool:
    """Say whether the agent is right, which is what a router is for."""
    return bool(answer.primary_agent == example.primary_agent)


@dataclass(frozen=True, slots=True)
class Task:
    """What is made better by the name of a signature: these predictors, so that this is right more often."""

    predictors: tuple[str, ...]
    right: Right


TASKS = {"routing": Task(("intent", "routing"), finds_agent), "intent": Task(("intent",), finds_intent)}


class Trainee(dspy.Module):  # type: ignore[misc]  # dspy is untyped
    """Answers a question as the served program does."""

    def __init__(self, task: Task, models: Mapping[ModelClass, Model], programs: JsonObject) -> None:
        """Start from the programs of a router version, which may be none."""
        super().__init__()
        self._names = tuple(name for name in task.predictors if _is_called(name, models))

        def program() -> RoutingProgram:  # a function, for DSPy would find the closed predictors in a module, and copy what is neither
            return RoutingProgram(models).load_programs(programs)

        self._program = program
        self.shown, self.tells_reading = dict(program().shown), program().tells_reading
        for name in self._names:
            setattr(self, name, getattr(program(), name))

    def forward(self, question: LMQuestion) -> dspy.Prediction:
        """Answer one question."""
        program = self._program()
        program.shown, program.tells_reading = self.shown, self.tells_reading
        for name in self._names:
            setattr(program, name, getattr(self, name))
        return asyncio.run_coroutine_threadsafe(program.acall(question=question), _loop()).result()

    def states(self) -> dict[str, JsonObject]:
        """Return the predictors' states by signature name, with the fields of the signature alone: what a router version stores."""
        return {
            name: {**_state(getattr(self, name)), SHOWN: self.shown.get(name), READING: name == "intent" and self.tells_reading}
            for name in self._names
        }

    def telling_reading(self) -> "Trainee":
        """Return a copy that tells the LM which option is the likeliest so far."""
        copy: Trainee = self.deepcopy()
        copy.tells_reading = True
        return copy

    def showing(self, most: int) -> "Trainee":
        """Return a copy whose first predictor shows at most so many of a question's examples."""
        copy: Trainee = self.deepcopy()
        copy.shown = {**self.shown, self._names[0]: most}
        return copy


class _Example(dspy.Example):  # type: ignore[misc]  # dspy is untyped
    """An example that shows itself in a line: an optimizer prints them into prompts."""

    def __repr__(self) -> str:
        return f"query: {quote(self.query, LONGEST_SHOWN)} | intent: {self.intent} | agent: {self.primary_agent}"


def example_of(asked: Asked) -> dspy.Example:
    """Return a question as an example; it is a demonstration for both predictors as it stands."""
    fields = {"query": asked.question.query, "query_pattern": asked.intent, "intent": asked.intent, "primary_agent": asked.agent}
    return _Example(question=asked.question, **fields).with_inputs("question")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return a loop on a thread of its own; what is submitted there keeps the context of who submits it, and with it DSPy's settings.

    One for all calls: to make one for each takes longer than the rest of a call that a cache answers.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="trainee", daemon=True).start()
    return loop


def _is_called(name: str, models: Mapping[ModelClass, Model]) -> bool:
    """Leave the second call closed where the model does better without it: any demonstration would open it."""
    return name != "routing" or models[INVENTORY[name].model_class].style.budget.unoptimized_routing


def _state(predictor: dspy.Predict) -> dict[str, Any]:
    state: dict[str, Any] = predictor.dump_state()
    kept: Sequence[str] = tuple(predictor.signature.fields)
    demos = [{name: value for name, value in demo.items() if name in kept} for demo in state["demos"]]
    return {"traces": [], "train": [], "demos": demos, "signature": state["signature"], "lm": None}
