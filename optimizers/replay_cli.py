"""`pointsman replay`: which logged requests a router version would decide otherwise. Exit codes: 0 compared; 2 it cannot be."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optimizers.bench_cli import check_writable
from optimizers.progress import shown
from optimizers.versions import ALIASES, NAMES, find_version
from service.adapters.mlflow_registry import CHAMPION, MlflowRegistry
from service.adapters.router_source import RouterSource
from service.adapters.signal_log import SignalLog
from service.cores import cores
from service.errors import ConfigurationError, StoreUnavailable
from service.settings import Settings, read_settings
from service.terminal import as_utc, examples, terminal

if TYPE_CHECKING:
    from optimizers.replay_log import Requests
    from optimizers.replayed import Replay

out, err = terminal(), terminal(stderr=True)
MOST = 50_000
EXAMPLES = examples(
    "`pointsman replay --since 2026-11-02 --router challenger`",
    "`pointsman replay --since 2026-11-02 --router 4 --against 3 --html replay.html`: as a page",
)


def replay(
    since: Annotated[datetime, typer.Option(help="Requests from this day or instant on (UTC).")],
    router: Annotated[str, typer.Option(metavar="VERSION", help=NAMES)],
    until: Annotated[datetime | None, typer.Option(help="Requests before this day or instant (UTC).")] = None,
    against: Annotated[str, typer.Option(metavar="VERSION", help="The version to compare with; named like the other.")] = CHAMPION,
    most: Annotated[int, typer.Option(min=1, help="Requests at most: the latest ones.")] = MOST,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Read the logged requests with a router version: which decisions flip, what that may break or mend, and what it costs.

    Nobody is asked and nothing is changed: neither agents nor an LM.
    """
    if html is not None:
        check_writable(html)
    since, until = as_utc(since, "--since"), as_utc(until, "--until")
    if until is not None and until <= since:
        raise _exit("--until must be later than --since.")
    try:
        settings = read_settings()
        with shown(err) as progress:
            found = _replay(settings, since, until, router, against, most, progress)
    except (ConfigurationError, StoreUnavailable) as exc:
        raise _exit(str(exc)) from exc
    stretch = f"From {since:%Y-%m-%d %H:%M}" + (f" to {until:%Y-%m-%d %H:%M}" if until is not None else "") + " UTC"
    alias = against if against in ALIASES else None
    if html is not None:
        from optimizers.replay_report import write_replay

        try:
            write_replay(found, html, alias=alias, stretch=stretch)
        except OSError as exc:
            raise _exit(f"{html} cannot be written: {exc.strerror}.") from exc
        err.print(f"The page is {html}", highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps({"since": since.isoformat(), "until": until.isoformat() if until else None, **found.as_json()}, indent=2))
    else:
        from optimizers.replay_view import show_replay

        show_replay(out, found, alias=alias, stretch=stretch)


def _replay(
    settings: Settings, since: datetime, until: datetime | None, router: str, against: str, most: int, progress: Callable[[str], None]
) -> "Replay":
    """Open registry and log, and replay.

    Raises:
        ConfigurationError: a version cannot be had, or nothing can be replayed; the message says what to do.
        StoreUnavailable: the log cannot be read.
    """
    progress("reading the versions")
    registry = MlflowRegistry(settings.mlflow_uri)
    versions = find_version(registry, against), find_version(registry, router)
    if versions[0].number == versions[1].number:
        raise ConfigurationError(f"--router and --against are both version {versions[0].number}. Name another: pointsman routers list")
    progress("loading them (the libraries take some seconds)")
    from optimizers.case import data_of
    from optimizers.replay import replay as compare
    from optimizers.replay_log import read_requests
    from optimizers.scrub import Scrubber
    from optimizers.text_router import TextRouter
    from service.catalog.loader import load_catalog
    from service.reload import for_catalog
    from service.routing.encoder import Encoder

    catalog = load_catalog(settings.catalog)
    encoder = Encoder(settings.encoder, threads=cores())
    source = RouterSource(settings.mlflow_uri, encoder)
    old, new = (TextRouter(for_catalog(source.load(version), catalog), catalog, settings.lm) for version in versions)
    labelled, observed = data_of(registry, versions[1])
    requests = read_requests(SignalLog(settings.database_url).batches(since=since, until=until), most, progress)
    _require_some(requests, since, until)
    seen = {row.key for row in labelled} | observed
    return compare(requests, old, new, encoder=encoder, catalog=catalog, seen=seen, scrub=Scrubber(), progress=progress)


def _require_some(requests: "Requests", since: datetime, until: datetime | None) -> None:
    if len(requests):
        return
    stretch = f"from {since:%Y-%m-%d %H:%M}" + (f" to {until:%Y-%m-%d %H:%M}" if until is not None else "") + " UTC on"
    if requests.left_out:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in requests.left_out.items())
        raise ConfigurationError(f"No request {stretch} is decided by its text alone ({reasons}), so none can be replayed.")
    raise ConfigurationError(f"The log has no requests {stretch}. Say an earlier --since, or see where POINTSMAN_DATABASE_URL points.")


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(2)
