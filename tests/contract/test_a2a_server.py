"""The explainer as an A2A agent, for a2a-sdk's own client and for ours; and ours against servers that the SDK makes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
import uvicorn
from a2a.client import create_client
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, GetTaskRequest, SendMessageRequest
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.types import ASGIApp

from service.adapters.a2a_agents import A2aAgents
from service.agents import app as agents_app
from service.agents.app import create_agents_app
from service.bootstrap import Agents
from service.catalog.model import Agent
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.errors import ErrorCode
from service.flows.work import build_dispatch
from tests.contract.agent_client_suite import E, T, failed
from tests.contract.http_server import AMPLE, CATALOG, TIMEOUT, agent_at, send
from tests.unit.turns import a_request, some_work

EXPLAINER = CATALOG.agent["explainer"]
QUESTION = "What is a confidence interval?"


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncIterator[int]:
    """Serve an app on a free port of loopback."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
async def base() -> AsyncIterator[str]:
    """The address of the built-in agents."""
    async with running(create_agents_app(warm_up=False)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def client() -> AsyncIterator[A2aAgents]:
    """Our client, closed at the end."""
    agents = A2aAgents()
    yield agents
    await agents.close()


def explainer_at(base: str) -> Agent:
    """Return the catalogue's entry of the explainer, with the protocol changed."""
    urls = (AnyHttpUrl(f"{base}/a2a/explainer"),)
    return EXPLAINER.model_copy(update={"protocol": "a2a", "urls": urls, "receives": ("raw_query", "entities")})


async def test_the_explainer_answers_our_dispatch_with_the_same_handoff_over_both_protocols(base: str, client: A2aAgents) -> None:
    """But for the times, field by field."""
    agent = explainer_at(base)
    dispatch = build_dispatch(agent, some_work(request=a_request(QUESTION)), AMPLE, uuid4())

    over_a2a = await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)
    async with httpx.AsyncClient() as plain:
        body = json.dumps({"dispatch": dispatch.model_dump(mode="json")})
        answered = await plain.post(f"{base}/agents/explainer", content=body, headers={"Content-Type": "application/json"})

    over_http = AgentHandoff.model_validate(answered.json()["handoff"])
    assert isinstance(over_a2a, AgentHandoff)
    assert over_a2a.execution.status is HandoffStatus.SUCCESS
    assert over_a2a.model_dump(exclude={"execution"}) == over_http.model_dump(exclude={"execution"})


async def test_any_a2a_client_gets_an_explanation_for_a_text(base: str) -> None:
    """The SDK's client knows of no dispatch: a question, and a text with a confidence back."""
    asking = await create_client(f"{base}/a2a/explainer")
    answers = [one async for one in asking.send_message(SendMessageRequest(message=new_text_message(QUESTION)))]
    await asking.close()

    (answer,) = answers
    assert "interval" in answer.message.parts[0].text
    assert 0.0 < answer.message.metadata["confidence"] <= 1.0
    assert answer.message.parts[1].data.struct_value.fields["handoff"].struct_value.fields["agent_id"].string_value == "explainer"


async def test_a_question_without_an_answer_is_told_so_in_words(base: str) -> None:
    """The text says what is missing, and the handoff has failed."""
    asking = await create_client(f"{base}/a2a/explainer")
    (answer,) = [one async for one in asking.send_message(SendMessageRequest(message=new_text_message("Hm?")))]
    await asking.close()

    assert "There is nothing to explain" in answer.message.parts[0].text
    assert answer.message.metadata["confidence"] == 0.0


@pytest.mark.parametrize("sent", [" ", ""], ids=["blank", "empty"])
async def test_a_message_without_a_question_is_refused(base: str, sent: str) -> None:
    """As bad parameters, and no task is made of it."""
    asking = await create_client(f"{base}/a2a/explainer")
    with pytest.raises(InvalidParamsError, match="neither a text nor a data part"):
        _ = [one async for one in asking.send_message(SendMessageRequest(message=new_text_message(sent)))]
    with pytest.raises(TaskNotFoundError):
        await asking.get_task(GetTaskRequest(id="t-1"))
    await asking.close()


async def test_a_dispatch_for_another_agent_is_refused(base: str, client: A2aAgents) -> None:
    """The address belongs to the explainer."""
    agent = explainer_at(base).model_copy(update={"name": "gap_analyzer"})

    failure = failed(await send(client, agent))

    assert (failure.code, failure.recoverable) == (E, False)
    assert "target_agent must be explainer" in failure.detail


async def test_the_card_names_the_address_under_which_it_was_asked_for(base: str) -> None:
    """Behind a proxy it is of the origin that the client sees."""
    async with httpx.AsyncClient() as plain:
        card = (await plain.get(f"{base}/a2a/explainer/.well-known/agent-card.json", headers={"Host": "agents.example"})).json()

    assert [one["url"] for one in card["supportedInterfaces"]] == ["http://agents.example/a2a/explainer"]
    assert card["capabilities"] == {"streaming": False, "pushNotifications": False}


async def test_what_is_no_request_of_the_protocol_is_answered_as_an_error(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other paths and methods, other versions, broken and huge bodies."""
    monkeypatch.setattr(agents_app, "LARGEST_BODY", 100_000)
    address = f"{base}/a2a/explainer"
    huge = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "x" * 200_000}}})
    old = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "m", "parts": [{"text": "a"}]}}}
    )
    async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as plain:
        statuses = [(await plain.get(f"{base}/a2a/nobody")).status_code, (await plain.get(address)).status_code]
        codes = [(await plain.post(address, content=body)).json()["error"]["code"] for body in ("{", "[]", "[" * 100_000, huge)]
        codes.append((await plain.post(address, content=old, headers={"A2A-Version": "0.3"})).json()["error"]["code"])

    assert statuses == [404, 405]
    assert codes == [-32700, -32600, -32603, -32600, -32009]


async def test_too_much_work_is_turned_away_before_the_sdk_sees_it(base: str, client: A2aAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over plain HTTP, with a time after which to come back."""
    agent = explainer_at(base)
    assert isinstance(await send(client, agent, work=some_work(request=a_request(QUESTION))), AgentHandoff)

    monkeypatch.setattr(agents_app.Workers, "is_full", True)
    failure = failed(await send(client, agent))

    assert (failure.code, failure.retry_after) == (ErrorCode.AGENT_UNAVAILABLE, 1.0)


async def test_each_agent_is_called_by_its_protocol(base: str) -> None:
    """One client for the whole catalogue."""
    over_a2a = explainer_at(base)
    over_http = over_a2a.model_copy(update={"protocol": "http", "urls": (AnyHttpUrl(f"{base}/agents/explainer"),)})
    agents = Agents((over_a2a, over_http))

    answers = [await send(agents, agent, work=some_work(request=a_request(QUESTION))) for agent in (over_a2a, over_http)]
    await agents.close()

    assert [type(answer) for answer in answers] == [AgentHandoff, AgentHandoff]


def test_nothing_imports_the_sdk_before_an_agent_speaks_a2a() -> None:
    """It takes a second, and most catalogues have no such agent."""
    code = """
import asyncio, sys
import service.agents.app, service.bootstrap
from service.catalog.loader import load_catalog

async def main():
    agents = load_catalog().agents
    plain = service.bootstrap.Agents([one for one in agents if one.protocol == "http"])
    print("a2a" in sys.modules)
    both = service.bootstrap.Agents([*agents, agents[0].model_copy(update={"protocol": "a2a"})])
    print("a2a" in sys.modules)
    await plain.close()
    await both.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout.split(), done.stderr) == (["False", "True"], "")


class Slow(AgentExecutor):
    """Works on a task for a while, then says `Done.`; notes what was canceled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.canceled = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await asyncio.sleep(self.seconds)
        await updater.add_artifact([new_text_part("Done.")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.canceled.set()
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def sdk_app(executor: AgentExecutor, binding: str) -> Starlette:
    """Return a server of the SDK's, with tasks; its card is filled in when the port is known."""
    card = AgentCard(name="Slow", description="Slow.", version="1", capabilities=AgentCapabilities(streaming=True))

    async def here(card: AgentCard) -> AgentCard:
        shown = AgentCard()
        shown.CopyFrom(card)
        url = f"http://127.0.0.1:{app.state.port}/agents/causal_impact"
        shown.supported_interfaces.append(AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0"))
        return shown

    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    path = "/agents/causal_impact"
    routes: list[Any] = [*create_agent_card_routes(card, here, f"{path}/.well-known/agent-card.json")]
    routes += create_jsonrpc_routes(handler, path) if binding == "JSONRPC" else create_rest_routes(handler, path_prefix=path)
    app = Starlette(routes=routes)
    app.state.close = handler.aclose
    return app


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_of_the_sdks_server_is_waited_for(client: A2aAgents, binding: str) -> None:
    """Over both bindings."""
    app = sdk_app(Slow(0.2), binding)
    async with running(app) as app.state.port:
        handoff = await send(client, agent_at(app.state.port))
        await app.state.close()

    assert isinstance(handoff, AgentHandoff)
    assert handoff.result.primary_output == {"summary": "Done."}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_of_the_sdks_server_is_canceled_when_its_time_is_over(client: A2aAgents, binding: str) -> None:
    """Over both bindings."""
    executor = Slow(60.0)
    app = sdk_app(executor, binding)
    async with running(app) as app.state.port:
        failure = failed(await send(client, agent_at(app.state.port), timeout=TIMEOUT))
        async with asyncio.timeout(AMPLE):
            await executor.canceled.wait()
        await app.state.close()

    assert failure.code is T
