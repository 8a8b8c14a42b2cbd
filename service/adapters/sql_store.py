"""The durable store on SQLite (one file, write-ahead log) or PostgreSQL: `Store` and `OptimizationQueue` of `service.ports`.

SQL runs in threads, so the event loop never waits for a disk: reads in a few, writes in one, which takes all commits that wait
and makes them one transaction (group commit), so that one flush to disk serves many callers. It knows nothing of stages or HTTP.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar, TypeVarTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError, StatementError
from sqlmodel import Session, col, select

from service.adapters import key_rows, optimization_requests
from service.adapters.sql_engine import normalise, open_engine, unusable, writer
from service.adapters.sql_tables import Decision, Signal, decision_values, receipt_from, signal_from, signal_values
from service.contracts.access import ApiKey
from service.contracts.optimization import OptimizationRequest, OptimizationWish, RequestStatus
from service.contracts.receipt import Receipt
from service.contracts.signals import FEEDBACK_FIELDS, Feedback
from service.errors import StoreUnavailable
from service.ports import Spool

LOCK_SECONDS = 3.0
BATCH = 64  # receipts that one transaction takes at most
READERS = 2
LEAST_FREE = 5_000_000  # bytes of the disk: with less, the write-ahead log could not be written
FAILURES = (SQLAlchemyError, sqlite3.Error, OSError, ValueError)  # ValueError: a row that cannot be encoded, or is not what was written

_KNOWN = sa.select(sa.literal(1)).where(col(Decision.tenant) == sa.bindparam("tenant"), col(Decision.query_id) == sa.bindparam("query_id"))

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Refused(StoreUnavailable):
    """The database is there, but it does not take this row, or holds one that is not what was written."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A receipt as it was read, and when it was last changed before; None where it cannot be read."""

    decision_id: UUID
    receipt: Receipt | None
    updated_at: datetime | None


class SqlStore:
    """Decisions, signals and requests in a database. `open()` before use, `close()` after; both on the event loop that uses the store.

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

    spool = Spool()  # it has none

    @property
    def is_remote(self) -> bool:
        """Whether the database is another machine's, as far as its kind tells.

        Raises:
            ConfigurationError: the address is not one of a database that is supported.
        """
        return self._address.get_backend_name() != "sqlite"

    @property
    def place(self) -> str:
        """The file of a database on this machine, or the name of another one."""
        return self._address.database or ""

    @cached_property
    def _address(self) -> URL:
        return normalise(self._url)

    @property
    def free(self) -> int:
        """How many bytes are free where its file is, none if its folder is gone; only of a database on this machine's disk."""
        try:
            return shutil.disk_usage(Path(self.place).absolute().parent).free
        except OSError:
            return 0

    @property
    def is_open(self) -> bool:
        """Whether it has connected and may be used."""
        return self._engine is not None

    @property
    def waiting(self) -> int:
        """How many commits wait for the one that is being written."""
        return len(self._waiting)

    async def open(self) -> None:
        """Connect, and create or migrate the schema where needed; once connected, do nothing.

        Raises:
            StoreUnavailable: the database cannot be reached or written.
            ConfigurationError: the address is not one of a database that is supported, or the database is newer than this code.
        """
        if self.is_open:
            return
        url = self._address
        try:
            self._engine = await asyncio.get_running_loop().run_in_executor(self._writes, open_engine, url, self._lock_seconds)
        except FAILURES as exc:
            place = "" if self.is_remote else f" ({url.database}; move it away and keep it if it is damaged)"
            raise StoreUnavailable(f"{unusable(exc)}{place}") from exc

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
        """Return the receipt of the tenant's query, or None.

        Raises:
            StoreUnavailable: it is not there, and there is no room on the disk to store an answer.
        """
        kept = await self.find(tenant, query_id)
        if kept is None:
            self._require_room()
        return kept

    async def find(self, tenant: str, query_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's query, or None."""
        return await self._ask(self._reads, _find_repeated, self._require_engine(), tenant, query_id)

    async def by_decision(self, tenant: str, decision_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's decision, or None."""
        return await self._ask(self._reads, _find, self._require_engine(), tenant, decision_id, None)

    async def add_feedback(self, tenant: str, feedback: Feedback, *, told_at: datetime | None = None) -> Receipt | None:
        """Merge feedback into the signal and recompute the reward; None when the tenant has no such decision.

        What was told later than `told_at` (None: now) stays as it is.
        """
        return await self._ask(self._writes, _add_feedback, self._require_engine(), tenant, feedback, told_at)

    async def ask_for(self, tenant: str, wish: OptimizationWish) -> OptimizationRequest:
        """Keep a wish to make a signature better; see `service.ports.OptimizationQueue`."""
        return await self._ask(self._writes, optimization_requests.ask, self._require_engine(), tenant, wish, datetime.now(UTC))

    async def requests(self, tenant: str, status: RequestStatus | None = None) -> list[OptimizationRequest]:
        """Return the tenant's requests."""
        return await self._ask(self._reads, optimization_requests.listed, self._require_engine(), tenant, status, datetime.now(UTC))

    async def request(self, tenant: str, request_id: UUID) -> OptimizationRequest | None:
        """Return one of the tenant's requests, or None."""
        return await self._ask(self._reads, optimization_requests.find, self._require_engine(), tenant, request_id, datetime.now(UTC))

    async def stored_keys(self) -> dict[str, ApiKey]:
        """Return all API keys by their digests."""
        return await self._ask(self._reads, key_rows.read, self._require_engine())

    async def count_questions(self, day: date, asked: Mapping[str, int]) -> dict[str, int]:
        """Add to what was asked in a day, by key, and return what all processes have asked."""
        return await self._ask(self._writes, key_rows.count, self._require_engine(), day, asked)

    async def count(self) -> int:
        """Return how many decisions there are."""
        return await self._ask(self._reads, _count, self._require_engine())

    async def oldest(self, most: int, *, after: UUID | None = None) -> list[Kept]:
        """Return the first receipts of all tenants by the time of their ids, those behind `after`."""
        return await self._ask(self._reads, _oldest, self._require_engine(), most, after)

    async def remove(self, kept: Kept) -> None:
        """Take a receipt out, unless feedback has changed it since it was read."""
        await self._ask(self._writes, _remove, self._require_engine(), kept)

    async def ping(self) -> None:
        """Return when the database would take a commit now; changes nothing. There is nothing to say of it."""
        self._require_room()
        await self._ask(self._writes, _ping, self._require_engine())

    def _require_room(self) -> None:
        if not self.is_remote and (free := self.free) < LEAST_FREE:
            raise StoreUnavailable(f"The disk of the database is full ({free:,} bytes are free).")

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
    except (IntegrityError, DataError, ValueError) as exc:
        raise Refused("The store does not take this, or holds what was not written.") from exc
    except FAILURES as exc:
        if isinstance(exc, StatementError) and not isinstance(
            exc, DBAPIError
        ):  # SQLAlchemy could not encode it; the database was not asked
            raise Refused("The store does not take this.") from exc
        raise StoreUnavailable("The store failed to read or write.") from exc


def _write(engine: Engine, receipts: Sequence[Receipt]) -> Sequence[Receipt | Exception]:
    """Store all, or find out which of them cannot be stored. The order is fixed so that two processes cannot lock each other out."""
    order = sorted(range(len(receipts)), key=lambda i: (receipts[i].tenant, receipts[i].decision.query_id))
    try:
        with writer(engine).begin() as connection:
            _insert(connection, [receipts[i] for i in order])
    except OperationalError:
        raise  # locked, full, read-only, gone: no fault of any one receipt
    except FAILURES:
        results: dict[int, Receipt | Exception] = {}
        with writer(engine).begin() as connection:
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


def _count(engine: Engine) -> int:
    with Session(engine) as session:
        return session.exec(select(sa.func.count()).select_from(Decision)).one()


def _oldest(engine: Engine, most: int, after: UUID | None) -> list[Kept]:
    wanted = select(Decision.decision_id).join(Signal).order_by(Decision.decision_id).limit(most)
    if after is not None:
        wanted = wanted.where(Decision.decision_id > str(after))
    with Session(engine) as session:
        return [_kept(session, decision_id) for decision_id in session.exec(wanted).all()]


def _kept(session: Session, decision_id: str) -> Kept:
    """Read one row by itself: one that is damaged must not keep the others of its batch from being read."""
    try:
        decision, signal = session.exec(select(Decision, Signal).join(Signal).where(Decision.decision_id == decision_id)).one()
        return Kept(UUID(decision_id), receipt_from(decision, signal), signal.updated_at)
    except ValueError:  # damaged JSON or date, or of another version of the contracts
        return Kept(UUID(decision_id), None, None)


def _remove(engine: Engine, kept: Kept) -> None:
    same, decision_id = col(Signal.updated_at) == kept.updated_at, str(kept.decision_id)
    with writer(engine).begin() as connection:
        removed = connection.execute(sa.delete(Signal).where(col(Signal.decision_id) == decision_id, same))
        if removed.rowcount:
            connection.execute(sa.delete(Decision).where(col(Decision.decision_id) == decision_id))


def _add_feedback(engine: Engine, tenant: str, feedback: Feedback, told_at: datetime | None) -> Receipt | None:
    with Session(writer(engine)) as session, session.begin():
        rows = _rows(session, tenant, feedback.decision_id, feedback.query_id, lock=True)
        if rows is None:
            return None
        decision, signal = rows
        if told_at is not None and signal.updated_at > told_at:
            later = {name: None for name in FEEDBACK_FIELDS if getattr(signal, name) is not None}
            feedback = feedback.model_copy(update=later)
        merged = signal_from(signal).with_feedback(feedback)
        for name in ("user_satisfaction", "answer_quality", "was_rerouted", "corrected_agent"):
            setattr(signal, name, getattr(merged, name))
        signal.reward, signal.updated_at = merged.compute_reward(), datetime.now(UTC)
        return receipt_from(decision, signal)


def _ping(engine: Engine) -> None:
    with writer(engine).begin() as connection:
        connection.execute(sa.update(Signal).where(sa.false()).values(reward=None))  # refused by a database that is read-only
