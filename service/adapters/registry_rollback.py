"""Makes the champion before this one champion again: `python -m service.adapters.registry_rollback` prints what was and what is now.

A process of its own, because MLflow takes seconds to import. It ends with 3 when there is nothing to go back to, with 4 when the registry
cannot be used; the last line of its error stream says why.
"""

import json
import os
import sys

from service.adapters.router_source import remember
from service.contracts.surface import RolledBack
from service.errors import ConfigurationError

NOTHING, UNAVAILABLE = 3, 4
REGISTRY = "POINTSMAN_WATCHED_REGISTRY"  # the environment variable that names the registry: its address may hold a password


def roll_back(uri: str) -> int:
    """Go back, note it for the services of this machine, and return the exit code."""
    from service.adapters.mlflow_registry import ROLLED_BACK, MlflowRegistry, NoWayBack

    registry = MlflowRegistry(uri)
    try:
        was, now = registry.rollback(ROLLED_BACK, "Left by hand, over HTTP.")
        version = registry.version(now)
        if version is not None:
            remember(uri, version)
    except (ConfigurationError, OSError) as exc:
        print(" ".join(str(exc).split()), file=sys.stderr)  # noqa: T201  # the service reads this line
        return NOTHING if isinstance(exc, NoWayBack) else UNAVAILABLE
    print(json.dumps(RolledBack(was=was, now=now).model_dump()))  # noqa: T201  # as above
    return 0


if __name__ == "__main__":
    sys.exit(roll_back(os.environ[REGISTRY]))
