"""What a browser may do with an answer, and that no page of another origin reaches a service without keys."""

import pytest

from tests.conftest import World, body
from tests.contract.asking import assert_problem

EVERYWHERE = {
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
ANSWERS = [
    ("POST", "/orchestrate", 200),
    ("POST", "/orchestrate/stream", 200),
    ("POST", "/route", 200),
    ("GET", "/intents", 200),
    ("GET", "/readyz", 200),
    ("GET", "/metrics", 200),
    ("GET", "/docs", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/decisions/3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11", 404),
    ("GET", "/none", 404),
    ("DELETE", "/orchestrate", 405),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS, ids=[f"{method} {path}" for method, path, _ in ANSWERS])
async def test_every_answer_is_guarded(world: World, method: str, path: str, status: int) -> None:
    """Problems and streams too, each header once; only the page of the API document may run a script, its own."""
    async with world.client() as client:
        response = await client.request(method, path, json=body("hello") if method == "POST" else None)

    assert response.status_code == status
    assert {name: response.headers.get_list(name) for name in EVERYWHERE} == {name: [value] for name, value in EVERYWHERE.items()}
    (policy,) = response.headers.get_list("content-security-policy")
    assert policy.startswith("default-src 'self'" if path == "/docs" else "default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "server" not in response.headers


async def test_an_answer_to_what_nobody_foresaw_is_guarded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other, each header once, with the id of its request."""

    async def break_down(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.store, "by_decision", break_down)
    path = "/decisions/3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11"
    async with world.client() as client:
        broken = await client.get(path, headers={"X-Request-ID": "a-1"})
        other = await client.get("/none", headers={"X-Request-ID": "a-1"})

    assert (broken.status_code, broken.json()["code"]) == (500, "internal_error")
    told = [sorted((name, value) for name, value in r.headers.multi_items() if name != "content-length") for r in (broken, other)]
    assert told[0] == told[1]
    assert broken.headers["x-request-id"] == broken.json()["request_id"] == "a-1"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000"])
async def test_no_other_origin_may_read_an_answer(world: World, origin: str) -> None:
    """There is no CORS: a preflight is refused, and no answer names an origin that may read it."""
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with world.client() as client:
        preflight = await client.options("/orchestrate", headers=asked)
        plain = await client.post("/orchestrate", headers={"Origin": origin, "Content-Type": "text/plain"}, content=b"{}")

    assert preflight.status_code == 405
    assert plain.status_code == 415
    assert not any(name.startswith("access-control-") for r in (preflight, plain) for name in r.headers)


HOSTS = {
    "localhost": True,
    "localhost:8100": True,
    "LOCALHOST:8100": True,
    "127.0.0.1": True,
    "127.0.0.1:8100": True,
    "127.8.8.8:1": True,
    "[::1]": True,
    "[::1]:8100": True,
    "evil.example": False,
    "evil.example:8100": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example:8100": False,
    "192.168.1.5": False,
    "localhost@evil.example": False,
    "": False,
    "[::2]:8100": False,
}


@pytest.mark.parametrize(("host", "allowed"), HOSTS.items(), ids=[repr(h) for h in HOSTS])
async def test_without_keys_only_the_loopback_names_are_answered(world: World, host: str, allowed: bool) -> None:
    """A web page whose name was made to lead to this machine (DNS rebinding) sends its own name as Host."""
    async with world.client() as client:
        response = await client.post("/route", json=body("hello"), headers={"Host": host})

    if allowed:
        assert response.status_code == 200
    else:
        assert_problem(response, 401, "unauthenticated")


ORIGINS = {
    "": True,
    "http://127.0.0.1:8100": True,
    "http://127.0.0.1:3000": False,
    "http://127.0.0.1": False,
    "https://evil.example": False,
    "https://evil.example/127.0.0.1:8100": False,
    "http://127.0.0.1:8100.evil.example": False,
    "http://evil.example:8100@127.0.0.1:8100": False,
    "null": False,
}


@pytest.mark.parametrize(("path", "answered"), [("/route", 200), ("/routers/rollback", 409)])
@pytest.mark.parametrize(("origin", "allowed"), ORIGINS.items(), ids=[repr(o) for o in ORIGINS])
async def test_without_keys_no_web_page_of_another_origin_is_answered(
    world: World, path: str, answered: int, origin: str, allowed: bool
) -> None:
    """A form or a script can send a POST without a body from anywhere to this machine; the browser says whence (RFC 6454)."""
    headers = {"Host": "127.0.0.1:8100"} | ({"Origin": origin} if origin else {})
    async with world.client() as client:
        response = await client.post(path, json=body("hello") if path == "/route" else None, headers=headers)

    if allowed:
        assert response.status_code == answered
    else:
        assert_problem(response, 401, "unauthenticated")
