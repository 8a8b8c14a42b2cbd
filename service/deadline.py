"""One budget per request, as a point in monotonic time that is passed down and never extended."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time by `time.monotonic`, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that is `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; never negative."""
        return max(0.0, self.at - time.monotonic())

    def within(self, seconds: float) -> "Deadline":
        """Return the earlier of this deadline and one that is `seconds` from now."""
        return Deadline(min(self.at, time.monotonic() + seconds))
