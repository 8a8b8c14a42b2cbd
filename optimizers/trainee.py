"""`Trainee`: a served program as DSPy's optimizers want it, with only the predictors that are to be made better open to them."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dspy

from optimizers.questions import Asked
from service.contracts.lm import LMQuestion, SynthesisQuestion
from service.contracts.model import JsonObject
from signatures.feedback import feedback_on
from signatures.inventory import INVENTORY, ModelClass
from signatures.program import READING, SHOWN, RoutingProgram
from signatures.prompting import Model
from signatures.quoting import quote

FEWER_EXAMPLES = (2, 1)  # that a question may show, fewer than fit
LONGEST_SHOWN = 300  # characters of a text in a prompt that asks for a better instruction


@dataclass(frozen=True, slots=True)
class Task:
    """What is made better.

    Attributes:
        predictors: of the program, those that are open to a search.
        right: whether the answer to an example is right.
        feedback: what a reflecting optimizer is told of an answer.
        labelled: whether an example is a demonstration as it stands.
        demonstrations: of what went right, at most, in a prompt.
    """

    predictors: tuple[str, ...]
    right: Callable[[dspy.Example, dspy.Prediction], bool]
    feedback: Callable[[dspy.Example, dspy.Prediction], str]
    labelled: bool = True
    demonstrations: int = 6


class Trainee(dspy.Module):  # type: ignore[misc]  # dspy is untyped
    """Answers a question as the served program does; the predictors that are to be made better are attributes of these names."""

    def __init__(self, names: Sequence[str], make: Callable[[], dspy.Module]) -> None:
        """Open predictors of a program to a search.

        It is made anew for each answer: kept, it would show DSPy the closed predictors too, and be copied with the open ones.
        """
        super().__init__()
        self._names, self._make, program = tuple(names), make, make()
        for name in self._names:
            setattr(self, name, getattr(program, name))

    def served(self) -> dspy.Module:
        """Return the program that is served."""
        return self._make()

    def forward(self, question: LMQuestion | SynthesisQuestion) -> dspy.Prediction:
        """Answer one question."""
        program = self.served()
        for name in self._names:
            setattr(program, name, getattr(self, name))
        return asyncio.run_coroutine_threadsafe(program.acall(question=question), _loop()).result()

    def states(self) -> dict[str, JsonObject]:
        """Return the predictors' states by signature name, with the fields of the signature alone: what a router version stores."""
        return {name: _state(getattr(self, name)) for name in self._names}

    def settings(self) -> "Sequence[Sequence[Callable[[Trainee], Trainee]]]":
        """Return what may be set besides instructions and demonstrations: group after group, ways to make a copy with another setting."""
        return ()


class RoutingTrainee(Trainee):
    """`RoutingProgram`; how many examples it shows, and whether it tells the likeliest option, may be set."""

    def __init__(self, task: Task, models: Mapping[ModelClass, Model], programs: JsonObject) -> None:
        """Start from the programs of a router version, which may be none."""

        def program() -> RoutingProgram:
            return RoutingProgram(models).load_programs(programs)

        super().__init__([name for name in task.predictors if _is_called(name, models)], program)
        self.shown, self.tells_reading = dict(program().shown), program().tells_reading

    def served(self) -> dspy.Module:
        """Return the program that is served, with what is set."""
        program = super().served()
        program.shown, program.tells_reading = self.shown, self.tells_reading
        return program

    def states(self) -> dict[str, JsonObject]:
        """Return the predictors' states, with what is set."""
        return {
            name: {**state, SHOWN: self.shown.get(name), READING: name == "intent" and self.tells_reading}
            for name, state in super().states().items()
        }

    def settings(self) -> "Sequence[Sequence[Callable[[Trainee], Trainee]]]":
        """Return first ways to show fewer of a question's examples, then one to tell the student's reading.

        A small model copies what it sees: a third example that is wrong costs it more than a large one, and the student's own reading,
        which it may contradict, helps it more.
        """
        return [[_showing(most, self._names[0]) for most in FEWER_EXAMPLES], [_telling_reading]]


def _showing(most: int, name: str) -> "Callable[[Trainee], Trainee]":
    def made(trainee: Trainee) -> Trainee:
        copy: Trainee = trainee.deepcopy()
        copy.shown = {**trainee.shown, name: most}
        return copy

    return made


def _telling_reading(trainee: Trainee) -> Trainee:
    copy: Trainee = trainee.deepcopy()
    copy.tells_reading = True
    return copy


class _Example(dspy.Example):  # type: ignore[misc]  # dspy is untyped
    """An example that shows itself in a line: an optimizer prints them into prompts."""

    def __repr__(self) -> str:
        return f"query: {quote(self.query, LONGEST_SHOWN)} | intent: {self.intent} | agent: {self.primary_agent}"


def example_of(asked: Asked) -> dspy.Example:
    """Return a question as an example; it is a demonstration for both predictors as it stands."""
    fields = {"query": asked.question.query, "query_pattern": asked.intent, "intent": asked.intent, "primary_agent": asked.agent}
    return _Example(question=asked.question, **fields).with_inputs("question")


def finds_intent(example: dspy.Example, answer: dspy.Prediction) -> bool:
    """Say whether the intent is right."""
    return bool(answer.intent == example.intent)


def finds_agent(example: dspy.Example, answer: dspy.Prediction) -> bool:
    """Say whether the agent is right, which is what a router is for."""
    return bool(answer.primary_agent == example.primary_agent)


def _routing_task(predictors: tuple[str, ...], right: Callable[[dspy.Example, dspy.Prediction], bool]) -> Task:
    def feedback(example: dspy.Example, answer: dspy.Prediction) -> str:
        chosen = (str(answer.get("intent")), str(answer.get("primary_agent")))
        return feedback_on(*chosen, right_intent=example.intent, right_agent=example.primary_agent, right=right(example, answer))

    return Task(predictors, right, feedback)


TASKS = {"routing": _routing_task(("intent", "routing"), finds_agent), "intent": _routing_task(("intent",), finds_intent)}


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
