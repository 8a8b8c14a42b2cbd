"""The durable store on SQLite (one file, write-ahead log) or PostgreSQL. Implements `service.ports.Store`.

SQL runs in threads, so the event loop never waits for a disk: reads in a few, writes in one, which takes all commits that wait
and makes them one transaction (group commit), so that one flush to disk serves many callers. It knows nothing of stages or HTTP.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple
from urllib.parse import quote
from uuid import UUID

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DisconnectionError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session, col, select

from service.adapters.migrations.upgrade import HEAD, current, upgrade
from service.adapters.sql_tables import Decision, Signal, decision_values, receipt_from, signal_from, signal_values
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.errors import ConfigurationError, StoreUnavailable

LOCK_SECONDS = 3.0
MIGRATION_SECONDS = 60.0
BATCH = 64
READERS = 2
FAILURES = (SQLAlchemyError, sqlite3.Error, OSError, ValueError)  # ValueError: a row that cannot be encoded, or is not what was written

_KNOWN = sa.select(sa.literal(1)).where(col(Decision.tenant) == sa.bindparam("tenant"), col(Decision.query_id) == sa.bindparam("query_id"))

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqlStore:
    """Decisions and signals in a database. `open()` before use, `close()` after; both on the event loop that uses the store.

    Args:
        url: `sqlite:///path/to/file.db` or `postgresql://...`; a driver named in it is replaced by the one used here.
        lock_seconds: how long to wait for another process's lock. Every call answers or fails two seconds later at the latest.
    """

    def __init__(self, url: str, *, lock_seconds: float = LOCK_SECONDS) -> None:
        self._url, self._lock_seconds, self._patience = url, lock_seconds, lock_seconds + 2.0
        self._engine: Engine | None = None
        self._reads = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        self._waiting: list[tuple[Receipt, asyncio.Future[Receipt]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and create or migrate the schema where needed.

        Raises:
            StoreUnavailable: the database cannot be reached or written.
            ConfigurationError: the address is not one of a database that is supported, or the database is newer than this code.
        """
        url = _normalise(self._url)
        with _translated():
            self._engine = await asyncio.get_running_loop().run_in_executor(self._writes, _open, url, self._lock_seconds)

    async def close(self) -> None:
        """Finish what is being written and disconnect. Calls that come later fail with `StoreUnavailable`. May be called twice."""
        engine, self._engine = self._engine, None
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=self._patience)
        await asyncio.to_thread(self._release, engine)

    async def commit(self, receipt: Receipt) -> Receipt:
        """Store decision and signal; see `service.ports.Store`. When a commit fails for lack of time, it may still come to pass."""
        self._require_engine()
        with _translated():
            async with asyncio.timeout(self._patience):
                return await self._enqueue(receipt)

    async def by_query(self, tenant: str, query_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's query, or None."""
        return await self._ask(self._reads, _find_repeated, self._require_engine(), tenant, query_id)

    async def by_decision(self, tenant: str, decision_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's decision, or None."""
        return await self._ask(self._reads, _find, self._require_engine(), tenant, decision_id, None)

    async def add_feedback(self, tenant: str, feedback: Feedback) -> Receipt | None:
        """Merge feedback into the signal and recompute the reward; None when the tenant has no such decision."""
        return await self._ask(self._writes, _add_feedback, self._require_engine(), tenant, feedback)

    async def ping(self) -> None:
        """Return when the database would take a commit now; changes nothing and touches no disk."""
        await self._ask(self._writes, _ping, self._require_engine())

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise StoreUnavailable("The store is not open.")
        return self._engine

    async def _ask(self, threads: ThreadPoolExecutor, work: Callable[[*Ts], T], *args: *Ts) -> T:
        with _translated():
            async with asyncio.timeout(self._patience):
                return await asyncio.get_running_loop().run_in_executor(threads, work, *args)

    async def _enqueue(self, receipt: Receipt) -> Receipt:
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((receipt, stored))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting(self._require_engine()))
        return await stored

    async def _write_waiting(self, engine: Engine) -> None:
        """Write what waits, batch by batch; while one batch is flushed to disk the next one gathers."""
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            batch = [(receipt, stored) for receipt, stored in batch if not stored.done()]  # the others gave up
            receipts = [receipt for receipt, _ in batch]
            results: Sequence[Receipt | Exception]
            try:
                results = await asyncio.get_running_loop().run_in_executor(self._writes, _write, engine, receipts)
            except Exception as exc:  # noqa: BLE001  # a bug, too, must reach the callers rather than leave them waiting
                results = [exc] * len(batch)
            for (_, stored), result in zip(batch, results, strict=True):
                if stored.done():
                    continue
                if isinstance(result, Receipt):
                    stored.set_result(result)
                else:
                    stored.set_exception(result)

    def _release(self, engine: Engine | None) -> None:
        self._writes.shutdown()
        self._reads.shutdown()
        if engine is not None:
            engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TimeoutError as exc:
        raise StoreUnavailable("The store did not answer in time.") from exc
    except FAILURES as exc:
        raise StoreUnavailable("The store failed to read or write.") from exc


def _write(engine: Engine, receipts: Sequence[Receipt]) -> Sequence[Receipt | Exception]:
    """Store all, or find out which of them cannot be stored. The order is fixed so that two processes cannot lock each other out."""
    order = sorted(range(len(receipts)), key=lambda i: (receipts[i].tenant, receipts[i].decision.query_id))
    try:
        with _writer(engine).begin() as connection:
            _insert(connection, [receipts[i] for i in order])
    except OperationalError:
        raise  # locked, full, read-only, gone: no fault of any one receipt
    except FAILURES:
        results: dict[int, Receipt | Exception] = {}
        with _writer(engine).begin() as connection:
            for i in order:
                results[i] = _insert_or_find(connection, receipts[i])
        return [results[i] for i in range(len(receipts))]
    return receipts


def _insert(connection: Connection, receipts: Sequence[Receipt]) -> None:
    if receipts:
        connection.execute(sa.insert(Decision), [decision_values(receipt) for receipt in receipts])
        connection.execute(sa.insert(Signal), [signal_values(receipt) for receipt in receipts])


def _insert_or_find(connection: Connection, receipt: Receipt) -> Receipt | Exception:
    try:
        with connection.begin_nested():
            _insert(connection, [receipt])
    except OperationalError:
        raise
    except IntegrityError as exc:
        return _find(connection, receipt.tenant, None, receipt.decision.query_id) or exc
    except FAILURES as exc:
        return exc
    return receipt


def _find_repeated(engine: Engine, tenant: str, query_id: UUID) -> Receipt | None:
    """Look a query up that is most likely new: the key alone first, which is a fifth of the work."""
    with engine.connect() as connection:
        known = connection.execute(_KNOWN, {"tenant": tenant, "query_id": str(query_id)}).first()
    return None if known is None else _find(engine, tenant, None, query_id)


def _find(bind: Engine | Connection, tenant: str, decision_id: UUID | None, query_id: UUID | None) -> Receipt | None:
    with Session(bind) as session:
        rows = _rows(session, tenant, decision_id, query_id)
        return None if rows is None else receipt_from(*rows)


def _rows(
    session: Session, tenant: str, decision_id: UUID | None, query_id: UUID | None, *, lock: bool = False
) -> tuple[Decision, Signal] | None:
    column, value = (Decision.query_id, query_id) if decision_id is None else (Decision.decision_id, decision_id)
    statement = select(Decision, Signal).join(Signal).where(Decision.tenant == tenant, col(column) == str(value))
    return session.exec(statement.with_for_update(of=Signal) if lock else statement).first()


def _add_feedback(engine: Engine, tenant: str, feedback: Feedback) -> Receipt | None:
    with Session(_writer(engine)) as session, session.begin():
        rows = _rows(session, tenant, feedback.decision_id, feedback.query_id, lock=True)
        if rows is None:
            return None
        decision, signal = rows
        merged = signal_from(signal).with_feedback(feedback)
        for name in ("user_satisfaction", "answer_quality", "was_rerouted", "corrected_agent"):
            setattr(signal, name, getattr(merged, name))
        signal.reward, signal.updated_at = merged.compute_reward(), datetime.now(UTC)
        return receipt_from(decision, signal)


def _ping(engine: Engine) -> None:
    with _writer(engine).begin() as connection:
        connection.execute(sa.update(Signal).where(sa.false()).values(reward=None))  # refused by a database that is read-only


def _writer(engine: Engine) -> Engine:
    # SQLite waits for a lock only at the start of a transaction: one that reads first and writes later fails at once.
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def _normalise(address: str) -> URL:
    """Return the address with the driver used here.

    Raises:
        ConfigurationError: it is no address, or not one of a database that is supported.
    """
    try:
        url = make_url(address)
        driver = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}[url.get_backend_name()]
    except (SQLAlchemyError, KeyError) as exc:
        raise ConfigurationError("The database address must look like sqlite:///var/pointsman.db or postgresql://user@host/name.") from exc
    if driver.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise ConfigurationError("The store needs a database file: an address such as sqlite:///var/pointsman.db.")
    return url.set(drivername=driver)


def _open(url: URL, lock_seconds: float) -> Engine:
    engine = _connect(url, lock_seconds)
    try:
        with engine.connect() as connection:
            version = current(connection)
        if version != HEAD:
            patient = _connect(url, MIGRATION_SECONDS)
            try:
                upgrade(_writer(patient))
            finally:
                patient.dispose()
    except BaseException:
        engine.dispose()
        raise
    return engine


def _connect(url: URL, lock_seconds: float) -> Engine:
    shared: dict[str, Any] = {
        "hide_parameters": True,  # user text stays out of error messages
        "json_serializer": lambda value: to_json(value, inf_nan_mode="null").decode(),
        "json_deserializer": from_json,
        "pool_size": READERS + 1,
    }
    if url.get_backend_name() == "postgresql":
        wait = int(lock_seconds * 1000)
        limits = {"connect_timeout": 3, "options": f"-c lock_timeout={wait} -c statement_timeout={wait + 1000}"}
        alive = {"tcp_user_timeout": wait + 1000, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 2}
        try:
            return sa.create_engine(url, connect_args=limits | alive, pool_pre_ping=True, **shared)
        except ImportError as exc:
            raise ConfigurationError("PostgreSQL needs its driver. Run: .venv/bin/pip install 'psycopg[binary]'") from exc
    path = Path(url.database or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    # Mode rw: a file that was deleted later must not come back as an empty one.
    file = URL.create(url.drivername, database=f"file:{quote(str(path.absolute()))}", query={"mode": "rw", "uri": "true"})
    engine = sa.create_engine(file, **shared)
    _listen(engine, path, lock_seconds)
    return engine


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


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
