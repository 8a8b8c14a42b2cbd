"""The schema's steps, up and down, on a database that has rows."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Engine

from service.adapters.migrations.upgrade import HEAD
from service.adapters.sql_store import SqlStore
from tests.contract.test_store import a_receipt

pytestmark = pytest.mark.asyncio
OLD_COLUMNS = (
    "signal_id decision_id session_id query query_pattern intent entities_extracted agents_selected routing_confidence routing_rationale "
    "agents_succeeded agents_failed total_latency_ms user_satisfaction answer_quality was_rerouted agents_unavailable latency_budget_ms "
    "corrected_agent reward updated_at"
).split()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A database file."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/pointsman.db")
    yield engine
    engine.dispose()


def migrate(engine: Engine, target: str, *, down: bool = False) -> None:
    """Bring the database to a version."""
    config = Config()
    config.set_main_option("script_location", "service.adapters:migrations")
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if down else command.upgrade)(config, target)


async def test_signals_of_the_first_version_get_what_their_decisions_know(engine: Engine, tmp_path: Path) -> None:
    """A row written before the upgrade can be read after it, trained on, and is still there after the way back."""
    receipt = a_receipt()
    store = SqlStore(f"sqlite:///{tmp_path}/pointsman.db")
    await store.open()
    await store.commit(receipt)
    await store.close()
    migrate(engine, "0001", down=True)
    with engine.begin() as connection:
        old = {column["name"] for column in sa.inspect(connection).get_columns("signal")}

    migrate(engine, HEAD)

    assert old == set(OLD_COLUMNS)
    with engine.begin() as connection:
        row = connection.exec_driver_sql("SELECT tenant, user_id, router_version, rung, propensity, created_at FROM signal").one()
    decision = receipt.decision
    assert row[:5] == (receipt.tenant, receipt.request.user_id, decision.router_version, decision.rung.value, decision.propensity)
    assert str(row[5])[:19] == receipt.committed_at.isoformat(sep=" ")[:19]
    again = SqlStore(f"sqlite:///{tmp_path}/pointsman.db")
    await again.open()
    found = await again.by_decision(receipt.tenant, UUID(str(receipt.decision_id)))
    await again.close()
    assert found is not None
    assert found.signal.query == receipt.signal.query
