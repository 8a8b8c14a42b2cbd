"""`pointsman doctor`: look for the usual mistakes in an installation, and say what to do about each."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from dotenv.parser import parse_stream
from rapidfuzz import process
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from service import doctor_storage
from service.access.keys import MAKE_KEYS, Keys
from service.access.limits import Limits
from service.adapters import key_rows
from service.adapters.oidc import OidcTokens
from service.adapters.sql_engine import connect, normalise, require_there, unusable
from service.catalog.loader import load_catalog
from service.contracts.access import ApiKey, KeyState
from service.doctor_addresses import require_address
from service.doctor_lm import language_model
from service.errors import ConfigurationError, PointsmanError, StoreUnavailable
from service.listening import require_free_port
from service.reach import REACH_SECONDS, ask_addresses
from service.settings import Settings
from service.supervisor import service_url

LOCK_SECONDS = 3.0
OTHER_VARIABLES = {  # of `pointsman ask` and of the built-in agents
    "POINTSMAN_KEY",
    "POINTSMAN_HEALTH_URLS",
    "POINTSMAN_METRICS_URL",
    "POINTSMAN_PROMETHEUS_URL",
}


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
        ("limits", _limits),
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
        return Check(name, ok=True, detail=_printable(await look(settings)))
    except (PointsmanError, OSError) as exc:
        return Check(name, ok=False, detail=_printable(str(exc) or type(exc).__name__))
    except Exception as exc:  # noqa: BLE001  # the edge of one check: it must not hide what the others found
        said = f"Something went wrong that nobody foresaw ({type(exc).__name__}). Compare what is set for this with the README."
        return Check(name, ok=False, detail=said)


def _printable(text: str) -> str:
    """Return a text that can be printed: a path that is not UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


async def _python(_: Settings) -> str:
    return f"Python {sys.version.split()[0]}"


async def _settings(_: Settings) -> str:
    file = Path(str(Settings.model_config["env_file"]))
    in_file, unread = _read(file) if file.is_file() else ([], [])
    wrong = []
    if unread:
        lines = ", ".join(map(str, unread))
        wrong.append(f"Lines of {file} that are none of NAME=VALUE are passed over: {lines}. A remark begins with #.")
    hints = [*_unknown(os.environ, "in the environment"), *_unknown(in_file, f"in {file}")]
    if hints:
        wrong.append(f"No setting has this name: {', '.join(hints)}")
    if wrong:
        raise ConfigurationError(" ".join(wrong))
    return "every POINTSMAN_ variable is a setting"


def _read(file: Path) -> tuple[list[str], list[int]]:
    """Return the names that stand in a `.env` file, and the numbers of the lines that cannot be read."""
    with file.open(encoding="utf-8") as text:
        found = list(parse_stream(text))
    return [one.key for one in found if one.key is not None], [one.original.line for one in found if one.error]


def _unknown(names: Iterable[str], where: str) -> list[str]:
    known = {f"POINTSMAN_{name}".upper() for name in Settings.model_fields} | OTHER_VARIABLES
    unknown = sorted(name for name in names if name.upper().startswith("POINTSMAN_") and name.upper() not in known)
    near = [process.extractOne(name.upper(), known) for name in unknown]
    return [f"{name} {where} (did you mean {match[0]}?)" for name, match in zip(unknown, near, strict=True)]


async def _catalogue(settings: Settings) -> str:
    catalog = load_catalog(settings.catalog, agents_base_url=settings.agents_address)
    keys = sorted({a.auth.env for a in catalog.agents if a.auth is not None and not os.environ.get(a.auth.env, "").strip()})
    if keys:
        raise ConfigurationError(f"Agents need keys: set the environment variables {', '.join(keys)} to the values of their headers.")
    return f"{len(catalog.intents)} intents, {len(catalog.agents)} agents"


async def _keys(settings: Settings) -> str:
    configured = Keys.parse(settings.api_keys.get_secret_value() if settings.api_keys else None)
    stored = await asyncio.to_thread(_stored_keys, settings)
    ways = [f"{len(configured.callers)} in POINTSMAN_API_KEYS"] if configured.callers else []
    if stored:
        now = datetime.now(UTC)
        active = sum(key.state(now) is KeyState.ACTIVE for key in stored)
        ways.append(f"{active} of {len(stored)} in the database are active")
    if settings.oidc_issuer is not None and settings.oidc_audience is not None:
        require_address(settings.oidc_issuer, "POINTSMAN_OIDC_ISSUER")
        tokens = OidcTokens(settings.oidc_issuer, settings.oidc_audience, settings.oidc_tenant_claim)
        try:
            await tokens.require_keys()
        finally:
            await tokens.close()
        ways.append(f"bearer tokens of {settings.oidc_issuer}")
    if not ways and not settings.on_loopback:
        raise ConfigurationError(f"POINTSMAN_HOST={settings.host} needs API keys, or the service refuses to start. {MAKE_KEYS}")
    return "; ".join(ways) or "no keys; loopback only"


def _stored_keys(settings: Settings) -> list[ApiKey]:
    url = normalise(settings.database_url)
    try:
        require_there(url)
    except StoreUnavailable:
        return []
    engine = connect(url, LOCK_SECONDS)
    try:
        return list(key_rows.read(engine).values()) if sa.inspect(engine).has_table("api_key") else []
    except (SQLAlchemyError, UnicodeError) as exc:  # a host name may be none
        raise unusable(exc) from exc
    finally:
        engine.dispose()


async def _limits(settings: Settings) -> str:
    try:
        limits = Limits(shared=settings.limits_url)
    except ValueError as exc:
        raise ConfigurationError(f"POINTSMAN_LIMITS_URL cannot be used: {exc}") from exc
    try:
        await limits.require_shared()
    finally:
        await limits.close()
    return "rates are counted in Redis" if settings.limits_url is not None else "each process counts rates for itself"


async def _port(settings: Settings) -> str:
    try:
        require_free_port(settings.host, settings.port, "Set POINTSMAN_PORT to another port.")
    except ConfigurationError as exc:
        if isinstance(exc.__cause__, (socket.gaierror, UnicodeError)):
            advice = "POINTSMAN_HOST is an address alone, such as 127.0.0.1 or ::1; the port is POINTSMAN_PORT."
            raise ConfigurationError(f"{exc} {advice}") from exc
        if await _pointsman_answers(settings):
            return f"{settings.host}:{settings.port} is served by a running Pointsman"
        raise
    return f"{settings.host}:{settings.port} is free"


async def _pointsman_answers(settings: Settings) -> bool:
    try:
        async with httpx.AsyncClient(timeout=REACH_SECONDS, trust_env=False) as client:
            response = await client.get(f"{service_url(settings)}/openapi.json")
            return bool(response.json()["info"]["title"] == "Pointsman")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return False


async def _agents(settings: Settings) -> str:
    catalog = load_catalog(settings.catalog, agents_base_url=settings.agents_address)
    for url in dict.fromkeys(f"{url.scheme}://{url.host}" for agent in catalog.agents for url in agent.urls):
        require_address(url, f"{url}, of an agent,")
    addresses, down = await ask_addresses(catalog)
    if down:
        builtin = {f"{url.scheme}://{url.host}:{url.port}" for agent in catalog.agents if agent.builtin for url in agent.urls}
        advice = " Start the built-in agents with: pointsman agents" if builtin & set(down) else ""
        raise ConfigurationError(f"{', '.join(down)} cannot be reached.{advice}")
    return f"{addresses} address(es) answer"
