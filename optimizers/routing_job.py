"""The routing job without an LM: labelled requests and the log → dataset → a challenger → its trial → the court's ruling.

Each step takes and returns data; what was fitted on never tests, and the test is touched once.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from optimizers.court import Comparison, judge_integrity, judge_off_policy, judge_test, rule
from optimizers.dataset import Row, read_rows
from optimizers.evaluate import Figure
from optimizers.evidence import learn_from
from optimizers.job import SEED, register, require_apart, require_known
from optimizers.observations import observe
from optimizers.policy import fit_policy, read_held_out
from optimizers.ruling import Finding, Rules, Ruling, Verdict
from optimizers.scrub import Scrubber
from optimizers.several import fit_several
from optimizers.snapshot import DATASET, TRAIN, VALIDATION, Snapshot, build_snapshot, read_fitted_on
from optimizers.student import Fit, fit
from optimizers.trial import Routing, golden_trial, hold, logged_trial
from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.adapters.router_source import RouterSource, remember
from service.adapters.signal_log import SignalLog
from service.catalog.model import Catalog
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from signatures.artifact import STUDENT, read_version

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made better, of what, and by which rules.

    Attributes:
        seed_set: labelled requests; None: those of the champion.
        golden: labelled requests to test on; None: what users said of logged requests that were never learned from.
        since: signals before it are not used.
    """

    mlflow_uri: str
    database_url: str
    rules: Rules
    risk_target: float
    seed_set: Path | None = None
    golden: Path | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hearing:
    """A challenger and what the court made of it."""

    champion: str
    version: RegisteredVersion
    dataset: JsonObject
    figures: Mapping[str, Figure]
    verdict: Verdict

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        return {
            "champion": self.champion,
            "version": self.version.number,
            "ruling": self.verdict.ruling.value,
            "reason": self.verdict.reason,
            "figures": {name: {"value": f.value, "low": f.low, "high": f.high, "n": f.n} for name, f in self.figures.items()},
            "dataset": self.dataset,
            "verdict": self.verdict.model_dump(mode="json"),
        }


def optimize_routing(order: Order, encoder: Encoder, catalog: Catalog, progress: Progress) -> Hearing:
    """Fit a challenger on everything that is known, register it, and let the court decide; it is promoted if the court says so.

    Raises:
        ValueError, FileNotFoundError: a file of labelled requests cannot be used.
        ConfigurationError: there is no champion to challenge, or registry or store cannot be used.
        StoreUnavailable: the signals cannot be read.
    """
    registry = MlflowRegistry(order.mlflow_uri)
    progress("reading the champion")
    champion = _champion(registry)
    labelled, seen = _data_of(registry, champion)
    labelled = read_rows(order.seed_set) if order.seed_set is not None else labelled
    golden = read_rows(order.golden) if order.golden is not None else []
    if not labelled:
        raise ConfigurationError(f"Router version {champion.number} does not come with its labelled requests. Name them with --seed-set.")
    require_known([*labelled, *golden], catalog.intent)
    require_apart(labelled, golden)
    progress("reading the signals")
    dataset = _gather(order, labelled, golden)
    serves = {intent.name: intent.primary_agent for intent in catalog.intents}
    fitted = fit(
        labelled,
        encoder,
        logged=learn_from(dataset.of(TRAIN, VALIDATION), serves),
        descriptions={intent.name: intent.description for intent in catalog.intents},
        seed=SEED,
        progress=progress,
    )
    progress("fitting the policy")
    held_out = read_held_out(fitted)
    policy = fit_several(fitted, fit_policy(held_out, risk_target=order.risk_target))
    figures = {"cross_fitted_accuracy": Figure.share(int(held_out.correct[held_out.in_scope].sum()), int(held_out.in_scope.sum()))}
    progress("registering the challenger")
    challenger, _ = register(
        fitted, policy, figures, dataset, mlflow_uri=order.mlflow_uri, job="routing", parent=champion.number, promote=False
    )
    progress("the court: trying the challenger against the champion")
    findings = [
        judge_integrity(_problems(challenger, order, encoder)),
        judge_test(_compare(order, dataset, golden, champion, fitted, Routing(fitted.student, policy, serves), seen), order.rules),
        judge_off_policy(None),
    ]
    verdict = _decide(findings, order.rules, champion, challenger)
    registry.record(challenger.number, verdict.ruling.value, verdict.model_dump_json(indent=2))
    if verdict.ruling is Ruling.PROMOTE:
        registry.promote(challenger.number)
        remember(order.mlflow_uri, challenger)
    return Hearing(champion.number, challenger, dataset.manifest(), figures, verdict)


def _champion(registry: MlflowRegistry) -> RegisteredVersion:
    champion = registry.champion()
    if champion is None:
        raise ConfigurationError("There is no champion to challenge. Make the first router version with: optimize --bootstrap")
    return champion


def _data_of(registry: MlflowRegistry, version: RegisteredVersion) -> tuple[list[Row], frozenset[str]]:
    """Return the labelled requests that a version was fitted on, and the keys of everything else that it was; nothing, if it has none."""
    run = next(one.run_id for one in registry.versions() if one.number == version.number)
    folder = registry.fetch_artifact(run, DATASET)
    return read_fitted_on(folder) if folder is not None else ([], frozenset())


def _gather(order: Order, labelled: Sequence[Row], golden: Sequence[Row]) -> Snapshot:
    scrub = Scrubber()
    batches = SignalLog(order.database_url).batches(since=order.since)
    return build_snapshot(observe(batches, scrub), labelled, {row.key for row in golden}, scrub)


def _compare(
    order: Order,
    dataset: Snapshot,
    golden: Sequence[Row],
    champion: RegisteredVersion,
    fitted: Fit,
    challenger: Routing,
    seen: Container[str],
) -> Comparison | None:
    """Try both on the golden requests, or else on the logged ones that the champion was not fitted on.

    A logged request that the challenger was fitted on is read by the fit as it would be without the requests of its session.
    """
    encoder = challenger.student.encoder
    student = Student.load(champion.folder / STUDENT, encoder)
    old = Routing(student, Policy.model_validate(read_version(champion.folder).policy), challenger.serves)
    if len(golden) >= order.rules.least_test:
        trial = golden_trial(golden, challenger.serves)
        encodings = encoder.encode_many(list(trial.texts))
        return hold(trial, old.agents(encodings), challenger.agents(encodings))
    trial = logged_trial(dataset.observations, challenger.serves).without(seen)
    if not len(trial):
        return None
    encodings = encoder.encode_many(list(trial.texts))
    held_out = fitted.choices_without_own()
    chosen = [
        challenger.serves.get(held_out[text], "") if text in held_out else choice
        for text, choice in zip(trial.texts, challenger.choices(encodings), strict=True)
    ]
    return hold(trial, old.choices(encodings), chosen)


def _problems(version: RegisteredVersion, order: Order, encoder: Encoder) -> list[str]:
    """Say why a registered version could not be served: its files, or that it does not read as it did when it was made."""
    try:
        RouterSource(order.mlflow_uri, encoder).load(version)
    except ConfigurationError as exc:
        return [str(exc)]
    return []


def _decide(findings: Sequence[Finding], rules: Rules, champion: RegisteredVersion, challenger: RegisteredVersion) -> Verdict:
    ruling, reason = rule(findings, rules)
    return Verdict(
        champion=champion.number,
        challenger=challenger.number,
        ruling=ruling,
        reason=reason,
        findings=tuple(findings),
        rules=rules,
        decided_at=datetime.now(UTC),
    )
