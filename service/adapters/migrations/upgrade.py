"""Brings a database to the newest schema; safe when several processes start at once, and quick when there is nothing to do.

Alembic takes half a second to import, so it is asked only when the version in the database is not `HEAD`.
"""

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from service.errors import ConfigurationError

HEAD = "0006"
LOCK_KEY = 7_464_901_153  # any number, but the same in every process


def current(connection: Connection) -> str | None:
    """Return the database's schema version; None when it has none yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return version


def upgrade(engine: Engine) -> None:
    """Run the migrations that are missing, all in one transaction that only one process can be in at a time.

    Raises:
        ConfigurationError: the database is newer than this code.
    """
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
        # SQLite needs no lock of ours: the engine begins with BEGIN IMMEDIATE.
        if current(connection) != HEAD:
            _run_alembic(connection)


def _run_alembic(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", "service.adapters:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        message = "The database has a schema that this version does not know. Start the newer version, or restore an older database."
        raise ConfigurationError(message) from exc
