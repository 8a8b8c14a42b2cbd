"""Router versions as people name them: by number, or by what they are now."""

import re

from service.adapters.mlflow_registry import CANDIDATE, CHALLENGER, CHAMPION, PREVIOUS, MlflowRegistry, RegisteredVersion
from service.adapters.router_source import NO_CHAMPION
from service.errors import ConfigurationError

ALIASES = (CHAMPION, CHALLENGER, CANDIDATE, PREVIOUS)
NAMES = f"A number of `pointsman routers list`, or {', '.join(ALIASES[:-1])} or {ALIASES[-1]}."
NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def find_version(registry: MlflowRegistry, name: str) -> RegisteredVersion:
    """Return the version of a number or an alias.

    Raises:
        ConfigurationError: there is none, or the registry cannot be read.
    """
    if name in ALIASES:
        version = registry.under(name)
        if version is None and name == CHAMPION:
            raise ConfigurationError(NO_CHAMPION)
        if version is None:
            raise ConfigurationError(f"No router version is {name} now. See: pointsman routers list")
        return version
    version = registry.version(name) if NUMBER.fullmatch(name) else None
    if version is None:
        raise ConfigurationError(f"There is no router version {name}. See: pointsman routers list")
    return version
