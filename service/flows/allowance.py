"""An allowance: what requests earn, retries and hedges spend, so that a failing agent gets a little more load and never a storm.

A token bucket whose tokens come from the requests themselves (Finagle's RetryBudget; gRPC proposal A6, "retry throttling").
"""

import time
from collections.abc import Callable


class Allowance:
    """Tokens of one agent.

    Args:
        share: tokens that a request earns; extra calls are at most this share of the requests in the long run.
        most: tokens that can be saved up.
        start: tokens at the beginning.
        per_second: tokens that time adds, for agents with few requests.
        clock: monotonic time in seconds.
    """

    def __init__(
        self, *, share: float, most: float, start: float, per_second: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share
        self._most = most
        self._tokens = start
        self._per_second = per_second
        self._clock = clock
        self._at = clock()

    def earn(self) -> None:
        """Count a request."""
        self._add(self._share)

    def spend(self) -> bool:
        """Take a token for an extra call, if there is one."""
        self._add(0.0)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _add(self, tokens: float) -> None:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + tokens + self._per_second * (now - self._at))
        self._at = now
