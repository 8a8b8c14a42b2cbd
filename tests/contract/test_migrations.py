"""The schema's steps, up and down, on a database that has rows, and `pointsman migrate`, which takes them; on SQLite and PostgreSQL."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from typer.testing import CliRunner

from service.adapters import key_rows
from service.adapters.job_lease import alone, take
from service.adapters.migrations.upgrade import HEAD, steps
from service.adapters.region_log import RegionLog
from service.adapters.rollout_log import RolloutLog
from service.adapters.sql_engine import connect, normalise
from service.adapters.sql_store import SqlStore
from service.cli import app
from service.contracts.optimization import OptimizationWish
from service.contracts.receipt import Receipt
from service.errors import ConfigurationError, StoreUnavailable
from service.migrate import WouldLose, migrate, shown
from service.programs import Tally
from service.routing.regions import RegionTally
from tests.contract.postgres import controlled, new_database
from tests.contract.test_store import NOW, a_receipt
from tests.contract.test_stored_keys import a_key

ORDER = [step.revision for step in steps()]
DOWN = list(zip(reversed(ORDER[:-1]), reversed(ORDER[1:]), strict=True))  # each step down: to which schema, and from which
LOST = {  # what a step down loses
    "0006": {"table api_key", "table key_usage"},
    "0005": {"table region", "table region_given_back"},
    "0004": {"table shadow", "columns of signal"},
    "0003": {"table optimization", "table received_signal", "table job_lease"},
    "0002": {"columns of signal"},
}
LATER = {"asked", "from_history", "caller_intent", "further_intents", "alternative"}
OLD_COLUMNS = (
    "signal_id decision_id session_id query query_pattern intent entities_extracted agents_selected routing_confidence routing_rationale "
    "agents_succeeded agents_failed total_latency_ms user_satisfaction answer_quality was_rerouted agents_unavailable latency_budget_ms "
    "corrected_agent reward updated_at"
).split()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new database."""
    return f"sqlite:///{tmp_path}/new folder/one.db" if request.param == "sqlite" else str(request.getfixturevalue("postgresql_database"))


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    """The same database, to look into it."""
    engine = connect(normalise(address), 5.0)
    yield engine
    engine.dispose()


def go(address: str, to: str | None = None, *, agreed: bool = True, wait: float = 0.0) -> list[str]:
    """Bring a database to a schema, and return what was said."""
    said: list[str] = []
    migrate(address, to=to, wait=wait, agreed=agreed, say=said.append)
    return said


def rows(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table, without the schema's version."""
    with engine.connect() as connection:
        names = set(sa.inspect(connection).get_table_names()) - {"alembic_version"}
        return {
            name: sorted((dict(row) for row in connection.execute(sa.text(f'SELECT * FROM "{name}"')).mappings()), key=str)
            for name in names
        }


def losses_in(said: list[str]) -> set[str]:
    """Return which tables and columns are said to be lost."""
    return {line.removeprefix("lost ").partition(":")[0] for line in said if line.startswith("lost ")}


def without_lost(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the first schema can hold of a signal, and what the second one copies from its decision."""
    return {name: value for name, value in row.items() if name not in LATER}


async def fill(address: str) -> list[Receipt]:
    """Put rows into every table: decisions with all that a signal can say, a request, a lease, and counts."""
    store = SqlStore(address)
    await store.open()
    made = [a_receipt(text=f"How is it doing? {number} 'naïve' 😀") for number in range(3)]
    told = {"asked": "Which one?", "from_history": True, "caller_intent": "drift_check", "further_intents": ("gap_analysis",)}
    told |= {"alternative": "drift_check"}
    chosen = {"rung": "student", "router_version": "7"}  # which a signal has of its decision
    signals = [r.signal.model_validate({**r.signal.model_dump(), **chosen, **(told if r is made[0] else {})}) for r in made]
    receipts = [r.model_copy(update={"signal": signal}) for r, signal in zip(made, signals, strict=True)]
    for receipt in receipts:
        await store.commit(receipt)
    wish = {"agent_name": "orchestrator", "signature_name": "routing", "training_signals": [made[1].signal.model_dump(mode="json")]}
    await store.ask_for("acme", OptimizationWish.model_validate(wish))
    await store.count_questions(NOW.date(), {"k1": 2})
    await store.close()
    RolloutLog(address).add({"7": Tally(5, 2, 1)})
    RegionLog(address).add({("7", "drift_check", NOW.date()): RegionTally(local=3, seconds=0.5)})
    RegionLog(address).give_back("7", {"drift_check": "The LM disagrees."})
    engine = connect(normalise(address), 5.0)
    with alone(engine) as session:
        take(session, "routing", "a test", NOW)
    key_rows.add(engine, "digest", a_key("k1"))
    engine.dispose()
    return receipts


async def found(address: str, receipts: list[Receipt]) -> list[Receipt | None]:
    """Return what the store has of the receipts."""
    store = SqlStore(address)
    await store.open()
    try:
        return [await store.by_decision(r.tenant, r.decision_id) for r in receipts]
    finally:
        await store.close()


async def test_every_step_up_and_down_keeps_what_its_schema_can_hold(address: str, engine: Engine) -> None:
    """Down one by one, each with what it says is lost; up one by one; the rows are those of before, without what was lost."""
    receipts = await fill(address)
    before = rows(engine)
    said = {step: losses_in(go(address, below)) for below, step in DOWN}
    lowest = rows(engine)
    for step in ORDER[1:]:
        go(address, step)
    after = rows(engine)

    assert said == LOST
    assert set(lowest) == {"decision", "signal"}
    assert set(lowest["signal"][0]) == set(OLD_COLUMNS)
    assert after.keys() == before.keys()
    assert {f"table {name}" for name in before if before[name] and not after[name]} == set().union(*LOST.values()) - {"columns of signal"}
    assert after["decision"] == before["decision"]
    assert [without_lost(row) for row in after["signal"]] == [without_lost(row) for row in before["signal"]]
    plain = {"asked": None, "from_history": False, "caller_intent": None, "further_intents": (), "alternative": None}
    assert await found(address, receipts) == [r.model_copy(update={"signal": r.signal.model_copy(update=plain)}) for r in receipts]


async def test_a_database_of_each_older_schema_is_brought_up_by_the_service_itself(address: str, engine: Engine) -> None:
    """The store's own opening does what the command does, from wherever it stands."""
    receipts = await fill(address)
    for below, _ in DOWN:
        go(address, below)

        assert None not in await found(address, receipts)
        assert go(address)[-1].endswith("already. Nothing was changed.")


async def test_data_is_lost_only_where_somebody_agrees(address: str, engine: Engine) -> None:
    """Without --yes it is said what would be lost, and nothing is changed: neither rows nor schema."""
    await fill(address)
    before = rows(engine)

    with pytest.raises(WouldLose):
        go(address, "0001", agreed=False)

    assert rows(engine) == before
    assert "already" in go(address)[-1]


def test_a_way_down_that_loses_nothing_needs_no_consent(address: str) -> None:
    """As on a database that nobody has used yet."""
    go(address)

    assert go(address, "0001", agreed=False)[-1].endswith(f"has schema 0001, and had {HEAD}.")


def test_a_schema_of_a_newer_version_is_left_alone(address: str, engine: Engine) -> None:
    """Neither up nor down; and a schema that nobody knows is no target."""
    go(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(ConfigurationError, match="It is 9999; this version knows 0001"):
        go(address)
    with pytest.raises(ConfigurationError, match="There is no schema '9999'"):
        go(address, "9999")


def test_several_that_migrate_at_once_get_in_nobodys_way(address: str, engine: Engine) -> None:
    """As when the pods of a deployment start together."""
    threads = [threading.Thread(target=go, args=(address,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert go(address) == [f"{shown(normalise(address))} has schema {HEAD} already. Nothing was changed."]


def test_a_database_that_is_not_there_yet_is_waited_for() -> None:
    """With a line every second that says for what; not for longer than was asked."""
    with controlled() as server:
        address = new_database(server.address)
        server.crash()
        with pytest.raises(StoreUnavailable):
            go(address)
        starter = threading.Timer(2.5, server.start)
        starter.start()
        said = go(address, wait=60.0)
        starter.join()

    assert sum(line.startswith(f"waiting for {address}: ") for line in said) >= 2
    assert said[-1].endswith(f"has schema {HEAD}, and had none.")


def test_the_command_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 at the newest schema, 1 where data would be lost or nobody answers, 2 for a wrong setting; no password is shown."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, address: str = "sqlite:///one.db") -> tuple[int, str]:
        monkeypatch.setenv("POINTSMAN_DATABASE_URL", address)
        done = CliRunner().invoke(app, ["migrate", *arguments])
        return done.exit_code, done.output

    first, again, down = run(), run(), run("--to", "0002")
    away = run("--wait", "1.5", address="postgresql://bob:hush@127.0.0.1:9/none")

    assert first[0] == 0
    assert [line.split()[:2] for line in first[1].splitlines()[:-1]] == [["up", step] for step in ORDER]
    assert again == (0, f"sqlite:///one.db has schema {HEAD} already. Nothing was changed.\n")
    assert down[0] == 0
    assert run("--to", "none")[0] == 2
    assert run(address="mysql://nobody")[0] == 2
    assert away[0] == 1
    assert "waiting for postgresql://bob:***@127.0.0.1:9/none: 0 of 1.5 s" in away[1]
    assert "hush" not in away[1]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused(postgres: str, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """`initdb` takes the encoding from the locale: without one it is SQL_ASCII. The message says how to make a database that will do."""
    address = new_database(postgres, encoding)
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", address)

    done = CliRunner().invoke(app, ["migrate"])

    assert done.exit_code == 2
    assert f"has the encoding {encoding}; Pointsman needs UTF8. Make another one" in " ".join(done.stderr.split())
    assert "createdb --encoding=UTF8" in " ".join(done.stderr.split())
    with pytest.raises(ConfigurationError, match=encoding):
        asyncio.run(SqlStore(address).open())


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE decision (x int); CREATE TABLE signal (y text)",
        "CREATE TABLE alembic_version (foo int)",
        "CREATE TABLE signal (y text)",
    ],
    ids=["their decisions", "their versions", "their signals"],
)
async def test_a_database_of_another_application_is_refused_and_left_alone(address: str, engine: Engine, tables: str) -> None:
    """It is no outage, which a spool would bridge, and no empty database."""
    with engine.begin() as connection:
        for table in tables.split("; "):
            connection.exec_driver_sql(table)
    before = set(sa.inspect(engine).get_table_names())

    with pytest.raises(ConfigurationError, match="tables of another application"):
        go(address)
    with pytest.raises(ConfigurationError, match="tables of another application"):
        await SqlStore(address).open()

    assert set(sa.inspect(engine).get_table_names()) == before


def test_an_empty_revision_is_none_that_is_known(address: str) -> None:
    """A script whose variable is not set must not go up instead of down."""
    with pytest.raises(ConfigurationError, match="There is no schema ''"):
        go(address, "")
