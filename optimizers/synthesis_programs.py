"""The program that puts findings into words, as the subject of a search: its questions, and how a better program is proven."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dspy
import numpy as np

from optimizers.case import Case, Progress
from optimizers.evaluate import Figure
from optimizers.job import SEED
from optimizers.order import SYNTHESIS, Wish
from optimizers.program_search import TRAINING, VALIDATION, answer_all
from optimizers.ruling import Rules, Weight
from optimizers.scrub import Scrubber
from optimizers.subject import FEWEST, PROVING, Champion, Endpoints, Proof
from optimizers.synthesis_questions import MOST_OF_A_SESSION, MOST_READ, TASK, WHOLE, example_of, judge, read_questions, split
from optimizers.trainee import Trainee
from optimizers.trial import Trial, hold
from service.adapters.answer_log import AnswerLog
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from signatures.composition import SynthesisProgram
from signatures.inventory import INVENTORY, ModelClass
from signatures.prompting import Model

FEWEST_OF_A_PART = 10


class SynthesisPrograms:
    """What the LM does for `--signature synthesis`."""

    def __init__(self, case: Case, champion: Champion, wish: Wish, endpoints: Endpoints, progress: Progress) -> None:
        """Gather the questions: what agents found, as it is stored.

        Raises:
            ConfigurationError: there are too few.
            StoreUnavailable: the answers cannot be read.
        """
        progress("reading what agents found")
        logged = read_questions(AnswerLog(case.order.database_url).latest(MOST_READ, since=case.order.since), Scrubber())
        several = len({one.tenant for one in logged}) > 1
        if several and wish.optimizer == "bootstrap":
            raise ConfigurationError(
                "What agents found for one tenant is never shown as a demonstration to another, and here are several tenants: "
                "--optimizer miprov2 and gepa search instructions."
            )
        sizes = _sizes(len(logged), VALIDATION[wish.auto], case.order.rules)
        self._proving, train, validation = split(logged, sizes, SEED)
        if min(map(len, (train, validation))) < FEWEST_OF_A_PART:
            raise ConfigurationError(
                f"What agents answered is of {len({one.session for one in logged})} sessions. A search needs more: what it finds is proven "
                "on sessions that it did not learn from."
            )
        self._champion, self._threads = champion, endpoints.threads
        self.lm = endpoints.strong.model
        self.questions = len(train) + len(validation) + len(self._proving)
        self.task = replace(TASK, demonstrations=0) if several else TASK
        self.train: Sequence[dspy.Example] = [example_of(one) for one in train]
        self.validation: Sequence[dspy.Example] = [example_of(one) for one in validation]
        self.instructions: Mapping[str, str] = {}

    def trainee(self, models: Mapping[ModelClass, Model], programs: JsonObject) -> Trainee:
        """Return the program as it is."""
        model = models[INVENTORY[SYNTHESIS].model_class]
        return Trainee([SYNTHESIS], lambda: SynthesisProgram(model).load_programs(programs))

    def prove(self, before: Trainee, after: Trainee, *, rehearsed: bool) -> Proof:
        """Let both word what no search saw, and compare how often the text is whole."""
        questions = [one.question for one in self._proving]
        flaws = {}
        for name, program in (("before", before), ("after", after)):
            answers = answer_all(program, questions, self._threads)
            texts = [str(answer.response_text) if answer is not None else "" for answer in answers]
            flaws[name] = [judge(text, question) for text, question in zip(texts, questions, strict=True)]
        whole = {f"whole_texts_{name}": Figure.share(found.count(WHOLE), len(found)) for name, found in flaws.items()}
        trial = Trial(tuple(one.query for one in questions), (WHOLE,) * len(questions), np.ones(len(questions)))
        return Proof(self._champion.policy, whole, hold(trial, flaws["before"], flaws["after"]))


def _sizes(answers: int, validation: int, rules: Rules) -> tuple[int, int, int]:
    """Return how many requests are to prove, to learn from and to validate on; what the court wants to see goes first.

    Raises:
        ConfigurationError: there are too few.
    """
    least = rules.least_test if rules.test is Weight.REQUIRED else 0
    share = min(1.0, answers / (PROVING + TRAINING + validation))
    proving = max(least, int(share * PROVING))
    left = answers - proving
    if left < FEWEST:
        raise ConfigurationError(
            f"Agents answered {answers} different requests so far (of a session {MOST_OF_A_SESSION} count); a search needs {FEWEST}, and "
            f"{proving} more to prove what it finds."
        )
    share = min(1.0, left / (TRAINING + validation))
    return proving, int(share * TRAINING), int(share * validation)
