"""Connections to the application's database: SQLite in one file with a write-ahead log, or PostgreSQL; migrated when they are opened.

Whoever uses the database, the service or an offline job, connects by this, so that locks, time limits and durability are the same for all.
"""

import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import psycopg
import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from service.adapters.migrations.upgrade import HEAD, current, upgrade
from service.errors import ConfigurationError, StoreUnavailable

MIGRATION_SECONDS = 60.0
IN_USE_SECONDS = 3.0
IN_PASSWORDS = "In a password, characters such as @ : / are written %40 %3A %2F."
LOOKS = f"POINTSMAN_DATABASE_URL must look like sqlite:///var/pointsman.db or postgresql://user:password@host/name. {IN_PASSWORDS}"
MAKE_UTF8 = "createdb --encoding=UTF8 --locale=C --template=template0 NAME"
POOL = 3  # connections at once
_OPTIONS_REFUSED = re.compile("startup parameter|options", re.IGNORECASE)
_POOLED = "pooled"
JOB_LOCK_SECONDS = 10.0  # that a piece of work waits for another process's lock


def writer(engine: Engine) -> Engine:
    """Return the engine for transactions that write."""
    # SQLite waits for a lock only at the start of a transaction: one that reads first and writes later fails at once.
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def normalise(address: str) -> URL:
    """Return the address with the driver used here.

    Raises:
        ConfigurationError: it is no address, or not one of a database that is supported.
    """
    try:
        url = make_url(address)
        driver = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}[url.get_backend_name()]
    except (SQLAlchemyError, KeyError, ValueError):
        raise ConfigurationError(LOOKS) from None  # what it says may quote a password
    if "@" in (url.host or ""):
        raise ConfigurationError(LOOKS)
    if driver.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise ConfigurationError("POINTSMAN_DATABASE_URL must name a file: an address such as sqlite:///var/pointsman.db.")
    return url.set(drivername=driver)


def open_engine(url: URL, lock_seconds: float) -> Engine:
    """Connect, and create or migrate the schema where needed; `lock_seconds` is how long to wait for another process's lock."""
    engine = connect(url, lock_seconds)
    try:
        with engine.connect() as connection:
            version = current(connection)
        if version != HEAD:
            patient = connect(url, MIGRATION_SECONDS)
            try:
                upgrade(writer(patient))
            finally:
                patient.dispose()
    except BaseException:
        engine.dispose()
        raise
    return engine


def connect(url: URL, lock_seconds: float) -> Engine:
    """Return an engine that waits so long for another process's lock. It makes a SQLite file, and changes nothing in a database.

    To connect by it raises `ConfigurationError` where a database does not keep its text as UTF-8.
    """
    shared: dict[str, Any] = {
        "hide_parameters": True,  # user text stays out of error messages
        "json_serializer": lambda value: to_json(value, inf_nan_mode="null").decode(),
        "json_deserializer": from_json,
        "pool_size": POOL,
    }
    if url.get_backend_name() == "postgresql":
        return _connect_postgresql(url, int(lock_seconds * 1000), shared)
    path = Path(url.database or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    # Mode rw: a file that was deleted later must not come back as an empty one.
    file = URL.create(url.drivername, database=f"file:{quote(str(path.absolute()))}", query={"mode": "rw", "uri": "true"})
    engine = sa.create_engine(file, **shared)
    _listen(engine, path, lock_seconds)
    return engine


def _connect_postgresql(url: URL, wait: int, shared: dict[str, Any]) -> Engine:
    """Limit what a statement may wait and take, in milliseconds, at the start of each connection.

    Poolers such as PgBouncer refuse that, or pass over it: a connection of theirs is many clients' (transaction pooling). Then each
    transaction sets its limits, and no statement is prepared, as another connection would not know it.
    """
    limits = {"lock_timeout": str(wait), "statement_timeout": str(wait + 1000)}
    given = url.query.get("options", "")
    options = " ".join((given if isinstance(given, str) else " ".join(given), *(f"-c {name}={value}" for name, value in limits.items())))
    alive = {"connect_timeout": 3, "tcp_user_timeout": wait + 1000, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 2}
    arguments = {name: value for name, value in alive.items() if name not in url.query}
    engine = sa.create_engine(
        url.difference_update_query(["options"]),
        connect_args=arguments | {"client_encoding": "utf8", "options": options.strip()},
        pool_pre_ping=True,
        **shared,
    )
    set_anew = "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())

    def dial(_: object, __: object, args: tuple[Any, ...], named: dict[str, Any]) -> psycopg.Connection:
        try:
            return psycopg.connect(*args, **named)
        except psycopg.OperationalError as exc:
            if _OPTIONS_REFUSED.search(str(exc)) is None:
                raise
            return psycopg.connect(*args, **named | {"options": given})

    def settle(connection: psycopg.Connection, record: ConnectionPoolEntry) -> None:
        _require_utf8(connection)
        found = connection.execute("SELECT name, setting FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')").fetchall()
        connection.rollback()
        if sorted(found) != sorted(limits.items()):
            connection.prepare_threshold = None
            record.info[_POOLED] = True

    def begin(connection: Connection) -> None:
        if _POOLED in connection.info:
            driver = cast("psycopg.Connection", connection.connection.driver_connection)
            try:
                driver.execute(set_anew)  # past SQLAlchemy, whose cursor would stay open where rows are streamed
            except psycopg.Error as exc:  # and which translates no error of this event
                connection.invalidate(exc)
                raise sa.exc.OperationalError(set_anew, None, exc) from exc

    sa.event.listen(engine, "do_connect", dial)
    sa.event.listen(engine, "connect", settle)
    sa.event.listen(engine, "begin", begin)
    return engine


def _require_utf8(connection: psycopg.Connection) -> None:
    """Refuse a database that cannot hold every text, or would hold it as bytes.

    Raises:
        ConfigurationError: its encoding is another one; `initdb` chooses it by the locale of whoever runs it.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        said = f"The database {connection.info.dbname} has the encoding {encoding}; Pointsman needs UTF8."
        raise ConfigurationError(f"{said} Make another one, and name it in POINTSMAN_DATABASE_URL: {MAKE_UTF8}")


def _listen(engine: Engine, path: Path, lock_seconds: float) -> None:
    def prepare(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        connection.execute(f"PRAGMA busy_timeout = {int(lock_seconds * 1000)}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        _use_write_ahead_log(connection, lock_seconds)
        record.info["file"] = _identity(path)

    def check(_: sqlite3.Connection, record: ConnectionPoolEntry, __: object) -> None:
        # SQLite goes on writing into a file that was deleted or replaced; what it acknowledges then is lost.
        if record.info["file"] != _identity(path):
            raise DisconnectionError("The database file was replaced.")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "checkout", check)
    sa.event.listen(engine, "begin", begin)


def _use_write_ahead_log(connection: sqlite3.Connection, lock_seconds: float) -> None:
    """Switch to WAL. SQLite does not wait for other processes here, so this does."""
    give_up = time.monotonic() + lock_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def make_way(path: Path) -> bool:
    """Remove a SQLite file of a schema that this code does not know, where it holds no decision and nobody uses it.

    Returns:
        Whether the file may be opened, or made, now: by this process, or since another one has done so. One that is in use is tried for
        `IN_USE_SECONDS`.

    Raises:
        OSError: the folder cannot be written.
    """
    give_up = time.monotonic() + IN_USE_SECONDS
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            try:
                return _removed(path)
            except sqlite3.OperationalError:  # in use, or gone meanwhile: another process that starts may have looked at it just now
                if not path.exists():
                    return True
                if time.monotonic() > give_up:
                    return False
            except sqlite3.DatabaseError:
                return False
            time.sleep(0.05)


def _removed(path: Path) -> bool:
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=0.0)) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == (0,) or connection.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,):
            return True
        if connection.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):  # only where no other connection is open
            raise sqlite3.OperationalError("the file is in use")
        connection.execute("BEGIN EXCLUSIVE")
        if connection.execute("SELECT 1 FROM decision LIMIT 1").fetchone() is not None:
            return False
        path.unlink()
    return True


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def unusable(exc: Exception) -> StoreUnavailable:
    """Return the error to raise for what a database said, without statement, values and details: they hold what users wrote."""
    said = str(exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc)
    first = said.partition("\n")[0].rstrip(".")  # PostgreSQL quotes a row in a further line
    return StoreUnavailable(f"The store cannot be used: {first}.")


def require_there(url: URL) -> None:
    """Refuse a SQLite file that is not there: to open it would make it, and a job in the wrong folder would find nothing to do for ever.

    Raises:
        StoreUnavailable: it is not there.
    """
    file = url.database if url.get_backend_name() == "sqlite" else None
    if file is not None and not Path(file).is_file():
        what = "is a folder" if Path(file).is_dir() else "is made when the service starts"
        raise StoreUnavailable(f"There is no log yet: {file} {what} (POINTSMAN_DATABASE_URL).")


@contextmanager
def opened(url: URL) -> Iterator[Engine]:
    """Open the application's database for one piece of work.

    Raises:
        StoreUnavailable: it cannot be used, there or in the block.
    """
    try:
        engine = open_engine(url, JOB_LOCK_SECONDS)
        try:
            yield engine
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as exc:
        raise unusable(exc) from exc
