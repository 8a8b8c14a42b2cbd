"""Keys of the database: they open at once, expire, are revoked within seconds, and are known while the database is away."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.access import stored_keys
from service.access.door import Door
from service.access.keys import Keys, digest_of, new_key
from service.access.stored_keys import StoredKeys
from service.adapters import key_rows
from service.adapters.sql_engine import normalise, opened
from service.adapters.sql_store import SqlStore
from service.contracts.access import ApiKey
from service.contracts.caller import Caller
from service.errors import StoreUnavailable, Unauthenticated

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def a_key(key_id: str = "k1", **changes: Any) -> ApiKey:
    """Return a key as it is kept."""
    values = {"tenant": "acme", "name": "n", "scopes": ("tier:*",), "rate_per_minute": None, "quota_per_day": None}
    return ApiKey(key_id=key_id, created_at=NOW, **{"expires_at": None, "revoked_at": None, **values, **changes})


class Database:
    """A database of keys that can be away, and counts how often it is read."""

    def __init__(self, **keys: ApiKey) -> None:
        self.keys = {digest_of(secret): key for secret, key in keys.items()}
        self.away = False
        self.reads = 0

    async def load(self) -> Mapping[str, ApiKey]:
        """Read the keys."""
        self.reads += 1
        if self.away:
            raise StoreUnavailable("It is away.")
        return dict(self.keys)


async def ask(stored: StoredKeys, credential: str | None) -> Caller:
    """Ask from another machine."""
    return await Door(Keys({}), stored).identify(credential, peer="10.0.0.7", host="pointsman.example")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Where keys are noted."""
    return tmp_path / "var" / "keys.json"


async def test_a_key_is_whose_it_was_made_for(note: Path) -> None:
    """Tenant, scopes, rate and quota are the key's."""
    stored = StoredKeys(Database(secret=a_key(rate_per_minute=5, quota_per_day=7)).load, note, "db")
    await stored.open()

    caller = await ask(stored, "secret")

    assert caller == Caller(tenant="acme", permissions=frozenset({"tier:*"}), key_id="k1", rate_per_minute=5, quota_per_day=7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expires_at": datetime.now(UTC) - timedelta(seconds=1)}, "expired"),
        ({"revoked_at": NOW}, "revoked"),
        ({"revoked_at": NOW, "expires_at": datetime.now(UTC) + timedelta(days=1)}, "revoked"),
    ],
    ids=["expired", "revoked", "revoked before its end"],
)
async def test_what_has_ended_opens_nothing(note: Path, changes: dict[str, Any], said: str) -> None:
    """The answer says which of the two it is, to whoever holds the key."""
    stored = StoredKeys(Database(secret=a_key(**changes)).load, note, "db")
    await stored.open()

    with pytest.raises(Unauthenticated, match=said):
        await ask(stored, "secret")


async def test_keys_stay_in_use_when_all_have_ended(note: Path) -> None:
    """A service whose last key was revoked does not open to everybody on the machine."""
    stored = StoredKeys(Database(secret=a_key(revoked_at=NOW)).load, note, "db")
    await stored.open()

    with pytest.raises(Unauthenticated):
        await Door(Keys({}), stored).identify(None, peer="127.0.0.1", host="localhost")


async def test_a_new_key_opens_at_once(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown key has the database asked, whatever the time of the next reading."""
    monkeypatch.setattr(stored_keys, "SOONEST_SECONDS", 0.0)
    database = Database(old=a_key())
    stored = StoredKeys(database.load, note, "db")
    await stored.open()
    database.keys[digest_of("new")] = a_key("k2")

    assert (await ask(stored, "new")).key_id == "k2"


async def test_unknown_keys_do_not_have_the_database_read_for_each(note: Path) -> None:
    """A thousand made-up keys at once cost it one reading a second."""
    database = Database(secret=a_key())
    stored = StoredKeys(database.load, note, "db")
    await stored.open()

    answers = await asyncio.gather(*(ask(stored, f"guess {n}") for n in range(1_000)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {Unauthenticated}
    assert database.reads <= 2


async def test_a_revoked_key_is_refused_after_the_next_reading(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service follows the database by itself."""
    monkeypatch.setattr(stored_keys, "REFRESH_SECONDS", 0.01)
    database = Database(secret=a_key())
    stored = StoredKeys(database.load, note, "db")
    async with following(stored):
        await ask(stored, "secret")
        database.keys[digest_of("secret")] = a_key(revoked_at=NOW)

        await refused(lambda: ask(stored, "secret"))


async def test_known_keys_open_while_the_database_is_away(note: Path) -> None:
    """Also in a service that starts then: what was read last was noted on disk, without the keys themselves, for its owner only."""
    database = Database(secret=a_key())
    await StoredKeys(database.load, note, "db").open()
    database.away = True
    later = StoredKeys(database.load, note, "db")
    await later.open()

    assert (await ask(later, "secret")).key_id == "k1"
    with pytest.raises(Unauthenticated):
        await ask(later, "another")
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert "secret" not in note.read_text()


@pytest.mark.parametrize("content", [None, "", "{", '{"of": "x", "keys": {}}', '{"of": 1}'], ids=ascii)
@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.7"])
async def test_where_nobody_knows_the_keys_nobody_comes_in(note: Path, content: str | None, peer: str) -> None:
    """No note, a damaged one, or one of another database: 503 for all, since nobody can tell whether keys are in use."""
    if content is not None:
        note.parent.mkdir()
        note.write_text(content)
    database = Database(secret=a_key())
    database.away = True
    stored = StoredKeys(database.load, note, "db")
    await stored.open()

    for credential in (None, "secret"):
        with pytest.raises(StoreUnavailable):
            await Door(Keys({}), stored).identify(credential, peer=peer, host="localhost")


async def test_keys_of_the_settings_open_while_nobody_knows_those_of_the_database(note: Path) -> None:
    """They need no database."""
    database = Database()
    database.away = True
    stored = StoredKeys(database.load, note, "db")
    await stored.open()
    door = Door(Keys.parse(f"ops:{digest_of('secret')}:routers:rollback"), stored)

    assert (await door.identify("secret", peer="10.0.0.7", host="x")).tenant == "ops"
    with pytest.raises(StoreUnavailable):
        await door.identify("of the database", peer="10.0.0.7", host="x")


@pytest.mark.parametrize("made", [{}, {"keys.json": "a folder"}], ids=["a folder that is missing", "no file can be there"])
async def test_a_note_that_cannot_be_written_stops_nobody(tmp_path: Path, made: dict[str, str]) -> None:
    """Keys open as long as the database answers."""
    note = tmp_path / "var" / "keys.json"
    for name in made:
        (note.parent / name).mkdir(parents=True)
    stored = StoredKeys(Database(secret=a_key()).load, note, "db")
    await stored.open()

    assert (await ask(stored, "secret")).tenant == "acme"


async def test_a_key_lives_through_the_database(database: str, note: Path) -> None:
    """Made, listed, used, counted and revoked, on SQLite and on PostgreSQL; the database never has the key itself."""
    (key_id, secret), store = new_key(), SqlStore(database)
    await store.open()
    with opened(normalise(database)) as engine:
        key_rows.add(engine, digest_of(secret), a_key(key_id, expires_at=NOW + timedelta(days=10_000), scopes=("tier:2", "tier:3")))
    stored = StoredKeys(store.stored_keys, note, database)
    await stored.open()

    caller = await ask(stored, secret)
    counted = [await store.count_questions(NOW.date(), {key_id: 2, "other": 1}) for _ in range(2)]
    with opened(normalise(database)) as engine:
        first, second = (key_rows.revoke(engine, key_id, NOW + timedelta(hours=n)) for n in range(2))
        unknown = key_rows.revoke(engine, "none", NOW)
        asked, kept = key_rows.usage(engine, NOW.date()), key_rows.read(engine)
    await store.close()

    assert (caller.tenant, caller.permissions) == ("acme", {"tier:2", "tier:3"})
    assert counted == [{key_id: 2, "other": 1}, {key_id: 4, "other": 2}]
    assert asked == {key_id: 4, "other": 2}
    assert first is not None
    assert (first, first.revoked_at, unknown) == (second, NOW, None)
    assert kept == {digest_of(secret): first}


async def test_what_was_asked_long_ago_is_forgotten(sqlite_database: str) -> None:
    """The table does not grow with the years."""
    store = SqlStore(sqlite_database)
    await store.open()
    await store.count_questions(NOW.date() - timedelta(days=key_rows.KEPT_DAYS + 1), {"k1": 5})
    await store.count_questions(NOW.date(), {"k1": 1})
    await store.close()

    with opened(normalise(sqlite_database)) as engine:
        assert key_rows.usage(engine, NOW.date() - timedelta(days=key_rows.KEPT_DAYS + 1)) == {}


def test_no_two_keys_are_alike_and_each_tells_its_id() -> None:
    """A key that is found somewhere can be revoked by the id in it."""
    made = [new_key() for _ in range(1_000)]

    assert len({secret for _, secret in made}) == 1_000
    assert all(secret.startswith(f"pointsman_{key_id}_") and len(secret) > 60 for key_id, secret in made)


@asynccontextmanager
async def following(stored: StoredKeys) -> AsyncIterator[None]:
    """Open keys, and keep them in step."""
    await stored.open()
    task = asyncio.create_task(stored.follow())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def refused(asking: Callable[[], Awaitable[Caller]]) -> None:
    """Wait until a caller is refused."""
    async with asyncio.timeout(5.0):
        while True:
            try:
                await asking()
            except Unauthenticated:
                return
            await asyncio.sleep(0.01)
