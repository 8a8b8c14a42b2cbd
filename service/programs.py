"""The routers in use: one immutable snapshot each, taken once at the start of each request and swapped by one assignment.

Beside the champion there may be a candidate: in the shadow it reads what the champion answers, as a canary it answers a share of the
sessions. A session always gets the same of the two, because the share is cut by a hash of its name.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from service.contracts.model import JsonObject
from service.routing.policy import Policy
from service.routing.student import Student

NO_ROUTER = "none"  # the version of what was decided without one
_WHOLE = 2**64


@dataclass(frozen=True, slots=True)
class Router:
    """One router version, ready to serve.

    `programs` holds optimized DSPy states by signature name (empty: not optimized); `made_at` is None where the version does not tell.
    """

    version: str
    student: Student
    policy: Policy
    programs: JsonObject = field(default_factory=dict)
    made_at: datetime | None = None


class Stage(StrEnum):
    """How a candidate is tried."""

    SHADOW = "shadow"
    CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A router that is tried beside the champion; a canary serves `share` of the sessions."""

    router: Router
    stage: Stage
    share: float = 0.0

    def serves(self, session_id: str) -> bool:
        """Say whether it answers this session: always the same, and other sessions for another version."""
        return self.stage is Stage.CANARY and in_share(self.router.version, session_id, self.share)


def in_share(version: str, session_id: str, share: float) -> bool:
    """Say whether a session belongs to a version's share of all sessions."""
    digest = hashlib.sha256(f"{version}:{session_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * _WHOLE


@dataclass(slots=True)
class Tally:
    """What a candidate read in the shadow: how many requests, on how many it would do otherwise, and on how many it failed."""

    requests: int = 0
    differing: int = 0
    failing: int = 0


class Programs:
    """Holds the routers in use; None until the first one is loaded."""

    def __init__(self, router: Router | None = None) -> None:
        self._router = router
        self._candidate: Candidate | None = None

    @property
    def current(self) -> Router | None:
        """The champion."""
        return self._router

    @property
    def candidate(self) -> Candidate | None:
        """What is tried beside it."""
        return self._candidate

    def of(self, session_id: str) -> Router | None:
        """Return the router for a request that starts now."""
        candidate = self._candidate
        return candidate.router if candidate is not None and candidate.serves(session_id) else self._router

    def swap(self, router: Router) -> None:
        """Serve requests that start from now on with another champion; a candidate of that version has arrived."""
        self._router = router
        if self._candidate is not None and self._candidate.router.version == router.version:
            self._candidate = None

    def try_out(self, candidate: Candidate | None) -> None:
        """Try another candidate from now on, or none."""
        self._candidate = candidate
