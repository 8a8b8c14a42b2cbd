"""Bearer tokens of an OpenID provider: signed JSON Web Tokens (RFC 7519), checked as RFC 8725 and RFC 9068 ask.

The provider's keys come from its discovery document (OpenID Connect Discovery 1.0), are read again every hour and where a token names one
that is not known, and stay in use while the provider cannot be reached.
"""

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
from pydantic_core import from_json

from service.contracts.caller import Caller
from service.errors import ConfigurationError, IdentityUnavailable, Unauthenticated
from service.listening import is_loopback

log = logging.getLogger(__name__)
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")  # none that shares a secret
REQUIRED = ("exp", "iss", "aud", "sub")
LEEWAY = 30.0  # seconds by which clocks may differ
FRESH_SECONDS = 3_600.0
SOONEST_SECONDS = 10.0  # between two readings: tokens with made-up key ids must not have the provider asked for each
PATIENCE = 3.0
LONGEST = 1_000_000  # bytes of the provider's documents
_TENANT = re.compile(r"[A-Za-z0-9._@-]{1,128}")


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
        self._client = httpx.AsyncClient(timeout=PATIENCE, trust_env=False)
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at = self._tried_at = -FRESH_SECONDS
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def identify(self, token: str) -> Caller:
        """Return whom a token was issued to; see `service.access.door.Tokens`."""
        try:
            key = await self._key_of(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
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
        async with self._reading:
            await self._read_keys()
        if not self._keys:
            raise IdentityUnavailable(f"The OpenID provider {self._issuer} does not tell its keys; see the log for why.")

    async def _key_of(self, key_id: object) -> jwt.PyJWK:
        wanted = key_id if isinstance(key_id, str) else None
        if wanted not in self._keys or time.monotonic() - self._read_at > FRESH_SECONDS:
            async with self._reading:
                if time.monotonic() - self._tried_at > SOONEST_SECONDS:
                    await self._read_keys()
        if not self._keys:
            raise IdentityUnavailable("The OpenID provider cannot be asked for its keys now.")
        if wanted not in self._keys:
            raise jwt.InvalidKeyError("no such key")
        return self._keys[wanted]

    async def _read_keys(self) -> None:
        self._tried_at = time.monotonic()
        try:
            found = jwt.PyJWKSet.from_dict(await self._get(await self._address_of_keys())).keys
        except (httpx.HTTPError, jwt.PyJWTError, ConfigurationError, ValueError) as exc:
            log.warning("oidc_keys_not_read issuer=%s: %s", self._issuer, str(exc) or type(exc).__name__)
            return
        self._keys = {key.key_id: key for key in found if key.public_key_use in {None, "sig"}}
        if len(self._keys) == 1:  # a provider with one key need not name it
            self._keys = {None: next(iter(self._keys.values())), **self._keys}
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
        async with asyncio.timeout(PATIENCE), self._client.stream("GET", address) as response:
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


def _require_trusted(address: str, what: str) -> None:
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise ConfigurationError(f"{what} must not hold a user or a password.")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ConfigurationError(f"{what} must begin with https://, or be on this machine: {address}")
