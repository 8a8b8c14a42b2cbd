"""An A2A agent's card: fetched once in a while, and believed in only as far as it sends nothing elsewhere and asks for nothing we lack.

Signatures of cards are not checked: what a card can make us do is limited to addresses of the origin that the catalogue names.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentInterface, SecurityScheme
from google.protobuf import json_format
from pydantic_core import from_json

from service.catalog.model import Agent

CARD_PATH = "/.well-known/agent-card.json"
MAX_CARD_BYTES = 500_000
KEPT_SECONDS = 300.0
BINDINGS = ("JSONRPC", "HTTP+JSON")
VERSION = ("1", "0")  # of the protocol; a patch number does not matter (specification, 3.6)
_PORTS = {"http": 80, "https": 443}


class CardInvalid(Exception):
    """The agent cannot be called by its card; the message completes a sentence that begins with the agent's name."""


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; None where there are none, or where the address carries a user's name."""
    try:
        httpx.URL(url)  # it is stricter
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError, httpx.InvalidURL):
        return None
    return None if parts.hostname is None or "@" in parts.netloc else (parts.scheme, parts.hostname, port)


def read_card(body: bytes, agent: Agent, url: str, key: Mapping[str, str]) -> AgentCard:
    """Return the card with the one interface that is to be used; `key` is the header that we can send.

    Raises:
        CardInvalid: it is no card, or the agent cannot be called by it.
    """
    try:
        card = parse_agent_card(from_json(body, allow_inf_nan=False))
    except (json_format.Error, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise CardInvalid("serves something else than an agent card at its address") from exc
    needed = [extension.uri for extension in card.capabilities.extensions if extension.required]
    if needed:
        raise CardInvalid(f"cannot be called: its card requires the extension {needed[0][:120]!r}, which Pointsman lacks")
    chosen = _choose(card, url)
    if card.security_requirements and not any(
        all(_can_satisfy(card.security_schemes.get(name), agent, key) for name in requirement.schemes)
        for requirement in card.security_requirements
    ):
        named = sorted({name for requirement in card.security_requirements for name in requirement.schemes})
        said = ", ".join(named)[:200]
        raise CardInvalid(f"cannot be called: its card asks for the security {said}, which `auth` and `tls` of the catalogue do not give")
    del card.supported_interfaces[:]
    card.supported_interfaces.append(chosen)
    return card


def _choose(card: AgentCard, url: str) -> AgentInterface:
    spoken = [one for one in card.supported_interfaces if one.protocol_binding in BINDINGS]
    if not spoken:
        offered = ", ".join(sorted({one.protocol_binding for one in card.supported_interfaces}))[:120]
        raise CardInvalid(f"cannot be called: its card offers {offered or 'no interface'}; Pointsman speaks {' and '.join(BINDINGS)}")
    current = [one for one in spoken if tuple(one.protocol_version.split(".")[:2]) == VERSION]
    if not current:
        offered = ", ".join(sorted({one.protocol_version or "none" for one in spoken}))[:120]
        raise CardInvalid(f"cannot be called: its card offers protocol version {offered}; Pointsman speaks {'.'.join(VERSION)}")
    home = origin_of(url)
    near = [one for one in current if home is not None and origin_of(one.url) == home]
    if not near:
        raise CardInvalid(f"cannot be called: its card names the address {current[0].url[:120]!r}, which is not of the origin of {url}")
    chosen = AgentInterface()
    chosen.CopyFrom(near[0])  # the list that holds it is about to be emptied
    chosen.protocol_version = ".".join(VERSION)  # the SDK does not know what to do with a patch number that is none
    return chosen


def _can_satisfy(scheme: SecurityScheme | None, agent: Agent, key: Mapping[str, str]) -> bool:
    header, value = next(((name.lower(), value) for name, value in key.items()), ("", ""))
    authorization = value.partition(" ")[0].lower() if header == "authorization" else ""
    match scheme.WhichOneof("scheme") if scheme is not None else None:
        case "api_key_security_scheme" if scheme is not None:
            asked = scheme.api_key_security_scheme
            return asked.location == "header" and asked.name.lower() == header
        case "http_auth_security_scheme" if scheme is not None:
            return authorization == scheme.http_auth_security_scheme.scheme.lower()
        case "oauth2_security_scheme" | "open_id_connect_security_scheme":
            return authorization == "bearer"
        case "mtls_security_scheme":
            return agent.tls is not None and agent.tls.certificate is not None
    return False


@dataclass(slots=True)
class _Shelf:
    """The card of one address."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    card: AgentCard | None = None
    until: float = 0.0
    tries: int = 0
    failure: Exception | None = None


class Cards:
    """Keeps good cards for some minutes. Who asks while a card is fetched waits, each within its own time, and shares what comes of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._clock = clock

    async def get(self, url: str, fetch: Callable[[], Awaitable[AgentCard]], shared: tuple[type[Exception], ...]) -> AgentCard:
        """Return the card, fetched if need be; failures of the types `shared` count for everybody who waited, and for nobody later."""
        shelf = self._shelves.setdefault(url, _Shelf())
        tries = shelf.tries
        async with shelf.lock:
            if shelf.card is not None and self._clock() < shelf.until:
                return shelf.card
            if shelf.tries != tries and shelf.failure is not None:
                raise shelf.failure
            try:
                shelf.card, shelf.failure = await fetch(), None
            except shared as exc:
                shelf.tries, shelf.failure = shelf.tries + 1, exc
                raise
            shelf.until = self._clock() + KEPT_SECONDS
            return shelf.card

    def drop(self, url: str) -> None:
        """Fetch the card anew at the next call."""
        if url in self._shelves:
            self._shelves[url].until = 0.0
