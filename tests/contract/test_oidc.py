"""Bearer tokens of an OpenID provider, against a provider on a real socket: whose they are, and what makes one invalid."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.access.door import Door
from service.access.keys import Keys, digest_of
from service.adapters import oidc
from service.adapters.oidc import OidcTokens
from service.contracts.caller import Caller
from service.errors import ConfigurationError, IdentityUnavailable, Unauthenticated

AUDIENCE = "pointsman"
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
CURVE = ec.generate_private_key(ec.SECP256R1())
CLAIMS: dict[str, Any] = {"aud": AUDIENCE, "sub": "client-7", "tenant": "acme", "scope": "openid tier:2 models:train"}


def jwk_of(key: Any, key_id: str | None) -> dict[str, Any]:
    """Return the public half as a JSON Web Key."""
    algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
    written: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**written, "alg": algorithm, "use": "sig", **({"kid": key_id} if key_id is not None else {})}


class Provider:
    """An OpenID provider: two documents on a socket, and how often each was asked for."""

    def __init__(self) -> None:
        self.url, self.keys = "", [jwk_of(RSA, "one"), jwk_of(CURVE, "two")]
        self.asked: list[str] = []
        self.status = "200 OK"
        self.changes: dict[str, Any] = {}
        self.raw: bytes | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(path)
        about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.changes}
        body = self.raw or json.dumps(about if path.startswith("/.well-known") else {"keys": self.keys}).encode()
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    def token(self, key: Any = RSA, key_id: str | None = "one", algorithm: str = "RS256", **changes: Any) -> str:
        """Issue a token; a claim that is changed to None is left out."""
        claims = {**CLAIMS, "iss": self.url, "exp": time.time() + 300, **changes}
        header = {"kid": key_id} if key_id is not None else None
        return jwt.encode({k: v for k, v in claims.items() if v is not None}, key, algorithm, header)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """A provider that answers."""
    one = Provider()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield one
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def tokens_of(provider: Provider, tenant_claim: str = "tenant") -> AsyncIterator[OidcTokens]:
    """Take the provider's tokens."""
    tokens = OidcTokens(provider.url, AUDIENCE, tenant_claim)
    yield tokens
    await tokens.close()


async def test_a_token_says_whose_it_is_and_what_it_opens(provider: Provider) -> None:
    """Tenant by its claim, permissions by its scopes; signed by either of the provider's keys. One subject is counted as one key."""
    async with tokens_of(provider) as tokens:
        callers = [
            await tokens.identify(t) for t in (provider.token(), provider.token(CURVE, "two", "ES256"), provider.token(sub="client-8"))
        ]

    assert [(c.tenant, c.permissions) for c in callers] == [("acme", {"openid", "tier:2", "models:train"})] * 3
    assert callers[0].key_id == callers[1].key_id != callers[2].key_id
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": None}, set[str]()),
        ({"scope": None, "scp": ["tier:2", 3]}, {"tier:2"}),
        ({"scope": None, "scp": "tier:2 tier:3"}, {"tier:2", "tier:3"}),
        ({"scope": {"tier:2": True}}, set[str]()),
    ],
    ids=["none", "a list", "another name", "no text"],
)
async def test_scopes_are_read_as_providers_write_them(provider: Provider, claims: dict[str, Any], scopes: set[str]) -> None:
    """What names nothing opens nothing."""
    async with tokens_of(provider) as tokens:
        assert (await tokens.identify(provider.token(**claims))).permissions == scopes


def public_pem() -> bytes:
    """Return the provider's public key as text: a secret of nobody."""
    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def confused(provider: Provider) -> str:
    """Sign with the public key as if it were a shared secret (RFC 8725, 2.1)."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "one"}, {**CLAIMS, "iss": provider.url, "exp": time.time() + 300}]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts)
    signed = jwt.get_algorithm_by_name("HS256").sign(text.encode(), public_pem())
    return f"{text}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def unsigned(provider: Provider) -> str:
    """Leave the signature out."""
    return jwt.encode({**CLAIMS, "iss": provider.url, "exp": time.time() + 300}, None, "none", {"kid": "one"})  # type: ignore[arg-type]  # what PyJWT takes for none


def own_key_in_header(provider: Provider) -> str:
    """Bring the key that it is signed with along."""
    claims = {**CLAIMS, "iss": provider.url, "exp": time.time() + 300}
    return jwt.encode(claims, OTHER, "RS256", {"kid": "mine", "jwk": jwk_of(OTHER, "mine"), "jku": "http://127.0.0.1:1/keys"})


def cut(provider: Provider) -> str:
    """Change the claims and keep the signature."""
    head, _, signature = provider.token().split(".")
    body = (
        base64.urlsafe_b64encode(json.dumps({**CLAIMS, "tenant": "umbrella", "iss": provider.url, "exp": 9e9}).encode())
        .rstrip(b"=")
        .decode()
    )
    return f"{head}.{body}.{signature}"


INVALID: dict[str, Callable[[Provider], str]] = {
    "of another audience": lambda p: p.token(aud="billing"),
    "without an audience": lambda p: p.token(aud=None),
    "of another issuer": lambda p: p.token(iss="https://evil.example"),
    "expired": lambda p: p.token(exp=time.time() - 60),
    "without an end": lambda p: p.token(exp=None),
    "not valid yet": lambda p: p.token(nbf=time.time() + 300),
    "without a subject": lambda p: p.token(sub=None),
    "without a tenant": lambda p: p.token(tenant=None),
    "with a tenant that is no name": lambda p: p.token(tenant="a/../b"),
    "with a tenant that is a list": lambda p: p.token(tenant=["acme"]),
    "signed by another key": lambda p: p.token(OTHER),
    "signed by a key that the provider does not have": lambda p: p.token(OTHER, "three"),
    "that names no key where there are two": lambda p: p.token(key_id=None),
    "signed with another algorithm than its key's": lambda p: p.token(RSA, "one", "RS384"),
    "signed with the public key": confused,
    "unsigned": unsigned,
    "with a key of its own": own_key_in_header,
    "with other claims than were signed": cut,
    "of three words": lambda _: "a.b.c",
    "of dots": lambda _: "..",
    "of bytes": lambda _: "\x00.\udcff.\x00",
    "very long": lambda _: f"{'a' * 50_000}.{'b' * 50_000}.c",
}


@pytest.mark.parametrize("make", INVALID.values(), ids=INVALID.keys())
async def test_a_token_that_is_not_valid_opens_nothing(provider: Provider, make: Callable[[Provider], str]) -> None:
    """401, and the message holds nothing of the token."""
    token = make(provider)
    async with tokens_of(provider) as tokens:
        with pytest.raises(Unauthenticated) as caught:
            await Door(Keys({}), tokens=tokens).identify(token, peer="10.0.0.7", host="x")

    assert not any(part in str(caught.value) for part in token.split(".") if len(part) > 3)


async def test_a_new_key_of_the_provider_is_found_and_an_old_one_forgotten(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it changes its keys, tokens signed by the new one are taken without a restart, those by the old one no longer."""
    monkeypatch.setattr(oidc, "SOONEST_SECONDS", 0.0)
    async with tokens_of(provider) as tokens:
        old = provider.token()
        await tokens.identify(old)
        provider.keys = [jwk_of(OTHER, "three")]

        await tokens.identify(provider.token(OTHER, "three"))
        await tokens.identify(provider.token(OTHER, None))

        with pytest.raises(Unauthenticated):
            await tokens.identify(old)


async def test_made_up_keys_do_not_have_the_provider_asked_for_each(provider: Provider) -> None:
    """A hundred tokens with key ids of their own, at once: the documents are fetched once."""
    async with tokens_of(provider) as tokens:
        made_up = [tokens.identify(provider.token(OTHER, f"made up {n}")) for n in range(100)]
        answers = await asyncio.gather(*made_up, return_exceptions=True)

    assert {type(a) for a in answers} == {Unauthenticated}
    assert len(provider.asked) == 2


async def test_known_keys_stay_in_use_while_the_provider_is_away(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is locked out by a provider that restarts."""
    monkeypatch.setattr(oidc, "SOONEST_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "FRESH_SECONDS", 0.0)
    async with tokens_of(provider) as tokens:
        await tokens.identify(provider.token())
        provider.status = "503 Service Unavailable"

        assert (await tokens.identify(provider.token())).tenant == "acme"


UNUSABLE: dict[str, dict[str, Any]] = {
    "away": {"status": "503 Service Unavailable"},
    "moved": {"status": "302 Found\r\nLocation: http://127.0.0.1:1/"},
    "another issuer": {"changes": {"issuer": "https://evil.example"}},
    "keys over an open line": {"changes": {"jwks_uri": "http://evil.example/keys"}},
    "keys of a file": {"changes": {"jwks_uri": "file:///etc/passwd"}},
    "no address of keys": {"changes": {"jwks_uri": None}},
    "no JSON": {"raw": b"<html>"},
    "a list": {"raw": b"[]"},
    "endless": {"raw": b" " * 1_100_000},
    "no keys": {"keys": []},
}


@pytest.mark.parametrize("state", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_where_the_provider_tells_no_keys_nobody_can_tell(provider: Provider, state: dict[str, Any]) -> None:
    """503, which a client may try again, and never a way in."""
    for name, value in state.items():
        setattr(provider, name, value)
    async with tokens_of(provider) as tokens:
        with pytest.raises(IdentityUnavailable):
            await tokens.identify(provider.token())


async def test_keys_are_taken_beside_tokens(provider: Provider) -> None:
    """And who sends neither is asked for one, also on loopback."""
    async with tokens_of(provider) as tokens:
        door = Door(Keys({digest_of("a.b.c"): Caller(tenant="umbrella")}), tokens=tokens)

        assert (await door.identify("a.b.c", peer="10.0.0.7", host="x")).tenant == "umbrella"
        with pytest.raises(Unauthenticated):
            await Door(Keys({}), tokens=tokens).identify(None, peer="127.0.0.1", host="localhost")


@pytest.mark.parametrize("issuer", ["http://login.example", "ftp://login.example", "login.example", ""])
def test_an_issuer_that_cannot_be_trusted_stops_the_start(issuer: str) -> None:
    """Over an open line anybody could tell the keys."""
    with pytest.raises(ConfigurationError, match="https://"):
        OidcTokens(issuer, AUDIENCE, "tenant")
