"""What a search for better programs works on: the contract between the job and the programs that it makes better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import dspy

from optimizers.court import Comparison
from optimizers.evaluate import Figure
from optimizers.trainee import Task, Trainee
from service.adapters.local_lm import PROVIDER, SLOTS, LMEndpoint
from service.contracts.model import JsonObject
from service.routing.policy import Policy
from service.routing.student import Student
from signatures.inventory import ModelClass
from signatures.prompting import Model

FEWEST = 40  # questions that a search needs
PROVING = 150  # questions that no search sees
AT_ONCE = 8  # calls to an LM that is not on this machine


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The LMs, and the folder in which their answers are kept while a search runs."""

    light: LMEndpoint
    primary: LMEndpoint
    strong: LMEndpoint
    answers: Path

    @property
    def threads(self) -> int:
        """How many questions are asked at once."""
        return SLOTS if self.light.model.partition("/")[0] == PROVIDER else AT_ONCE


@dataclass(frozen=True, slots=True)
class Champion:
    """The version that better programs are made for. One change at a time: what the student learns is another challenger's matter."""

    student: Student
    policy: Policy
    programs: Mapping[str, JsonObject]


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown of the programs on questions that no search saw.

    Attributes:
        policy: of the challenger.
        compared: both on the court's trial; None where there is none.
    """

    policy: Policy
    figures: Mapping[str, Figure]
    compared: Comparison | None


class Subject(Protocol):
    """What is to be made better: its questions for the search, its program, and how a better one is proven."""

    lm: str
    questions: int
    task: Task
    train: Sequence[dspy.Example]
    validation: Sequence[dspy.Example]
    instructions: Mapping[str, str]

    def trainee(self, models: Mapping[ModelClass, Model], programs: JsonObject) -> Trainee:
        """Return the program as it is."""
        ...

    def prove(self, before: Trainee, after: Trainee, *, rehearsed: bool) -> Proof:
        """Ask both on questions that no search saw. `rehearsed`: on an LM that asks nobody, to see how many calls it takes."""
        ...
