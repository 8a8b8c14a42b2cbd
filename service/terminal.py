"""What commands share: where they print for people, how they read instants, and how they write files."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, overload

import typer
from rich.console import Console

WIDE = 160  # columns where nobody looks: a table in a file or a pipe is not cut at a terminal's width
WRONG_USAGE = 2


def terminal(*, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error."""
    stream = sys.stderr if stderr else sys.stdout
    known = "COLUMNS" in os.environ or (stream is not None and stream.isatty())
    return Console(stderr=stderr, width=None if known else WIDE)


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, each on a line of its own."""
    return "\n\n".join(("Examples:", *(f"- {line}" for line in lines)))


def run_program(app: Callable[[], object]) -> NoReturn:
    """Run a program; what cannot be written (a full disk, a text that is no Unicode) ends it with a sentence and exit code 2."""
    try:
        app()
        sys.exit(0)  # an app ends the program by itself
    except UnicodeEncodeError as exc:
        print(f"A text cannot be written as UTF-8 ({exc.reason}): is an argument in another encoding?", file=sys.stderr)  # noqa: T201
    except OSError as exc:
        print(f"The system refuses: {exc}", file=sys.stderr)  # noqa: T201
        quiet_at_exit()
    sys.exit(WRONG_USAGE)


def quiet_at_exit() -> None:
    """Keep Python from complaining at its end that standard output cannot be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@overload
def as_utc(instant: None, option: str) -> None: ...
@overload
def as_utc(instant: datetime, option: str) -> datetime: ...
def as_utc(instant: datetime | None, option: str) -> datetime | None:
    """Return an instant of the command line in UTC; one without a zone is taken for UTC.

    Raises:
        typer.BadParameter: it lies outside of the years 1 to 9999.
    """
    if instant is None:
        return None
    try:
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except OverflowError as exc:
        raise typer.BadParameter(f"{instant.isoformat()} is before the year 1 or after 9999 in UTC.", param_hint=option) from exc


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """Yield where to write a file: beside it, and it takes its place when it is whole. What is no plain file is written to as it is."""
    if file == Path("-") or (file.exists() and not file.is_file()):
        yield file
        return
    whole = file.resolve()  # where a link leads
    part = whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)
