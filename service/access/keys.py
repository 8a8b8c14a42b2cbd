"""API keys: who a key belongs to and what it may do. Only SHA-256 digests are kept, and digests are what is looked up.

A digest that is looked up tells by its time at most how digests begin that are known, and nobody makes a key from that.
"""

import hashlib
import secrets
from dataclasses import dataclass

from service.contracts.caller import Caller
from service.errors import ConfigurationError

MAKE_KEYS = "Make one with `pointsman keys create`, or set POINTSMAN_API_KEYS or POINTSMAN_OIDC_ISSUER."
SECRET_BYTES = 32  # so that its digest need not be slow to make: nobody tries them all
ID_BYTES = 6


def new_key() -> tuple[str, str]:
    """Make a key, and the id by which people speak of it. The id is part of the key, so that one that is found somewhere can be revoked."""
    key_id = secrets.token_hex(ID_BYTES)
    return key_id, f"pointsman_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def digest_of(key: str) -> str:
    """Return the digest by which a key is known."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the settings, by their digest."""

    callers: dict[str, Caller]

    @classmethod
    def parse(cls, text: str | None) -> "Keys":
        """Read `NAME:SHA256[:PERMISSION PERMISSION ...]`, separated by commas.

        Raises:
            ConfigurationError: an entry has another form.
        """
        callers: dict[str, Caller] = {}
        for number, entry in enumerate(filter(None, (e.strip() for e in (text or "").split(","))), 1):
            name, _, rest = entry.partition(":")
            digest, _, permissions = rest.partition(":")
            if not name or len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest.lower()):
                raise ConfigurationError(
                    f"POINTSMAN_API_KEYS: entry {number} is not NAME:SHA256[:PERMISSION ...]. "
                    "Make the digest with: printf %s KEY | sha256sum"
                )
            if digest.lower() in callers:
                raise ConfigurationError(f"POINTSMAN_API_KEYS: entry {number} repeats the digest of an earlier one.")
            key_id = f"{name}:{digest[:8].lower()}"
            callers[digest.lower()] = Caller(tenant=name, permissions=frozenset(permissions.split()), key_id=key_id)
        return cls(callers)
