"""`pointsman doctor` looks where the service looks, and tells what is missing from what is worth knowing."""

from pathlib import Path

import pytest

from service.catalog.loader import FILES, PACKAGED
from service.doctor import _agents, _catalogue, _limits, _look, _port
from service.settings import Settings, read_settings
from tests.contract.http_server import free_port, http, saying, serving


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("variable", ["POINTSMAN_AGENTS_PORT", "POINTSMAN_AGENTS_BASE_URL"])
async def test_doctor_asks_the_agents_where_the_service_would(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """At the port or address that was set, not at the catalogue's."""
    async with serving(saying(http(b"{}"))) as server:
        monkeypatch.setenv(variable, str(server.port) if variable.endswith("PORT") else f"http://127.0.0.1:{server.port}")
        check = await _look("agents", _agents, read_settings())

    assert (check.ok, check.detail, len(server.requests)) == (True, "1 address(es) answer", 1)


def test_a_base_url_goes_before_a_port_and_the_catalogue_before_a_default() -> None:
    """A port that nobody has set moves no agent."""
    assert Settings().agents_address is None
    assert Settings(agents_port=9000).agents_address == "http://127.0.0.1:9000"
    assert Settings(agents_port=9000, agents_base_url="http://agents:80").agents_address == "http://agents:80"


@pytest.mark.parametrize("builtin", [True, False], ids=["built in", "one's own"])
async def test_only_built_in_agents_are_started_with_pointsman(tmp_path: Path, builtin: bool) -> None:
    """That command does not help with an agent of one's own."""
    port = await free_port()
    for file in FILES:
        text = (PACKAGED / file).read_text().replace("127.0.0.1:8101", f"127.0.0.1:{port}")
        (tmp_path / file).write_text(text if builtin else text.replace("builtin: true", "builtin: false"))

    check = await _look("agents", _agents, Settings(catalog=tmp_path))

    assert not check.ok
    assert f"http://127.0.0.1:{port} cannot be reached." in check.detail
    assert ("pointsman agents" in check.detail) is builtin


@pytest.mark.parametrize(("key", "ok"), [("", False), ("Bearer x", True)], ids=["not set", "set"])
async def test_a_key_that_an_agent_needs_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, ok: bool) -> None:
    """Before the service refuses to start without it."""
    for file in FILES:
        text = (PACKAGED / file).read_text()
        (tmp_path / file).write_text(text.replace("    builtin: true", "    builtin: true\n    auth: {env: LEDGER_KEY}", 1))
    monkeypatch.setenv("LEDGER_KEY", key)

    check = await _look("catalogue", _catalogue, Settings(catalog=tmp_path))

    assert check.ok is ok
    assert ("LEDGER_KEY" in check.detail) is not ok


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_a_port_that_pointsman_serves_is_no_fault(host: str) -> None:
    """Wherever it listens, it is asked as `pointsman ask` would ask it."""
    async with serving(saying(http(b'{"info": {"title": "Pointsman"}}'))) as server:
        check = await _look("port", _port, Settings(host=host, port=server.port))

    assert (check.ok, check.detail) == (True, f"{host}:{server.port} is served by a running Pointsman")


async def test_a_redis_that_does_not_answer_is_told_without_its_password() -> None:
    """The service goes on without it, and so lets each caller send a multiple of its rate."""
    check = await _look("limits", _limits, Settings(limits_url=f"redis://:sekrit@127.0.0.1:{await free_port()}/0"))

    assert not check.ok
    assert "POINTSMAN_LIMITS_URL" in check.detail
    assert "sekrit" not in check.detail
