"""The job that makes the LM's programs better: the champion's student and policy, with programs that a search found → trial → ruling.

One change at a time: what the student learns is another challenger's matter. Questions for the search, for the LM's own proof and for the
court are three sets; none sees another's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from optimizers.case import Case, Progress, open_case
from optimizers.court import Comparison
from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.job import SEED, Made, register
from optimizers.lm_meter import Meter, OverBudget, Spent, metered
from optimizers.order import NotDone, Order, Wish
from optimizers.paired import compare
from optimizers.program_search import TRAINING, VALIDATION, Search, answer_all, find_better
from optimizers.questions import Asked, ask_held_out, ask_texts
from optimizers.response_cache import answers_kept, no_answers_kept
from optimizers.routing_job import Hearing, hear
from optimizers.search_watch import Searched, Watch
from optimizers.simulated_lm import simulated_lm
from optimizers.trainee import TASKS, Trainee, example_of
from optimizers.trial import Routing, hold
from service.adapters.lm_client import make_lm
from service.adapters.lm_price import price_of
from service.adapters.local_lm import PROVIDER, SLOTS, LMEndpoint
from service.catalog.model import Catalog
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from signatures.artifact import STUDENT, read_version
from signatures.inventory import ModelClass
from signatures.prompting import Model, style_for
from signatures.wording import wordings

PROVING = 150  # questions on which an LM shows that it beats the student
FEWEST = 40  # questions that a search needs
SIGNIFICANCE = 0.05  # chance at most of trusting an LM that is no better than the student
PROPOSAL_TOKENS = 300  # of an instruction that the local LM writes; it would not stop by itself
RETRIES, CALL_SECONDS = 2, 120.0
MARGIN = 1.2  # of a budget for what follows the search, over what it is expected to need
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
class Estimate:
    """What a job is expected to ask for: in the search, and in all. `usd` is None where a price is not known."""

    questions: int
    searching: Spent
    spent: Spent

    def sentence(self, wish: Wish) -> str:
        """Say it for people."""
        usd = self.spent.usd
        cost = "nobody knows its price" if usd is None else "it costs nothing" if usd == 0.0 else f"about {usd:.2f} USD"
        return (
            f"{wish.optimizer} ({wish.auto}) on {self.questions} questions needs about {self.spent.calls} calls, "
            f"{self.spent.input_tokens:,} tokens to read and {self.spent.output_tokens:,} to write: {cost}. Nothing was asked."
        )

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        return {"questions": self.questions, **asdict(self.spent)}

    def for_search(self, wish: Wish) -> "tuple[int | None, float | None]":
        """Return the calls and dollars of a budget that the search may spend: what follows it needs its part."""
        calls = self.spent.calls - self.searching.calls
        usd = (self.spent.usd or 0.0) - (self.searching.usd or 0.0)
        return (
            None if wish.most_calls is None else wish.most_calls - int(MARGIN * calls),
            None if wish.most_usd is None else wish.most_usd - MARGIN * usd,
        )


@dataclass(frozen=True, slots=True)
class _Champion:
    student: Student
    policy: Policy
    programs: Mapping[str, JsonObject]


@dataclass(frozen=True, slots=True)
class _Questions:
    """Questions for the search and for the proof."""

    train: Sequence[Asked]
    validation: Sequence[Asked]
    proving: Sequence[Asked]

    @property
    def keys(self) -> frozenset[str]:
        """The keys (`Row.key`) of their texts."""
        return frozenset(Row(one.question.query, "").key for one in (*self.train, *self.validation, *self.proving))


def estimate_programs(order: Order, wish: Wish, endpoints: Endpoints, encoder: Encoder, catalog: Catalog, progress: Progress) -> Estimate:
    """Return what `optimize_programs` would ask for, by running its search on an LM that asks nobody; see there for errors."""
    case, champion, questions = _prepare(order, wish, encoder, catalog, progress)
    progress("running the search on an LM that asks nobody")
    return _estimate(case, champion, questions, wish, endpoints)


def optimize_programs(
    order: Order, wish: Wish, endpoints: Endpoints, encoder: Encoder, catalog: Catalog, progress: Progress
) -> tuple[Hearing, Searched]:
    """Search better programs, register them as a challenger, and let the court decide; it is promoted if the court says so.

    Raises:
        LMTooUnreliable: the LM failed so often that no score means anything; nothing is registered.
        ConfigurationError: also where there are too few questions, or the budget is too small for a search.
        NotDone: as `optimizers.routing_job.hear`.
        ValueError, FileNotFoundError, StoreUnavailable: as `optimizers.case.open_case`.
    """
    if wish.most_usd is not None and any(price_of(one) is None for one in (endpoints.light, endpoints.primary, endpoints.strong)):
        raise ConfigurationError("Nobody knows what this language model costs, so --budget-usd cannot be kept. Use --budget-calls.")
    case, champion, questions = _prepare(order, wish, encoder, catalog, progress)
    progress("running the search on an LM that asks nobody, to see what it will cost")
    expected = _estimate(case, champion, questions, wish, endpoints)
    _require_budget(wish, expected)
    progress(f"about {expected.spent.calls} calls are needed")
    most_calls, most_usd = expected.for_search(wish)
    meter = Meter(most_calls=most_calls, most_usd=most_usd)
    models = _models(endpoints, lambda endpoint: make_lm(endpoint, retries=RETRIES, timeout=CALL_SECONDS), meter)
    with answers_kept(endpoints.answers):
        watch = Watch(meter, progress, expected.spent.calls)
        before = Trainee(TASKS[wish.signature], models, dict(champion.programs))
        after, ended = find_better(wish.optimizer, _search(wish, questions, models, endpoints, catalog), before, watch)
        meter.allow(most_calls=wish.most_calls, most_usd=wish.most_usd)
        try:
            progress("proving the LM on questions that no search saw")
            policy, figures = _prove(questions.proving, before, after, champion.policy, endpoints)
            progress("the court: trying the challenger against the champion")
            programs = {**champion.programs, **after.states()}
            compared = _compare(case, champion, questions, policy, before, after, endpoints)
        except OverBudget as exc:
            raise NotDone(f"The budget ended before the challenger was proven: {exc}. Nothing was registered. Raise the budget.") from exc
    made = Made(champion.student, policy, case.labelled, programs, endpoints.light.model)
    version, _ = register(
        made, figures, case.dataset, mlflow_uri=order.mlflow_uri, job=wish.optimizer, parent=case.champion.number, promote=False
    )
    searched = Searched(wish, endpoints.light.model, watch.trials, meter.spent, before.states(), after.states(), ended)
    return hear(case, version, figures, compared, encoder, searched=searched), searched


def _prepare(order: Order, wish: Wish, encoder: Encoder, catalog: Catalog, progress: Progress) -> tuple[Case, _Champion, _Questions]:
    case = open_case(order, catalog, progress)
    version = read_version(case.champion.folder)
    champion = _Champion(Student.load(case.champion.folder / STUDENT, encoder), Policy.model_validate(version.policy), version.programs)
    fitted = case.fit(encoder, progress)
    wanted = TRAINING + VALIDATION[wish.auto] + PROVING
    asked = ask_held_out(fitted, champion.policy, catalog, most=wanted, seed=SEED)
    if len(asked) < FEWEST:
        raise ConfigurationError(f"There are {len(asked)} different labelled requests; a search needs {FEWEST}.")
    share = min(1.0, len(asked) / wanted)
    train, proving = int(share * TRAINING), int(share * PROVING)
    return case, champion, _Questions(asked[:train], asked[train + proving :], asked[train : train + proving])


def _estimate(case: Case, champion: _Champion, questions: _Questions, wish: Wish, endpoints: Endpoints) -> Estimate:
    meter = Meter()
    models = _models(endpoints, lambda endpoint: simulated_lm(endpoint.model), meter)
    with no_answers_kept():
        before = Trainee(TASKS[wish.signature], models, dict(champion.programs))
        watch = Watch(meter, lambda _: None, None)
        after, _ = find_better(wish.optimizer, _search(wish, questions, models, endpoints, case.catalog), before, watch)
        searching = meter.spent
        _prove(questions.proving, before, after, champion.policy, endpoints)
        trusting = champion.policy.model_copy(update={"trusted_lms": (endpoints.primary.model,), "kept_out_lms": ()})
        _compare(case, champion, questions, trusting, before, after, endpoints)
    return Estimate(len(questions.train) + len(questions.validation) + len(questions.proving), searching, meter.spent)


def _require_budget(wish: Wish, expected: Estimate) -> None:
    calls, usd = expected.for_search(wish)
    short = calls is not None and calls < expected.searching.calls / 2
    if short or (usd is not None and usd < (expected.searching.usd or 0.0) / 2):
        raise ConfigurationError(
            f"The search needs about {expected.spent.calls} calls ({expected.spent.usd or 0.0:.2f} USD); with this budget it would find "
            "nothing. Raise --budget-calls or --budget-usd, or see what it needs: --dry-run"
        )


def _models(endpoints: Endpoints, make: Callable[[LMEndpoint], object], meter: Meter) -> dict[ModelClass, Model]:
    made = {
        endpoint: Model(metered(make(endpoint), meter, price_of(endpoint)), style_for(endpoint.model))
        for endpoint in {endpoints.light, endpoints.primary, endpoints.strong}
    }
    return {
        ModelClass.LIGHT: made[endpoints.light],
        ModelClass.PRIMARY: made[endpoints.primary],
        ModelClass.STRONG: made[endpoints.strong],
    }


def _search(wish: Wish, questions: _Questions, models: Mapping[ModelClass, Model], endpoints: Endpoints, catalog: Catalog) -> Search:
    writer = models[ModelClass.STRONG].lm
    on_this_machine = writer.model.partition("/")[0] == PROVIDER
    return Search(
        task=TASKS[wish.signature],
        train=[example_of(one) for one in questions.train],
        validation=[example_of(one) for one in questions.validation],
        wordings=wordings(
            {intent.name: intent.description for intent in catalog.intents}, {agent.name: agent.description for agent in catalog.agents}
        ),
        writer=writer.copy(max_tokens=PROPOSAL_TOKENS) if on_this_machine else writer,
        auto=wish.auto,
        threads=endpoints.threads,
        seed=SEED,
    )


def _prove(
    proving: Sequence[Asked], before: Trainee, after: Trainee, policy: Policy, endpoints: Endpoints
) -> tuple[Policy, dict[str, Figure]]:
    """Return the policy with what was proven of the LM, and how right each is where the student is unsure."""
    lm = endpoints.primary.model
    questions = [one.question for one in proving]
    right = {
        name: _right(answer_all(program, questions, endpoints.threads), proving) for name, program in (("before", before), ("after", after))
    }
    student = np.array([one.question.options[0].name == one.agent for one in proving])
    figures = {f"lm_unsure_accuracy_{name}": Figure.share(int(of.sum()), len(of)) for name, of in right.items()}
    figures["student_unsure_accuracy"] = Figure.share(int(student.sum()), len(student))
    against = compare(student, right["after"])
    trusted, kept_out = set(policy.trusted_lms) - {lm}, set(policy.kept_out_lms) - {lm}
    if against.p_better <= SIGNIFICANCE:
        trusted.add(lm)
    elif against.p_worse <= SIGNIFICANCE:
        kept_out.add(lm)
    return policy.model_copy(update={"trusted_lms": tuple(sorted(trusted)), "kept_out_lms": tuple(sorted(kept_out))}), figures


def _compare(
    case: Case, champion: _Champion, questions: _Questions, policy: Policy, before: Trainee, after: Trainee, endpoints: Endpoints
) -> Comparison | None:
    """Try both cascades: where the policy asks the LM and lets it decide, its choice counts, else the student's.

    No question of the search or of the proof is among the logged requests that it is tried on.
    """
    golden = case.golden_trial()
    trial = golden if golden is not None else case.logged_trial(questions.keys)
    if trial is None:
        return None
    encodings = champion.student.encoder.encode_many(list(trial.texts))
    alone = Routing(champion.student, champion.policy, case.serves)
    choices = alone.choices(encodings) if golden is None else alone.agents(encodings)
    asked = ask_texts(trial.texts, champion.student.read_all(encodings), champion.student, champion.policy, case.catalog)

    def chosen(program: Trainee, may_decide: bool) -> list[str]:
        answers = answer_all(program, list(asked.values()), endpoints.threads) if may_decide else [None] * len(asked)
        by_lm = {place: answer.primary_agent for place, answer in zip(asked, answers, strict=True) if answer is not None}
        return [by_lm.get(place, choice) for place, choice in enumerate(choices)]

    lm = endpoints.primary.model
    return hold(trial, chosen(before, champion.policy.lm_may_decide(lm)), chosen(after, policy.lm_may_decide(lm)))


def _right(answers: Sequence[object], asked: Sequence[Asked]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.array([getattr(answer, "primary_agent", None) == one.agent for answer, one in zip(answers, asked, strict=True)], np.bool_)
