"""The spool against a real PostgreSQL that crashes and comes back: nothing acknowledged is lost, nothing is stored twice."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from service.adapters import spooled_store
from service.adapters.spooled_store import LOOK_SECONDS, SLOW_SECONDS, SpooledStore
from service.adapters.sql_store import Refused, SqlStore
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from service.errors import ConfigurationError, StoreUnavailable
from tests.contract.postgres import Server, controlled, new_database
from tests.contract.test_store import a_receipt

NOBODY = "postgresql://nobody@127.0.0.1:9/none"  # nothing listens there
DRAINED_SECONDS = 20.0


@pytest.fixture(scope="module")
def crashing() -> Iterator[Server]:
    """A server that the tests may crash; it runs before each."""
    with controlled() as one:
        yield one


@asynccontextmanager
async def spooling(address: str, folder: Path, most: int = 1_000) -> AsyncIterator[SpooledStore]:
    """Open a store with a spool, and close it."""
    store = SpooledStore(SqlStore(address), SqlStore(f"sqlite:///{folder}/spool.db"), most=most)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def drained(store: SpooledStore, left: int = 0) -> None:
    """Wait until the spool is empty, but for what is to be left."""
    limit = time.monotonic() + DRAINED_SECONDS
    while store.spooled > left:
        assert time.monotonic() < limit, f"{store.spooled} are left"
        await asyncio.sleep(0.05)


def stored(address: str) -> dict[str, float | None]:
    """Return the ids of the decisions in the database itself, each with the satisfaction that was told of it."""
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT d.decision_id, s.user_satisfaction FROM decision d JOIN signal s USING (decision_id)").fetchall()
    return {str(decision): satisfaction for decision, satisfaction in rows}


async def test_what_is_acknowledged_while_the_database_is_away_gets_there(crashing: Server, tmp_path: Path) -> None:
    """Commits before, during and after a crash; found, and given feedback, all the while."""
    address = new_database(crashing.address)
    async with spooling(address, tmp_path) as store:
        before = [await store.commit(a_receipt()) for _ in range(3)]
        crashing.crash()
        await store.ping()  # nobody has asked it for anything since
        during = list(await asyncio.gather(*(store.commit(a_receipt()) for _ in range(40))))
        later = [await store.commit(a_receipt()) for _ in range(3)]
        held = store.spooled
        assert await store.by_query("acme", during[0].decision.query_id) == during[0]
        assert await store.by_decision("acme", during[1].decision_id) == during[1]
        told = await store.add_feedback("acme", Feedback(decision_id=during[2].decision_id, user_satisfaction=2.0))
        with pytest.raises(StoreUnavailable):
            await store.by_decision("acme", before[0].decision_id)
        said = await store.ping()
        crashing.start()
        await drained(store)
        said_later = await store.ping()
        after = [await store.commit(a_receipt())]
        kept = await store.by_decision("acme", before[0].decision_id)

    rows = stored(address)
    assert said is not None
    assert said.startswith("The database is away; decisions are kept in the spool")
    assert said_later is None
    assert held >= 43  # one that comes during a count may be counted twice
    assert set(rows) == {str(r.decision_id) for r in [*before, *during, *later, *after]}
    assert rows[str(during[2].decision_id)] == 2.0
    assert told is not None
    assert kept == before[0]


async def test_a_database_that_is_away_at_the_start_is_written_to_when_it_comes(crashing: Server, tmp_path: Path) -> None:
    """Its tables are made then; what was in the spool of an earlier process is written too."""
    address = new_database(crashing.address)
    crashing.crash()
    async with spooling(address, tmp_path) as first:
        early = await first.commit(a_receipt())
    async with spooling(address, tmp_path) as second:
        held, late = second.spooled, await second.commit(a_receipt())
        crashing.start()
        await drained(second)

    assert held == 1
    assert set(stored(address)) == {str(early.decision_id), str(late.decision_id)}


async def test_beyond_its_bound_the_store_is_unavailable(tmp_path: Path) -> None:
    """And says so when it is asked whether it takes commits; what it holds it still tells."""
    async with spooling(NOBODY, tmp_path, most=2) as store:
        kept = [await store.commit(a_receipt()) for _ in range(2)]

        with pytest.raises(StoreUnavailable, match="spool is full"):
            await store.commit(a_receipt())
        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):  # or agents would work for an answer that cannot be stored
            await store.by_query("acme", UUID(int=1))
        assert await store.by_query("acme", kept[1].decision.query_id) == kept[1]


def made_by_a_newer_version(file: Path) -> None:
    """Mark a database as one whose schema this version does not know."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


async def test_an_empty_spool_of_a_newer_version_is_made_anew(tmp_path: Path) -> None:
    """Whoever goes back to an older version has handed everything over, and must not be stopped by an empty file."""
    async with spooling(NOBODY, tmp_path):
        pass
    made_by_a_newer_version(tmp_path / "spool.db")

    async with spooling(NOBODY, tmp_path) as store:
        kept = await store.commit(a_receipt())
        assert await store.by_decision("acme", kept.decision_id) == kept


async def test_several_processes_that_start_make_one_spool_of_it(tmp_path: Path) -> None:
    """Whoever comes first; each of them then finds what the others keep."""
    async with spooling(NOBODY, tmp_path):
        pass
    made_by_a_newer_version(tmp_path / "spool.db")
    stores = [SpooledStore(SqlStore(NOBODY), SqlStore(f"sqlite:///{tmp_path}/spool.db"), most=100) for _ in range(6)]

    await asyncio.gather(*(store.open() for store in stores))
    try:
        kept = [await store.commit(a_receipt()) for store in stores]
        found = [await store.by_decision("acme", receipt.decision_id) for store in stores for receipt in kept]
    finally:
        await asyncio.gather(*(store.close() for store in stores))

    assert found == kept * len(stores)


async def test_a_spool_that_a_newer_version_uses_is_left_alone(tmp_path: Path) -> None:
    """Such as by a command of an older version in the folder of a service that runs."""
    async with spooling(NOBODY, tmp_path):
        pass
    made_by_a_newer_version(tmp_path / "spool.db")
    before = (tmp_path / "spool.db").stat().st_ino
    with closing(sqlite3.connect(tmp_path / "spool.db")) as used:
        used.execute("SELECT count(*) FROM decision").fetchone()

        with pytest.raises(ConfigurationError):
            async with spooling(NOBODY, tmp_path):
                pass

    assert (tmp_path / "spool.db").stat().st_ino == before


async def test_a_spool_of_a_newer_version_that_holds_something_is_kept(tmp_path: Path) -> None:
    """The error names the file, and says how to go on."""
    async with spooling(NOBODY, tmp_path) as store:
        await store.commit(a_receipt())
    made_by_a_newer_version(tmp_path / "spool.db")

    with pytest.raises(ConfigurationError, match=r"spool\.db: .*nowhere else"):
        async with spooling(NOBODY, tmp_path):
            pass

    with sqlite3.connect(tmp_path / "spool.db") as connection:
        assert connection.execute("SELECT count(*) FROM decision").fetchone() == (1,)


async def test_on_a_full_disk_nothing_is_taken_and_nobody_says_so_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is not ready then, as it would refuse every request."""
    async with spooling(NOBODY, tmp_path) as store:
        await store.commit(a_receipt())
        monkeypatch.setattr(spooled_store, "LEAST_FREE", 1 << 60)

        with pytest.raises(StoreUnavailable, match="the spool's disk is full"):
            await store.commit(a_receipt())
        with pytest.raises(StoreUnavailable, match="the spool's disk is full"):
            await store.ping()


async def test_while_it_is_away_equal_commits_agree_and_what_is_not_known_is_not_denied(tmp_path: Path) -> None:
    """Twenty at once get one receipt; a decision that the spool does not hold may be in the database, so nobody says that there is none."""
    async with spooling(NOBODY, tmp_path) as store:
        rivals = [a_receipt(query_id=UUID(int=1)) for _ in range(20)]
        agreed = await asyncio.gather(*(store.commit(r) for r in rivals))

        assert {r.decision_id for r in agreed} == {agreed[0].decision_id}
        assert await store.by_query("globex", UUID(int=1)) is None
        with pytest.raises(StoreUnavailable):
            await store.by_decision("acme", UUID(int=2))
        with pytest.raises(StoreUnavailable):
            await store.add_feedback("globex", Feedback(decision_id=agreed[0].decision_id, user_satisfaction=1.0))


async def test_a_slow_database_is_not_waited_for(tmp_path: Path) -> None:
    """The caller's answer leaves after a second; what the database has taken after all is not stored twice."""

    class Slow(SqlStore):
        slow = True

        async def commit(self, receipt: Receipt) -> Receipt:
            done = await super().commit(receipt)
            await asyncio.sleep(30.0 if self.slow else 0.0)
            return done

    main = Slow(f"sqlite:///{tmp_path}/main.db")
    store = SpooledStore(main, SqlStore(f"sqlite:///{tmp_path}/spool.db"), most=10)
    await store.open()
    try:
        started = time.monotonic()
        kept = await store.commit(a_receipt())
        seconds, held = time.monotonic() - started, store.spooled
        main.slow = False
        await drained(store)
        found = await main.by_decision("acme", kept.decision_id)
        count = await main.count()
    finally:
        await store.close()

    assert SLOW_SECONDS <= seconds < SLOW_SECONDS + 3.0
    assert held >= 1  # counted anew every second, and one more for each commit
    assert (found, count) == (kept, 1)


async def test_of_two_answers_to_one_query_the_first_stays(crashing: Server, tmp_path: Path) -> None:
    """An answer that was stored before the outage is not known during it, so the query is answered again; nothing is stored twice."""
    address = new_database(crashing.address)
    async with spooling(address, tmp_path) as store:
        first = await store.commit(a_receipt())
        crashing.crash()
        assert await store.by_query("acme", first.decision.query_id) is None
        second = await store.commit(a_receipt(query_id=first.decision.query_id))
        await store.add_feedback("acme", Feedback(decision_id=second.decision_id, user_satisfaction=3.0))
        crashing.start()
        await drained(store)
        found = await store.by_query("acme", first.decision.query_id)

    assert found is not None
    assert found.output == first.output
    assert stored(address) == {str(first.decision_id): 3.0}  # what was said of the other is said of this one


@pytest.mark.parametrize("earlier", [None, 2.0])
async def test_feedback_that_comes_during_the_hand_over_is_not_lost(tmp_path: Path, earlier: float | None) -> None:
    """It reaches the spool after the row was copied and before it was taken out: the row stays, and is handed over again."""

    class Meddled(SqlStore):
        meddle: UUID | None = None

        async def commit(self, receipt: Receipt) -> Receipt:
            done = await super().commit(receipt)
            if self.meddle == receipt.decision_id:
                self.meddle = None
                await spool.add_feedback("acme", Feedback(decision_id=receipt.decision_id, user_satisfaction=5.0))
            return done

    spool, main = SqlStore(f"sqlite:///{tmp_path}/spool.db"), Meddled(f"sqlite:///{tmp_path}/main.db")
    await spool.open()
    waiting = a_receipt()
    await spool.commit(waiting)
    if earlier is not None:
        await spool.add_feedback("acme", Feedback(decision_id=waiting.decision_id, user_satisfaction=earlier))
    main.meddle = waiting.decision_id
    store = SpooledStore(main, spool, most=10)
    await store.open()
    try:
        await drained(store)
        kept = await main.by_decision("acme", waiting.decision_id)
    finally:
        await store.close()

    assert kept is not None
    assert kept.signal.user_satisfaction == 5.0


async def test_of_what_was_told_of_an_answer_the_later_stays(tmp_path: Path) -> None:
    """A commit that was given up came to pass all the same: the decision is in both, and two replicas were told of it."""
    main, spool = SqlStore(f"sqlite:///{tmp_path}/main.db"), SqlStore(f"sqlite:///{tmp_path}/spool.db")
    await main.open()
    await spool.open()
    both = a_receipt()
    await main.commit(both)
    await spool.commit(both)
    await spool.add_feedback("acme", Feedback(decision_id=both.decision_id, user_satisfaction=2.0, answer_quality=0.5))
    await main.add_feedback("acme", Feedback(decision_id=both.decision_id, user_satisfaction=5.0))
    store = SpooledStore(main, spool, most=10)
    await store.open()
    try:
        await drained(store)
        kept = await main.by_decision("acme", both.decision_id)
    finally:
        await store.close()

    assert kept is not None
    assert (kept.signal.user_satisfaction, kept.signal.answer_quality) == (5.0, 0.5)


async def test_one_row_that_the_database_refuses_holds_no_other(tmp_path: Path) -> None:
    """It stays in the spool, and the log says which it is."""

    class Picky(SqlStore):
        async def commit(self, receipt: Receipt) -> Receipt:
            if receipt.request.user_id == "refused":
                raise Refused("This one does not go in.")
            return await super().commit(receipt)

    spool, main = SqlStore(f"sqlite:///{tmp_path}/spool.db"), Picky(f"sqlite:///{tmp_path}/main.db")
    await spool.open()
    plain = [a_receipt() for _ in range(3)]
    bad = plain[0].model_copy(update={"request": plain[0].request.model_copy(update={"user_id": "refused"})})
    for receipt in (bad, *plain[1:]):
        await spool.commit(receipt)
    store = SpooledStore(main, spool, most=10)
    await store.open()
    try:
        await drained(store, left=1)
        found = [await main.by_decision("acme", r.decision_id) for r in plain[1:]]
        left = await spool.by_decision("acme", bad.decision_id)
    finally:
        await store.close()

    assert found == plain[1:]
    assert left == bad


DAMAGES = {
    "of another version": "UPDATE decision SET request = '{}' WHERE decision_id = ?",
    "no JSON": """UPDATE decision SET output = '{"a": ' WHERE decision_id = ?""",
    "no JSON in the signal": "UPDATE signal SET agents_selected = 'x' WHERE decision_id = ?",
    "no instant": "UPDATE signal SET updated_at = 'yesterday' WHERE decision_id = ?",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_row_that_cannot_be_read_holds_no_other(tmp_path: Path, damage: str) -> None:
    """It stays where it is, the log says which it is, and `/readyz` that there is one."""
    spool, main = SqlStore(f"sqlite:///{tmp_path}/spool.db"), SqlStore(f"sqlite:///{tmp_path}/main.db")
    await spool.open()
    damaged, *whole = [await spool.commit(a_receipt()) for _ in range(3)]
    with sqlite3.connect(tmp_path / "spool.db") as connection:
        connection.execute(damage, (str(damaged.decision_id),))
    connection.close()
    store = SpooledStore(main, spool, most=10)
    await store.open()
    try:
        await drained(store, left=1)
        found = [await main.by_decision("acme", one.decision_id) for one in whole]
        left, said = await spool.count(), await store.ping()
    finally:
        await store.close()

    assert found == whole
    assert left == 1
    assert said == "1 decisions in the spool wait to be handed over to the database; 1 of them it refuses (log: spooled_decision_refused)."


async def test_what_one_process_spooled_another_finds(tmp_path: Path) -> None:
    """Two processes share the file; the database is away for the one only."""
    main = f"sqlite:///{tmp_path}/main.db"
    async with spooling(NOBODY, tmp_path) as cut_off, spooling(main, tmp_path) as other:
        kept = await cut_off.commit(a_receipt())

        assert await other.by_decision("acme", kept.decision_id) == kept
        assert await other.add_feedback("acme", Feedback(decision_id=kept.decision_id, user_satisfaction=1.0)) is not None
        await asyncio.sleep(3 * LOOK_SECONDS)
        found = await other.by_query("acme", kept.decision.query_id)

    assert found is not None
    assert found.signal.user_satisfaction == 1.0
