"""`pointsman signals ...`: what was logged for training. Exit codes: 0 done; 2 it cannot be."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from optimizers.progress import shown
from service.adapters.signal_log import Deleted, SignalLog, schema
from service.contracts.caller import ANYONE
from service.errors import ConfigurationError, StoreUnavailable
from service.settings import SPOOL, read_settings
from service.terminal import as_utc, examples, quiet_at_exit, replaced, terminal

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(
    help="What was logged for training: export, delete, prune.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples(
        "`pointsman signals export signals.parquet`", "`pointsman signals delete --user u-17`", "`pointsman signals prune --days 180`"
    ),
)
out, err = terminal(), terminal(stderr=True)
STDOUT = Path("-")
Progress = Callable[[str], None]
HANDED_OVER_SECONDS = 6.0  # a row that the service had read from the spool is in the database by then
PERSONAL = ("query", "asked")


class Format(StrEnum):
    """How signals are written."""

    PARQUET = "parquet"
    JSONL = "jsonl"


@app.callback()
def signals() -> None:
    """What was logged for training: export, delete, prune."""


@app.command(
    no_args_is_help=True,
    epilog=examples("`pointsman signals export signals.parquet --since 2026-11-01`", "`pointsman signals export -`: for a pipe"),
)
def export(
    file: Annotated[Path, typer.Argument(help="Where to write; `-` for standard output (JSON lines only).")],
    form: Annotated[Format | None, typer.Option("--format", help="Default: by the file's ending, else JSON lines.")] = None,
    since: Annotated[datetime | None, typer.Option(help="From this day or instant on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Before this day or instant (UTC).")] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Leave personal data in the texts as they are.")] = False,
) -> None:
    """Write the signals to a file; e-mail addresses, telephone numbers and the like are taken out of the texts."""
    chosen = form or (Format.PARQUET if file.suffix == ".parquet" else Format.JSONL)
    if chosen is Format.PARQUET and file == STDOUT:
        raise _exit("Parquet cannot be written to standard output. Name a file, or say --format jsonl.")
    try:
        log = SignalLog(read_settings().database_url)
        with shown(err) as progress:
            batches = _clean(log.batches(since=as_utc(since, "--since"), until=as_utc(until, "--until"), tenant=tenant), raw)
            with replaced(file) as part:
                count = _write_parquet(batches, part, progress) if chosen is Format.PARQUET else _write_lines(batches, part, progress)
    except (ConfigurationError, StoreUnavailable) as exc:
        raise _exit(str(exc)) from exc
    except BrokenPipeError:  # whoever reads has enough
        quiet_at_exit()
        return
    except OSError as exc:
        raise _exit(f"{file} cannot be written: {exc.strerror}.") from exc
    err.print(f"{count} signals written to {file}", highlight=False)


@app.command(epilog=examples("`pointsman signals delete --user u-17`", "`pointsman signals delete --tenant acme --session s-42`"))
def delete(
    session: Annotated[str | None, typer.Option(help="A session id.")] = None,
    user: Annotated[str | None, typer.Option(help="A user id.")] = None,
    tenant: Annotated[str, typer.Option(help="Whose; without API keys there is one tenant.")] = ANYONE,
) -> None:
    """Delete everything that is stored of a session or a user: receipts and signals. It cannot be undone.

    Signals that came with a request to optimize name no user: of a user go those of the sessions that had decisions here; delete others by
    --session. Exit code 1: there was nothing.
    """
    if bool(session) == bool(user):
        raise _exit("Say either --session or --user.")
    gone = _delete_everywhere(lambda log: log.delete(tenant=tenant, session_id=session or None, user_id=user or None))
    if gone == Deleted(0, 0):
        whose = f"session {session!r}" if session else f"user {user!r}"
        out.print(f"Nothing is stored of {whose} of tenant {tenant!r} (--tenant). Nothing was deleted.", highlight=False, markup=False)
        raise typer.Exit(1)
    kept = "Datasets of router versions made before hold their texts without ids (docs/learning.md)."
    out.print(f"{_said(gone)} {kept}", highlight=False, soft_wrap=True)


@app.command(no_args_is_help=True, epilog="Example, in a daily job: `pointsman signals prune --days 180`")
def prune(days: Annotated[int, typer.Option(min=1, help="Keep the signals of so many days.")]) -> None:
    """Delete receipts and signals that are older than some days. It cannot be undone."""
    before = datetime.now(UTC) - timedelta(days=days)
    gone = _delete_everywhere(lambda log: log.prune(before))
    out.print(_said(gone), highlight=False)


def _delete_everywhere(delete: Callable[[SignalLog], Deleted]) -> Deleted:
    """Delete from this folder's spool, if there is one, and then from the database, where a hand-over may just have brought it."""
    gone = Deleted(0, 0)
    try:
        settings = read_settings()
        if SPOOL.is_file():
            gone = delete(SignalLog(f"sqlite:///{SPOOL}"))
        if gone.decisions:
            err.print(f"{gone.decisions} decisions were deleted from the spool. Waiting {HANDED_OVER_SECONDS:g} s for hand-overs to end.")
            time.sleep(HANDED_OVER_SECONDS)
        more = delete(SignalLog(settings.database_url))
    except (ConfigurationError, StoreUnavailable) as exc:
        raise _exit(f"{exc} Deleted from the spool: {gone.decisions}." if gone.decisions else str(exc)) from exc
    return Deleted(gone.decisions + more.decisions, gone.received + more.received)


def _clean(batches: "Iterator[pa.RecordBatch]", raw: bool) -> "Iterator[pa.RecordBatch]":
    if raw:
        yield from batches
        return
    import pyarrow as pa

    from optimizers.scrub import Scrubber

    scrub = Scrubber()
    for batch in batches:
        people = list(zip(batch.column("user_id").to_pylist(), batch.column("session_id").to_pylist(), strict=True))
        for name in PERSONAL:
            texts = batch.column(name).to_pylist()
            clean = scrub.each([text or "" for text in texts], people)
            kept = [None if text is None else new for text, new in zip(texts, clean, strict=True)]
            batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(kept, pa.string()))
        yield batch


def _write_parquet(batches: "Iterator[pa.RecordBatch]", file: Path, progress: Progress) -> int:
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(file, schema(), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
            progress(f"{count} signals")
    return count


def _write_lines(batches: "Iterator[pa.RecordBatch]", file: Path, progress: Progress) -> int:
    if file == STDOUT:
        return _write_to(batches, sys.stdout, progress)
    with file.open("w", encoding="utf-8") as lines:
        return _write_to(batches, lines, progress)


def _write_to(batches: "Iterator[pa.RecordBatch]", lines: TextIO, progress: Progress) -> int:
    count = 0
    for batch in batches:
        for row in batch.to_pylist():
            lines.write(json.dumps(row, ensure_ascii=False, default=_written) + "\n")
        count += batch.num_rows
        progress(f"{count} signals")
    return count


def _written(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _said(gone: Deleted) -> str:
    return f"Deleted: {gone.decisions} decisions with their signals, and {gone.received} signals that came with requests to optimize."


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(2)
