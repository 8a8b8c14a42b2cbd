"""The signal log over a real database: read in a stream, deleted by person, pruned by age, exported; and the commands that do it."""

import json
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from optimizers import signals_cli
from optimizers.signals_cli import app
from service.adapters import signal_log
from service.adapters.signal_log import COLUMNS, Deleted, SignalLog
from service.adapters.sql_store import SqlStore
from service.contracts.optimization import OptimizationWish, SignatureName
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback, RoutingTrainingSignal
from service.errors import StoreUnavailable
from tests.contract.test_store import NOW, a_receipt

pytestmark = pytest.mark.asyncio


def of(user: str, session: str, day: int, *, tenant: str = "acme", text: str = "where are the gaps") -> Receipt:
    """Return a receipt of a user's session, some days after the first."""
    made = a_receipt(tenant=tenant, text=text)
    asked = made.request.model_copy(update={"user_id": user, "session_id": session})
    signal = made.signal.model_copy(update={"session_id": session})
    return made.model_copy(update={"request": asked, "signal": signal, "committed_at": NOW + timedelta(days=day)})


@pytest_asyncio.fixture
async def url(database: str) -> AsyncIterator[str]:
    """The address of a database with five decisions of two tenants, one of them corrected."""
    store = SqlStore(database)
    await store.open()
    receipts = [
        of("u-17", "s-1", 0, text="mail jane@acme.com the gaps"),
        of("u-17", "s-2", 1),
        of("u-18", "s-1", 2),
        of("u-19", "s-3", 3),
        of("u-17", "s-1", 4, tenant="other"),
    ]
    for receipt in receipts:
        await store.commit(receipt)
    await store.add_feedback("acme", Feedback(decision_id=receipts[1].decision_id, corrected_agent="drift_monitor"))
    yield database
    await store.close()


async def test_signals_come_in_a_stream_oldest_first(url: str) -> None:
    """With what became of them since, whose they are, and who chose."""
    (batch,) = SignalLog(url).batches()

    rows = batch.to_pylist()
    assert tuple(batch.schema.names) == COLUMNS
    assert [row["user_id"] for row in rows] == ["u-17", "u-17", "u-18", "u-19", "u-17"]
    assert (rows[1]["corrected_agent"], rows[1]["was_rerouted"], rows[1]["agents_selected"]) == (
        "drift_monitor",
        True,
        ["explainer", "gap_analyzer"],
    )
    assert rows[0]["created_at"] == NOW


async def test_a_stretch_of_time_and_a_tenant_can_be_asked_for(url: str) -> None:
    """From the first instant on, and before the last."""
    log = SignalLog(url)

    (inside,) = log.batches(since=NOW + timedelta(days=1), until=NOW + timedelta(days=3))
    (other,) = log.batches(tenant="other")

    assert [row["user_id"] for row in inside.to_pylist()] == ["u-17", "u-18"]
    assert [row["session_id"] for row in other.to_pylist()] == ["s-1"]


async def test_a_person_is_deleted_and_nobody_else(url: str) -> None:
    """Neither another user of the session, nor the same name at another tenant."""
    log = SignalLog(url)

    gone = log.delete(tenant="acme", user_id="u-17")

    (left,) = log.batches()
    assert gone == Deleted(2, 0)
    assert [(row["tenant"], row["user_id"]) for row in left.to_pylist()] == [("acme", "u-18"), ("acme", "u-19"), ("other", "u-17")]
    assert log.delete(tenant="acme", session_id="s-1") == Deleted(1, 0)
    assert log.count() == 2


async def test_what_is_older_is_pruned(url: str) -> None:
    """The receipt goes with its signal."""
    log = SignalLog(url)

    gone = log.prune(NOW + timedelta(days=3))

    assert (gone, log.count()) == (Deleted(3, 0), 2)


async def test_neither_or_both_names_are_refused(url: str) -> None:
    """Nothing is deleted by mistake."""
    with pytest.raises(ValueError, match="either"):
        SignalLog(url).delete(tenant="acme")
    with pytest.raises(ValueError, match="either"):
        SignalLog(url).delete(tenant="acme", user_id="u-17", session_id="s-1")


async def test_what_waits_in_the_spool_is_deleted_too(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be back in the database a second after it was said to be deleted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)
    monkeypatch.setattr(signals_cli, "HANDED_OVER_SECONDS", 0.0)
    spool = SqlStore("sqlite:///var/spool.db")
    await spool.open()
    for receipt in (of("u-17", "s-9", 5), of("u-18", "s-9", 5)):
        await spool.commit(receipt)

    done = CliRunner().invoke(app, ["delete", "--user", "u-17", "--tenant", "acme"])
    left = await spool.count()
    await spool.close()

    assert done.exit_code == 0
    assert "Deleted: 3 decisions" in done.output
    assert left == 1
    assert {row["user_id"] for batch in SignalLog(url).batches(tenant="acme") for row in batch.to_pylist()} == {"u-18", "u-19"}


async def test_signals_are_exported_without_personal_data(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Parquet and as JSON lines, the same rows; `--raw` leaves the texts as they are."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)

    for arguments in (["signals.parquet"], ["signals.jsonl"], ["raw.jsonl", "--raw"]):
        done = CliRunner().invoke(app, ["export", str(tmp_path / arguments[0]), *arguments[1:]])
        assert done.exit_code == 0, done.output

    rows = pq.read_table(tmp_path / "signals.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "signals.jsonl").read_text().splitlines()]
    raw = [json.loads(line) for line in (tmp_path / "raw.jsonl").read_text().splitlines()]
    assert [row["query"] for row in rows] == [line["query"] for line in lines]
    assert (rows[0]["query"], raw[0]["query"]) == ("mail [EMAIL] the gaps", "mail jane@acme.com the gaps")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "-", "--format", "parquet"], "Parquet cannot be written to standard output"),
        (["export", "nowhere/at/all.jsonl"], "cannot be written"),
        (["delete"], "either --session or --user"),
        (["delete", "--user", "a", "--session", "b"], "either --session or --user"),
    ],
    ids=["parquet in a pipe", "no such folder", "nobody", "two"],
)
async def test_wrong_usage_is_told(url: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    """Exit code 2 and a sentence."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)

    done = CliRunner().invoke(app, arguments)

    assert (done.exit_code, said in done.output) == (2, True), done.output


async def test_an_export_that_fails_leaves_the_one_before(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of the file when it is whole; nothing else is left beside it."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)
    good, bad = tmp_path / "signals.jsonl", tmp_path / "bad.db"
    whole = CliRunner().invoke(app, ["export", str(good)])
    before = good.read_text()
    bad.write_bytes(bytes(range(256)) * 80)
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", f"sqlite:///{bad}")

    failed = CliRunner().invoke(app, ["export", str(good)])

    assert (whole.exit_code, failed.exit_code, len(before) > 0) == (0, 2, True)
    assert good.read_text() == before
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".part")]


async def test_who_deletes_is_told_what_was_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals that were brought count; where there was nothing it says whose it looked for, and the exit code is 1."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)
    await received(url, brought("s-9"))

    gone, nothing, nobody = (
        CliRunner().invoke(app, ["delete", *said, "--tenant", "acme"])
        for said in (["--session", "s-9"], ["--session", "s-9"], ["--user", ""])
    )

    assert (gone.exit_code, "0 decisions with their signals, and 1 signals that came" in gone.output) == (0, True), gone.output
    assert (nothing.exit_code, "Nothing is stored of session 's-9' of tenant 'acme'" in nothing.output) == (1, True), nothing.output
    assert nobody.exit_code == 2


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_an_instant_outside_of_all_years_is_wrong_usage(url: str, monkeypatch: pytest.MonkeyPatch, since: str) -> None:
    """No fault of the store."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)

    done = CliRunner().invoke(app, ["export", "-", "--since", since])

    assert (done.exit_code, "after 9999" in done.output) == (2, True), done.output


async def received(url: str, *signals: RoutingTrainingSignal, tenant: str = "acme") -> None:
    """Keep a request to optimize that brings signals."""
    store = SqlStore(url)
    await store.open()
    wish = OptimizationWish(agent_name="orchestrator", signature_name=SignatureName.ROUTING, training_signals=signals)
    await store.ask_for(tenant, wish)
    await store.close()


def brought(session: str) -> RoutingTrainingSignal:
    """Return a signal of a session that somebody else has collected, and corrected."""
    return a_receipt(text="who buys less").signal.model_copy(update={"session_id": session, "corrected_agent": "gap_analyzer"})


async def test_what_was_received_reads_like_the_log(url: str) -> None:
    """The same columns, with what is known of it; what was decided here is not told twice, and the log does not hold it."""
    mine = brought("s-9")
    (logged,) = SignalLog(url).batches()
    known = mine.model_copy(update={"signal_id": UUID(logged.to_pylist()[0]["signal_id"])})
    await received(url, mine, known)

    (batch,) = SignalLog(url).received()

    assert batch.schema == logged.schema
    (row,) = batch.to_pylist()
    assert (row["signal_id"], row["tenant"], row["session_id"], row["query"]) == (str(mine.signal_id), "acme", "s-9", "who buys less")
    assert (row["corrected_agent"], row["reward"], row["user_id"]) == ("gap_analyzer", mine.compute_reward(), "")
    assert SignalLog(url).count() == 5
    assert list(SignalLog(url).received(since=row["created_at"] + timedelta(seconds=1))) == []


async def test_what_a_person_said_is_deleted_from_what_was_received_too(url: str) -> None:
    """By session, by the sessions of a user, and by age; another tenant's stays."""
    log = SignalLog(url)
    await received(url, brought("s-1"), brought("s-2"), brought("s-3"), brought("s-4"))
    await received(url, brought("s-1"), tenant="other")

    def left() -> list[tuple[str, str]]:
        return sorted((row["tenant"], row["session_id"]) for batch in log.received() for row in batch.to_pylist())

    log.delete(tenant="acme", session_id="s-4")
    assert left() == [("acme", "s-1"), ("acme", "s-2"), ("acme", "s-3"), ("other", "s-1")]
    log.delete(tenant="acme", user_id="u-17")
    assert left() == [("acme", "s-3"), ("other", "s-1")]
    log.prune(NOW)
    assert left() == [("acme", "s-3"), ("other", "s-1")]
    log.prune(datetime.now(UTC) + timedelta(hours=1))
    assert left() == []


async def test_what_a_database_refuses_is_told_without_the_statement(sqlite_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement with its values holds what users wrote."""
    monkeypatch.setattr(signal_log, "LOCK_SECONDS", 0.1)
    store = SqlStore(sqlite_database)
    await store.open()
    await store.commit(of("u-17", "s-1", 0))
    await store.close()
    with sqlite3.connect(sqlite_database.removeprefix("sqlite:///")) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable) as refused:
            SignalLog(sqlite_database).delete(tenant="acme", user_id="u-17")
        other.rollback()

    assert "locked" in str(refused.value)
    assert not any(part in str(refused.value) for part in ("SQL", "DELETE", "u-17"))
