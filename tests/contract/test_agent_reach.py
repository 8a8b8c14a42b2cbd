"""What a failed call says of the agent, and that no call holds up another or leaves anything behind."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from service.adapters.http_agents import HttpAgents
from service.contracts.handoff import AgentHandoff
from service.ports import AgentFailure
from tests.contract.http_server import (
    TIMEOUT,
    Answer,
    Request,
    Server,
    Writer,
    agent_at,
    answering,
    free_port,
    good,
    hanging,
    http,
    saying,
    send,
    serving,
)


@pytest.fixture
async def client() -> AsyncIterator[HttpAgents]:
    """The client under test, closed at the end."""
    agents = HttpAgents()
    yield agents
    await agents.close()


async def test_silence_speaks_of_the_agent_only_when_it_had_its_time(client: HttpAgents) -> None:
    """A caller in a hurry learns nothing about the agent; one that waits all of the agent's own time does."""
    async with serving(hanging) as server:
        agent = agent_at(server.port)
        hurried, patient = await send(client, agent, timeout=0.02), await send(client, agent, timeout=TIMEOUT)

    assert isinstance(hurried, AgentFailure)
    assert isinstance(patient, AgentFailure)
    assert (hurried.unavailable, patient.unavailable) == (False, True)


async def test_what_one_agent_sets_as_a_cookie_no_request_carries(client: HttpAgents) -> None:
    """The client is shared by all agents and tenants."""

    async def setting(server: Server, request: Request, writer: Writer) -> None:
        writer.write(http(json.dumps(good(request)).encode(), Set_Cookie="session=secret; Path=/"))

    async with serving(setting) as server:
        answers = [await send(client, agent_at(server.port)) for _ in range(2)]

    assert [type(a) for a in answers] == [AgentHandoff, AgentHandoff]
    assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("answer", "may_have_run"),
    [
        (None, False),
        (saying(http(b"{}", "503 Service Unavailable")), False),
        (saying(http(b"{}", "429 Too Many Requests")), False),
        (saying(http(b"{}", "500 Internal Server Error")), True),
        (saying(b"HTTP/1.1 200 OK\r\n", close=True), True),
        (hanging, True),
    ],
    ids=["refused", "503", "429", "500", "cut", "hangs"],
)
async def test_a_failure_says_whether_the_work_may_have_been_started(client: HttpAgents, answer: Answer | None, may_have_run: bool) -> None:
    """What was refused before it began is safe to repeat for every agent."""
    if answer is None:
        failure = await send(client, agent_at(await free_port()))
    else:
        async with serving(answer) as server:
            failure = await send(client, agent_at(server.port), timeout=TIMEOUT)

    assert isinstance(failure, AgentFailure)
    assert failure.may_have_run is may_have_run


async def test_one_slow_agent_does_not_hold_up_another(client: HttpAgents) -> None:
    """Fifty calls that hang, and an answer meanwhile."""
    async with serving(hanging) as slow, serving(answering()) as quick:
        hanging_calls = [asyncio.create_task(send(client, agent_at(slow.port, name="explainer"), timeout=5.0)) for _ in range(50)]
        await asyncio.sleep(0.05)
        started = time.monotonic()
        answer = await send(client, agent_at(quick.port))
        took = time.monotonic() - started
        for call in hanging_calls:
            call.cancel()
        await asyncio.gather(*hanging_calls, return_exceptions=True)

    assert isinstance(answer, AgentHandoff)
    assert took < 4.0


async def test_a_cancelled_call_leaves_nothing_behind(client: HttpAgents) -> None:
    """The connection is closed, no task stays, and the next call is served."""

    async def waiting(server: Server, request: Request, writer: Writer) -> None:
        await (hanging if len(server.requests) == 1 else answering())(server, request, writer)

    async with serving(waiting) as server:
        agent = agent_at(server.port)
        before = asyncio.all_tasks()
        call = asyncio.create_task(send(client, agent, timeout=30.0))
        while not server.requests:
            await asyncio.sleep(0.005)

        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        ours = {t for t in asyncio.all_tasks() - before if "Server.serve" not in repr(t) and "track" not in repr(t)}
        assert ours == set()
        assert isinstance(await send(client, agent), AgentHandoff)
        assert server.connections == 2
