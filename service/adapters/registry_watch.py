"""Asks the registry now and then which versions it names, and notes it for the services of this machine: `python -m ... MARGIN LOG_LEVEL`.

A process of its own: MLflow takes seconds and 200 MB to import, and asking it disturbs requests. It ends with the service that started it
(its standard input is closed then). Of several in one working folder only one asks; the others wait to take its place. It also watches what
comes of a canary and of a new champion, and stops or takes back what is proven to be worse (`rollout_guard.py`).
"""

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from service.adapters.region_log import RegionLog
from service.adapters.registry_rollback import REGISTRY
from service.adapters.rollout_log import RolloutLog
from service.adapters.router_source import (
    ASKED,
    CANDIDATE_NOTE,
    CHAMPION_NOTE,
    NO_CHAMPION,
    REGIONS_NOTE,
    note_candidate,
    note_given_back,
    note_problem,
    read_candidate,
    read_given_back,
    recall,
    remember,
)
from service.errors import ConfigurationError, StoreUnavailable
from service.logs import configure_logs
from service.ports import NotedCandidate
from service.programs import Stage
from signatures.artifact import damage_of

log = logging.getLogger("pointsman.registry")
ASK_SECONDS = 3.0
GUARD_SECONDS = 10.0
CLOSELY = 20  # looks, of which one also checks the copy on this machine
DATABASE = "POINTSMAN_WATCHED_DATABASE"  # the environment variable that says where the signals are; `REGISTRY` does so for the versions


def watch(uri: str, database: str, margin: float) -> None:
    """Watch until the process is ended."""
    CHAMPION_NOTE.parent.mkdir(parents=True, exist_ok=True)
    guarded, turn, silent = 0.0, 0, False
    with CHAMPION_NOTE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            problem = look(uri, closely=turn % CLOSELY == 0)
            turn += 1
            if problem is None:
                ASKED.touch()
            if (problem is not None) != silent:
                silent = not silent
                log.warning("registry_away: the version that served last goes on (%s)" if silent else "registry_back%s", problem or "")
            look_at_candidate(uri)
            look_at_regions(uri, database)
            if time.monotonic() - guarded >= GUARD_SECONDS:
                guard(uri, database, margin)
                guarded = time.monotonic()
            time.sleep(ASK_SECONDS)


def look(uri: str, note: Path = CHAMPION_NOTE, *, closely: bool = True) -> str | None:
    """Ask for the champion once, and note a change; `closely`: and have it fetched again when the copy here is damaged.

    Returns:
        Why it could not be asked or noted; None where it could.
    """
    from service.adapters.mlflow_registry import MlflowRegistry

    try:
        registry = MlflowRegistry(uri)
        number, noted = registry.champion_number(), recall(uri, note)
        if number is None:
            note_problem(uri, NO_CHAMPION, note)
        elif noted is None or noted.number != number or (closely and damage_of(noted.folder) is not None):
            champion = registry.champion()
            if champion is not None:
                remember(uri, champion, note)
    except (ConfigurationError, OSError) as exc:
        try:
            note_problem(uri, str(exc), note)
        except OSError as unwritten:
            log.warning("champion_not_noted: %s", unwritten)
        return str(exc)
    return None


def look_at_candidate(uri: str, note: Path = CANDIDATE_NOTE) -> None:
    """Ask once which challenger is tried, and note a change; while the registry cannot be asked, what was noted stays."""
    from service.adapters.mlflow_registry import MlflowRegistry

    try:
        registry = MlflowRegistry(uri)
        tried = registry.tried()
        wanted = NotedCandidate(tried.number, Stage(tried.stage), tried.share) if tried is not None else None
        if wanted != read_candidate(uri, note):
            version = registry.version(wanted.version) if wanted is not None else None
            note_candidate(uri, version, wanted.stage if wanted else Stage.SHADOW, wanted.share if wanted else 0.0, note)
    except (ConfigurationError, OSError, ValueError) as exc:
        log.warning("candidate_not_noted: %s", exc)


def look_at_regions(uri: str, database: str, note: Path = REGIONS_NOTE) -> None:
    """Ask once what the champion's student has given back, and note a change; while the store cannot be asked, what was noted stays."""
    champion = recall(uri, CHAMPION_NOTE)
    if champion is None:
        return
    try:
        given_back = frozenset(RegionLog(database).given_back(champion.number))
    except StoreUnavailable as exc:
        log.warning("regions_not_noted: %s", exc)
        return
    if given_back != read_given_back(uri, champion.number, note):
        note_given_back(uri, champion.number, given_back, note)


def guard(uri: str, database: str, margin: float) -> None:
    """Stop a canary, take back a new champion and give regions back that are proven to be worse; none keeps another from its turn."""
    from service.adapters.mlflow_registry import MlflowRegistry
    from service.adapters.rollout_guard import give_back, stop_canary, take_back

    registry = MlflowRegistry(uri)
    steps: list[Callable[[], str | None]] = [
        lambda: stop_canary(registry, RolloutLog(database)),
        lambda: take_back(registry, RolloutLog(database), margin),
        lambda: give_back(registry, RegionLog(database)),
    ]
    for step in steps:
        try:
            line = step()
        except (ConfigurationError, StoreUnavailable) as exc:
            line = f"not_guarded: {exc}"
        except Exception as exc:  # noqa: BLE001  # a version that was tampered with, say: what this process is for goes on
            line = f"not_guarded: {type(exc).__name__}"
        if line is not None:
            log.warning("%s", line)


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    configure_logs(sys.argv[2])
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    watch(os.environ[REGISTRY], os.environ[DATABASE], float(sys.argv[1]))
