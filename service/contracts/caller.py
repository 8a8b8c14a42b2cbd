"""Who asks: the tenant and what it may do."""

from service.contracts.model import Contract

ANYONE = "local"
OPTIMIZE = "routers:optimize"
ROLL_BACK = "routers:rollback"


class Caller(Contract):
    """A caller whose key has been checked. `permissions` is None where no keys are in use (loopback only): then everything is allowed.

    A permission is `tier:N` (may reach agents of tier N), `tier:*`, a name that an agent asks for, such as `models:train`, `OPTIMIZE` (may
    ask for optimizations and look at them) or `ROLL_BACK` (may make the champion before this one champion again). What is sent with one
    `key_id` is counted together; a rate or quota that is None is the service's.
    """

    tenant: str = ANYONE
    permissions: frozenset[str] | None = None
    key_id: str = ANYONE
    rate_per_minute: int | None = None
    quota_per_day: int | None = None

    def may(self, permission: str) -> bool:
        """Say whether the caller holds a permission; `a:*` covers every `a:b`."""
        if self.permissions is None:
            return True
        return permission in self.permissions or f"{permission.partition(':')[0]}:*" in self.permissions
