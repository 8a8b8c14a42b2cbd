"""A circuit breaker for one agent: when it keeps failing, requests go past it, and now and then one tries it again.

Opens after `IN_A_ROW` failures in a row, or when half of the last `WINDOW` answers failed (Nygard, "Release It!", 2007; Envoy's outlier
detection). It knows no agent and no HTTP: whoever calls says what came back.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

IN_A_ROW = 5
WINDOW, LEAST, SHARE = 20, 10, 0.5  # of the last 20 answers, from 10 on, half
REST, LONGEST_REST = 5.0, 60.0  # seconds between probes: doubled by each probe that fails
SHORT_REST = 3.0  # where the agent is not there at all and that shows at once: such a probe costs nobody anything
PATIENCE = 1.25  # who would wait this much longer than silence has lasted so far may try
TELLING = 0.6  # of that silence, so that a first attempt, which has two thirds of an extended one, counts; who waits less has shown nothing
GLANCE = 1.0  # seconds in vain that show something where the agent failed otherwise before


class BreakerState(StrEnum):
    """Closed: requests pass. Open: they do not. Half-open: one may try, or is trying."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """The state of one agent. Times are seconds by `clock`; `jitter` returns numbers in [0, 1)."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._answers: deque[bool] = deque(maxlen=WINDOW)
        self._in_a_row = 0
        self._silence = 0.0  # the longest wait in vain since the last success; infinite when the agent failed otherwise
        self._open = False
        self._probing = False
        self._rest = REST
        self._next_probe = 0.0
        self._probe_began = float("inf")  # of the first one that is out, or was
        self._next_glance = 0.0  # the same for those who would not wait long enough to show anything

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if not self._open:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._probing or self._clock() >= self._next_probe else BreakerState.OPEN

    def allows(self, seconds: float) -> bool:
        """Say whether a request that would wait `seconds` may go to the agent now; changes nothing.

        An agent that is silent, not broken, stays open to those who would wait longer than anyone has: it may be slow, not stuck.
        """
        due = self._next_probe if self._may_probe(seconds) else max(self._next_probe, self._next_glance)
        return not self._open or self._clock() >= due or seconds > self._silence * PATIENCE

    def enter(self, seconds: float) -> bool:
        """Say the same for a request that goes now; it becomes the probe if one is due and it would wait long enough for that.

        Who would not may glance, now and then, and keeps no probe from the patient: its silence changes nothing.
        """
        if not self.allows(seconds):
            return False
        if self._open and self._clock() >= self._next_probe:
            if self._may_probe(seconds):
                if not self._probing:  # else the first one is still out, and its answer counts however late it comes
                    self._probing, self._probe_began = True, self._clock()
                self._next_probe = self._clock() + self._rest  # should this one never return, another may try
            else:
                self._next_glance = self._clock() + REST
        return True

    def succeeded(self, *, began: float | None = None) -> None:
        """Take note that the agent answered as it should, or refused in good order, to a request of the time `began`.

        An agent that was silent speaks again: that closes. One that failed now and then has to show it by a probe.
        """
        if self._open and not self._shows(began) and self._silence == float("inf"):
            return
        if self._open:
            self._answers.clear()
        self._answers.append(True)
        self._open = self._probing = False
        self._in_a_row, self._silence, self._rest = 0, 0.0, REST

    def failed(self, *, silent_for: float | None = None, absent: bool = False, began: float | None = None) -> None:
        """Take note that it did not.

        Args:
            began: the time of the request: one from before the probe tells nothing of how the agent is now.
            silent_for: the seconds waited in vain; None: it failed in another way.
            absent: nobody was there, and that showed at once.
        """
        shown = silent_for is None or silent_for >= (GLANCE if self._silence == float("inf") else self._silence * TELLING)
        self._answers.append(False)
        self._in_a_row += 1
        self._silence = max(self._silence, float("inf") if silent_for is None else silent_for)
        if self._open and self._probing:
            if not shown or not self._shows(began):
                return
            self._probing = False
            self._rest = SHORT_REST if absent else max(REST, min(self._rest * 2.0, LONGEST_REST))
            self._next_probe = self._clock() + self._wait()
        elif not self._open and self._trips():
            self._open, self._probe_began = True, float("inf")
            self._rest = SHORT_REST if absent else REST
            self._next_probe = self._clock() + self._wait()

    def _shows(self, began: float | None) -> bool:
        """Say whether a request of that time (None: the probe itself) shows how the agent is since it has rested."""
        return self._probing if began is None else began >= self._probe_began

    def _may_probe(self, seconds: float) -> bool:
        """Say whether to wait so long shows if the agent is still silent; one that failed otherwise shows it at once."""
        return self._silence == float("inf") or seconds >= self._silence * TELLING

    def _trips(self) -> bool:
        failures = self._answers.count(False)
        return self._in_a_row >= IN_A_ROW or (len(self._answers) >= LEAST and failures >= SHARE * len(self._answers))

    def _wait(self) -> float:
        return self._rest * (0.8 + 0.4 * self._jitter())  # replicas of the service must not probe in step
