"""An event loop in a thread of its own, for code that may block although it is asynchronous.

LM libraries import for seconds, resolve names, read files and parse what a stranger sent, now and then in the middle of a coroutine. Here
such a step delays only other LM calls: the caller waits in its own loop and leaves on time, whatever the thread is doing.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")
JOIN_SECONDS = 1.0


class LMLoop:
    """Starts its thread on the first use."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[object, object, T], *, timeout: float | None) -> T:
        """Run the coroutine over there and return its result.

        Raises:
            TimeoutError: it took longer than `timeout` seconds; it has been told to stop.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        async with asyncio.timeout(timeout):
            return await asyncio.wrap_future(future)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="pointsman-lm", daemon=True)
            self._thread.start()
        return self._loop

    async def close(self) -> None:
        """Stop the thread; one that is stuck is left behind and ends with the process."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        loop.call_soon_threadsafe(_cancel_all, loop)
        await asyncio.to_thread(thread.join, JOIN_SECONDS)
        if not thread.is_alive():
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    ended = asyncio.gather(*tasks, return_exceptions=True) if tasks else None
    if ended is None:
        loop.stop()
    else:
        ended.add_done_callback(lambda _: loop.stop())
