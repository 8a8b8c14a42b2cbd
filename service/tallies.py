"""Writes down now and then what was counted in memory: what a candidate read in the shadow, what the student answered alone."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)
K = TypeVar("K")
V = TypeVar("V")


class Counting(Protocol[K, V]):
    """Something that counts while requests are answered."""

    def take(self) -> dict[K, V]:
        """Return what was counted, and begin anew."""
        ...

    def put_back(self, key: K, tally: V) -> None:
        """Count again what could not be stored."""
        ...


async def store_tallies(counting: Counting[K, V], add: Callable[[Mapping[K, V]], None], seconds: float) -> None:
    """Store what was counted every so many seconds, at once, until cancelled; what could not be stored is stored later."""
    while True:
        await asyncio.sleep(seconds)
        taken = counting.take()
        if not taken:
            continue
        try:
            await asyncio.to_thread(add, taken)
        except Exception as exc:  # noqa: BLE001  # evidence that comes late must not end the service
            log.warning("tallies_not_stored of=%s: %s", type(counting).__name__.lower(), exc)
            for key, tally in taken.items():
                counting.put_back(key, tally)
