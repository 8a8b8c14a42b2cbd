"""A circuit breaker for one LM: after some failures in a row it spares everybody the wait, and lets one try through now and then."""

import time
from collections.abc import Callable

FAILURES = 3
PAUSE_SECONDS = 4.0  # an LM that is back is used again within five seconds


class Breaker:
    """Call `admits()` before a try and one of `succeeded`, `failed` or `abandoned` after it. Not thread-safe: one event loop uses it."""

    def __init__(self, *, failures: int = FAILURES, pause: float = PAUSE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._pause, self._clock = failures, pause, clock
        self._failures = 0
        self._closed_again_at: float | None = None
        self._probing = False

    @property
    def open(self) -> bool:
        """Say whether tries are refused, or only a probe is let through."""
        return self._closed_again_at is not None

    def admits(self) -> bool:
        """Say whether a try may go ahead; when the pause is over, one probe at a time may."""
        if self._closed_again_at is None:
            return True
        if self._probing or self._clock() < self._closed_again_at:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """The LM answered: close."""
        self._failures, self._closed_again_at, self._probing = 0, None, False

    def failed(self) -> None:
        """The LM did not answer: open after the last of a row, or at once when this was the probe."""
        self._failures += 1
        if self._failures >= self._limit:
            self._closed_again_at = self._clock() + self._pause
        self._probing = False

    def abandoned(self) -> None:
        """The try ended without saying anything of the LM."""
        self._probing = False
