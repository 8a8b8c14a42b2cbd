"""The case that a challenger is made for: the champion, what is known, and what it will be tried on. The same for every optimizer."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version

from optimizers.dataset import Row, hash_rows, read_rows
from optimizers.evidence import learn_from
from optimizers.job import SEED, require_apart, require_known
from optimizers.observations import COLUMNS, Observed, observe
from optimizers.order import Order
from optimizers.scrub import Scrubber
from optimizers.snapshot import DATASET, TRAIN, VALIDATION, Snapshot, build_snapshot, keys_of, read_fitted_on
from optimizers.student import Fit, fit
from optimizers.trial import Trial, golden_trial, logged_trial
from service.adapters.mlflow_artifacts import artifact
from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.adapters.router_source import NO_CHAMPION
from service.adapters.signal_log import SignalLog
from service.catalog.model import Catalog
from service.errors import ConfigurationError
from service.routing.encoder import Encoder

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A champion and the evidence.

    Attributes:
        seen: keys of texts that must not test: what the champion was fitted on besides its labelled requests, and what was received.
        serves: the agent of each intent.
    """

    order: Order
    catalog: Catalog
    registry: MlflowRegistry
    champion: RegisteredVersion
    labelled: Sequence[Row]
    golden: Sequence[Row]
    dataset: Snapshot
    seen: frozenset[str]
    serves: Mapping[str, str]

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of everything that decides what comes of fitting a student and of its hearing: the same case ends the same way."""
        described = {intent.name: intent.description for intent in self.catalog.intents}
        order = [self.order.rules.model_dump(mode="json"), self.order.risk_target, described, self.serves, version("pointsman")]
        data = [self.champion.number, self.dataset.digest, hash_rows(self.golden), sorted(self.seen)]
        return hashlib.sha256(json.dumps([*data, *order], sort_keys=True).encode()).hexdigest()

    def fit(self, encoder: Encoder, progress: Progress) -> Fit:
        """Fit a student on everything that is known."""
        return fit(
            self.labelled,
            encoder,
            logged=learn_from(self.dataset.of(TRAIN, VALIDATION), self.serves),
            descriptions={intent.name: intent.description for intent in self.catalog.intents},
            seed=SEED,
            progress=progress,
        )

    def golden_trial(self) -> Trial | None:
        """Return the golden requests, where they are enough to try a challenger on."""
        return golden_trial(self.golden, self.serves) if len(self.golden) >= self.order.rules.least_test else None

    def logged_trial(self, asked: frozenset[str] = frozenset()) -> Trial | None:
        """Return the logged requests that the champion was not fitted on, where there are any. Received ones teach; they do not judge.

        `asked` are the keys of further texts that must not test.
        """
        trial = logged_trial(self.dataset.witnessed, self.serves).without(self.seen | asked)
        return trial if len(trial) else None


def open_case(order: Order, catalog: Catalog, progress: Progress) -> Case:
    """Gather a case.

    Raises:
        ValueError, FileNotFoundError: a file of labelled requests cannot be used.
        ConfigurationError: there is no champion to challenge, or registry or store cannot be used.
        StoreUnavailable: the signals cannot be read.
    """
    registry = MlflowRegistry(order.mlflow_uri)
    progress("reading the champion")
    champion = registry.champion()
    if champion is None:
        raise ConfigurationError(NO_CHAMPION)
    labelled, seen = data_of(registry, champion)
    labelled = read_rows(order.seed_set) if order.seed_set is not None else labelled
    golden = read_rows(order.golden) if order.golden is not None else []
    if order.golden is not None and not golden:
        raise ValueError(f"{order.golden} has no labelled requests.")
    if not labelled:
        raise ConfigurationError(f"Router version {champion.number} does not come with its labelled requests. Name them with --seed-set.")
    require_known([*labelled, *golden], catalog.intent)
    require_apart(labelled, golden)
    progress("reading the signals")
    scrub = Scrubber()
    log = SignalLog(order.database_url)
    received = list(observe(log.received(since=order.since), scrub, received=True))
    seen |= _keys_of(received)
    logged = observe(log.batches(since=order.since, columns=COLUMNS), scrub)
    dataset = build_snapshot([*logged, *received], labelled, keys_of(row.text for row in golden), scrub)
    serves = {intent.name: intent.primary_agent for intent in catalog.intents}
    return Case(order, catalog, registry, champion, labelled, golden, dataset, seen, serves)


def _keys_of(observed: Sequence[Observed]) -> frozenset[str]:
    return frozenset(Row(text, "").key for one in observed for text in one.rows["text"].to_pylist())


def data_of(registry: MlflowRegistry, version: RegisteredVersion) -> tuple[list[Row], frozenset[str]]:
    """Return the labelled requests that a version was fitted on, and the keys of everything else that it was; nothing, if it has none."""
    with artifact(registry.uri, registry.run_of(version.number), DATASET) as folder:
        return read_fitted_on(folder) if folder is not None else ([], frozenset())
