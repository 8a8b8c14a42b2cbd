"""API keys: how they are read, who may pass, and what a key may reach. Nothing is allowed that a key does not name."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from service.access.door import Door
from service.access.keys import Keys
from service.bootstrap import open_services
from service.catalog.model import Catalog
from service.contracts.caller import Caller
from service.errors import ConfigurationError, Unauthenticated
from service.settings import Settings
from tests.conftest import World, body
from tests.fakes import down

DIGEST = hashlib.sha256(b"key").hexdigest()


def keys_of(**entries: tuple[str, str]) -> Keys:
    """Return the keys of `tenant=(key, permissions)`, through the text form that an operator writes."""
    return Keys.parse(",".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}:{may}" for name, (key, may) in entries.items()))


def settings_of(**values: Any) -> Settings:
    """Return settings that no file changes."""
    return Settings(_env_file=None, **values)


def bearer(key: str) -> dict[str, str]:
    """Return the header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


MALFORMED = {
    "no digest": "acme",
    "no name": f":{DIGEST}",
    "a key in place of a digest": "acme:key",
    "a digest that is short": f"acme:{DIGEST[:-1]}",
    "a digest that is long": f"acme:{DIGEST}0",
    "a digest that is not hexadecimal": f"acme:{'g' * 64}",
    "another separator": f"acme={DIGEST}",
    "a second entry": f"acme:{DIGEST},umbrella",
    "permissions by comma": f"acme:{DIGEST}:tier:2,tier:3",
    "a space in the digest": f"acme: {DIGEST[1:]}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_keys_that_cannot_be_read_stop_the_start_and_are_not_repeated(text: str) -> None:
    """The error numbers the entry and says how to make a digest; it never holds what was written, which may be a key."""
    with pytest.raises(ConfigurationError) as caught:
        Keys.parse(text)

    number = 2 if "," in text else 1
    assert f"entry {number}" in str(caught.value)
    assert "sha256sum" in str(caught.value)
    assert not any(part in str(caught.value) for part in ("acme", "umbrella", DIGEST, DIGEST[:-1]))


READ = {
    "none": (None, {}),
    "empty": ("", {}),
    "one without permissions": (f"acme:{DIGEST}", {DIGEST: ("acme", set[str]())}),
    "capitals": (f"acme:{DIGEST.upper()}", {DIGEST: ("acme", set[str]())}),
    "with permissions": (f"acme:{DIGEST}:tier:2  models:train", {DIGEST: ("acme", {"tier:2", "models:train"})}),
    "two, over lines": (
        f"\n  acme:{DIGEST}:tier:2,\n  acme:{'0' * 64}:tier:*,\n",
        {DIGEST: ("acme", {"tier:2"}), "0" * 64: ("acme", {"tier:*"})},
    ),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_keys_are_read_as_an_operator_writes_them(text: str | None, expected: dict[str, tuple[str, set[str]]]) -> None:
    """Name, digest, permissions; one tenant may have several keys, so that keys can be changed without a gap."""
    callers = Keys.parse(text).callers

    assert {digest: (c.tenant, set(c.permissions or ())) for digest, c in callers.items()} == expected
    assert all(c.permissions is not None for c in callers.values())


async def test_only_the_digest_of_a_key_is_kept() -> None:
    """The key itself is nowhere in what the process holds."""
    keys = keys_of(acme=("key-a", "tier:2"))

    assert "key-a" not in repr(keys)
    assert (await Door(keys).identify("key-a", peer="10.0.0.7", host="pointsman")).tenant == "acme"


@pytest.mark.parametrize(
    "key", [None, "", "key", "KEY-A", "key-a ", DIGEST, hashlib.sha256(b"key-a").hexdigest(), "\udcff", "\x00"], ids=repr
)
async def test_a_key_that_is_not_known_is_nobody(key: str | None) -> None:
    """Not even the digest opens what its key opens."""
    with pytest.raises(Unauthenticated):
        await Door(keys_of(acme=("key-a", "tier:*"))).identify(key, peer="127.0.0.1", host="localhost")


MAY = {
    "no keys in use": (None, "tier:0", True),
    "nothing named": (set[str](), "tier:5", False),
    "the same": ({"tier:2"}, "tier:2", True),
    "another tier": ({"tier:2"}, "tier:3", False),
    "a longer name": ({"tier:2"}, "tier:20", False),
    "a shorter name": ({"tier:20"}, "tier:2", False),
    "all tiers": ({"tier:*"}, "tier:0", True),
    "all tiers are no models": ({"tier:*"}, "models:train", False),
    "all models": ({"models:*"}, "models:train", True),
    "a star alone": ({"*"}, "tier:2", False),
    "in capitals": ({"TIER:2"}, "tier:2", False),
}


@pytest.mark.parametrize(("held", "asked", "allowed"), MAY.values(), ids=MAY.keys())
def test_a_caller_may_do_what_its_key_names(held: set[str] | None, asked: str, allowed: bool) -> None:
    """Exact names, or `kind:*` for all of one kind."""
    caller = Caller(permissions=None if held is None else frozenset(held))

    assert caller.may(asked) is allowed


LOCKED = [
    ("POST", "/orchestrate"),
    ("POST", "/route"),
    ("POST", "/feedback"),
    ("GET", "/decisions/3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11"),
    ("POST", "/optimizations"),
    ("GET", "/optimizations"),
    ("GET", "/agents"),
    ("GET", "/intents"),
]
STRANGERS = {
    "no key": {},
    "an unknown bearer": bearer("key-b"),
    "an unknown x-api-key": {"X-API-Key": "key-b"},
    "an empty bearer": {"Authorization": "Bearer "},
    "no scheme": {"Authorization": "key-a"},
    "another scheme": {"Authorization": "Basic key-a"},
    "two keys in one": bearer("key-b key-a"),
    "an unknown bearer beside a good x-api-key": {**bearer("key-b"), "X-API-Key": "key-a"},
    "the digest": bearer(hashlib.sha256(b"key-a").hexdigest()),
}


@pytest.mark.parametrize(("method", "path"), LOCKED, ids=[f"{method} {path.split('/')[1]}" for method, path in LOCKED])
async def test_no_route_but_the_probes_opens_without_a_known_key(world: World, method: str, path: str) -> None:
    """401 as a problem, with the challenge that tells a client what to send; the key that was sent is not repeated."""
    world.keys = keys_of(acme=("key-a", "tier:*"))
    async with world.client() as client:
        for name, headers in STRANGERS.items():
            response = await client.request(method, path, headers=headers, json=body() if method == "POST" else None)

            assert response.status_code == 401, name
            assert response.headers["content-type"] == "application/problem+json"
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["code"] == "unauthenticated"
            assert "key-b" not in response.text
        assert world.agents.sent == []


async def test_a_stranger_learns_nothing_of_its_mistakes(world: World) -> None:
    """Whoever has no key gets 401 for a broken body too, not a list of the contract's fields."""
    world.keys = keys_of(acme=("key-a", "tier:*"))
    async with world.client() as client:
        response = await client.post("/orchestrate", json={"x": 1})

    assert (response.status_code, response.json()["errors"]) == (401, [])


WELCOME = {
    "bearer": bearer("key-ä"),
    "bearer in lower case": {"authorization": "bearer key-ä"},
    "bearer with spaces": {"Authorization": "Bearer   key-ä  "},
    "x-api-key": {"X-API-Key": "key-ä"},
    "x-api-key with blanks": {"X-API-Key": " key-ä \t"},
    "x-api-key beside an empty bearer": {"Authorization": "Bearer ", "X-API-Key": "key-ä"},
}


@pytest.mark.parametrize("headers", WELCOME.values(), ids=WELCOME.keys())
async def test_a_known_key_opens_in_either_header(world: World, headers: dict[str, str]) -> None:
    """Also one that is not ASCII: what counts are its UTF-8 bytes, as in the digest. The tenant is the key's."""
    world.keys = keys_of(acme=("key-ä", "tier:*"))
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body("hello"), headers=encoded)

    assert response.status_code == 200
    assert [r.tenant for r in world.store.receipts.values()] == ["acme"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"])
async def test_probes_metrics_and_documentation_need_no_key(world: World, path: str) -> None:
    """A cluster's probes and Prometheus have no key; none of these pages holds anything of a tenant."""
    world.keys = keys_of(acme=("key-a", "tier:*"))
    async with world.client() as client:
        assert (await client.get(path)).status_code == 200


def _all_but(catalog: Catalog, *left_out: str) -> str:
    everything = {f"tier:{tier}" for tier in range(6)} | {p for agent in catalog.agents for p in agent.permissions}
    return " ".join(sorted(everything - set(left_out)))


async def ask(world: World, agent: str, permissions: str) -> dict[str, Any]:
    """Ask for an agent by name, with a key that has these permissions."""
    world.keys = keys_of(acme=("key-a", permissions))
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body(f"@{agent} make the churn model live"), headers=bearer("key-a"))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def assert_denied(world: World, answer: dict[str, Any]) -> None:
    """Check that a request was refused for lack of a permission, and that no agent at all heard of it."""
    assert (answer["action"], answer["status"], answer["agents_dispatched"]) == ("refuse", "failed", [])
    assert [w["code"] for w in answer["warnings"]] == ["permission_denied"]
    assert world.agents.sent == []


AGENTS = [
    *("causal_impact", "gap_analyzer", "heterogeneous_optimizer", "experiment_designer", "health_score", "drift_monitor"),
    *("observability_connector", "prediction_synthesizer", "resource_optimizer", "explainer", "scope_definer", "data_preparer"),
    *("model_selector", "model_trainer", "feature_analyzer", "model_deployer"),
]


def test_every_agent_of_the_catalogue_is_asked_for_below(catalog: Catalog) -> None:
    """The tables of this file leave no agent out."""
    assert sorted(AGENTS) == sorted(catalog.agent)


@pytest.mark.parametrize("name", AGENTS)
async def test_a_key_without_its_tier_cannot_reach_an_agent(world: World, catalog: Catalog, name: str) -> None:
    """Every permission but the agent's tier: refused, and not handed to a fallback."""
    answer = await ask(world, name, _all_but(catalog, f"tier:{catalog.agent[name].tier}"))

    assert_denied(world, answer)
    assert f"tier:{catalog.agent[name].tier}" in str(answer["response_text"])


@pytest.mark.parametrize("name", ["scope_definer", "data_preparer", "model_selector", "model_trainer", "model_deployer"])
async def test_a_key_with_the_tier_but_not_the_permission_cannot_reach_an_agent(world: World, catalog: Catalog, name: str) -> None:
    """The tier alone opens no agent that asks for more."""
    assert catalog.agent[name].permissions

    assert_denied(world, await ask(world, name, _all_but(catalog, *catalog.agent[name].permissions)))


@pytest.mark.parametrize("name", AGENTS)
async def test_a_key_with_exactly_what_an_agent_asks_for_reaches_it(world: World, catalog: Catalog, name: str) -> None:
    """The tier and the agent's own permissions are all that is needed."""
    agent = catalog.agent[name]

    answer = await ask(world, name, " ".join([f"tier:{agent.tier}", *agent.permissions]))

    assert (answer["status"], answer["agents_dispatched"]) == ("success", [name])
    assert [d.target_agent for d in world.agents.sent] == [name]


async def test_a_key_that_names_nothing_reaches_nothing(world: World) -> None:
    """Deny by default."""
    assert_denied(world, await ask(world, "explainer", ""))


@pytest.mark.parametrize(
    ("name", "permissions", "reached"),
    [
        ("explainer", "tier:*", True),
        ("feature_analyzer", "tier:*", True),
        ("model_trainer", "tier:*", False),
        ("model_trainer", "models:*", False),
        ("model_trainer", "tier:* models:*", True),
        ("model_deployer", "tier:0 models:train", False),
        ("explainer", "*", False),
    ],
)
async def test_a_wildcard_covers_one_kind_of_permission(world: World, name: str, permissions: str, reached: bool) -> None:
    """`tier:*` is every tier and nothing else; there is no permission for everything."""
    answer = await ask(world, name, permissions)

    assert (answer["agents_dispatched"] == [name]) is reached
    if not reached:
        assert_denied(world, answer)


async def test_a_fallback_that_the_key_may_not_reach_is_left_out(world: World) -> None:
    """A failing agent is no way around the gate: the explainer of tier 5 is not asked for a key of tier 2."""
    world.agents.script = {"causal_impact": [down()]}

    answer = await ask(world, "causal_impact", "tier:2")

    assert {d.target_agent for d in world.agents.sent} == {"causal_impact"}
    assert "permission_denied" in [w["code"] for w in answer["warnings"]]
    assert answer["status"] == "failed"


BEYOND = {
    "all addresses": "0.0.0.0",
    "all addresses of version 6": "::",
    "an address of the network": "192.168.1.5",
    "a name": "pointsman.example",
    "nothing": "",
    "a name like localhost": "localhost.example",
}


@pytest.mark.parametrize("keys", [None, "", " , "], ids=["unset", "empty", "only separators"])
@pytest.mark.parametrize("host", BEYOND.values(), ids=BEYOND.keys())
async def test_beyond_loopback_nothing_starts_without_keys(tmp_path: Path, host: str, keys: str | None) -> None:
    """The start is refused with what to set, before anything is opened."""
    database = tmp_path / "pointsman.db"
    settings = settings_of(host=host, api_keys=keys, database_url=f"sqlite:///{database}")

    with pytest.raises(ConfigurationError, match="pointsman keys create"):
        async with open_services(settings):
            pytest.fail("the service started")

    assert not database.exists()


@pytest.mark.parametrize(
    ("host", "keys"),
    [("0.0.0.0", f"acme:{DIGEST}"), ("127.0.0.1", None), ("127.8.8.8", None), ("::1", None), ("localhost", None)],
    ids=["beyond loopback with keys", "loopback", "another loopback address", "loopback of version 6", "localhost"],
)
async def test_with_keys_or_on_loopback_the_start_goes_on(tmp_path: Path, host: str, keys: str | None) -> None:
    """The next thing that is looked at is the catalogue, which this test has taken away."""
    settings = settings_of(host=host, api_keys=keys, catalog=tmp_path / "none")

    with pytest.raises(ConfigurationError) as caught:
        async with open_services(settings):
            pytest.fail("the service started")

    assert "API_KEYS" not in str(caught.value)
    assert "none" in str(caught.value)


async def test_keys_that_cannot_be_read_stop_the_start_on_loopback_too(tmp_path: Path) -> None:
    """A typing mistake must not open the service to everybody."""
    settings = settings_of(api_keys="acme", catalog=tmp_path / "none")

    with pytest.raises(ConfigurationError, match="POINTSMAN_API_KEYS: entry 1"):
        async with open_services(settings):
            pytest.fail("the service started")


@pytest.mark.parametrize(("peer", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 401), ("testclient", 401)])
async def test_without_keys_only_loopback_is_answered(world: World, peer: str, status: int) -> None:
    """However the server was bound, a caller from elsewhere needs a key."""
    async with world.client(peer) as client:
        response = await client.post("/route", json=body("hello"))

    assert response.status_code == status
