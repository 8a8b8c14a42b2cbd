"""Asks the registry now and then which version is champion, and notes it for the services of this machine: `python -m ... URI NOTE`.

A process of its own: MLflow takes seconds and 200 MB to import, and asking it disturbs requests. It ends with the service that started it
(its standard input is closed then). Of several in one working folder only one asks; the others wait to take its place.
"""

import fcntl
import os
import sys
import threading
import time
from pathlib import Path

from service.adapters.router_source import NO_CHAMPION, note_problem, recall, remember
from service.errors import ConfigurationError

ASK_SECONDS = 3.0


def watch(uri: str, note: Path) -> None:
    """Watch until the process is ended."""
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            look(uri, note)
            time.sleep(ASK_SECONDS)


def look(uri: str, note: Path) -> None:
    """Ask once, and note a change."""
    from service.adapters.mlflow_registry import MlflowRegistry

    try:
        registry = MlflowRegistry(uri)
        number, noted = registry.champion_number(), recall(uri, note)
        if number is None:
            note_problem(uri, NO_CHAMPION, note)
        elif noted is None or noted.number != number:
            champion = registry.champion()
            if champion is not None:
                remember(uri, champion, note)
    except (ConfigurationError, OSError) as exc:
        note_problem(uri, str(exc), note)


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    watch(sys.argv[1], Path(sys.argv[2]))
