"""What the log says while a program starts: one line when it begins to wait for something, one when that is there, in their order."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import structlog

from service.catalog.model import Catalog
from service.reach import ask_addresses

log = structlog.stdlib.get_logger("pointsman.start")


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say that the start waits for something, and how long it took; what fails is told by whoever catches it."""
    started = time.monotonic()
    log.info("start_waits", waits_for=what)
    yield
    log.info("start_goes_on", waited_for=what, seconds=round(time.monotonic() - started, 3))


async def report_agents(catalog: Catalog) -> None:
    """Ask every address of an agent once and say which do not answer. The start does not wait for this: agents may come later."""
    started = time.monotonic()
    try:
        addresses, down = await ask_addresses(catalog)
    except httpx.InvalidURL as exc:  # it is a report: a strange address must not end anything
        log.warning("agents_not_asked", reason=type(exc).__name__)
        return
    (log.warning if down else log.info)("agents_asked", addresses=addresses, silent=down, seconds=round(time.monotonic() - started, 3))
