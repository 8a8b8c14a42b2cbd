"""The searches for better programs, by name: DSPy's optimizers, run quietly, from one seed, with a validation set of their own.

`miprov2`: instructions and demonstrations together (Opsahl-Ong et al. 2024). `bootstrap`: demonstrations alone (Khattab et al. 2023).
`gepa`: instructions, by reflection on what went wrong (Agrawal et al. 2025).
"""

import contextlib
import io
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dspy
from dspy.teleprompt import GEPA, BootstrapFewShotWithRandomSearch, MIPROv2
from dspy.teleprompt.mipro_optimizer_v2 import AUTO_RUN_SETTINGS

from optimizers.lm_meter import OverBudget
from optimizers.order import Auto
from optimizers.search_watch import Watch
from optimizers.trainee import Task, Trainee
from service.contracts.lm import LMQuestion, SynthesisQuestion
from signatures.adapter import CompactAdapter

LABELLED = 24  # demonstrations of a candidate; a question shows those of its labels, a third of them or fewer
TRAINING = 150  # questions that demonstrations are taken from
CANDIDATES: dict[str, int] = {auto: settings["n"] for auto, settings in AUTO_RUN_SETTINGS.items()}
VALIDATION: dict[str, int] = {auto: settings["val_size"] for auto, settings in AUTO_RUN_SETTINGS.items()}
LONGEST_INSTRUCTION = 2_000  # characters; it is read with every request
NO_LIMIT = 1_000_000  # of errors: the meter counts them and ends the search


@dataclass(frozen=True, slots=True)
class Search:
    """What a search works with; `instructions` are ready instructions by signature name that are tried too."""

    task: Task
    train: Sequence[dspy.Example]
    validation: Sequence[dspy.Example]
    instructions: Mapping[str, str]
    writer: dspy.LM
    auto: Auto
    threads: int
    seed: int


class _Proposing(MIPROv2):  # type: ignore[misc]  # dspy is untyped
    """MIPROv2 with ready instructions among its candidates, which goes on with those when the LM's cannot be read."""

    instructions: Mapping[str, str]

    def _propose_instructions(self, program: dspy.Module, *args: object, **kwargs: object) -> dict[int, list[str]]:
        ready = [[one.signature.instructions, *filter(None, [self.instructions.get(name)])] for name, one in program.named_predictors()]
        try:
            proposed: dict[int, list[str]] = super()._propose_instructions(program, *args, **kwargs)
        except Exception:  # noqa: BLE001  # whatever a small model wrote
            proposed = {}
        return {i: _usable([*own, *proposed.get(i, [])]) for i, own in enumerate(ready)}


def _usable(texts: Sequence[str]) -> list[str]:
    """Return what may be tried, each once; the first is the program's own, whatever its length."""
    return list(dict.fromkeys([texts[0], *(text for text in texts if text.strip() and len(text) <= LONGEST_INSTRUCTION)]))


def miprov2(search: Search, trainee: Trainee) -> dspy.Module:
    """Search instructions and demonstrations with Bayesian optimization."""
    optimizer = _Proposing(
        metric=_metric(search),
        prompt_model=search.writer,
        task_model=search.writer,
        auto=search.auto,
        max_bootstrapped_demos=search.task.demonstrations,
        max_labeled_demos=LABELLED if search.task.labelled else 0,
        num_threads=search.threads,
        max_errors=NO_LIMIT,
        seed=search.seed,
    )
    optimizer.instructions = search.instructions
    # The proposer would print the program's source code into its prompts: more than a small model reads.
    return optimizer.compile(trainee, trainset=list(search.train), valset=list(search.validation), program_aware_proposer=False)


def bootstrap(search: Search, trainee: Trainee) -> dspy.Module:
    """Search demonstrations at random."""
    optimizer = BootstrapFewShotWithRandomSearch(
        metric=_metric(search),
        max_bootstrapped_demos=search.task.demonstrations,
        max_labeled_demos=LABELLED if search.task.labelled else 0,
        num_candidate_programs=CANDIDATES[search.auto],
        num_threads=search.threads,
        max_errors=NO_LIMIT,
    )
    return optimizer.compile(trainee, trainset=list(search.train), valset=list(search.validation[: VALIDATION[search.auto]]))


def gepa(search: Search, trainee: Trainee) -> dspy.Module:
    """Evolve instructions by reflection on wrong answers."""
    optimizer = GEPA(metric=_feedback(search), auto=search.auto, reflection_lm=search.writer, num_threads=search.threads, seed=search.seed)
    return optimizer.compile(trainee, trainset=list(search.train), valset=list(search.validation[: VALIDATION[search.auto]]))


SEARCHES: dict[str, Callable[[Search, Trainee], dspy.Module]] = {"miprov2": miprov2, "bootstrap": bootstrap, "gepa": gepa}


def find_better(name: str, search: Search, trainee: Trainee, watch: Watch) -> tuple[Trainee, str | None]:
    """Run a search and return its best program, with the reason where it ended early: the budget was spent.

    Raises:
        LMTooUnreliable: the LM failed too often, so no score means anything.
    """
    ended, watch.whole = None, min(len(search.validation), VALIDATION[search.auto])
    with _quiet(), dspy.context(callbacks=[watch], adapter=CompactAdapter(), lm=search.writer, disable_history=True):
        random.seed(search.seed)
        try:
            found = SEARCHES[name](search, _set_best(search, trainee))
        except OverBudget as exc:
            ended = str(exc)
            found = watch.best if watch.best is not None else trainee
    if any(len(one.signature.instructions) > LONGEST_INSTRUCTION for one in found.predictors()):
        return trainee, f"the best instruction is longer than {LONGEST_INSTRUCTION} characters, which every request would have to read"
    return found, ended


def _set_best(search: Search, trainee: Trainee) -> Trainee:
    """Return the program with its settings as it does best; of equals the one with fewer changes."""
    evaluate = dspy.Evaluate(
        devset=list(search.validation[: VALIDATION[search.auto]]),
        metric=_metric(search),
        num_threads=search.threads,
        max_errors=NO_LIMIT,
        failure_score=0.0,
    )
    best, score = trainee, None
    for group in trainee.settings():
        score = evaluate(best).score if score is None else score
        tried = [make(best) for make in group]
        scores = [evaluate(one).score for one in tried]
        if max(scores) > score:
            score = max(scores)
            best = tried[scores.index(score)]
    return best


def answer_all(trainee: Trainee, questions: Sequence[LMQuestion | SynthesisQuestion], threads: int) -> list[dspy.Prediction | None]:
    """Return the program's answer to each question; None where there was none that can be used."""
    if not questions:
        return []
    asked = [dspy.Example(question=one).with_inputs("question") for one in questions]
    evaluate = dspy.Evaluate(devset=asked, metric=lambda *_: 1.0, num_threads=threads, max_errors=NO_LIMIT, failure_score=0.0)
    with _quiet(), dspy.context(disable_history=True):
        return [answer if score else None for _, answer, score in evaluate(trainee).results]


def _metric(search: Search) -> Callable[..., bool]:
    def right(example: dspy.Example, answer: dspy.Prediction, trace: object = None) -> bool:
        return search.task.right(example, answer)

    return right


def _feedback(search: Search) -> Callable[..., dspy.Prediction]:
    def judge(
        gold: dspy.Example, pred: dspy.Prediction, trace: object = None, pred_name: str | None = None, pred_trace: object = None
    ) -> dspy.Prediction:
        return dspy.Prediction(score=float(search.task.right(gold, pred)), feedback=search.task.feedback(gold, pred))

    return judge


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what DSPy, GEPA and Optuna print, which holds users' words, off terminal and log.

    Their loggers stay silent: threads that outlive a search that was stopped go on complaining.
    """
    for name in ("dspy", "optuna", "LiteLLM"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
