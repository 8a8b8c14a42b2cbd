"""Stops a canary, and takes back a new champion, when what came of its requests is proven to be worse than the champion's before it.

Errors, fallbacks and reward are compared at every look, with bounds that hold at all of them (`service/routing/arms.py`).
"""

from datetime import UTC, datetime, timedelta

from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.rollout_log import RolloutLog
from service.programs import Stage
from service.routing.arms import compare_arms

PROBATION = timedelta(hours=24)  # how long a new champion is watched, and how far back the one before it is looked at
STOPPED, TAKEN_BACK = "reject", "taken_back"  # rulings


def stop_canary(registry: MlflowRegistry, log: RolloutLog) -> str | None:
    """Stop the canary if it is worse than the champion in the same time; return what was done."""
    tried, champion = registry.tried(), registry.champion_number()
    if tried is None or champion is None or tried.stage != Stage.CANARY.value:
        return None
    worse, _ = compare_arms(log.arm(champion, since=tried.since), log.arm(tried.number, since=tried.since), 0.0)
    if not worse:
        return None
    registry.dismiss(tried.number)
    registry.rule(tried.number, STOPPED, f"The canary was stopped: {worse}.")
    return f"canary_stopped version={tried.number}: {worse}"


def take_back(registry: MlflowRegistry, log: RolloutLog, margin: float) -> str | None:
    """Go back to the champion before, if the new one is worse by more than the margin; return what was done.

    Nobody goes back to a version that was itself taken back: two champions would take turns.
    """
    promoted = registry.promoted()
    if promoted is None or margin >= 1.0:
        return None
    number, previous, at = promoted
    if datetime.now(UTC) - at > PROBATION or registry.ruling(previous) == TAKEN_BACK:
        return None
    worse, _ = compare_arms(log.arm(previous, since=at - PROBATION, until=at), log.arm(number, since=at), margin)
    if not worse:
        return None
    registry.rollback()
    registry.rule(number, TAKEN_BACK, f"Taken back after the promotion: {worse}.")
    return f"champion_taken_back version={number} now={previous}: {worse}"
