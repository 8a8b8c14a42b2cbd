"""The store against the real world: killed processes, two processes at once, and a database that is locked, gone, full or broken.

Run as a program (`python -m tests.integration.test_store_durability MODE URL`) it is the child process of its own tests.
"""

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid5

import pytest
import sqlalchemy as sa
from sqlmodel import SQLModel

from service.adapters.migrations.upgrade import HEAD
from service.adapters.sql_store import SqlStore
from service.adapters.sql_tables import Signal
from service.contracts.signals import Feedback, RoutingTrainingSignal
from service.errors import ConfigurationError, StoreUnavailable
from tests.contract.test_store import a_receipt

ROOT = Path(__file__).parents[2]
LOCK_SECONDS = 0.3
ROUNDS = 8
Trouble = Callable[[Path], AbstractContextManager[None]]
QUERIES = [uuid5(UUID(int=0), str(i)) for i in range(100)]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqlStore]:
    """Open a store with little patience, and close it."""
    store = SqlStore(f"sqlite:///{path}", lock_seconds=LOCK_SECONDS)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def start(mode: str, path: Path) -> subprocess.Popen[str]:
    """Start this module as a program."""
    command = [sys.executable, "-m", "tests.integration.test_store_durability", mode, f"sqlite:///{path}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Ask the file itself."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def test_every_acknowledged_commit_survives_sigkill(tmp_path: Path) -> None:
    """A process that commits without pause is killed at a random moment; whatever it acknowledged is in the database. Eight rounds."""
    path, acknowledged = tmp_path / "a.db", set[str]()
    with start("commit", path) as nursery:
        assert nursery.stdout is not None
        for _ in range(ROUNDS):
            process, first = int(nursery.stdout.readline()), nursery.stdout.readline().strip()
            time.sleep(random.uniform(0.0, 0.2))
            os.kill(process, signal.SIGKILL)
            ids = {first, *(line.strip() for line in iter(nursery.stdout.readline, "dead\n"))}
            acknowledged |= ids
            assert acknowledged <= {row[0] for row in rows(path, "SELECT decision_id FROM decision JOIN signal USING (decision_id)")}

    assert nursery.returncode == 0
    assert len(acknowledged) > ROUNDS
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_two_processes_at_once_agree(tmp_path: Path) -> None:
    """Two processes create one database, commit rival receipts for the same queries, and get the same answers; no feedback is lost."""
    path = tmp_path / "shared.db"
    processes = [start(mode, path) for mode in ("satisfaction", "quality")]

    first, second = (process.communicate(timeout=30)[0].split() for process in processes)

    assert [process.returncode for process in processes] == [0, 0]
    assert len(first) == len(QUERIES)
    assert first == second
    assert rows(path, "SELECT user_satisfaction, answer_quality FROM signal WHERE updated_at > '2026-02-01'") == [(4.0, 0.5)]


@pytest.mark.asyncio
async def test_closing_finishes_what_waits(tmp_path: Path) -> None:
    """Commits that are under way when the store closes are stored; later calls are refused."""
    async with opened(tmp_path / "a.db") as store:
        commits = [asyncio.create_task(store.commit(a_receipt())) for _ in range(100)]
        await asyncio.sleep(0)

    receipts = await asyncio.gather(*commits)

    assert {str(receipt.decision_id) for receipt in receipts} == {
        row[0] for row in rows(tmp_path / "a.db", "SELECT decision_id FROM decision")
    }
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.commit(a_receipt())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock, as another process would."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def deleted(path: Path) -> Iterator[None]:
    """Move the database out of the way, and put a copy of it back afterwards."""
    away = path.with_suffix(".away")
    path.rename(away)
    yield
    shutil.copy(away, path)


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Let no file grow beyond the size that the log has now; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.asyncio
@pytest.mark.parametrize("trouble", [locked, deleted, full], ids=["locked", "deleted", "disk full"])
async def test_a_database_in_trouble_is_unavailable_until_it_is_well(tmp_path: Path, trouble: Trouble) -> None:
    """All commits of the moment fail as `StoreUnavailable`, soon, and are not stored; afterwards the same store works again."""
    path, refused = tmp_path / "a.db", [a_receipt() for _ in range(5)]
    async with opened(path) as store:
        earlier = await store.commit(a_receipt())
        started = time.monotonic()
        with trouble(path):
            results = await asyncio.gather(*(store.commit(receipt) for receipt in refused), return_exceptions=True)
        elapsed = time.monotonic() - started
        later = await store.commit(a_receipt())

        assert [type(result) for result in results] == [StoreUnavailable] * 5
        assert all(isinstance(result, StoreUnavailable) and result.__cause__ is not None for result in results)
        assert elapsed < LOCK_SECONDS + 8.0
        assert [await store.by_query("acme", receipt.decision.query_id) for receipt in refused] == [None] * 5
        assert await store.by_decision("acme", earlier.decision_id) == earlier
        assert await store.by_decision("acme", later.decision_id) == later


@pytest.mark.asyncio
async def test_a_database_that_is_replaced_is_used_from_then_on(tmp_path: Path) -> None:
    """When an operator puts a backup in place, no commit goes into the file that was there before."""
    path, backup = tmp_path / "a.db", tmp_path / "backup.db"
    async with opened(path) as store:
        earlier = await store.commit(a_receipt())
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        backup.replace(path)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()

        later = await store.commit(a_receipt())

        kept = {row[0] for row in rows(path, "SELECT decision_id FROM decision")}
        assert kept == {str(earlier.decision_id), str(later.decision_id)}


@pytest.mark.asyncio
async def test_every_call_fails_alike_when_the_file_is_gone(tmp_path: Path) -> None:
    """Reads, feedback and ping notice a deleted database too, and do not bring it back empty."""
    path = tmp_path / "a.db"
    async with opened(path) as store:
        receipt = await store.commit(a_receipt())
        path.unlink()
        calls = (
            store.ping(),
            store.by_query("acme", receipt.decision.query_id),
            store.by_decision("acme", receipt.decision_id),
            store.add_feedback("acme", Feedback(decision_id=receipt.decision_id, user_satisfaction=1)),
        )

        results = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(result) for result in results] == [StoreUnavailable] * 4
        assert not path.exists()


@pytest.mark.asyncio
async def test_a_read_only_database_answers_but_is_not_well(tmp_path: Path) -> None:
    """Commit and ping fail, lookups work."""
    path = tmp_path / "a.db"
    async with opened(path) as store:
        receipt = await store.commit(a_receipt())
    with path.open("r+b") as file:  # a newer write format in the header means read-only to SQLite; file modes mean nothing to root
        file.seek(18)
        file.write(b"\x03")

    async with opened(path) as store:
        with pytest.raises(StoreUnavailable):
            await store.commit(a_receipt())
        with pytest.raises(StoreUnavailable):
            await store.ping()
        assert await store.by_decision("acme", receipt.decision_id) == receipt


@pytest.mark.asyncio
async def test_what_is_not_a_database_cannot_be_opened(tmp_path: Path) -> None:
    """A file of something else, and a folder that cannot be made, are `StoreUnavailable` at the start."""
    (tmp_path / "a.db").write_bytes(b"nonsense" * 1000)

    for path in (tmp_path / "a.db", tmp_path / "a.db" / "b.db"):
        with pytest.raises(StoreUnavailable):
            async with opened(path):
                pass


@pytest.mark.asyncio
async def test_a_corrupt_row_is_unavailable(tmp_path: Path) -> None:
    """A row that does not hold what was written is reported, not passed on."""
    path = tmp_path / "a.db"
    async with opened(path) as store:
        broken, strange, well = [await store.commit(a_receipt()) for _ in range(3)]
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE decision SET route = '{' WHERE decision_id = ?", (str(broken.decision_id),))
            other.execute("UPDATE signal SET routing_confidence = 7 WHERE decision_id = ?", (str(strange.decision_id),))
            other.commit()

        for receipt in (broken, strange):
            with pytest.raises(StoreUnavailable):
                await store.by_decision("acme", receipt.decision_id)
        assert await store.by_decision("acme", well.decision_id) == well


@pytest.mark.asyncio
@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense"])
async def test_an_address_that_cannot_be_durable_is_a_configuration_error(url: str) -> None:
    """Only database files and PostgreSQL are accepted."""
    with pytest.raises(ConfigurationError):
        await SqlStore(url).open()


@pytest.mark.asyncio
async def test_a_newer_schema_is_a_configuration_error(tmp_path: Path) -> None:
    """A database that a later version has migrated is left alone."""
    async with opened(tmp_path / "a.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()

    with pytest.raises(ConfigurationError, match="newer version"):
        async with opened(tmp_path / "a.db"):
            pass


@pytest.mark.asyncio
async def test_an_up_to_date_database_opens_without_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alembic is imported only when there is something to migrate."""
    async with opened(tmp_path / "a.db"):
        pass
    monkeypatch.setitem(sys.modules, "alembic", None)

    async with opened(tmp_path / "a.db") as store:
        await store.ping()


@pytest.mark.asyncio
async def test_the_migrations_make_the_tables_of_the_models(tmp_path: Path) -> None:
    """`HEAD` is the newest script, its schema is that of the models, and the signal table has every field of the signal."""
    from alembic.autogenerate import compare_metadata  # here, because it is slow to import and the child processes do not need it
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    async with opened(tmp_path / "a.db"):
        pass
    config = Config()
    config.set_main_option("script_location", "service.adapters:migrations")
    config.set_main_option("path_separator", "os")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, SQLModel.metadata)
    engine.dispose()

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
    assert differences == []
    assert set(RoutingTrainingSignal.model_fields) <= set(Signal.model_fields)


async def _commit_without_end(url: str) -> None:
    async def commit_and_say_so() -> None:
        while True:
            receipt = await store.commit(a_receipt())
            os.write(1, f"{receipt.decision_id}\n".encode())

    store = SqlStore(url)
    await store.open()
    os.write(1, f"{os.getpid()}\n".encode())
    await asyncio.gather(*(commit_and_say_so() for _ in range(8)))


def _be_killed_again_and_again(url: str) -> None:
    for _ in range(ROUNDS):
        process = os.fork()  # rather than a new interpreter, which takes a second to import everything
        if process == 0:
            asyncio.run(_commit_without_end(url))
        os.waitpid(process, 0)
        os.write(1, b"dead\n")


async def _agree(url: str, feedback: Feedback) -> None:
    store = SqlStore(url)
    await store.open()
    receipts = await asyncio.gather(*(store.commit(a_receipt(query_id=query_id)) for query_id in QUERIES))
    for _ in range(20):
        await store.add_feedback("acme", feedback)
    await store.close()
    print("\n".join(str(receipt.decision_id) for receipt in receipts))  # noqa: T201  # the parent reads it


def _main(mode: str, url: str) -> None:
    if mode == "commit":
        _be_killed_again_and_again(url)
    elif mode == "satisfaction":
        asyncio.run(_agree(url, Feedback(query_id=QUERIES[0], user_satisfaction=4.0)))
    else:
        asyncio.run(_agree(url, Feedback(query_id=QUERIES[0], answer_quality=0.5)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
