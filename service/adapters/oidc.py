"""Bearer tokens of an OpenID provider: signed JSON Web Tokens (RFC 7519), checked as RFC 8725 and RFC 9068 ask.

The provider's keys come from its discovery document (OpenID Connect Discovery 1.0), and stay in use while it cannot be reached. They are
read again where a token names one that is not known, which waits for it, and after an hour, for which nobody waits. A key verifies what its
type can sign (RFC 7518, 3.1; RFC 8037), or the one algorithm that it names.
"""

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import AllowedPublicKeys
from pydantic_core import from_json

from service.contracts.caller import Caller
from service.errors import ConfigurationError, IdentityUnavailable, Unauthenticated
from service.listening import is_loopback

log = logging.getLogger(__name__)
ALGORITHMS = {  # by type and curve of a key; none that shares a secret
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC P-256": ("ES256",),
    "EC P-384": ("ES384",),
    "EC P-521": ("ES512",),
    "OKP Ed25519": ("EdDSA",),
    "OKP Ed448": ("EdDSA",),
}
REQUIRED = ("exp", "iss", "aud", "sub")
LEEWAY = 30.0  # seconds by which clocks may differ
FRESH_SECONDS = 3_600.0
SOONEST_SECONDS = 10.0  # between two readings: tokens with made-up key ids must not have the provider asked for each
PATIENCE = 3.0  # seconds for both documents together
LONGEST = 1_000_000  # bytes of each of them
MOST_PORT = 65_535
_TENANT = re.compile(r"[A-Za-z0-9._@-]{1,128}")


@dataclass(frozen=True, slots=True)
class _Key:
    public: AllowedPublicKeys
    algorithms: tuple[str, ...]


class OidcTokens:
    """Reads the access tokens of one provider.

    Args:
        issuer: the provider, exactly as tokens name it (`iss`); https, or http on this machine.
        audience: what tokens for this service are issued for (`aud`).
        tenant_claim: which claim names the tenant.

    Raises:
        ConfigurationError: the issuer's address cannot be trusted.
    """

    def __init__(self, issuer: str, audience: str, tenant_claim: str) -> None:
        _require_trusted(issuer, "POINTSMAN_OIDC_ISSUER")
        self._issuer, self._audience, self._tenant_claim = issuer, audience, tenant_claim
        self._client = httpx.AsyncClient(timeout=None, trust_env=False)  # `_read_keys` has the limit
        self._keys: Mapping[str | None, _Key] = {}
        self._read_at = self._tried_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Give up reading, and close the connections."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._client.aclose()

    async def identify(self, token: str) -> Caller:
        """Return whom a token was issued to; see `service.access.door.Tokens`."""
        try:
            key = await self._key_of(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key.public,
                algorithms=key.algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY,
                options={"require": list(REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError) as exc:  # whose text can hold what was sent
            raise Unauthenticated(f"This bearer token is not valid here ({type(exc).__name__}).") from exc
        tenant = claims.get(self._tenant_claim)
        if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
            raise Unauthenticated(f"This bearer token names no tenant: the claim {self._tenant_claim!r} is missing or no name.")
        subject = sha256(f"{self._issuer}\n{claims['sub']}".encode()).hexdigest()[:12]
        return Caller(tenant=tenant, permissions=_scopes(claims), key_id=f"oidc:{subject}")

    async def require_keys(self) -> None:
        """Read the provider's keys.

        Raises:
            IdentityUnavailable: they cannot be had; the log says why.
        """
        await asyncio.wait([self._begin_reading()])
        if not self._keys:
            raise IdentityUnavailable(f"The OpenID provider {self._issuer} does not tell its keys; see the log for why.")

    async def _key_of(self, key_id: str | None) -> _Key:
        if key_id not in self._keys:
            await asyncio.wait([self._begin_reading()])  # who no longer waits does not end it for the others
        elif time.monotonic() - self._read_at > FRESH_SECONDS:
            self._begin_reading()
        if not self._keys:
            raise IdentityUnavailable("The OpenID provider cannot be asked for its keys now.")
        if key_id not in self._keys:
            raise jwt.InvalidKeyError("no such key")
        return self._keys[key_id]

    def _begin_reading(self) -> asyncio.Task[None]:
        """Begin to read the keys; where that is under way, or was just now, return that."""
        now = time.monotonic()
        if self._reading is None or (self._reading.done() and now - self._tried_at > SOONEST_SECONDS):
            self._tried_at = now
            self._reading = asyncio.create_task(self._read_keys())
        return self._reading

    async def _read_keys(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                self._keys = _usable(await self._get(await self._address_of_keys()))
        except (httpx.HTTPError, ConfigurationError, TimeoutError, ValueError) as exc:
            log.warning("oidc_keys_not_read issuer=%s: %s", self._issuer, str(exc) or type(exc).__name__)
            return
        self._read_at = time.monotonic()

    async def _address_of_keys(self) -> str:
        about = await self._get(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if about.get("issuer") != self._issuer:
            raise ConfigurationError("The provider's document names another issuer (OpenID Connect Discovery 1.0, 4.3).")
        address = str(about.get("jwks_uri"))
        _require_trusted(address, "The provider's jwks_uri")
        return address

    async def _get(self, address: str) -> dict[str, Any]:
        body = bytearray()
        async with self._client.stream("GET", address) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > LONGEST:
                    raise ConfigurationError(f"{address} is longer than {LONGEST} bytes.")
        document = from_json(bytes(body))
        if not isinstance(document, dict):
            raise ConfigurationError(f"{address} is no JSON object.")
        return document


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: `scope` is one string (RFC 9068), `scp` is what some providers write, as a string or a list."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            found |= set(value.split())
        elif isinstance(value, list):
            found |= {one for one in value if isinstance(one, str)}
    return frozenset(found)


def _usable(document: Mapping[str, Any]) -> dict[str | None, _Key]:
    """Return the keys of a set (RFC 7517, 5) by their ids; one that is not understood, or for another use, is passed over.

    Raises:
        ConfigurationError: there is none.
    """
    found: dict[str | None, _Key] = {}
    for written in document["keys"] if isinstance(document.get("keys"), list) else ():
        if isinstance(written, dict) and isinstance(written.get("kid"), str | None) and (key := _key(written)) is not None:
            found[written.get("kid")] = key
    if not found:
        raise ConfigurationError("The provider has no key that could sign a token.")
    if len(found) == 1:  # a provider with one key need not name it
        found[None] = next(iter(found.values()))
    return found


def _key(written: Mapping[str, Any]) -> _Key | None:
    kind = "RSA" if written.get("kty") == "RSA" else f"{written.get('kty')} {written.get('crv')}"
    named = written.get("alg")
    algorithms = tuple(one for one in ALGORITHMS.get(kind, ()) if named in (None, one))
    if not algorithms or written.get("use") not in (None, "sig") or "d" in written:  # a private key that all can read proves nothing
        return None
    try:
        return _Key(jwt.PyJWK(dict(written), algorithms[0]).key, algorithms)
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _require_trusted(address: str, what: str) -> None:
    try:
        url = httpx.URL(address)  # as the client reads it: what is checked is what is asked
    except httpx.InvalidURL as exc:
        raise ConfigurationError(f"{what} is no address ({exc}).") from exc
    if url.userinfo:
        raise ConfigurationError(f"{what} must not hold a user or a password.")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.host)):
        raise ConfigurationError(f"{what} must begin with https://, or be on this machine: {address}")
    if not url.host or (url.port is not None and not 0 < url.port <= MOST_PORT):
        raise ConfigurationError(f"{what} names no host, or no port: {address}")
