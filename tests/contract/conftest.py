"""Fixtures of the tests that run over every adapter to agents; a2a-sdk is imported for its turn only."""

from collections.abc import AsyncIterator

import pytest

from service.adapters.http_agents import HttpAgents
from tests.contract.agent_client_suite import Client, Tongue, over_a2a, over_http


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
