"""The routing job without an LM: labelled requests and the log → dataset → a challenger → its trial → the court's ruling.

Each step takes and returns data; what was fitted on never tests, and the test is touched once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.compute as pc

from optimizers.advance import begin_trying, pending_steps
from optimizers.case import Case, Progress, open_case
from optimizers.counterfactual import estimate_challenger
from optimizers.court import Comparison, judge_integrity, judge_off_policy, judge_test, rule
from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.hearing import report_of
from optimizers.job import Made, register
from optimizers.off_policy import OffPolicy
from optimizers.order import NotDone, Order
from optimizers.policy import HeldOut, fit_policy, read_held_out
from optimizers.ruling import Finding, Rules, Ruling, Verdict
from optimizers.run_report import write_run_report
from optimizers.search_watch import Searched
from optimizers.several import fit_several
from optimizers.student import Fit
from optimizers.trial import Routing, hold
from service.adapters.mlflow_registry import CASE, LEFT, REPORT, VERDICT, MlflowRegistry, RegisteredVersion
from service.adapters.router_source import RouterSource, remember
from service.catalog.model import Catalog
from service.contracts.model import JsonObject
from service.errors import ConfigurationError
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import Student
from signatures.artifact import STUDENT, read_version

MOST_LOOKED_BACK = 20_000  # observations whose rewards are looked at, the latest


@dataclass(frozen=True, slots=True)
class Hearing:
    """A challenger and what the court made of it.

    Attributes:
        report: where the page about it lies, a path of this machine or a URI.
        repeated: it is an earlier run's, and nothing is new since.
    """

    champion: str
    version: RegisteredVersion
    dataset: JsonObject
    figures: Mapping[str, Figure]
    verdict: Verdict
    report: str | None = None
    repeated: bool = False

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        return {
            "champion": self.champion,
            "version": self.version.number,
            "repeated": self.repeated,
            "report": self.report,
            "ruling": self.verdict.ruling.value,
            "reason": self.verdict.reason,
            "figures": {name: {"value": f.value, "low": f.low, "high": f.high, "n": f.n} for name, f in self.figures.items()},
            "dataset": self.dataset,
            "verdict": self.verdict.model_dump(mode="json"),
        }


def optimize_routing(order: Order, encoder: Encoder, catalog: Catalog, progress: Progress) -> Hearing:
    """Fit a challenger on everything that is known, register it, and let the court decide; it is promoted if the court says so.

    Where nothing is new since an earlier run, that one's hearing is returned: the same again would be tried on the same test again.

    Raises: as `optimizers.case.open_case`, and `hear`.
    """
    case = open_case(order, catalog, progress)
    earlier = _heard_already(case)
    if earlier is not None:
        return earlier
    fitted = case.fit(encoder, progress)
    progress("fitting the policy")
    held_out = read_held_out(fitted)
    policy = fit_several(fitted, fit_policy(held_out, risk_target=order.risk_target))
    figures = {"cross_fitted_accuracy": Figure.share(int(held_out.correct[held_out.in_scope].sum()), int(held_out.in_scope.sum()))}
    progress("registering the challenger")
    made = Made(fitted.student, policy, fitted.rows, {}, None)
    challenger, _ = register(
        made,
        figures,
        case.dataset,
        mlflow_uri=order.mlflow_uri,
        job="routing",
        parent=case.champion.number,
        promote=False,
        case=case.fingerprint,
    )
    progress("the court: trying the challenger against the champion")
    compared = _compare(case, fitted, Routing(fitted.student, policy, case.serves))
    rewarded = _look_back(case, fitted, Routing(fitted.student, policy, case.serves))
    return hear(case, challenger, figures, compared, encoder, fitted=(held_out, policy), rewarded=rewarded)


def hear(
    case: Case,
    challenger: RegisteredVersion,
    figures: Mapping[str, Figure],
    compared: Comparison | None,
    encoder: Encoder,
    *,
    fitted: tuple[HeldOut, Policy] | None = None,
    searched: Searched | None = None,
    rewarded: OffPolicy | None = None,
) -> Hearing:
    """Let the court decide on a registered challenger, record verdict and report, and promote it if the court says so.

    Raises:
        NotDone: it would be promoted, but the champion that it was tried against is champion no more.
    """
    order = case.order
    shown = [judge_integrity(_problems(challenger, order, encoder)), judge_test(compared, order.rules), judge_off_policy(rewarded)]
    findings = [*shown, *pending_steps(order.rules)]
    verdict = _decide(findings, order.rules, case.champion, challenger)
    if verdict.ruling is Ruling.WAIT and (busy := _tried_already(case, challenger)) is not None:
        reason = f"Version {busy} is being tried already, and one is tried at a time. Run optimize again when that one has been ruled on."
        verdict = verdict.model_copy(update={"ruling": Ruling.REJECT, "reason": reason})
    if verdict.ruling is Ruling.PROMOTE and (now := case.registry.champion_number()) != case.champion.number:
        raise NotDone(
            f"Version {challenger.number} is better than version {case.champion.number}, but meanwhile version {now} became champion. "
            "It was not promoted. Run this again."
        )
    dataset = case.dataset.manifest()
    report = write_run_report(verdict, compared, figures, dataset, fitted=fitted, searched=searched)
    case.registry.record(challenger.number, verdict.ruling.value, {VERDICT: verdict.model_dump_json(indent=2), REPORT: report})
    if verdict.ruling is Ruling.WAIT:
        begin_trying(case.registry, challenger.number, verdict.findings, order.rules)
    if verdict.ruling is Ruling.PROMOTE:
        _promote(case, challenger)
    return Hearing(case.champion.number, challenger, dataset, figures, verdict, report_of(case.registry, challenger.number))


def was_left(registry: MlflowRegistry, number: str) -> bool:
    """Say whether a version was champion and another one serves in its place."""
    promoted = registry.promoted()
    return registry.ruling(number) in LEFT or (promoted is not None and promoted[1] == number)


def _promote(case: Case, challenger: RegisteredVersion) -> None:
    case.registry.promote(challenger.number, over=case.champion.number)
    remember(case.order.mlflow_uri, challenger)


def _heard_already(case: Case) -> Hearing | None:
    """Return the hearing of the challenger that an earlier run made of the same case; None where there is none, or it was not ended."""
    number = next((one.number for one in case.registry.versions() if one.params.get(CASE) == case.fingerprint), None)
    version = case.registry.version(number) if number is not None else None
    text = case.registry.verdict(number) if number is not None else None
    if version is None or text is None:
        return None
    figures = {name: Figure(m.value, m.low, m.high, m.n) for name, m in read_version(version.folder).manifest.metrics.items()}
    verdict, tried = Verdict.model_validate_json(text), case.registry.tried()
    if rule(verdict.findings, verdict.rules)[0] is not verdict.ruling:
        return None  # not for what was found: another was being tried, and it was to be tried again
    if verdict.ruling is Ruling.WAIT and (tried is None or tried.number != version.number):
        return None  # it waits for evidence that nobody collects any more
    if verdict.ruling is Ruling.PROMOTE and not was_left(case.registry, version.number):
        _promote(case, version)  # the run that ruled so was cut off before it
    elif verdict.ruling is Ruling.PROMOTE:
        left = f"It was champion and was left since. To make it champion all the same: pointsman routers promote {version.number}."
        verdict = verdict.model_copy(update={"ruling": Ruling.REJECT, "reason": left})
    report = report_of(case.registry, version.number)
    return Hearing(case.champion.number, version, case.dataset.manifest(), figures, verdict, report, repeated=True)


def _compare(case: Case, fitted: Fit, challenger: Routing) -> Comparison | None:
    """Try both on the golden requests, or else on the logged ones that the champion was not fitted on.

    A logged request that the challenger was fitted on is read by the fit as it would be without the requests of its session.
    """
    encoder = challenger.student.encoder
    student = Student.load(case.champion.folder / STUDENT, encoder)
    old = Routing(student, Policy.model_validate(read_version(case.champion.folder).policy), challenger.serves)
    trial = case.golden_trial()
    if trial is not None:
        encodings = encoder.encode_many(list(trial.texts))
        return hold(trial, old.agents(encodings), challenger.agents(encodings), (old.at_once(encodings), challenger.at_once(encodings)))
    trial = case.logged_trial()
    if trial is None:
        return None
    encodings = encoder.encode_many(list(trial.texts))
    held_out = fitted.choices_without_own()
    chosen = [
        _without_own(challenger.serves, held_out, text, choice)
        for text, choice in zip(trial.texts, challenger.choices(encodings), strict=True)
    ]
    return hold(trial, old.choices(encodings), chosen)


def _look_back(case: Case, fitted: Fit, challenger: Routing) -> OffPolicy | None:
    """Estimate what the challenger would have earned on the latest logged requests; None where nothing was explored.

    As in the trial, a request that it was fitted on is read as it would be without the requests of its session.
    """
    observations = case.dataset.witnessed
    if not pc.any(pc.less(observations["propensity"], 1.0)).as_py():
        return None
    observations = observations.slice(max(0, len(observations) - MOST_LOOKED_BACK))
    texts, encoder = observations["text"].to_pylist(), challenger.student.encoder
    unique = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    encodings = encoder.encode_many(list(unique))
    readings = Student.load(case.champion.folder / STUDENT, encoder).read_all(encodings)
    held_out, choices = fitted.choices_without_own(), challenger.choices(encodings)

    def chosen(place: int) -> str:
        return _without_own(challenger.serves, held_out, texts[place], choices[unique[texts[place]]])

    return estimate_challenger(observations, challenger.serves, [readings[unique[text]] for text in texts], chosen)


def _without_own(serves: Mapping[str, str], held_out: Mapping[str, str], text: str, choice: str) -> str:
    """Return the agent for a text: where it was fitted on, in whatever spelling, the one without that; else the choice."""
    own = held_out.get(Row(text, "").key)
    return choice if own is None else serves.get(own, "")


def _tried_already(case: Case, challenger: RegisteredVersion) -> str | None:
    """Return another version that is tried against the same champion: a job every night must not end every trial."""
    tried = case.registry.tried()
    text = case.registry.verdict(tried.number) if tried is not None and tried.number != challenger.number else None
    same = text is not None and Verdict.model_validate_json(text).champion == case.champion.number
    return tried.number if tried is not None and same else None


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
