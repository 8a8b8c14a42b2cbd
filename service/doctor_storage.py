"""What `pointsman doctor` finds out about what is kept: the database, the spool, the registry, the router, the disks.

Each look returns what was seen, or raises what to do about it. None changes anything, but that it is noted whom the registry names.
"""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from service.adapters.migrations.upgrade import HEAD, NEWER, current
from service.adapters.mlflow_client import shown, sqlite_path
from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.registry_watch import look
from service.adapters.router_source import CHAMPION_NOTE, NO_CHAMPION, RouterSource
from service.adapters.sql_engine import connect, normalise, unusable, writer
from service.catalog.coverage import say_described_only, without_examples
from service.catalog.loader import load_catalog
from service.errors import ConfigurationError, StoreUnavailable
from service.metrics import SHARED
from service.reload import check_labels
from service.routing.encoder import Encoder
from service.settings import SPOOL, STATE, Settings

LOCK_SECONDS = 3.0
CLOCK_SECONDS = 5.0  # by which the database's clock may differ: leases of jobs are told by the clocks of those who take them
LEAST_FREE = 500_000_000  # bytes
NEARLY_FULL = 0.9  # of the spool's bound
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
ANOTHER = "Make another one with: optimize --bootstrap --promote. Or go back: pointsman routers rollback"


async def database(settings: Settings) -> str:
    """Look at the database: whether it is there, has this version's schema, takes a write, and what its clock says."""
    return await asyncio.to_thread(_look_at_database, normalise(settings.database_url))


def _look_at_database(url: URL) -> str:
    file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    if file is not None and not file.exists():
        _require_writable(file.parent)
        return f"{file} is not there yet; the service makes it when it starts, or: pointsman migrate"
    engine = connect(url, LOCK_SECONDS)
    try:
        with engine.connect() as connection:
            _require_schema(current(connection))
            if file is None:
                _require_same_clock(connection)
        with writer(engine).begin() as connection:
            connection.execute(sa.text("UPDATE signal SET reward = NULL WHERE 1 = 0"))  # refused by a database that is read-only
    except (SQLAlchemyError, UnicodeError) as exc:  # a host name may be none
        advice = "Is its file whole, and may it be written?" if file is not None else "Is it running, and is POINTSMAN_DATABASE_URL right?"
        raise StoreUnavailable(f"{unusable(exc)} {advice}") from exc
    finally:
        engine.dispose()
    return f"the database has schema {HEAD} and can be written"


def _require_schema(version: str | None) -> None:
    if version is None:
        raise ConfigurationError("The database has no tables yet. The service makes them when it starts, or: pointsman migrate")
    if version < HEAD:
        raise ConfigurationError(f"The database has the old schema {version}; this version needs {HEAD}. Run: pointsman migrate")
    if version > HEAD:
        raise ConfigurationError(
            f"{NEWER} It is {version}, this version's is {HEAD}. With the newer version: pointsman migrate --to {HEAD}"
        )


def _require_same_clock(connection: Connection) -> None:
    there = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    ahead = (there - datetime.now(UTC)).total_seconds()
    if abs(ahead) > CLOCK_SECONDS:
        raise ConfigurationError(f"The database's clock is {ahead:+.0f} s off from this machine's. Let both follow a time server (NTP).")


async def spool(settings: Settings) -> str:
    """Look at the spool: how much waits there, whether it can be written, and whether it is on a disk."""
    waiting = await asyncio.to_thread(_count_spooled)
    if normalise(settings.database_url).get_backend_name() == "sqlite":
        if waiting:
            advice = "Start the service with the address that it had then (POINTSMAN_DATABASE_URL), and they are handed over."
            raise ConfigurationError(f"{SPOOL} holds {waiting} decisions for a PostgreSQL database, and none is configured. {advice}")
        return "not used with SQLite"
    _require_writable(STATE)
    kind = _file_system(STATE)
    if kind in IN_MEMORY:
        where = f"{STATE.absolute()} lies in memory ({kind}): what the spool acknowledges is lost with the machine."
        raise ConfigurationError(f"{where} Run in a folder that is on a disk, or mount one at {STATE}.")
    if settings.spool_most and waiting >= NEARLY_FULL * settings.spool_most:
        advice = "Is the database away (store)? Does the log name rows that it refuses (spooled_decision_refused)?"
        raise ConfigurationError(
            f"{waiting} decisions wait in the spool, which takes {settings.spool_most} (POINTSMAN_SPOOL_MOST). {advice}"
        )
    layer = ", in the container's own layer: gone with the container unless a volume is mounted" if kind == "overlay" else ""
    return f"{waiting} decisions wait in {SPOOL}{layer}"


def _count_spooled() -> int:
    if not SPOOL.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{SPOOL}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM decision").fetchone()[0])
    except sqlite3.Error as exc:
        advice = f"Move {SPOOL} away and keep it: it may hold decisions that are nowhere else."
        raise StoreUnavailable(f"The spool cannot be read ({exc}). {advice}") from exc


async def disk(settings: Settings) -> str:
    """Look whether there is room where things are kept."""
    database_file = normalise(settings.database_url)
    kept = {STATE, sqlite_path(settings.mlflow_uri), Path(database_file.database or "") if database_file.host is None else None}
    free = {}
    for path in sorted(str(there) for one in kept if one is not None and (there := _nearest(one)) is not None):
        free[path] = shutil.disk_usage(path).free
        if free[path] < LEAST_FREE:
            raise ConfigurationError(f"Only {free[path] / 1e6:,.0f} MB are free at {path}. Make room, or move it to a larger disk.")
    return f"{min(free.values()) / 1e9:,.1f} GB free"


async def metrics_folder(_: Settings) -> str:
    """Look whether the folder in which worker processes count together can be had."""
    folder = os.environ.get(SHARED)
    if folder is None:
        _require_writable(Path(tempfile.gettempdir()))
        return f"worker processes would share their counts in {tempfile.gettempdir()}"
    if not Path(folder).is_dir():
        raise ConfigurationError(f"{SHARED}={folder} is no folder. Unset it: pointsman serve --workers N makes one of its own.")
    _require_writable(Path(folder))
    return f"counts are shared in {folder}"


async def registry(settings: Settings) -> str:
    """Look whether the registry of router versions answers, and whom it names."""
    file = sqlite_path(settings.mlflow_uri)
    if file is not None and not file.is_file():
        raise ConfigurationError(f"There is no registry yet: {file}. {NO_CHAMPION}")
    try:
        number = await asyncio.to_thread(lambda: MlflowRegistry(settings.mlflow_uri).champion_number())
    except ConfigurationError as exc:
        advice = "Until it answers (POINTSMAN_MLFLOW_URI), the version that served last goes on, and no other one comes."
        raise ConfigurationError(f"{str(exc).splitlines()[0]} {advice}") from exc
    if number is None:
        raise ConfigurationError(NO_CHAMPION)
    return f"{shown(settings.mlflow_uri)} names version {number} champion"


async def router(settings: Settings) -> str:
    """Load the encoder, and the router version that a service would serve, with all its checks."""
    encoder = await asyncio.to_thread(Encoder, settings.encoder)
    source = RouterSource(settings.mlflow_uri, encoder)
    await asyncio.to_thread(look, settings.mlflow_uri, CHAMPION_NOTE)
    try:
        found = await asyncio.to_thread(source.load_noted)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{exc} {ANOTHER}") from exc
    if found is None:
        raise ConfigurationError(source.noted().problem or NO_CHAMPION)
    catalog, fitted = load_catalog(settings.catalog), found.student.practised
    check_labels(found.version, fitted, catalog)
    described = without_examples(catalog.intent, fitted)
    note = f". {say_described_only(described)}" if described else ""
    return f"router version {found.version}, fitted on requests for {len(fitted)} intents{note}"


def _require_writable(folder: Path) -> None:
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise ConfigurationError(f"{there} is no folder. Move it away, or name another place.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as exc:
        raise ConfigurationError(
            f"{folder.absolute()} cannot be written ({exc.strerror}). Give this user the right to, or free space."
        ) from exc


def _nearest(path: Path) -> Path | None:
    """Return the path, or the nearest folder above it that is there."""
    return next((one for one in (path.absolute(), *path.absolute().parents) if one.is_dir()), None)


def _file_system(path: Path) -> str | None:
    """Return the kind of the file system that a path lies on, where the system tells (Linux)."""
    mounts, there = Path("/proc/mounts"), _nearest(path)
    if there is None or not mounts.is_file():
        return None
    lines = [line.split() for line in mounts.read_text().splitlines()]
    points = [(place, kind) for _, place, kind, *_ in lines if there.resolve().is_relative_to(place.encode().decode("unicode_escape"))]
    return max(points, key=lambda point: len(point[0]))[1] if points else None
