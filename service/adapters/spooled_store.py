"""A store that goes on while its database is away: what cannot be written there is kept on this machine's disk until it can be.

The spool is a SQLite database with the same tables and the same promise: a commit is on disk when it returns. So a decision in it can be
repeated, explained and given feedback like any other. Every second whatever is in the spool is tried again, the oldest first; what the
database has taken is taken out of the spool. A bound keeps the disk from filling up; beyond it the store is as unavailable as without one.

While the database is away nobody knows which queries it holds: one that was answered before the outage is answered again. Agents see the
same dispatch id, and of two receipts the one that the database has first stays; feedback on the other is given to it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from service.adapters.sql_engine import make_way
from service.adapters.sql_store import BATCH, LEAST_FREE, Kept, Refused, SqlStore
from service.contracts.access import ApiKey
from service.contracts.optimization import OptimizationRequest, OptimizationWish, RequestStatus
from service.contracts.receipt import Receipt
from service.contracts.signals import FEEDBACK_FIELDS, Feedback
from service.errors import ConfigurationError, StoreUnavailable
from service.ports import Spool

log = logging.getLogger(__name__)
SLOW_SECONDS = 1.0  # a database that takes longer for a commit is as good as away: the caller's answer waits for it
LOOK_SECONDS = 1.0  # between two tries to write what is in the spool
KEEP_IT = (
    "It may hold decisions that are nowhere else. Start the version that made it, which hands them over, or move the file away and keep it."
)
LAST_SECONDS = 5.0  # for what is in the spool at the end of the service

T = TypeVar("T")


class Away(StoreUnavailable):
    """The database does not answer in time, or is in no state to be written."""


class SpooledStore:
    """`Store` and `OptimizationQueue` on two databases. `open()` before use, `close()` after; both on the event loop that uses the store.

    Args:
        main: where everything belongs.
        spool: a SQLite store; the worker processes of a service may share one.
        most: how many decisions the spool holds at most.

    Attributes:
        spooled: how many the spool holds, as of the last look and with what has come since; between two looks one may be counted twice.
    """

    def __init__(self, main: SqlStore, spool: SqlStore, *, most: int) -> None:
        self._main, self._spool, self._most = main, spool, most
        self._away = False
        self._refused: set[UUID] = set()
        self._arrived = 0
        self._draining: asyncio.Task[None] | None = None
        self.spooled = 0

    @property
    def waiting(self) -> int:
        """How many commits wait for the one that is being written."""
        return self._main.waiting + self._spool.waiting

    @property
    def spool(self) -> Spool:
        """What the spool holds, and how much it can hold."""
        return Spool(self.spooled, len(self._refused), self._most)

    async def open(self) -> None:
        """Connect to both; the database may be away.

        Raises:
            StoreUnavailable: the spool cannot be used.
            ConfigurationError: an address cannot be used, or a database is newer than this code.
        """
        try:
            await self._spool.open()
        except ConfigurationError as exc:  # a newer version of the service has made it
            if not await asyncio.to_thread(make_way, Path(self._spool.place)):
                raise ConfigurationError(f"The spool {self._spool.place}: {exc} {KEEP_IT}") from exc
            await self._spool.open()
        await self._count()
        try:
            await self._main.open()
        except StoreUnavailable as exc:
            self._gone(exc)
        self._draining = asyncio.create_task(self._keep_draining())

    async def close(self) -> None:
        """Try once more to write what is in the spool, and disconnect; what is left there is written after the next start."""
        try:
            if self._draining is not None:
                self._draining.cancel()
                await asyncio.gather(self._draining, return_exceptions=True)
                try:
                    async with asyncio.timeout(LAST_SECONDS):
                        await self._drain()
                except (StoreUnavailable, TimeoutError) as exc:
                    log.info("spool_not_drained: %s", str(exc) or f"{LAST_SECONDS:g} s were too short")
                if self.spooled:
                    log.warning("spool_left: %d decisions stay on this machine's disk until the next start", self.spooled)
        finally:
            await self._main.close()
            await self._spool.close()

    async def commit(self, receipt: Receipt) -> Receipt:
        """Store decision and signal in the database, or else in the spool; see `service.ports.Store`."""
        if not self._away:
            with suppress(Away):
                return await self._reach(self._main.commit(receipt))
        self._require_room()
        kept = await self._spool.commit(receipt)
        self.spooled += 1
        self._arrived += 1
        return kept

    async def by_query(self, tenant: str, query_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's query, or None; while the database is away, None for all that the spool does not hold.

        Raises:
            StoreUnavailable: it is in neither, and an answer could not be stored: agents must not work for that.
        """
        looked = self._away or self.spooled > 0  # rows go from the spool to the database, so that one is asked first
        kept = await self._spool.find(tenant, query_id) if looked else None
        if kept is not None:
            return kept
        if not self._away:
            with suppress(Away):
                return await self._reach(self._main.find(tenant, query_id))
        kept = None if looked else await self._spool.find(tenant, query_id)
        if kept is None:
            self._require_room()
        return kept

    async def by_decision(self, tenant: str, decision_id: UUID) -> Receipt | None:
        """Return the receipt of the tenant's decision, or None."""
        kept = await self._spool.by_decision(tenant, decision_id)
        return kept or await self._reach(self._main.by_decision(tenant, decision_id))

    async def add_feedback(self, tenant: str, feedback: Feedback) -> Receipt | None:
        """Merge feedback into the signal, wherever it is; None when the tenant has no such decision."""
        kept = await self._spool.add_feedback(tenant, feedback)
        return kept or await self._reach(self._main.add_feedback(tenant, feedback))

    async def ask_for(self, tenant: str, wish: OptimizationWish) -> OptimizationRequest:
        """Keep a wish to make a signature better; only the database does."""
        return await self._main.ask_for(tenant, wish)

    async def requests(self, tenant: str, status: RequestStatus | None = None) -> list[OptimizationRequest]:
        """Return the tenant's requests."""
        return await self._main.requests(tenant, status)

    async def request(self, tenant: str, request_id: UUID) -> OptimizationRequest | None:
        """Return one of the tenant's requests, or None."""
        return await self._main.request(tenant, request_id)

    async def stored_keys(self) -> dict[str, ApiKey]:
        """Return all API keys by their digests; only the database has them."""
        return await self._main.stored_keys()

    async def count_questions(self, day: date, asked: Mapping[str, int]) -> dict[str, int]:
        """Add to what was asked in a day, by key; only the database does."""
        return await self._main.count_questions(day, asked)

    async def ping(self) -> str | None:
        """Return when a commit would be taken now, by the database or by the spool, and say what is in the spool."""
        if not self._away:
            with suppress(Away):
                await self._reach(self._main.ping())
                return self._said_of_spool()
        self._require_room()
        await self._spool.ping()
        return f"The database is away; decisions are kept in the spool on this machine's disk ({self.spooled} of at most {self._most})."

    def _said_of_spool(self) -> str | None:
        if not self.spooled:
            return None
        refused = f"; {len(self._refused)} of them it refuses (log: spooled_decision_refused)" if self._refused else ""
        return f"{self.spooled} decisions in the spool wait to be handed over to the database{refused}."

    def _require_room(self) -> None:
        if self.spooled >= self._most:
            raise StoreUnavailable(f"The database is away, and the spool is full ({self._most} decisions).")
        if self._spool.free < LEAST_FREE:
            raise StoreUnavailable(f"The database is away, and the spool's disk is full ({self._spool.free:,} bytes are free).")

    async def _reach(self, work: Awaitable[T]) -> T:
        """Ask the database, and take note when it is away. Without a spool it may take its time."""
        try:
            async with asyncio.timeout(SLOW_SECONDS if self._most else None):
                return await work
        except Refused:
            raise
        except (StoreUnavailable, TimeoutError) as exc:
            raise self._gone(exc) from exc

    def _gone(self, exc: Exception) -> Away:
        if not self._away:
            log.warning("store_away: decisions are kept in the spool (%s)", str(exc) or "it is slow")
        self._away = True
        return Away("The database is away.")

    async def _keep_draining(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._count()
                if self._away or self.spooled > len(self._refused):
                    await self._drain()
            except Refused as exc:
                log.warning("spool_not_drained: %s", exc)
            except StoreUnavailable as exc:
                log.log(logging.INFO if self._away else logging.WARNING, "spool_not_drained: %s", exc)
            except Exception:  # the edge of a task: whatever is wrong must not end it
                log.exception("spool_not_drained")

    async def _count(self) -> None:
        before = self._arrived
        self.spooled = await self._spool.count() + self._arrived - before  # what comes meanwhile is rather counted twice than not at all

    async def _drain(self) -> None:
        """Write to the database what is in the spool.

        Raises:
            StoreUnavailable: one of them is away.
        """
        if self._away:
            await self._main.open()
            await self._main.ping()
            self._away = False
            log.warning("store_back: %d decisions are in the spool", self.spooled)
        after: UUID | None = None
        while some := await self._spool.oldest(BATCH, after=after):
            after = some[-1].decision_id
            ended = await asyncio.gather(*(self._hand_over(one) for one in some), return_exceptions=True)
            for error in ended:
                if isinstance(error, BaseException):
                    raise error
        await self._count()

    async def _hand_over(self, kept: Kept) -> None:
        """Write one receipt to the database, and take it out. What cannot be read or is refused stays in the spool; the others go on."""
        receipt = kept.receipt
        try:
            stored = await self._main.commit(receipt) if receipt is not None else None
        except Refused:
            stored = None
        except StoreUnavailable as exc:
            raise self._gone(exc) from exc
        if receipt is None or stored is None:
            if kept.decision_id not in self._refused:
                log.error("spooled_decision_refused decision_id=%s", kept.decision_id)
            self._refused.add(kept.decision_id)
            return
        if stored.decision_id != receipt.decision_id:
            log.warning("spooled_decision_repeated decision_id=%s: another answer to its query stays", receipt.decision_id)
        theirs = stored.signal.model_dump(include=set(FEEDBACK_FIELDS), exclude_none=True)
        ours = receipt.signal.model_dump(include=set(FEEDBACK_FIELDS), exclude_none=True)
        same = stored.decision_id == receipt.decision_id
        told = {name: value for name, value in ours.items() if name not in theirs or (same and theirs[name] != value)}
        if told:  # feedback that the database does not have yet
            feedback = Feedback(decision_id=stored.decision_id, **told)
            await self._main.add_feedback(receipt.tenant, feedback, told_at=kept.updated_at)
        await self._spool.remove(kept)
        self._refused.discard(receipt.decision_id)
