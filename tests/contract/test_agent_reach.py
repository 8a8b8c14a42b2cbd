"""Whom an `AgentClient` reaches and with what: keys, certificates, connections; and no call holds up another or leaves anything behind."""

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from service.catalog.model import AgentKey, AgentTls
from service.contracts.handoff import AgentHandoff
from service.errors import ConfigurationError, ErrorCode
from tests.contract.agent_client_suite import KEY, SECRET, Client, Tongue, U, failed
from tests.contract.certificates import Certificates, make_certificates
from tests.contract.http_server import (
    TIMEOUT,
    Answer,
    Request,
    Server,
    Writer,
    agent_at,
    free_port,
    good,
    hanging,
    http,
    saying,
    send,
    serving,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A private authority with a server's and a client's certificate."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def test_no_proxy_of_the_environment_comes_between(tongue: Tongue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are reached where the catalogue says."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{await free_port()}")

    async with tongue.open() as client, serving(tongue.answering()) as server:
        answer = await send(client, agent_at(server.port))

    assert isinstance(answer, AgentHandoff)


async def test_connections_are_used_again(tongue: Tongue, client: Client) -> None:
    """Ten dispatches in turn need one connection."""
    async with serving(tongue.answering()) as server:
        for _ in range(10):
            assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)

    assert (len(tongue.dispatches(server)), server.connections) == (10, 1)


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_is_not_followed(tongue: Tongue, client: Client, status: str) -> None:
    """An agent cannot send the question elsewhere."""
    async with serving(tongue.answering()) as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}/agents/causal_impact"
        async with serving(tongue.stage(saying(http(b"", status, Location=location)))) as server:
            failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.recoverable, failure.unavailable) == (ErrorCode.AGENT_ERROR, False, False)
    assert elsewhere.requests == []


async def test_what_one_agent_sets_as_a_cookie_no_request_carries(tongue: Tongue, client: Client) -> None:
    """The client is shared by all agents and tenants."""
    async with serving(tongue.answering(Set_Cookie="session=secret; Path=/")) as server:
        answers = [await send(client, agent_at(server.port)) for _ in range(2)]

    assert [type(a) for a in answers] == [AgentHandoff, AgentHandoff]
    assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
async def test_the_key_goes_with_every_request_and_into_no_log(tongue: Tongue, header: str, caplog: pytest.LogCaptureFixture) -> None:
    """From the environment into the header, whether the call succeeds or fails; logs and failures do not know it."""
    caplog.set_level(logging.DEBUG)
    key = KEY.model_copy(update={"header": header})

    async with (
        serving(tongue.answering()) as server,
        serving(tongue.stage(saying(http(b"{}", "401 Unauthorized")))) as refusing,
        tongue.open(agent_at(server.port, auth=key), AGENT_KEY=SECRET) as client,
    ):
        good_answer = await send(client, agent_at(server.port, auth=key))
        failure = failed(await send(client, agent_at(refusing.port, auth=key)))
        failed(await send(client, agent_at(await free_port(), auth=key)))

    assert isinstance(good_answer, AgentHandoff)
    assert {request.headers[header.lower()] for request in [*server.requests, *refusing.requests]} == {SECRET}
    assert SECRET not in failure.detail
    assert SECRET.split()[1] not in caplog.text


async def test_an_agents_key_goes_to_no_other_agent(tongue: Tongue) -> None:
    """Keys are kept by agent."""
    async with serving(tongue.answering()) as server, tongue.open(agent_at(1, name="explainer", auth=KEY), AGENT_KEY=SECRET) as client:
        await send(client, agent_at(server.port))

    assert all(SECRET not in request.headers.values() for request in server.requests)


async def test_a_missing_key_or_certificate_ends_the_start(tongue: Tongue, tmp_path: Path) -> None:
    """Not the first request."""
    with pytest.raises(ConfigurationError, match="AGENT_KEY"):
        tongue.opens((agent_at(1, auth=AgentKey(env="AGENT_KEY")),), environment={})
    with pytest.raises(ConfigurationError, match="cannot be used"):
        tongue.opens((agent_at(1, tls=AgentTls(authority=str(tmp_path / "none.pem"))),), environment={})


async def test_a_private_authority_and_a_certificate_of_our_own_are_used(tongue: Tongue, certificates: Certificates) -> None:
    """Both sides prove who they are; without its authority or our certificate, there is no connection, and nothing is sent."""
    ours = AgentTls(authority=str(certificates.authority), certificate=str(certificates.client), key=str(certificates.client_key))
    nameless = AgentTls(authority=str(certificates.authority))
    answering = tongue.stage(tongue.writing(lambda request: json.dumps(good(request))), scheme="https")
    async with serving(answering, tls=certificates.server_context()) as server:
        agents = [agent_at(server.port, scheme="https", tls=tls) for tls in (ours, nameless, None)]
        async with tongue.open(*agents) as client:
            proven = await send(client, agents[0])
            heard = len(server.requests)
            refused = [failed(await send(client, agent)) for agent in agents[1:]]

    assert isinstance(proven, AgentHandoff)
    assert [(one.code, one.unavailable) for one in refused] == [(U, True), (U, True)]
    assert len(server.requests) == heard


async def test_silence_speaks_of_the_agent_only_when_it_had_its_time(tongue: Tongue, client: Client) -> None:
    """A caller in a hurry learns nothing about the agent; one that waits all of the agent's own time does."""
    async with serving(tongue.stage(hanging)) as server:
        agent = agent_at(server.port)
        hurried, patient = await send(client, agent, timeout=0.02), await send(client, agent, timeout=TIMEOUT)

    assert (failed(hurried).unavailable, failed(patient).unavailable) == (False, True)


@pytest.mark.parametrize(
    ("answer", "may_have_run"),
    [
        (None, False),
        (saying(http(b"{}", "503 Service Unavailable")), True),
        (saying(http(b"{}", "503 Service Unavailable\r\nRetry-After: 1")), False),
        (saying(http(b"{}", "429 Too Many Requests")), False),
        (saying(http(b"{}", "500 Internal Server Error")), True),
        (saying(b"HTTP/1.1 200 OK\r\n", close=True), True),
        (hanging, True),
    ],
    ids=["refused", "503", "503, come later", "429", "500", "cut", "hangs"],
)
async def test_a_failure_says_whether_the_work_may_have_been_started(
    tongue: Tongue, client: Client, answer: Answer | None, may_have_run: bool
) -> None:
    """What was refused before it began is safe to repeat for every agent. A proxy says 503 of an agent that has died at its work, too."""
    if answer is None:
        failure = failed(await send(client, agent_at(await free_port())))
    else:
        async with serving(tongue.stage(answer)) as server:
            failure = failed(await send(client, agent_at(server.port), timeout=TIMEOUT))

    assert failure.may_have_run is may_have_run


async def test_one_slow_agent_does_not_hold_up_another(tongue: Tongue, client: Client) -> None:
    """Fifty calls that hang, and an answer meanwhile."""
    async with serving(tongue.stage(hanging)) as slow, serving(tongue.answering()) as quick:
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


async def test_a_cancelled_call_leaves_nothing_behind(tongue: Tongue, client: Client) -> None:
    """The connection is closed, no task stays, and the next call is served."""

    async def waiting(server: Server, request: Request, writer: Writer) -> None:
        if len(tongue.dispatches(server)) == 1:
            await hanging(server, request, writer)
        await tongue.writing(lambda dispatch: json.dumps(good(dispatch)))(server, request, writer)

    async with serving(tongue.stage(waiting)) as server:
        agent = agent_at(server.port)
        before = asyncio.all_tasks()
        call = asyncio.create_task(send(client, agent, timeout=30.0))
        while not tongue.dispatches(server):
            await asyncio.sleep(0.005)

        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        ours = {t for t in asyncio.all_tasks() - before if "Server.serve" not in repr(t) and "track" not in repr(t)}
        assert ours == set()
        assert isinstance(await send(client, agent), AgentHandoff)
        assert server.connections == 2
