"""The current router: one immutable snapshot, taken once at the start of each request and swapped by one assignment."""

from dataclasses import dataclass, field

from service.contracts.model import JsonObject
from service.routing.policy import Policy
from service.routing.student import Student


@dataclass(frozen=True, slots=True)
class Router:
    """One router version, ready to serve. `programs` holds optimized DSPy states by signature name (empty: not optimized)."""

    version: str
    student: Student
    policy: Policy
    programs: JsonObject = field(default_factory=dict)


class Programs:
    """Holds the router in use; None until the first one is loaded."""

    def __init__(self, router: Router | None = None) -> None:
        self._router = router

    @property
    def current(self) -> Router | None:
        """The router for a request that starts now."""
        return self._router

    def swap(self, router: Router) -> None:
        """Serve requests that start from now on with another router."""
        self._router = router
