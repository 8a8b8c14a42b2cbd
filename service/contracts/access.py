"""API keys as they are kept: all about a key but the key itself."""

from datetime import datetime
from enum import StrEnum

from service.contracts.caller import Caller
from service.contracts.model import Contract, Instant


class KeyState(StrEnum):
    """Whether a key opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ApiKey(Contract):
    """An API key of the database; what it opens are its `scopes`, which are the permissions of whoever sends it."""

    key_id: str
    tenant: str
    name: str
    scopes: tuple[str, ...]
    rate_per_minute: int | None
    quota_per_day: int | None
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None

    def state(self, now: datetime) -> KeyState:
        """Say whether it opens anything at a moment."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_at is not None and self.expires_at <= now else KeyState.ACTIVE

    def caller(self) -> Caller:
        """Return whoever sends this key."""
        return Caller(
            tenant=self.tenant,
            permissions=frozenset(self.scopes),
            key_id=self.key_id,
            rate_per_minute=self.rate_per_minute,
            quota_per_day=self.quota_per_day,
        )
