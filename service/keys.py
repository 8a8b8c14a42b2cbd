"""API keys: who a key belongs to and what it may do. Only SHA-256 digests are kept; a key is compared in constant time."""

import hashlib
import hmac
from dataclasses import dataclass

from service.contracts.caller import Caller
from service.errors import ConfigurationError, Unauthenticated


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys in use; none means that anyone on loopback may do everything."""

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
            callers[digest.lower()] = Caller(tenant=name, permissions=frozenset(permissions.split()))
        return cls(callers)

    def identify(self, key: str | None) -> Caller:
        """Return the caller of a key.

        Raises:
            Unauthenticated: keys are in use and this is none of them.
        """
        if not self.callers:
            return Caller()
        if not key:
            raise Unauthenticated("Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        for known, caller in self.callers.items():
            if hmac.compare_digest(known, digest):
                return caller
        raise Unauthenticated("This API key is not known.")
