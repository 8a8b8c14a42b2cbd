"""`pointsman keys ...`: API keys in the database: make, list, revoke. A running service follows within seconds.

Exit codes: 0 done; 2 it cannot be.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

import typer
from rapidfuzz import process
from rich.table import Table
from sqlalchemy.engine import Engine

from service.access.keys import digest_of, new_key
from service.adapters import key_rows
from service.adapters.sql_engine import normalise, opened
from service.catalog.loader import load_catalog
from service.contracts.access import ApiKey, KeyState
from service.contracts.caller import OPTIMIZE, ROLL_BACK
from service.errors import ConfigurationError, PointsmanError
from service.settings import Settings, read_settings
from service.terminal import examples, terminal

MADE = 'pointsman keys create --tenant brand-team --scope "tier:*" --scope models:train --days 365'
app = typer.Typer(
    help="API keys: make, list, revoke.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples(f"`{MADE}`", "`pointsman keys list`", "`pointsman keys revoke 3f9c2a71d04e`"),
)
out, err = terminal(), terminal(stderr=True)
MOST, MOST_NAME = 1_000_000_000, 200  # a rate or quota fits the column of every database
COLOURS = {KeyState.ACTIVE: "green", KeyState.EXPIRED: "yellow", KeyState.REVOKED: "red"}
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
T = TypeVar("T")


@app.callback()
def keys() -> None:
    """API keys: make, list, revoke."""


@app.command(no_args_is_help=True, epilog=examples(f"`{MADE}`", "`pointsman keys create --tenant ops --scope routers:rollback --rate 60`"))
def create(
    tenant: Annotated[str, typer.Option(help="Whose it is: decisions and feedback of one tenant are invisible to others.")],
    scope: Annotated[list[str], typer.Option(help="What it opens, once for each: tier:N, tier:*, or what an agent asks for.")],
    name: Annotated[str, typer.Option(help="What it is for; shown by `list`.")] = "",
    days: Annotated[int | None, typer.Option(min=1, max=3_650, help="Days after which it opens nothing; default: never.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, max=MOST, help="Requests a minute; default: POINTSMAN_RATE_PER_MINUTE.")] = None,
    quota: Annotated[int | None, typer.Option(min=1, max=MOST, help="Questions a day (UTC); default: POINTSMAN_QUOTA_PER_DAY.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key and show it, this once: only its digest is kept."""
    settings = _settings()
    _require_scopes(settings, scope)
    key_id, secret = new_key()
    now = datetime.now(UTC)
    key = ApiKey(
        key_id=key_id,
        tenant=_require_name(tenant),
        name=_require_printable(name),
        scopes=tuple(dict.fromkeys(scope)),
        rate_per_minute=rate,
        quota_per_day=quota,
        created_at=now,
        expires_at=now + timedelta(days=days) if days is not None else None,
        revoked_at=None,
    )
    _on_database(settings, lambda engine: key_rows.add(engine, digest_of(secret), key))
    if as_json:
        out.print_json(data={"key": secret, **key.model_dump(mode="json")})
        return
    err.print(f"Key {key_id} of {tenant}. It is shown this once; send it as `Authorization: Bearer KEY`:", highlight=False, markup=False)
    typer.echo(secret)


@app.command("list", epilog="Example: `pointsman keys list`")
def list_keys(as_json: JsonFlag = False) -> None:
    """List all keys, with what was asked with each today."""
    now = datetime.now(UTC)
    found, asked = _on_database(_settings(), lambda engine: (list(key_rows.read(engine).values()), key_rows.usage(engine, now.date())))
    if as_json:
        told = ((key, {"state": key.state(now).value, "questions_today": asked.get(key.key_id, 0)}) for key in found)
        rows = [{**key.model_dump(mode="json"), **more} for key, more in told]
        out.print_json(data=rows)
        return
    if not found:
        out.print(f"There are no keys in the database yet. Make one with: {MADE}", highlight=False, markup=False)
        return
    table = Table()
    for heading in ("key", "tenant", "name", "scopes", "rate/min", "quota/day", "today", "made (UTC)", "until", "state"):
        table.add_column(heading)
    for key in found:
        state = key.state(now)
        limits = ("" if n is None else str(n) for n in (key.rate_per_minute, key.quota_per_day))
        until = f"{key.expires_at:%Y-%m-%d}" if key.expires_at is not None else "ever"
        words = (key.key_id, key.tenant, key.name.replace("[", "\\["), " ".join(key.scopes), *limits, str(asked.get(key.key_id, 0)))
        table.add_row(*words, f"{key.created_at:%Y-%m-%d %H:%M}", until, f"[{COLOURS[state]}]{state.value}[/]")
    out.print(table)


@app.command(no_args_is_help=True, epilog="Example: `pointsman keys revoke 3f9c2a71d04e`")
def revoke(key_ids: Annotated[list[str], typer.Argument(metavar="KEY_ID...", help="As `list` shows them.")]) -> None:
    """Revoke keys for good. A running service refuses them within seconds."""
    settings = _settings()
    missing = [key_id for key_id in key_ids if _on_database(settings, _revoked(key_id)) is None]
    for key_id in key_ids:
        if key_id not in missing:
            out.print(f"{key_id} is revoked; services follow within five seconds.", highlight=False, markup=False)
    if missing:
        raise _exit(f"No such key: {', '.join(missing)}. See: pointsman keys list")


def _revoked(key_id: str) -> Callable[[Engine], ApiKey | None]:
    return lambda engine: key_rows.revoke(engine, key_id, datetime.now(UTC))


def _require_name(tenant: str) -> str:
    if not tenant or len(tenant) > 128 or not all(c.isalnum() or c in "._@-" for c in tenant):
        raise _exit("A tenant's name has 1 to 128 letters, digits, or characters of . _ @ -")
    return tenant


def _require_printable(name: str) -> str:
    if len(name) > MOST_NAME or not name.isprintable():
        raise _exit(f"A key's name has at most {MOST_NAME} characters, and all of them can be printed.")
    return name


def _require_scopes(settings: Settings, scopes: Sequence[str]) -> None:
    """Refuse what opens nothing here: a typing mistake would be a key that is refused later, in production."""
    try:
        agents = load_catalog(settings.catalog).agents
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc
    names = {OPTIMIZE, ROLL_BACK, *(f"tier:{a.tier}" for a in agents), *(p for a in agents for p in a.permissions)}
    known = sorted(names | {f"{name.partition(':')[0]}:*" for name in names})
    for scope in scopes:
        if scope not in known:
            near = process.extractOne(scope, known)
            raise _exit(f"Nothing here asks for the scope {scope!r}. Did you mean {near[0]}? There are: {', '.join(known)}")


def _settings() -> Settings:
    try:
        return read_settings()
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc


def _on_database(settings: Settings, work: Callable[[Engine], T]) -> T:
    try:
        with opened(normalise(settings.database_url)) as engine:
            return work(engine)
    except PointsmanError as exc:
        raise _exit(str(exc)) from exc


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False)
    return typer.Exit(2)
