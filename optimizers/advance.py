"""Hears a challenger again that is tried beside the champion: in the shadow, then as a canary, until it is promoted or rejected.

The steps before are not repeated: the test was touched once. What it cannot know yet, it waits for; so it is called again and again, by the
periodic job.
"""

from datetime import UTC, datetime

from pydantic import ValidationError

from optimizers.canary import judge_canary
from optimizers.court import Watched, judge_shadow, rule
from optimizers.ruling import Finding, Found, Rules, Ruling, Step, Verdict, Weight
from service.adapters.mlflow_registry import VERDICT, MlflowRegistry, Tried
from service.adapters.rollout_log import RolloutLog
from service.adapters.router_source import remember
from service.errors import ConfigurationError
from service.programs import Stage

HOUR = 3600.0
TRIED_IN = {Stage.SHADOW.value: Step.SHADOW, Stage.CANARY.value: Step.CANARY}


def begin_trying(registry: MlflowRegistry, number: str, findings: tuple[Finding, ...], rules: Rules) -> None:
    """Have services try a version in the step that its hearing waits for."""
    waiting = next(f.step for f in findings if f.found is Found.PENDING)
    stage = next(stage for stage, step in TRIED_IN.items() if step is waiting)
    registry.try_out(number, stage, rules.canary_share if waiting is Step.CANARY else 0.0, rules.canary_most_worse)


def pending_steps(rules: Rules) -> list[Finding]:
    """Return the findings of the steps that only time can bring, the first of them first; none where none is asked for."""
    steps = [step for step in TRIED_IN.values() if rules.weight(step) is not Weight.SKIPPED]
    return [Finding(step=step, found=Found.PENDING, reason="It has not been tried yet.") for step in steps]


def advance(registry: MlflowRegistry, log: RolloutLog, mlflow_uri: str) -> Verdict | None:
    """Look at the challenger that is tried now, and rule; return the verdict, or None where none is tried.

    Raises:
        ConfigurationError: the registry cannot be used, or the verdict so far cannot be read.
        StoreUnavailable: the evidence cannot be read.
    """
    tried, champion = registry.tried(), registry.champion_number()
    text = registry.verdict(tried.number) if tried is not None else None
    if tried is None or champion is None or text is None:
        return None
    try:
        before = Verdict.model_validate_json(text)
    except ValidationError as exc:
        raise ConfigurationError(f"The verdict on version {tried.number} cannot be read: {exc}") from exc
    if champion != before.champion:
        return _overtaken(registry, before, champion)
    found = _look(tried, champion, log, before.rules)
    findings = tuple(found if one.step is found.step else one for one in before.findings)
    ruling, reason = rule(findings, before.rules)
    verdict = before.model_copy(update={"findings": findings, "ruling": ruling, "reason": reason, "decided_at": datetime.now(UTC)})
    if ruling is Ruling.PROMOTE:  # first: what ends this here is heard again
        version = registry.version(tried.number)
        if version is None:
            raise ConfigurationError(f"Version {tried.number} is gone from the registry.")
        registry.promote(tried.number, over=champion)
        remember(mlflow_uri, version)
    registry.record(tried.number, ruling.value, {VERDICT: verdict.model_dump_json(indent=2)})
    if ruling is Ruling.WAIT and found.found is not Found.PENDING:
        begin_trying(registry, tried.number, findings, before.rules)
    if ruling is Ruling.REJECT:
        registry.dismiss(tried.number)
    return verdict


def _overtaken(registry: MlflowRegistry, before: Verdict, champion: str) -> Verdict:
    """Reject a challenger that was tried against a version which is champion no more: what was found says nothing of the one that is."""
    reason = f"It was tried against version {before.champion}; meanwhile version {champion} became champion. Run optimize again."
    verdict = before.model_copy(update={"ruling": Ruling.REJECT, "reason": reason, "decided_at": datetime.now(UTC)})
    registry.record(before.challenger, Ruling.REJECT.value, {VERDICT: verdict.model_dump_json(indent=2)})
    registry.dismiss(before.challenger)
    return verdict


def _look(tried: Tried, champion: str, log: RolloutLog, rules: Rules) -> Finding:
    hours = (datetime.now(UTC) - tried.since).total_seconds() / HOUR
    if tried.stage == Stage.SHADOW.value:
        seen = log.seen(tried.number)
        return judge_shadow(Watched(hours, seen.requests, seen.differing, seen.failing), rules)
    return judge_canary(log.arm(champion, since=tried.since), log.arm(tried.number, since=tried.since), hours, rules)
