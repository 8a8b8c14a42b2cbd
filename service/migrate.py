"""`pointsman migrate`: bring the database to this version's schema or another one, and say what that does and what it would lose.

A way down is tried first in a transaction that is taken back: what is lost is what is seen to be gone, not what somebody has written down.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from service.adapters.migrations.upgrade import HEAD, NEWER, Step, current, exclude_others, move, steps
from service.adapters.sql_engine import connect, normalise, unusable, writer
from service.errors import ConfigurationError, PointsmanError

LOCK_SECONDS = 3_600.0  # a step may rewrite a large table, and nobody waits for an answer
LOOK_SECONDS = 1.0  # between two tries to reach a database that is not there
Say = Callable[[str], None]


class WouldLose(PointsmanError):
    """The way down would lose data, and nobody has agreed to that."""

    code, title = "would_lose_data", "Data would be lost"


@dataclass(frozen=True, slots=True)
class Table:
    """What a table holds: how many rows, and in how many of them each column is filled."""

    rows: int
    filled: Mapping[str, int]


def migrate(address: str, *, to: str | None, wait: float, agreed: bool, say: Say) -> None:
    """Bring a database to a schema.

    Args:
        address: of the database.
        to: the version; None: this code's newest.
        wait: seconds to wait for a database that is not there.
        agreed: whether data may be lost on a way down.
        say: is told each line of what happens.

    Raises:
        ConfigurationError: the address, the database's schema or the version wanted is not known.
        WouldLose: the way is down and loses data, and nobody has agreed; nothing was changed.
        StoreUnavailable: the database cannot be reached or changed; nothing was changed.
    """
    url, known = normalise(address), steps()
    order = [step.revision for step in known]
    wanted = HEAD if to is None else to
    if wanted not in order:
        raise ConfigurationError(f"There is no schema {wanted!r}. This version knows {', '.join(order)}.")
    engine = connect(url, LOCK_SECONDS)
    try:
        _wait_for(engine, url, wait, say)
        have = _version(engine)
        if have is not None and have not in order:
            raise ConfigurationError(f"{NEWER} It is {have}; this version knows {', '.join(order)}.")
        if have == wanted:
            say(f"{shown(url)} has schema {wanted} already. Nothing was changed.")
            return
        if have is not None and have > wanted:
            _go_down(engine, [s for s in reversed(known) if wanted < s.revision <= have], wanted, agreed, say)
        else:
            _go_up(engine, [s for s in known if (have or "") < s.revision <= wanted], wanted, say)
        say(f"{shown(url)} has schema {wanted}, and had {have or 'none'}.")
    except SQLAlchemyError as exc:
        raise unusable(exc) from exc
    finally:
        engine.dispose()


def shown(url: URL) -> str:
    """Return an address without its password, and without a driver."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def contents(connection: Connection) -> dict[str, Table]:
    """Return what is in each table; it counts every row."""
    found = {}
    inspector = sa.inspect(connection)
    for name in inspector.get_table_names():
        columns: list[sa.ColumnClause[object]] = [sa.column(column["name"]) for column in inspector.get_columns(name)]
        counts = connection.execute(sa.select(sa.func.count(), *map(sa.func.count, columns)).select_from(sa.table(name))).one()
        found[name] = Table(counts[0], {column.name: count for column, count in zip(columns, counts[1:], strict=True)})
    return found


def losses(before: Mapping[str, Table], after: Mapping[str, Table]) -> list[str]:
    """Say what is gone: tables that had rows, and columns that were filled."""
    gone = [f"table {name}: {table.rows} rows" for name, table in before.items() if name not in after and table.rows]
    for name, table in before.items():
        if name in after:
            columns = [f"{column} ({n} rows)" for column, n in table.filled.items() if n and column not in after[name].filled]
            gone += [f"columns of {name}: {', '.join(columns)}"] if columns else []
            fewer = table.rows - after[name].rows
            gone += [f"rows of {name}: {fewer}"] if fewer > 0 else []
    return gone


def _wait_for(engine: Engine, url: URL, seconds: float, say: Say) -> None:
    started = time.monotonic()
    while True:
        try:
            engine.connect().close()
        except SQLAlchemyError as exc:
            waited = time.monotonic() - started
            if waited >= seconds:
                raise unusable(exc) from exc
            say(f"waiting for {shown(url)}: {waited:.0f} of {seconds:g} s. {unusable(exc)}")
        else:
            return
        time.sleep(LOOK_SECONDS)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return current(connection)


def _go_up(engine: Engine, path: list[Step], wanted: str, say: Say) -> None:
    with writer(engine).begin() as connection:
        exclude_others(connection)
        for step in path:
            started = time.monotonic()
            if (current(connection) or "") < step.revision:  # another process may have been quicker
                move(connection, step.revision)
            say(f"up   {step.revision}  {step.title} ({time.monotonic() - started:.1f} s)")


def _go_down(engine: Engine, path: list[Step], wanted: str, agreed: bool, say: Say) -> None:
    with writer(engine).connect() as connection, connection.begin() as transaction:
        exclude_others(connection)
        before = contents(connection)
        move(connection, wanted)
        lost = losses(before, contents(connection))
        for line in lost:
            say(f"lost {line}")
        if lost and not agreed:
            transaction.rollback()
            raise WouldLose("This data would be lost. Nothing was changed. Make a copy of the database; then add --yes.")
        for step in path:
            say(f"down {step.revision}  {step.title}")
