"""`pointsman doctor`: look for the usual mistakes in an installation, and say what to do about each."""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import httpx
from rapidfuzz import process
from rich.console import Console
from rich.table import Table

from service import doctor_storage
from service.catalog.loader import load_catalog
from service.doctor_lm import language_model
from service.errors import ConfigurationError, PointsmanError
from service.keys import Keys
from service.listening import require_free_port
from service.reach import REACH_SECONDS, ask_addresses
from service.settings import Settings
from service.supervisor import service_url

OTHER_VARIABLES = {"POINTSMAN_KEY", "POINTSMAN_HEALTH_URLS"}  # of `pointsman ask` and of the built-in agents


@dataclass(frozen=True, slots=True)
class Check:
    """One look: what was looked at, whether it is fine, and what was seen or what to do."""

    name: str
    ok: bool
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return asdict(self)


async def examine(settings: Settings) -> list[Check]:
    """Run every check. None changes anything."""
    looks: list[tuple[str, Callable[[Settings], Awaitable[str]]]] = [
        ("python", _python),
        ("settings", _settings),
        ("catalogue", _catalogue),
        ("registry", doctor_storage.registry),
        ("encoder and router", doctor_storage.router),
        ("store", doctor_storage.database),
        ("spool", doctor_storage.spool),
        ("disk", doctor_storage.disk),
        ("metrics", doctor_storage.metrics_folder),
        ("keys", _keys),
        ("port", _port),
        ("agents", _agents),
        ("lm", language_model),
    ]
    return [await _look(name, look, settings) for name, look in looks]


def show(checks: list[Check], console: Console) -> None:
    """Print the checks for a person."""
    table = Table.grid(padding=(0, 2))
    for check in checks:
        table.add_row("[green]ok[/]" if check.ok else "[red]wrong[/]", check.name, check.detail.replace("[", "\\["))
    console.print(table)


async def _look(name: str, look: Callable[[Settings], Awaitable[str]], settings: Settings) -> Check:
    try:
        return Check(name, ok=True, detail=await look(settings))
    except (PointsmanError, OSError) as exc:
        return Check(name, ok=False, detail=str(exc) or type(exc).__name__)


async def _python(_: Settings) -> str:
    return f"Python {sys.version.split()[0]}"


async def _settings(_: Settings) -> str:
    known = {f"POINTSMAN_{name}".upper() for name in Settings.model_fields} | OTHER_VARIABLES
    unknown = sorted(name for name in os.environ if name.startswith("POINTSMAN_") and name not in known)
    if unknown:
        near = [process.extractOne(name, known) for name in unknown]
        hints = [f"{name} (did you mean {match[0]}?)" for name, match in zip(unknown, near, strict=True)]
        raise ConfigurationError(f"No setting has this name: {', '.join(hints)}")
    return "every POINTSMAN_ variable is a setting"


async def _catalogue(settings: Settings) -> str:
    catalog = load_catalog(settings.catalog, agents_base_url=settings.agents_address)
    keys = sorted({a.auth.env for a in catalog.agents if a.auth is not None and not os.environ.get(a.auth.env, "").strip()})
    if keys:
        raise ConfigurationError(f"Agents need keys: set the environment variables {', '.join(keys)} to the values of their headers.")
    return f"{len(catalog.intents)} intents, {len(catalog.agents)} agents"


async def _keys(settings: Settings) -> str:
    keys = Keys.parse(settings.api_keys.get_secret_value() if settings.api_keys else None)
    if not keys.callers and not settings.on_loopback:
        raise ConfigurationError(f"POINTSMAN_HOST={settings.host} needs POINTSMAN_API_KEYS, or the service refuses to start.")
    return f"{len(keys.callers)} keys" if keys.callers else "no keys; loopback only"


async def _port(settings: Settings) -> str:
    try:
        require_free_port(settings.host, settings.port, "Set POINTSMAN_PORT to another port.")
    except ConfigurationError:
        if await _pointsman_answers(settings):
            return f"{settings.host}:{settings.port} is served by a running Pointsman"
        raise
    return f"{settings.host}:{settings.port} is free"


async def _pointsman_answers(settings: Settings) -> bool:
    try:
        async with httpx.AsyncClient(timeout=REACH_SECONDS, trust_env=False) as client:
            response = await client.get(f"{service_url(settings)}/openapi.json")
            return bool(response.json()["info"]["title"] == "Pointsman")
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False


async def _agents(settings: Settings) -> str:
    catalog = load_catalog(settings.catalog, agents_base_url=settings.agents_address)
    addresses, down = await ask_addresses(catalog)
    if down:
        builtin = {f"{url.scheme}://{url.host}:{url.port}" for agent in catalog.agents if agent.builtin for url in agent.urls}
        advice = " Start the built-in agents with: pointsman agents" if builtin & set(down) else ""
        raise ConfigurationError(f"{', '.join(down)} cannot be reached.{advice}")
    return f"{addresses} address(es) answer"
