"""Brings a database to a schema; safe when several processes start at once, and quick when there is nothing to do.

Alembic takes half a second to import, so it is asked only when the version in the database is not `HEAD`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from service.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0006"
LOCK_KEY = 7_464_901_153  # any number, but the same in every process
OURS = frozenset({"alembic_version", "decision", "signal"})  # tables that every version of the schema has
FOREIGN = "The database has tables of another application. Name an empty one in POINTSMAN_DATABASE_URL."
NEWER = "The database has a schema that this version does not know. Start the newer version, or restore an older database."


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the schema, and what it is about."""

    revision: str
    title: str


def current(connection: Connection) -> str | None:
    """Return the database's schema version; None when it has none yet.

    Raises:
        ConfigurationError: the database is another application's.
    """
    found = OURS.intersection(sa.inspect(connection).get_table_names())
    if not found:
        return None
    if found != OURS:
        raise ConfigurationError(FOREIGN)
    version: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return version


def upgrade(engine: Engine) -> None:
    """Run the migrations that are missing, all in one transaction that only one process can be in at a time.

    Raises:
        ConfigurationError: the database is newer than this code.
    """
    with engine.begin() as connection:
        exclude_others(connection)
        if current(connection) != HEAD:
            move(connection, HEAD)


def exclude_others(connection: Connection) -> None:
    """Wait until no other process migrates, and keep them from it until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
    # SQLite needs no lock of ours: the engine begins with BEGIN IMMEDIATE.


def steps() -> list[Step]:
    """Return every step that this code knows, oldest first."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return [Step(script.revision, (script.doc or "").splitlines()[0]) for script in reversed(list(scripts))]


def move(connection: Connection, to: str) -> None:
    """Bring the database up or down to a version, in the connection's transaction.

    Raises:
        ConfigurationError: the database is newer than this code, or the version is not known.
    """
    from alembic import command
    from alembic.util.exc import CommandError

    config, have = _config(), current(connection)
    config.attributes["connection"] = connection
    try:
        (command.downgrade if have is not None and have > to else command.upgrade)(config, to)
    except CommandError as exc:
        raise ConfigurationError(NEWER) from exc


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "service.adapters:migrations")
    config.set_main_option("path_separator", "os")
    return config
