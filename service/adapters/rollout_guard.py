"""Stops a canary, takes back a new champion, and gives regions back, when what came of their requests is proven to be worse.

Errors, fallbacks and reward are compared at every look, with bounds that hold at all of them (`service/routing/arms.py`).
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from service.adapters.mlflow_registry import LEFT, TAKEN_BACK, MlflowRegistry, NoWayBack
from service.adapters.region_log import RegionLog
from service.adapters.rollout_log import RolloutLog
from service.adapters.router_source import CHAMPION_NOTE, recall
from service.programs import Stage
from service.routing.arms import compare_arms
from service.routing.policy import Policy
from service.routing.regions import find_drifted
from signatures.artifact import read_version

PROBATION = timedelta(hours=24)  # how long a new champion is watched, and how far back the one before it is looked at
WINDOW = timedelta(days=7)  # that a region is judged by
STOPPED = "reject"  # a ruling


def stop_canary(registry: MlflowRegistry, log: RolloutLog) -> str | None:
    """Stop the canary if it is worse than the champion in the same time; return what was done."""
    tried, champion = registry.tried(), registry.champion_number()
    if tried is None or champion is None or tried.stage != Stage.CANARY.value:
        return None
    worse, _ = compare_arms(log.arm(champion, since=tried.since), log.arm(tried.number, since=tried.since), tried.most_worse)
    if not worse:
        return None
    registry.rule(tried.number, STOPPED, f"The canary was stopped: {worse}.")
    registry.dismiss(tried.number)
    return f"canary_stopped version={tried.number}: {worse}"


def take_back(registry: MlflowRegistry, log: RolloutLog, margin: float) -> str | None:
    """Go back to the champion before, if the new one is worse by more than the margin; return what was done.

    Nobody goes back to a version that was itself taken back: two champions would take turns.
    """
    promoted = registry.promoted()
    if promoted is None or margin >= 1.0:
        return None
    number, previous, at = promoted
    if datetime.now(UTC) - at > PROBATION or registry.ruling(previous) in LEFT:
        return None
    worse, _ = compare_arms(log.arm(previous, since=at - PROBATION, until=at), log.arm(number, since=at), margin)
    if not worse:
        return None
    with suppress(NoWayBack):  # somebody was faster
        registry.rollback(TAKEN_BACK, f"Taken back after the promotion: {worse}.", only=number)
        return f"champion_taken_back version={number} now={previous}: {worse}"
    return None


def give_back(registry: MlflowRegistry, log: RegionLog) -> str | None:
    """Let the LM decide again where it has come to disagree with the champion's student; return what was done."""
    number = registry.champion_number()
    tallies = log.tallies(number, since=(datetime.now(UTC) - WINDOW).date()) if number is not None else {}
    if not any(tally.audited for tally in tallies.values()):
        return None
    noted = recall(registry.uri, CHAMPION_NOTE)
    champion = noted if noted is not None and noted.number == number else registry.champion()  # which may have to be downloaded
    if champion is None:
        return None
    policy = Policy.model_validate(read_version(champion.folder).policy)
    known = log.given_back(champion.number)
    drifted = {intent: why for intent, why in find_drifted(tallies, 1.0 - policy.risk_target).items() if intent not in known}
    if not drifted:
        return None
    log.give_back(champion.number, drifted)
    return "\n".join(f"region_given_back version={champion.number} intent={intent}: {why}" for intent, why in drifted.items())
