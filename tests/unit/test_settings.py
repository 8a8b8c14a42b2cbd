"""Settings: what is wrong is named, what is empty is unset, and names that are none are found by doctor."""

from pathlib import Path

import pytest

from service.doctor import examine
from service.errors import ConfigurationError
from service.settings import Settings, read_settings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("POINTSMAN_PORT", "many"),
        ("POINTSMAN_PORT", "70000"),
        ("POINTSMAN_DECISION_BUDGET_MS", "1"),
        ("POINTSMAN_LOG_LEVEL", "LOUD"),
        ("POINTSMAN_LM_LIGHT", "openai/any"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    """As the operator wrote it."""
    monkeypatch.setenv(variable, text)

    with pytest.raises(ConfigurationError, match=variable):
        read_settings()


@pytest.mark.parametrize("name", ["LM", "CATALOG", "ENCODER", "PORT", "AGENTS_BASE_URL", "API_KEYS"])
def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Compose files and `.env` files are full of them."""
    monkeypatch.setenv(f"POINTSMAN_{name}", "")

    assert read_settings() == Settings()


def test_an_env_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    """No traceback for a file that an editor has saved in another encoding."""
    (tmp_path / ".env").write_bytes(b"POINTSMAN_PORT=\xff\xfe")

    with pytest.raises(ConfigurationError, match=r"\.env"):
        read_settings()


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example.org", False)]
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    """Everything else counts as reachable from outside."""
    assert Settings(host=host).on_loopback is loopback


async def test_doctor_finds_a_variable_that_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name that was meant."""
    monkeypatch.setenv("POINTSMAN_LOG_LEVL", "DEBUG")

    checks = {check.name: check for check in await examine(Settings())}

    assert not checks["settings"].ok
    assert "did you mean POINTSMAN_LOG_LEVEL?" in checks["settings"].detail
    assert checks["catalogue"].ok
    assert not checks["encoder and router"].ok
    assert "optimize --bootstrap" in checks["encoder and router"].detail
