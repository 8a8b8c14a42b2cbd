"""The door: who sends a request, by an API key or a bearer token; anybody on this machine, where neither is in use."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from service.access.keys import Keys, digest_of
from service.access.limits import Limits
from service.access.stored_keys import StoredKeys
from service.contracts.access import KeyState
from service.contracts.caller import Caller
from service.errors import Unauthenticated
from service.listening import is_loopback

JWT_PARTS = 3  # header, claims and signature (RFC 7519)
CLOSED = "Without API keys this service answers on loopback only."
OTHER_ORIGIN = "Without API keys this service answers no web page of another origin."
OTHER_NAME = "Without API keys this service answers to its loopback address only, not to the name in the Host header."


class Tokens(Protocol):
    """Reads bearer tokens of an identity provider."""

    async def identify(self, token: str) -> Caller:
        """Return whom a token was issued to.

        Raises:
            Unauthenticated: it is not valid here.
            IdentityUnavailable: nobody knows.
        """
        ...


class Door:
    """Tells who sends a request.

    Args:
        configured: the keys of the settings.
        stored: the keys of the database.
        tokens: reads bearer tokens, where a provider is configured.
        limits: how much callers may send.
    """

    def __init__(
        self, configured: Keys, stored: StoredKeys | None = None, tokens: Tokens | None = None, limits: Limits | None = None
    ) -> None:
        self._configured, self._stored, self._tokens = configured, stored, tokens
        self.limits = limits or Limits()

    @property
    def locked(self) -> bool:
        """Whether a key or a token is needed.

        Raises:
            StoreUnavailable: nobody knows yet.
        """
        return bool(self._configured.callers) or self._tokens is not None or (self._stored is not None and self._stored.in_use)

    def require_known(self) -> None:
        """Check that it can be told who may come in.

        Raises:
            StoreUnavailable: nobody knows yet.
        """
        _ = self.locked

    async def identify(self, credential: str | None, *, peer: str, host: str, origin: str = "") -> Caller:
        """Return the caller of a request: what it has sent as key or token, from which address, to which host name, from which web page.

        Raises:
            Unauthenticated: it may not come in.
            StoreUnavailable, IdentityUnavailable: nobody can tell.
        """
        if not self.locked:
            return _anybody_here(peer, host, origin)
        if not credential:
            raise Unauthenticated("Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
        digest = digest_of(credential)
        if (configured := self._configured.callers.get(digest)) is not None:
            return configured
        if self._tokens is not None and len(credential.split(".")) == JWT_PARTS:
            return await self._tokens.identify(credential)
        key = await self._stored.find(digest) if self._stored is not None else None
        if key is None:
            raise Unauthenticated("This API key is not known.")
        state = key.state(datetime.now(UTC))
        if state is not KeyState.ACTIVE:
            raise Unauthenticated(f"This API key is {state.value}.")
        return key.caller()

    async def follow(self) -> None:
        """Keep keys and counts in step with the database, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.limits.follow())
            if self._stored is not None:
                tasks.create_task(self._stored.follow())


def _anybody_here(peer: str, host: str, origin: str) -> Caller:
    """Let in whoever is on this machine, but no page of another origin, also if its name was made to lead here (DNS rebinding)."""
    if not is_loopback(peer):
        raise Unauthenticated(CLOSED)
    name = host.rpartition(":")[0] if host.count(":") == 1 or (host.startswith("[") and not host.endswith("]")) else host
    if not is_loopback(name.strip("[]")):
        raise Unauthenticated(OTHER_NAME)
    if origin and origin.partition("://")[2].lower() != host.lower():  # browsers name it with every POST (RFC 6454)
        raise Unauthenticated(OTHER_ORIGIN)
    return Caller()
