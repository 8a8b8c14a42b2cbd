"""`pointsman doctor` looks where the service looks, and tells what is missing from what is worth knowing."""

from pathlib import Path

import pytest

from service import doctor, doctor_storage
from service.catalog.loader import FILES, PACKAGED
from service.doctor import OTHER_VARIABLES, _agents, _catalogue, _keys, _limits, _look, _port, _settings, examine
from service.doctor_lm import language_model
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


@pytest.mark.parametrize("file", [True, False], ids=[".env", "environment"])
async def test_a_misspelled_variable_is_told_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: bool) -> None:
    """The service passes over it in both, and one place is not the other's."""
    in_file = "POINTSMAN_DATABSE_URL=x" if file else "# none"
    (tmp_path / ".env").write_text(f"export POINTSMAN_PORT=8100\nOTHER=1\n{in_file}\n")
    if not file:
        monkeypatch.setenv("POINTSMAN_DATABSE_URL", "x")

    check = await _look("settings", _settings, read_settings())

    where = "in .env" if file else "in the environment"
    said = f"No setting has this name: POINTSMAN_DATABSE_URL {where} (did you mean POINTSMAN_DATABASE_URL?)"
    assert (check.ok, check.detail) == (False, said)


async def test_variables_are_known_by_any_case_and_those_of_the_agents_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service reads a name in small letters; what only an agent or a command reads is no mistake."""
    (tmp_path / ".env").write_text("pointsman_port=8200\n")
    for name in OTHER_VARIABLES | {"POINTSMAN_METRICS_URL", "POINTSMAN_PROMETHEUS_URL"}:
        monkeypatch.setenv(name, "http://127.0.0.1:8100")
    settings = read_settings()

    check = await _look("settings", _settings, settings)

    assert (check.ok, settings.port) == (True, 8200), check.detail


async def test_a_line_that_is_no_setting_is_told(tmp_path: Path) -> None:
    """It is passed over, and what it was to set keeps its default."""
    (tmp_path / ".env").write_text("# ports\nPOINTSMAN_PORT 8200\n")

    check = await _look("settings", _settings, read_settings())

    assert (check.ok, "Lines of .env that are none of NAME=VALUE are passed over: 2." in check.detail) == (False, True)


@pytest.mark.parametrize("host", ["0.0.0.0:8100", "[::1]", "http://127.0.0.1", "a..b"])
async def test_a_host_that_is_more_than_an_address_is_told(host: str) -> None:
    """With the setting that takes the port."""
    check = await _look("port", _port, Settings(host=host))

    assert not check.ok
    assert check.detail.startswith(f"{host!r} is not an address of this machine")
    assert "the port is POINTSMAN_PORT" in check.detail


@pytest.mark.parametrize("key", ["hüsh", "hu sh", "hush\n", " hush"], ids=["not ASCII", "a space", "a line end", "a space before"])
@pytest.mark.parametrize("base", [None, "http://127.0.0.1:1"], ids=["provider", "address"])
async def test_a_key_that_no_header_takes_is_told(key: str, base: str | None) -> None:
    """No request would leave with it; it is not quoted."""
    settings = Settings.model_validate({"lm": "openai/any", "lm_api_base": base, "lm_api_key": key})

    check = await _look("lm", language_model, settings)

    assert (check.ok, "POINTSMAN_LM_API_KEY" in check.detail, key.strip() in check.detail) == (False, True, False)


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "https://[::1", "https://bob:hush:8000/x", "https://-ü"])
async def test_an_address_of_which_no_client_can_be_made_is_told(address: str) -> None:
    """By its setting: what stands in the place of a port may be a password."""
    lm = await _look("lm", language_model, Settings.model_validate({"lm": "openai/any", "lm_api_base": address}))
    oidc = await _look("keys", _keys, Settings(oidc_issuer=address, oidc_audience="x"))

    assert (lm.ok, oidc.ok) == (False, False)
    assert lm.detail.startswith("POINTSMAN_LM_API_BASE is not an address:")
    assert oidc.detail.startswith("POINTSMAN_OIDC_ISSUER is not an address:")
    assert "hush" not in lm.detail + oidc.detail


async def test_an_agents_host_that_nobody_can_ask_for_is_told() -> None:
    """With its address: pydantic takes names that the client's library does not."""
    check = await _look("agents", _agents, Settings(agents_base_url="http://ß--"))

    assert (check.ok, "http://xn-----fia, of an agent, is not an address" in check.detail) == (False, True)


@pytest.mark.parametrize("address", ["redis://127.0.0.1:1?db=x", "redis://127.0.0.1:1?socket_timeout=soon"])
async def test_an_option_that_redis_does_not_take_is_told(address: str) -> None:
    """The service would not start with it."""
    check = await _look("limits", _limits, Settings(limits_url=address))

    assert (check.ok, check.detail.startswith("POINTSMAN_LIMITS_URL cannot be used: ")) == (False, True)


async def test_a_database_host_that_is_no_name_is_told() -> None:
    """Both by what looks for tables and by what looks for keys."""
    settings = Settings(database_url=f"postgresql://u@{'x' * 64}/x")

    store, keys = await _look("store", doctor_storage.database, settings), await _look("keys", _keys, settings)

    assert (store.ok, "POINTSMAN_DATABASE_URL" in store.detail) == (False, True)
    assert (keys.ok, "The store cannot be used" in keys.detail) == (False, True)


async def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    """What the service is to make there it cannot make."""
    (tmp_path / "var").write_text("no folder")

    store, spool = [
        await _look("kept", look, Settings(database_url=address))
        for look, address in (
            (doctor_storage.database, "sqlite:///var/pointsman.db"),
            (doctor_storage.spool, "postgresql://u@127.0.0.1:1/x"),
        )
    ]

    assert (store.ok, store.detail) == (False, f"{tmp_path}/var is no folder. Move it away, or name another place.")
    assert (spool.ok, spool.detail) == (False, store.detail)


async def test_what_nobody_foresaw_fails_one_check_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and what it says is not told: a library's error may quote a secret."""

    async def fail(_: Settings) -> str:
        raise UnicodeEncodeError("ascii", "hüsh", 1, 2, "ordinal not in range")

    monkeypatch.setattr(doctor, "_limits", fail)
    monkeypatch.setattr(doctor_storage, "router", fail)

    checks = {check.name: check for check in await examine(Settings())}

    assert not checks["limits"].ok
    assert "UnicodeEncodeError" in checks["limits"].detail
    assert "hüsh" not in checks["limits"].detail
    assert (len(checks), checks["python"].ok, checks["disk"].ok, checks["lm"].ok) == (14, True, True, True)


async def test_a_folder_whose_name_is_not_utf_8_can_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal refuses such a text, and then shows no check at all."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", f"{tmp_path}/b\udcffd")

    check = await _look("metrics", doctor_storage.metrics_folder, Settings())

    assert (check.ok, "b\\udcffd is no folder" in check.detail) == (False, True)
