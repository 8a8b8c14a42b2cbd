"""`pointsman doctor` on real stores: each mistake is planted, found, and told with what to do; what is healthy is left as it is."""

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from service import doctor_storage
from service.adapters.migrations.upgrade import HEAD
from service.adapters.sql_store import SqlStore
from service.doctor import Check, _look
from service.doctor_lm import language_model
from service.migrate import migrate
from service.settings import SPOOL, Settings
from tests.contract.http_server import free_port, http, saying, serving
from tests.contract.postgres import controlled, new_database
from tests.contract.test_store import a_receipt
from tests.integration.office import open_office, registry, run

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory, begun: Path) -> Path:
    """A working folder with a catalogue of three agents and a router."""
    folder = tmp_path_factory.mktemp("office")
    open_office(folder, begun)
    done = run(folder, "--bootstrap", "--seed-set", "seed.jsonl")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def _in_office(office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(office)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    with controlled() as one:
        yield one.address


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def look_at_database(address: str) -> Check:
    """Look at a database."""
    return await _look("store", doctor_storage.database, Settings(database_url=address))


def quietly(address: str, to: str = HEAD) -> None:
    """Bring a database to a schema."""
    migrate(address, to=to, wait=0.0, agreed=True, say=lambda _: None)


async def test_a_database_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    """To look must not change what the service will find."""
    check = await look_at_database("sqlite:///var/new.db")

    assert (check.ok, "pointsman migrate" in check.detail) == (True, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_an_old_or_a_newer_schema_is_told_and_left_alone(kind: str, request: pytest.FixtureRequest) -> None:
    """With the command that mends it."""
    address = "sqlite:///one.db" if kind == "sqlite" else new_database(request.getfixturevalue("server"))
    quietly(address, "0003")
    old = await look_at_database(address)
    again = await look_at_database(address)
    quietly(address)
    healthy = await look_at_database(address)
    with sqlite3.connect("one.db") if kind == "sqlite" else psycopg.connect(address) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    newer = await look_at_database(address)

    assert (old.ok, old.detail) == (False, f"The database has the old schema 0003; this version needs {HEAD}. Run: pointsman migrate")
    assert again == old
    assert (healthy.ok, healthy.detail) == (True, f"the database has schema {HEAD} and can be written")
    assert not newer.ok
    assert f"pointsman migrate --to {HEAD}" in newer.detail


async def test_what_is_wrong_with_a_server_is_told(server: str) -> None:
    """Without tables, read-only, with a wrong clock, and not there at all."""
    empty, read_only, late = (new_database(server) for _ in range(3))
    for address in (read_only, late):
        quietly(address)
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {read_only.rpartition('/')[2]} SET default_transaction_read_only = on")
        connection.execute(f"ALTER DATABASE {late.rpartition('/')[2]} SET search_path = public, pg_catalog")
    with psycopg.connect(late) as connection:  # a clock that goes an hour ahead, in place of the server's own
        body = "SELECT pg_catalog.now() + interval '1 hour'"
        connection.execute(f"CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $${body}$$")
    found = [await look_at_database(address) for address in (empty, read_only, late, "postgresql://bob:hush@127.0.0.1:9/none")]

    assert [check.ok for check in found] == [False] * 4
    assert "pointsman migrate" in found[0].detail
    assert "read-only" in found[1].detail
    assert "clock is +3600 s off" in found[2].detail
    assert "POINTSMAN_DATABASE_URL" in found[3].detail
    assert "hush" not in found[3].detail


async def test_what_waits_in_the_spool_is_told() -> None:
    """With a database of this machine nobody would ever hand it over; with a server it is counted against the bound."""
    store = SqlStore(f"sqlite:///{SPOOL}")
    await store.open()
    for _ in range(3):
        await store.commit(a_receipt())
    await store.close()
    away = "postgresql://nobody@127.0.0.1:9/none"
    chosen = [Settings(), Settings(database_url=away), Settings(database_url=away, spool_most=3)]
    stranded, waiting, full = [await _look("spool", doctor_storage.spool, settings) for settings in chosen]
    SPOOL.write_bytes(b"no database" * 100)
    broken = await _look("spool", doctor_storage.spool, chosen[1])

    assert (stranded.ok, "holds 3 decisions for a PostgreSQL database" in stranded.detail) == (False, True)
    assert (waiting.ok, waiting.detail.startswith(f"3 decisions wait in {SPOOL}")) == (True, True)
    assert (full.ok, "POINTSMAN_SPOOL_MOST" in full.detail) == (False, True)
    assert (broken.ok, f"Move {SPOOL} away and keep it" in broken.detail) == (False, True)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no folder in memory on this machine")
async def test_a_spool_in_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it acknowledges would be gone with the machine."""
    monkeypatch.chdir("/dev/shm")

    check = await _look("spool", doctor_storage.spool, Settings(database_url="postgresql://nobody@127.0.0.1:9/none"))

    assert (check.ok, "lies in memory (tmpfs)" in check.detail) == (False, True)


async def test_a_disk_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder that it is about."""
    monkeypatch.setattr(doctor_storage, "LEAST_FREE", 10**18)

    check = await _look("disk", doctor_storage.disk, Settings())

    assert not check.ok
    assert f"free at {Path.cwd()}" in check.detail


async def test_a_metrics_folder_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is of the library that counts, and is none of Pointsman's settings."""
    fine = await _look("metrics", doctor_storage.metrics_folder, Settings())
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "nowhere")

    check = await _look("metrics", doctor_storage.metrics_folder, Settings())

    assert fine.ok
    assert (check.ok, "Unset it" in check.detail) == (False, True)


async def test_a_registry_that_is_away_or_empty_is_told(office: Path) -> None:
    """And is not made where there is none."""
    port = await free_port()
    addresses = [f"sqlite:///{office}/mlruns/mlflow.db", "sqlite:///mlruns/mlflow.db", f"http://bob:hush@127.0.0.1:{port}"]
    whole, none, away = [await _look("registry", doctor_storage.registry, Settings(mlflow_uri=one)) for one in addresses]

    assert (whole.ok, whole.detail.endswith("names version 1 champion")) == (True, True)
    assert (none.ok, "optimize --bootstrap" in none.detail, Path("mlruns").exists()) == (False, True, False)
    assert (away.ok, "POINTSMAN_MLFLOW_URI" in away.detail, "hush" in away.detail) == (False, True, False)


@pytest.mark.usefixtures("_in_office")
@pytest.mark.parametrize("damage", ["a file", "a fingerprint"])
async def test_a_damaged_router_version_is_told(office: Path, damage: str) -> None:
    """A byte of the classifier, or a manifest for other signatures: neither is served."""
    address = f"sqlite:///{office}/mlruns/mlflow.db"  # MLflow keeps an engine for each address of a process, whatever its folder
    settings = Settings(catalog=office / "catalog", mlflow_uri=address)
    healthy = await _look("router", doctor_storage.router, settings)
    champion = registry(office).champion()
    assert champion is not None
    file = champion.folder / ("student.safetensors" if damage == "a file" else "manifest.json")
    before = file.read_bytes()
    if damage == "a file":
        after = before[:-1] + bytes([before[-1] ^ 1])
    else:
        manifest = json.loads(before)
        manifest["signature_fingerprints"] = dict.fromkeys(manifest["signature_fingerprints"], "0" * 64)
        after = json.dumps(manifest).encode()
    file.chmod(0o600)
    file.write_bytes(after)
    try:
        check = await _look("router", doctor_storage.router, settings)
    finally:
        file.write_bytes(before)

    assert (healthy.ok, healthy.detail) == (True, "router version 1, fitted on requests for 3 intents")
    assert not check.ok
    assert "Router version 1 cannot be served" in check.detail
    assert "pointsman routers rollback" in check.detail


@pytest.mark.usefixtures("_in_office")
async def test_an_encoder_that_is_missing_or_damaged_is_told(tmp_path: Path) -> None:
    """In the words that the service refuses to start with."""
    missing = await _look("router", doctor_storage.router, Settings(encoder=tmp_path))
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{no model")
    damaged = await _look("router", doctor_storage.router, Settings(encoder=tmp_path))

    assert (missing.ok, "The encoder folder lacks" in missing.detail) == (False, True)
    assert (damaged.ok, "Is its file whole?" in damaged.detail) == (False, True)


async def test_a_key_that_the_lm_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's own variable, or ours; and an LM that nobody provides."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = {"lm": "openai/gpt-5-mini"}
    missing = await _look("lm", language_model, Settings.model_validate(asked))
    ours = await _look("lm", language_model, Settings.model_validate(asked | {"lm_api_key": "hush"}))
    monkeypatch.setenv("OPENAI_API_KEY", "hush")
    theirs = await _look("lm", language_model, Settings.model_validate(asked))
    nobody = await _look("lm", language_model, Settings(lm="nobody/any"))
    no_file = await _look("lm", language_model, Settings(lm="local"))

    assert (missing.ok, "OPENAI_API_KEY" in missing.detail, "POINTSMAN_LM_API_KEY" in missing.detail) == (False, True, True)
    assert (ours.ok, theirs.ok) == (True, True)
    assert (nobody.ok, "PROVIDER/MODEL" in nobody.detail) == (False, True)
    assert (no_file.ok, "make lm" in no_file.detail) == (False, True)


@pytest.mark.parametrize(
    ("answer", "key", "said"),
    [
        (http(b'{"data": []}'), "hush", None),
        (http(b"", "404 Not Found"), "hush", None),
        (http(b"{}", "401 Unauthorized"), "hush", "refuses the key of POINTSMAN_LM_API_KEY"),
        (http(b"{}", "401 Unauthorized"), None, "wants a key: set POINTSMAN_LM_API_KEY"),
    ],
    ids=["answers", "has no list", "refuses the key", "wants a key"],
)
async def test_an_lm_with_an_address_is_asked(answer: bytes, key: str | None, said: str | None) -> None:
    """For the list of its models, which costs nothing."""
    async with serving(saying(answer)) as server:
        settings = Settings.model_validate({"lm": "openai/any", "lm_api_base": f"http://127.0.0.1:{server.port}/v1", "lm_api_key": key})
        check = await _look("lm", language_model, settings)

    assert check.ok is (said is None)
    assert said is None or said in check.detail
    assert "hush" not in check.detail
    assert len(server.requests) == 1


async def test_an_lm_that_is_not_there_is_told() -> None:
    """With the setting that names it."""
    address = f"http://127.0.0.1:{await free_port()}/v1"

    check = await _look("lm", language_model, Settings(lm="openai/any", lm_api_base=address))

    assert (check.ok, "POINTSMAN_LM_API_BASE" in check.detail) == (False, True)
