"""Fixtures of the tests that run over every adapter to agents, or over every database; a2a-sdk is imported for its turn only."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from service.adapters.http_agents import HttpAgents
from service.catalog.model import Catalog
from tests.conftest import World
from tests.contract.agent_client_suite import Client, Tongue, over_a2a, over_http
from tests.contract.pgbouncer import pooler
from tests.contract.postgres import new_database, server


@pytest.fixture(scope="module")
def document(catalog: Catalog) -> dict[str, Any]:
    """The OpenAPI document of the app; to make it takes a quarter of a second."""
    return World(catalog, None).app().openapi()


@pytest.fixture(params=["http", "a2a"])
def tongue(request: pytest.FixtureRequest) -> Tongue:
    """Each protocol in turn."""
    if request.param == "http":
        return over_http(HttpAgents)
    from service.adapters.a2a_agents import A2aAgents

    return over_a2a(A2aAgents)


@pytest.fixture
async def client(tongue: Tongue) -> AsyncIterator[Client]:
    """The client under test, closed at the end."""
    async with tongue.open() as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    with server() as address:
        yield address


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    """The address of an empty SQLite database."""
    return f"sqlite:///{tmp_path}/pointsman.db"


@pytest.fixture
def postgresql_database(postgres: str) -> str:
    """The address of an empty PostgreSQL database."""
    return new_database(postgres)


@pytest.fixture(scope="session")
def pgbouncer(postgres: str) -> Iterator[str]:
    """The address of a PgBouncer before that server."""
    with pooler(postgres) as address:
        yield address


@pytest.fixture
def pooled_database(postgres: str, pgbouncer: str) -> str:
    """The address of an empty PostgreSQL database, behind a pooler."""
    return f"{pgbouncer}/{make_url(new_database(postgres)).database}"


@pytest.fixture(params=["sqlite", "postgresql", "pooled"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database of each kind."""
    address: str = request.getfixturevalue(f"{request.param}_database")
    return address
