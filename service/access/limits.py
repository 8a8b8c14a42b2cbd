"""How much a key may send: requests in a minute, questions in a day.

Rates are counted by `limits` (a sliding window of two counters) in this process, or in a Redis that several processes share. Questions
are counted in the database, every few seconds: what all processes have answered is known to within that time, and outlives them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from limits.storage import storage_from_string

from service.contracts.caller import Caller
from service.errors import ConfigurationError, PointsmanError, QuotaExceeded, RateLimited

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

log = logging.getLogger(__name__)
COUNT_SECONDS = 5.0
PATIENCE = 0.2  # seconds that Redis may take to count a request
AGAIN_SECONDS = 5.0  # after which Redis is tried again
BOUNDS = {"max_connections": 32, "timeout": PATIENCE, "socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}

Usage = Mapping[str, int]
Count = Callable[[date, Usage], Awaitable[Usage]]


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a rate: `most` requests a minute, `remaining` of them, and in how many seconds all are there again."""

    most: int
    remaining: int
    seconds: int


@dataclass(slots=True)
class _Day:
    day: date
    stored: dict[str, int] = field(default_factory=dict)  # by all processes, as of the last counting
    fresh: dict[str, int] = field(default_factory=dict)  # here, since then


class Limits:
    """Lets callers through as long as they keep to their rate and quota.

    Args:
        rate: requests a minute of a caller whose key says nothing; None: as many as it likes.
        quota: questions a day, likewise.
        shared: address of a Redis, such as redis://host:6379/0, where rates are counted for all processes; None: each counts for itself.
        count: adds to what was asked in a day, by key, and returns what all have asked.
    """

    def __init__(self, rate: int | None = None, quota: int | None = None, shared: str | None = None, count: Count | None = None) -> None:
        self._rate, self._quota, self._count = rate, quota, count
        self._here = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._pool = _connect(shared) if shared is not None else None
        self._shared = SlidingWindowCounterRateLimiter(_open(self._pool)) if self._pool is not None else None
        self._shared_from = 0.0
        self._today = _Day(_utc_day())

    async def close(self) -> None:
        """Count what has not been counted yet, and disconnect."""
        await self.store()
        if self._pool is not None:
            await self._pool.disconnect()

    async def require_shared(self) -> None:
        """Check that the Redis answers, if there is one.

        Raises:
            ConfigurationError: it does not; each process then counts for itself.
        """
        if self._shared is not None and not await self._shared.storage.check():
            advice = "Is it running, and is POINTSMAN_LIMITS_URL right? Until it answers, each process counts rates for itself."
            raise ConfigurationError(f"The Redis does not answer. {advice}")

    async def pass_request(self, caller: Caller) -> Left | None:
        """Count a request, and return what is left; None where there is no limit.

        Raises:
            RateLimited: the caller has sent too many in this minute.
        """
        most = self._rate if caller.rate_per_minute is None else caller.rate_per_minute
        if most is None:
            return None
        if self._shared is not None and time.monotonic() >= self._shared_from:
            try:
                return await _pass(self._shared, most, caller.key_id)
            except (StorageError, OSError) as exc:
                self._shared_from = time.monotonic() + AGAIN_SECONDS
                log.warning("limits_not_shared: rates are counted by this process alone (%s)", type(exc).__name__)
        return await _pass(self._here, most, caller.key_id)

    def pass_question(self, caller: Caller) -> None:
        """Count a question.

        Raises:
            QuotaExceeded: the caller has asked too many today (UTC).
        """
        today, most = self._counted_today(), self._quota if caller.quota_per_day is None else caller.quota_per_day
        asked = today.stored.get(caller.key_id, 0) + today.fresh.get(caller.key_id, 0)
        if most is not None and asked >= most:
            raise QuotaExceeded(f"This key may ask {most} questions a day; the next day begins at midnight UTC.", _until_midnight())
        today.fresh[caller.key_id] = today.fresh.get(caller.key_id, 0) + 1

    async def follow(self) -> None:
        """Count in the database every few seconds what was asked here, until cancelled."""
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            await self.store()

    async def store(self) -> None:
        """Count in the database what was asked here since the last time; what cannot be counted now is counted later."""
        today = self._counted_today()
        taken, today.fresh = today.fresh, {}
        if not taken or self._count is None:
            return
        today.stored = {key: today.stored.get(key, 0) + asked for key, asked in taken.items()} | {
            key: asked for key, asked in today.stored.items() if key not in taken
        }
        try:
            today.stored |= await self._count(today.day, taken)
        except PointsmanError as exc:
            log.info("usage_not_counted: %s", exc)
            for key, asked in taken.items():
                today.stored[key] -= asked
                today.fresh[key] = today.fresh.get(key, 0) + asked

    def _counted_today(self) -> _Day:
        if self._today.day != (now := _utc_day()):
            self._today = _Day(now)
        return self._today


async def _pass(limiter: SlidingWindowCounterRateLimiter, most: int, key_id: str) -> Left:
    item = RateLimitItemPerMinute(most)
    allowed = await limiter.hit(item, key_id)
    window = await limiter.get_window_stats(item, key_id)
    left = Left(most, max(0, window.remaining), max(1, ceil(window.reset_time - time.time())))
    if not allowed:
        raise RateLimited(f"This key may send {most} requests a minute.", left.seconds)
    return left


def _connect(address: str) -> "BlockingConnectionPool":
    from redis.asyncio import BlockingConnectionPool  # a tenth of a second, for those who have a Redis

    plain = address.replace("redis+unix:", "unix:", 1)  # as redis-py calls a socket
    return BlockingConnectionPool.from_url(plain, **BOUNDS)


def _open(pool: "BlockingConnectionPool") -> Storage:
    options: dict[str, Any] = {"implementation": "redispy", "wrap_exceptions": True, "connection_pool": pool}
    return cast(Storage, storage_from_string("async+redis://", **options))  # its type leaves open which kind it is


def _utc_day() -> date:
    return datetime.now(UTC).date()


def _until_midnight() -> int:
    now = datetime.now(UTC)
    return max(1, ceil(((now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0) - now).total_seconds()))
