"""The programs that choose intent and agents, as the subject of a search: its questions, and how a better program is proven.

Questions for the search, for the LM's own proof and for the court are three sets; none sees another's.
"""

from collections.abc import Mapping, Sequence

import dspy
import numpy as np

from optimizers.case import Case, Progress
from optimizers.court import Comparison
from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.job import SEED
from optimizers.order import Wish
from optimizers.paired import compare
from optimizers.program_search import TRAINING, VALIDATION, answer_all
from optimizers.questions import Asked, ask_held_out, ask_texts
from optimizers.subject import FEWEST, PROVING, Champion, Endpoints, Proof
from optimizers.trainee import TASKS, RoutingTrainee, Trainee, example_of
from optimizers.trial import Routing, hold
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from signatures.instructions import instructions_from
from signatures.inventory import ModelClass
from signatures.prompting import Model

SIGNIFICANCE = 0.05  # chance at most of trusting an LM that is no better than the student


class RoutingPrograms:
    """What the LM does for `--signature routing` and `--signature intent`."""

    def __init__(self, case: Case, champion: Champion, wish: Wish, endpoints: Endpoints, encoder: Encoder, progress: Progress) -> None:
        """Gather the questions: what the student is unsure of.

        Raises:
            ConfigurationError: there are too few.
        """
        fitted = case.fit(encoder, progress)
        wanted = TRAINING + VALIDATION[wish.auto] + PROVING
        asked = ask_held_out(fitted, champion.policy, case.catalog, most=wanted, seed=SEED)
        if len(asked) < FEWEST:
            raise ConfigurationError(f"There are {len(asked)} different labelled requests; a search needs {FEWEST}.")
        share = min(1.0, len(asked) / wanted)
        train, proving = int(share * TRAINING), int(share * PROVING)
        self._case, self._champion, self._endpoints = case, champion, endpoints
        self._asked, self._proving = asked, asked[train : train + proving]
        self.lm = endpoints.light.model
        self.questions = len(asked)
        self.task = TASKS[wish.signature]
        self.train: Sequence[dspy.Example] = [example_of(one) for one in asked[:train]]
        self.validation: Sequence[dspy.Example] = [example_of(one) for one in asked[train + proving :]]
        self.instructions: Mapping[str, str] = instructions_from(
            {intent.name: intent.description for intent in case.catalog.intents},
            {agent.name: agent.description for agent in case.catalog.agents},
        )

    def trainee(self, models: Mapping[ModelClass, Model], programs: JsonObject) -> RoutingTrainee:
        """Return the program as it is."""
        return RoutingTrainee(self.task, models, programs)

    def prove(self, before: Trainee, after: Trainee, *, rehearsed: bool) -> Proof:
        """Ask both on questions that no search saw, and try both cascades.

        Where it is only rehearsed, the most calls that can follow are made: those of an LM that may decide.
        """
        policy, figures = self._weigh(before, after)
        if rehearsed:
            policy = policy.model_copy(update={"trusted_lms": (self._endpoints.primary.model,), "kept_out_lms": ()})
        return Proof(policy, figures, self._compare(policy, before, after))

    def _weigh(self, before: Trainee, after: Trainee) -> tuple[Policy, dict[str, Figure]]:
        """Return the policy with what was proven of the LM, and how right each is where the student is unsure."""
        lm, policy = self._endpoints.primary.model, self._champion.policy
        questions = [one.question for one in self._proving]
        threads = self._endpoints.threads
        right = {
            name: _right(answer_all(program, questions, threads), self._proving) for name, program in (("before", before), ("after", after))
        }
        student = np.array([one.question.options[0].name == one.agent for one in self._proving])
        figures = {f"lm_unsure_accuracy_{name}": Figure.share(int(of.sum()), len(of)) for name, of in right.items()}
        figures["student_unsure_accuracy"] = Figure.share(int(student.sum()), len(student))
        against = compare(student, right["after"])
        trusted, kept_out = set(policy.trusted_lms) - {lm}, set(policy.kept_out_lms) - {lm}
        if against.p_better <= SIGNIFICANCE:
            trusted.add(lm)
        elif against.p_worse <= SIGNIFICANCE:
            kept_out.add(lm)
        return policy.model_copy(update={"trusted_lms": tuple(sorted(trusted)), "kept_out_lms": tuple(sorted(kept_out))}), figures

    def _compare(self, policy: Policy, before: Trainee, after: Trainee) -> Comparison | None:
        """Try both cascades: where the policy asks the LM and lets it decide, its choice counts, else the student's.

        No question of the search or of the proof is among the logged requests that it is tried on.
        """
        case, champion = self._case, self._champion
        golden = case.golden_trial()
        seen = frozenset(Row(one.question.query, "").key for one in self._asked)
        trial = golden if golden is not None else case.logged_trial(seen)
        if trial is None:
            return None
        encodings = champion.student.encoder.encode_many(list(trial.texts))
        alone = Routing(champion.student, champion.policy, case.serves)
        choices = alone.choices(encodings) if golden is None else alone.agents(encodings)
        asked = ask_texts(trial.texts, champion.student.read_all(encodings), champion.student, champion.policy, case.catalog)
        lm = self._endpoints.primary.model

        def chosen(program: Trainee, policy: Policy) -> list[str]:
            decides = policy.lm_may_decide(lm)
            answers = answer_all(program, list(asked.values()), self._endpoints.threads) if decides else [None] * len(asked)
            by_lm = {place: answer.primary_agent for place, answer in zip(asked, answers, strict=True) if answer is not None}
            return [by_lm.get(place, choice) for place, choice in enumerate(choices)]

        return hold(trial, chosen(before, champion.policy), chosen(after, policy))


def _right(answers: Sequence[object], asked: Sequence[Asked]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.array([getattr(answer, "primary_agent", None) == one.agent for answer, one in zip(answers, asked, strict=True)], np.bool_)
