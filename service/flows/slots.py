"""Slots: how much goes on at once, and who goes next. Lower priority numbers go first, and what waits is bounded.

Strict priority queueing with a reserve for the highest class, and load shedding beyond the bound ("Handling Overload", in Beyer et al.,
Site Reliability Engineering, 2016). One event loop; no threads.
"""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.errors import Saturated

CRITICAL = 1  # the priority of the critical path


@dataclass(order=True, slots=True)
class _Waiter:
    priority: int
    order: int
    turn: asyncio.Future[None] = field(compare=False)


class Slots:
    """At most `limit` holders and `most_waiting` who wait; `reserved` of the slots are for the critical path only."""

    def __init__(self, limit: int, *, most_waiting: int, reserved: int = 0, name: str = "the service") -> None:
        self._limit = limit
        self._most_waiting = most_waiting
        self._reserved = reserved
        self._name = name
        self._taken = 0
        self._waiting: list[_Waiter] = []  # in the order of their turn
        self._arrivals = 0

    @property
    def taken(self) -> int:
        """How many slots are held."""
        return self._taken

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, priority: int = CRITICAL) -> AsyncIterator[None]:
        """Wait for a slot and hold it. The caller bounds the wait.

        Raises:
            Saturated: too many wait already, or somebody more urgent came and took the place.
        """
        await self._take(priority)
        try:
            yield
        finally:
            self._taken -= 1
            self._wake()

    async def _take(self, priority: int) -> None:
        if self._is_free(priority) and (not self._waiting or priority < self._waiting[0].priority):
            self._taken += 1
            return
        if len(self._waiting) >= self._most_waiting:
            self._make_room(priority)
        self._arrivals += 1
        waiter = _Waiter(priority, self._arrivals, asyncio.get_running_loop().create_future())
        insort(self._waiting, waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self._taken -= 1  # the turn came in the moment of leaving
                self._wake()
            raise

    def _make_room(self, priority: int) -> None:
        message = f"{self._name} has {self._limit} requests under way and {self._most_waiting} waiting. Try again in a second."
        if not self._waiting or self._waiting[-1].priority <= priority:
            raise Saturated(message)
        self._waiting.pop().turn.set_exception(Saturated(message))

    def _wake(self) -> None:
        while self._waiting and self._is_free(self._waiting[0].priority):
            waiter = self._waiting.pop(0)
            if not waiter.turn.done():
                self._taken += 1
                waiter.turn.set_result(None)

    def _is_free(self, priority: int) -> bool:
        return self._taken < (self._limit if priority <= CRITICAL else self._limit - self._reserved)
