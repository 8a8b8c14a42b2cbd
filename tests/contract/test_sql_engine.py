"""How PostgreSQL is connected to: limits on every statement, whatever stands between, and what the address says besides."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url

from service.adapters.sql_engine import connect, normalise, writer
from tests.contract.pgbouncer import pooler
from tests.contract.postgres import new_database

LIMITS = ("lock_timeout", "statement_timeout")


def shown(connection: Connection, *names: str) -> tuple[str, ...]:
    """Return what settings are in force in a transaction."""
    return tuple(str(connection.execute(sa.text(f"SHOW {name}")).scalar()) for name in names)


@pytest.fixture(params=["nothing", "PgBouncer", "PgBouncer that passes over options"])
def address(request: pytest.FixtureRequest, postgres: str, pgbouncer: str) -> sa.URL:
    """An empty database with something or nothing before it."""
    made = make_url(new_database(postgres))
    if request.param == "nothing":
        return normalise(made.render_as_string())
    if request.param == "PgBouncer":
        return normalise(f"{pgbouncer}/{made.database}")
    between = request.getfixturevalue("lenient")
    return normalise(f"{between}/{made.database}")


@pytest.fixture(scope="module")
def lenient(postgres: str) -> Iterator[str]:
    """A pooler that takes options at the start of a connection, and drops them."""
    with pooler(postgres, ignored="options,extra_float_digits") as between:
        yield between


def test_every_transaction_has_its_limits(address: sa.URL) -> None:
    """Reading and writing, also on a connection that another client had before, who had others."""
    patient, hasty = connect(address, 60.0), connect(address, 3.0)
    for engine, limits in ((patient, ("1min", "61s")), (hasty, ("3s", "4s"))) * 3:
        with engine.connect() as connection:
            assert shown(connection, *LIMITS) == limits
        with writer(engine).begin() as connection:
            assert shown(connection, *LIMITS) == limits
    patient.dispose()
    hasty.dispose()


def test_a_statement_may_be_repeated_for_ever(address: sa.URL) -> None:
    """The driver prepares what comes often; behind a pooler the connection that knows it is soon another one's."""
    engines = [connect(address, 3.0) for _ in range(3)]
    for number in range(30):
        for engine in engines:
            with engine.connect() as connection:
                assert connection.execute(sa.text("SELECT :number + 1"), {"number": number}).scalar() == number + 1
    for engine in engines:
        engine.dispose()


def test_options_of_the_address_are_kept(postgres: str) -> None:
    """A database that applications share has a schema for each; and who waits longer for a connection says so."""
    made = make_url(new_database(postgres))
    url = normalise(made.update_query_dict({"options": "-c search_path=mine", "connect_timeout": "9"}).render_as_string())
    engine = connect(url, 3.0)

    with engine.connect() as connection:
        assert shown(connection, "search_path", *LIMITS) == ("mine", "3s", "4s")
        assert connection.connection.driver_connection.info.get_parameters()["connect_timeout"] == "9"  # type: ignore[union-attr]
    engine.dispose()


def test_a_pooler_that_is_gone_is_an_error_of_the_database(postgres: str) -> None:
    """Also at the beginning of a transaction: a store that meets it goes on with its spool."""
    with pooler(postgres) as between:
        engine = connect(normalise(f"{between}/{make_url(new_database(postgres)).database}"), 3.0)
        connection = engine.connect()

    with pytest.raises(sa.exc.OperationalError):
        connection.execute(sa.text("SELECT 1"))
    connection.close()
    engine.dispose()
