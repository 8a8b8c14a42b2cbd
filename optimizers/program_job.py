"""The job that makes the LM's programs better: the champion's student and policy, with programs that a search found → trial → ruling.

What is searched on and how it is proven is the subject's matter (`optimizers.subject`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from optimizers.case import Case, Progress, open_case
from optimizers.job import SEED, Made, register
from optimizers.lm_meter import Meter, OverBudget, Spent, metered
from optimizers.order import SYNTHESIS, NotDone, Order, Wish
from optimizers.program_search import Search, find_better
from optimizers.response_cache import answers_kept, no_answers_kept
from optimizers.routing_job import Hearing, hear
from optimizers.routing_programs import RoutingPrograms
from optimizers.search_watch import Searched, Watch
from optimizers.simulated_lm import simulated_lm
from optimizers.subject import Champion, Endpoints, Subject
from optimizers.synthesis_programs import SynthesisPrograms
from service.adapters.lm_client import make_lm
from service.adapters.lm_price import price_of
from service.adapters.local_lm import PROVIDER, LMEndpoint
from service.adapters.region_log import RegionLog
from service.catalog.model import Catalog
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from signatures.artifact import STUDENT, read_version
from signatures.inventory import ModelClass
from signatures.prompting import Model, style_for

PROPOSAL_TOKENS = 300  # of an instruction that the local LM writes; it would not stop by itself
RETRIES, CALL_SECONDS = 2, 120.0
MARGIN = 1.2  # of a budget for what follows the search, over what it is expected to need


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


def estimate_programs(order: Order, wish: Wish, endpoints: Endpoints, encoder: Encoder, catalog: Catalog, progress: Progress) -> Estimate:
    """Return what `optimize_programs` would ask for, by running its search on an LM that asks nobody; see there for errors."""
    _, champion, subject = _prepare(order, wish, endpoints, encoder, catalog, progress)
    progress("running the search on an LM that asks nobody")
    return _estimate(champion, subject, wish, endpoints)


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
    case, champion, subject = _prepare(order, wish, endpoints, encoder, catalog, progress)
    progress("running the search on an LM that asks nobody, to see what it will cost")
    expected = _estimate(champion, subject, wish, endpoints)
    _require_budget(wish, expected)
    progress(f"about {expected.spent.calls} calls are needed")
    most_calls, most_usd = expected.for_search(wish)
    meter = Meter(most_calls=most_calls, most_usd=most_usd)
    models = _real_models(endpoints, meter)
    with answers_kept(endpoints.answers):
        watch = Watch(meter, progress, expected.spent.calls)
        before = subject.trainee(models, dict(champion.programs))
        after, ended = find_better(wish.optimizer, _search(subject, wish, models, endpoints), before, watch)
        progress("proving what it found on questions that no search saw")
        found, searching = after.states(), meter.spent
        # Threads of a search that was stopped live on, and meet a meter that stays closed
        proving = Meter(most_calls=_left(wish.most_calls, searching.calls), most_usd=_left(wish.most_usd, searching.usd or 0.0))
        models = _real_models(endpoints, proving)
        before = subject.trainee(models, dict(champion.programs))
        after = subject.trainee(models, {**champion.programs, **found})
        try:
            proof = subject.prove(before, after, rehearsed=False)
        except OverBudget as exc:
            raise NotDone(f"The budget ended before the challenger was proven: {exc}. Nothing was registered. Raise the budget.") from exc
    made = Made(champion.student, proof.policy, case.labelled, {**champion.programs, **found}, subject.lm)
    version, _ = register(
        made, proof.figures, case.dataset, mlflow_uri=order.mlflow_uri, job=wish.optimizer, parent=case.champion.number, promote=False
    )
    keep_given_back(RegionLog(order.database_url), case.champion.number, version.number)
    searched = Searched(wish, subject.lm, watch.trials, searching + proving.spent, before.states(), found, ended)
    return hear(case, version, proof.figures, proof.compared, encoder, searched=searched), searched


def _prepare(
    order: Order, wish: Wish, endpoints: Endpoints, encoder: Encoder, catalog: Catalog, progress: Progress
) -> tuple[Case, Champion, Subject]:
    case = open_case(order, catalog, progress)
    version = read_version(case.champion.folder)
    student = Student.load(case.champion.folder / STUDENT, encoder)
    champion = Champion(student, Policy.model_validate(version.policy), version.programs)
    if wish.signature == SYNTHESIS:
        return case, champion, SynthesisPrograms(case, champion, wish, endpoints, progress)
    return case, champion, RoutingPrograms(case, champion, wish, endpoints, encoder, progress)


def _estimate(champion: Champion, subject: Subject, wish: Wish, endpoints: Endpoints) -> Estimate:
    meter = Meter()
    models = _models(endpoints, lambda endpoint: simulated_lm(endpoint.model), meter)
    with no_answers_kept():
        before = subject.trainee(models, dict(champion.programs))
        watch = Watch(meter, lambda _: None, None)
        after, _ = find_better(wish.optimizer, _search(subject, wish, models, endpoints), before, watch)
        searching = meter.spent
        subject.prove(before, after, rehearsed=True)
    return Estimate(subject.questions, searching, meter.spent)


def _require_budget(wish: Wish, expected: Estimate) -> None:
    calls, usd = expected.for_search(wish)
    short = calls is not None and calls < expected.searching.calls / 2
    if short or (usd is not None and usd < (expected.searching.usd or 0.0) / 2):
        raise ConfigurationError(
            f"The search needs about {expected.spent.calls} calls ({expected.spent.usd or 0.0:.2f} USD); with this budget it would find "
            "nothing. Raise --budget-calls or --budget-usd, or see what it needs: --dry-run"
        )


def keep_given_back(log: RegionLog, parent: str, child: str) -> None:
    """Leave to the LM what the parent's student has given back: the child's is the same."""
    log.give_back(child, log.given_back(parent))


Limit = TypeVar("Limit", int, float)


def _left(most: Limit | None, spent: Limit) -> Limit | None:
    return None if most is None else most - spent


def _real_models(endpoints: Endpoints, meter: Meter) -> dict[ModelClass, Model]:
    return _models(endpoints, lambda endpoint: make_lm(endpoint, retries=RETRIES, timeout=CALL_SECONDS), meter)


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


def _search(subject: Subject, wish: Wish, models: Mapping[ModelClass, Model], endpoints: Endpoints) -> Search:
    writer = models[ModelClass.STRONG].lm
    on_this_machine = writer.model.partition("/")[0] == PROVIDER
    return Search(
        task=subject.task,
        train=subject.train,
        validation=subject.validation,
        instructions=subject.instructions,
        writer=writer.copy(max_tokens=PROPOSAL_TOKENS) if on_this_machine else writer,
        auto=wish.auto,
        threads=endpoints.threads,
        seed=SEED,
    )
