"""Time that passes only when everybody waits: an hour of an agent's silence takes a moment, and a slow machine changes nothing."""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Never sleeps: what the loop would have waited is added to its clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits for something that never comes")
        self.now += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own; `time.monotonic` shows that loop's time meanwhile. For work without threads and sockets."""
    loop = _Loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", loop.time)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(work)
