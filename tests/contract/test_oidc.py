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
from cryptography.hazmat.primitives.asymmetric import ed448
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.access.door import Door
from service.access.keys import Keys, digest_of
from service.adapters import oidc
from service.adapters.oidc import OidcTokens
from service.contracts.caller import Caller
from service.errors import ConfigurationError, IdentityUnavailable, Unauthenticated
from tests.contract.oidc_provider import AUDIENCE, CLAIMS, CURVE, OTHER, RSA, SIGNED, Provider, jwk_of


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


@pytest.mark.parametrize(
    ("algorithm", "key"), [*SIGNED.items(), ("EdDSA", ed448.Ed448PrivateKey.generate())], ids=[*SIGNED.keys(), "EdDSA on Ed448"]
)
async def test_a_key_that_names_no_algorithm_verifies_what_its_type_can_sign(provider: Provider, algorithm: str, key: Any) -> None:
    """`alg` is optional (RFC 7517, 4.4); where it is named, no other is taken."""
    provider.keys = [jwk_of(key, "any", algorithm, alg=None), jwk_of(key, "this", algorithm)]
    async with tokens_of(provider) as tokens:
        for key_id in ("any", "this"):
            assert (await tokens.identify(provider.token(key, key_id, algorithm))).tenant == "acme"
        for other in SIGNED.keys() - {algorithm}:
            with pytest.raises(Unauthenticated):
                await tokens.identify(provider.token(SIGNED[other], "this", other))


@pytest.mark.parametrize("algorithm", SIGNED)
async def test_a_key_verifies_nothing_that_its_type_cannot_sign(provider: Provider, algorithm: str) -> None:
    """Though it names no algorithm: neither of another type, nor a shared secret, nor nothing."""
    names = {key: name for name, key in SIGNED.items()}
    provider.keys = [jwk_of(key, name, name, alg=None) for key, name in names.items() if key is not SIGNED[algorithm]]
    provider.keys.append({"kty": "oct", "k": "c2VjcmV0" * 8, "kid": "oct"})
    secret = base64.urlsafe_b64decode("c2VjcmV0" * 8)
    forged = [provider.token(SIGNED[algorithm], written["kid"], algorithm) for written in provider.keys]
    async with tokens_of(provider) as tokens:
        for token in (*forged, provider.token(secret, "oct", "HS256"), confused(provider), unsigned(provider)):
            with pytest.raises(Unauthenticated):
                await tokens.identify(token)


async def test_the_public_key_is_no_shared_secret_where_it_names_no_algorithm(provider: Provider) -> None:
    """As above, with the key that the token names."""
    provider.keys = [jwk_of(RSA, "one", alg=None)]
    async with tokens_of(provider) as tokens:
        await tokens.identify(provider.token())
        for forged in (confused(provider), unsigned(provider)):
            with pytest.raises(Unauthenticated, match="InvalidAlgorithmError"):
                await tokens.identify(forged)


ODD: dict[str, Any] = {
    "an id that is a list": jwk_of(RSA, "odd", kid=["one"]),
    "an id that is an object": jwk_of(RSA, "odd", kid={}),
    "an id that is a number": jwk_of(RSA, "odd", kid=1),
    "a type that is a list": jwk_of(RSA, "odd", kty=["RSA"]),
    "a type that there is not": jwk_of(RSA, "odd", kty="XYZ"),
    "an algorithm that is a list": jwk_of(RSA, "odd", alg=["RS256"]),
    "an algorithm that is empty": jwk_of(RSA, "odd", alg=""),
    "an algorithm of another type": jwk_of(RSA, "odd", alg="ES256"),
    "a shared secret's algorithm": jwk_of(RSA, "odd", alg="HS256"),
    "a use that is an object": jwk_of(RSA, "odd", use={}),
    "for encryption": jwk_of(RSA, "odd", use="enc"),
    "a modulus that is a number": jwk_of(RSA, "odd", n=5),
    "a modulus that is empty": jwk_of(RSA, "odd", n=""),
    "an exponent of zero": jwk_of(RSA, "odd", e="AA"),
    "a curve that is an object": jwk_of(CURVE, "odd", crv={}),
    "a curve that there is not": jwk_of(CURVE, "odd", crv="P-1"),
    "a point off its curve": jwk_of(CURVE, "odd", x=jwk_of(CURVE, "odd")["y"]),
    "a private key": {**jwt.get_algorithm_by_name("RS256").to_jwk(RSA, as_dict=True), "kid": "odd"},
    "a list": ["kty", "RSA"],
    "nothing": None,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_a_key_that_is_not_understood_is_passed_over(provider: Provider, odd: Any) -> None:
    """The others stay in use (RFC 7517, 5); where it is the only one there is none, and no way in."""
    provider.keys = [odd, jwk_of(RSA, "one")]
    async with tokens_of(provider) as tokens:
        assert (await tokens.identify(provider.token())).tenant == "acme"

    provider.keys = [odd]
    async with tokens_of(provider) as tokens:
        for key_id in ("odd", None):
            with pytest.raises(IdentityUnavailable):
                await tokens.identify(provider.token(key_id=key_id))


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


def odd_header(provider: Provider, **changes: Any) -> str:
    """Change the header and keep the rest."""
    head = json.dumps({"alg": "RS256", "kid": "one", **changes}).encode()
    return f"{base64.urlsafe_b64encode(head).rstrip(b'=').decode()}.{provider.token().partition('.')[2]}"


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
    "that names its key by a number": lambda p: odd_header(p, kid=1),
    "that names its key by a list": lambda p: odd_header(p, kid=["one"]),
    "that names its algorithm by a list": lambda p: odd_header(p, alg=["RS256"]),
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


UNUSABLE: dict[str, dict[str, Any]] = {
    "away": {"status": "503 Service Unavailable"},
    "moved": {"status": "302 Found\r\nLocation: http://127.0.0.1:1/"},
    "another issuer": {"changes": {"issuer": "https://evil.example"}},
    "keys over an open line": {"changes": {"jwks_uri": "http://evil.example/keys"}},
    "keys of a file": {"changes": {"jwks_uri": "file:///etc/passwd"}},
    "no address of keys": {"changes": {"jwks_uri": None}},
    "keys at a port that is no number": {"changes": {"jwks_uri": "https://evil.example:abc/keys"}},
    "keys at a port that there is not": {"changes": {"jwks_uri": "http://127.0.0.1:99999/keys"}},
    "keys at half an address": {"changes": {"jwks_uri": "http://[::1"}},
    "keys at no host": {"changes": {"jwks_uri": "https:///keys"}},
    "keys at a host that is too long": {"changes": {"jwks_uri": f"https://{'a' * 300}/keys"}},
    "keys at a host of odd characters": {"changes": {"jwks_uri": "https://\x00/keys"}},
    "keys behind a name": {"changes": {"jwks_uri": "http://localhost\\@127.0.0.1:1/keys"}},
    "keys in a list": {"changes": {"jwks_uri": ["https://evil.example"]}},
    "no JSON": {"raw": b"<html>"},
    "a list": {"raw": b"[]"},
    "endless": {"raw": b" " * 1_100_000},
    "no keys": {"keys": []},
    "an object of keys": {"keys": {"kty": "RSA"}},
    "mute": {"mute": True},
}


@pytest.mark.parametrize("state", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_where_the_provider_tells_no_keys_nobody_can_tell(
    provider: Provider, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, which a client may try again, and never a way in; `pointsman doctor` says so too."""
    monkeypatch.setattr(oidc, "PATIENCE", 0.2)
    for name, value in state.items():
        setattr(provider, name, value)
    async with tokens_of(provider) as tokens:
        with pytest.raises(IdentityUnavailable):
            await tokens.identify(provider.token())
        with pytest.raises(IdentityUnavailable):
            await tokens.require_keys()


@pytest.mark.parametrize("state", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_known_keys_stay_in_use_while_the_provider_tells_none(
    provider: Provider, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is locked out by a provider that restarts, and what is signed by a key that it may have by now is still refused."""
    for name, seconds in (("SOONEST_SECONDS", 0.0), ("FRESH_SECONDS", 0.0), ("PATIENCE", 0.2)):
        monkeypatch.setattr(oidc, name, seconds)
    async with tokens_of(provider) as tokens:
        await tokens.require_keys()
        for name, value in state.items():
            setattr(provider, name, value)

        with pytest.raises(Unauthenticated):
            await tokens.identify(provider.token(OTHER, "three"))
        assert (await tokens.identify(provider.token())).tenant == "acme"


async def test_nobody_waits_for_keys_that_are_merely_old(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read again behind the requests, once for all of them; a mute provider holds up none."""
    for name, seconds in (("SOONEST_SECONDS", 0.0), ("FRESH_SECONDS", 0.0), ("PATIENCE", 60.0)):
        monkeypatch.setattr(oidc, name, seconds)
    async with tokens_of(provider) as tokens:
        await tokens.require_keys()
        provider.mute = True
        asked = len(provider.asked)

        async with asyncio.timeout(10):
            for _ in range(20):
                await tokens.identify(provider.token())
                await asyncio.sleep(0.01)

    assert len(provider.asked) == asked + 1


async def test_old_keys_are_replaced_without_a_token_that_names_a_new_one(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the provider has taken back opens nothing from then on."""
    for name, seconds in (("SOONEST_SECONDS", 0.0), ("FRESH_SECONDS", 0.0)):
        monkeypatch.setattr(oidc, name, seconds)
    async with tokens_of(provider) as tokens:
        await tokens.require_keys()
        provider.keys = [jwk_of(OTHER, "three")]

        async def refused() -> None:
            while True:
                await tokens.identify(provider.token())
                await asyncio.sleep(0.01)

        with pytest.raises(Unauthenticated):
            await asyncio.wait_for(refused(), 10)


async def test_all_wait_for_one_reading_and_none_ends_it_for_the_others(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who ask a mute provider at once, each waits its patience and no longer; one that goes away takes no other along."""
    monkeypatch.setattr(oidc, "PATIENCE", 0.5)
    provider.mute = True
    async with tokens_of(provider) as tokens:
        waiting = [asyncio.create_task(tokens.identify(provider.token())) for _ in range(20)]
        await asyncio.sleep(0.1)
        waiting[0].cancel()
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(a) for a in answers] == [asyncio.CancelledError, *[IdentityUnavailable] * 19]
    assert len(provider.asked) == 1


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


@pytest.mark.parametrize(
    "issuer",
    ["https://login.example:abc", "https://login.example:99999", "https://login.example:0", "https://[::1", "https://", "https://a@b"],
)
def test_an_issuer_that_is_no_address_stops_the_start(issuer: str) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigurationError, match="POINTSMAN_OIDC_ISSUER"):
        OidcTokens(issuer, AUDIENCE, "tenant")
