"""Agents over A2A 1.0: the dispatch as a message, a message or task back, by the client of a2a-sdk. Their answers are untrusted.

The SDK takes a second to import, so this module is to be imported only where an agent speaks A2A. It decides nothing: what to try again is
said by `service/flows/agent_call.py`.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Iterable, Mapping
from http import HTTPStatus
from typing import TypeVar

import aiohttp
import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import AgentCard, CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageRequest, StreamResponse, Task
from a2a.utils.errors import A2A_ERROR_MAPPING, A2AError, MethodNotFoundError, TaskNotFoundError, VersionNotSupportedError
from google.protobuf import json_format
from google.protobuf.message import Error as ProtobufError

from service.adapters.a2a_answer import is_over, is_under_way, read_answer
from service.adapters.a2a_card import BINDINGS, CARD_PATH, MAX_CARD_BYTES, CardInvalid, Cards, read_card
from service.adapters.a2a_exchange import Broken, Exchange, OutOfStep, Refused
from service.adapters.agent_wire import AgentWire, Sending, TooLarge, TooManyValues
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.ports import AgentFailure

log = logging.getLogger(__name__)
FIRST_PAUSE = 0.05  # seconds before a task is looked at for the first time
LONGEST_PAUSE = 1.0
LONGER = 1.5  # each pause is so many times the one before
CANCEL_SECONDS = 5.0
MOST_CANCELS = 100  # under way at once; beyond them a task is left to itself
_TASK_ID = re.compile(r"[\w.:~@=+-]{1,256}")  # with one binding it becomes a part of an address
_MOVED = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE})  # so the card may be out of date
_OF_THE_WIRE = (aiohttp.ClientError, OSError, Refused, TooLarge, CardInvalid)
_OF_THE_AGENT = (*_OF_THE_WIRE, TooManyValues, Broken, OutOfStep, A2AError)
T = TypeVar("T")


class A2aAgents:
    """`AgentClient` over A2A, over the bindings JSON-RPC and HTTP+JSON, without streaming."""

    def __init__(self, agents: Iterable[Agent] = (), *, environment: Mapping[str, str] = os.environ) -> None:
        """Read keys and certificates. To be called where an event loop runs.

        Raises:
            ConfigurationError: an agent's key is not in the environment, or a TLS file cannot be used.
        """
        self._wire = AgentWire(agents, environment)
        self._cards = Cards()
        self._cancels: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close all connections; tasks that were to be canceled are left to themselves."""
        for cancel in self._cancels:
            cancel.cancel()
        await asyncio.gather(*self._cancels, return_exceptions=True)
        await self._wire.close()

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Send one dispatch; whatever goes wrong is an `AgentFailure` within `timeout` seconds. A task that we leave is canceled."""
        sending = Sending(agent, timeout)
        exchange = Exchange(self._wire, agent, url, self._wire.headers_for(agent, dispatch))
        card: AgentCard | None = None
        try:
            request = _request(dispatch)
        except (ValueError, OverflowError, ProtobufError):
            said = "cannot be sent the request: it is nested too deeply, or holds too large a number, for A2A"
            return sending.failed(ErrorCode.AGENT_ERROR, said)
        try:
            async with asyncio.timeout(timeout):
                card = await self._cards.get(url, lambda: self._fetch_card(agent, url, dispatch), shared=_OF_THE_WIRE)
                answer = await _ask(_client(card, exchange), exchange, request)
            return read_answer(answer, dispatch, sending)
        except TimeoutError:
            return sending.timed_out(begun=exchange.begun)
        except _OF_THE_AGENT as exc:
            if _is_out_of_date(exc):
                self._cards.drop(url)
            return _explain(exc, sending, exchange)
        finally:
            if card is not None and exchange.open_task is not None and len(self._cancels) < MOST_CANCELS:
                cancel = asyncio.create_task(self._cancel(agent, url, card, dispatch, exchange.open_task))
                self._cancels.add(cancel)
                cancel.add_done_callback(self._cancels.discard)

    async def _fetch_card(self, agent: Agent, url: str, dispatch: AgentDispatch) -> AgentCard:
        headers = {"Accept": "application/json", **self._wire.headers_for(agent, dispatch)}
        try:
            reply = await self._wire.exchange(agent, "GET", url.rstrip("/") + CARD_PATH, headers=headers, most=MAX_CARD_BYTES)
        except TooLarge as exc:
            raise CardInvalid(f"cannot be called: its card has more than {MAX_CARD_BYTES} bytes") from exc
        if reply.status != HTTPStatus.OK:
            raise Refused(reply)
        return read_card(reply.body, agent, url, self._wire.key_of(agent))

    async def _cancel(self, agent: Agent, url: str, card: AgentCard, dispatch: AgentDispatch, task_id: str) -> None:
        exchange = Exchange(self._wire, agent, url, self._wire.headers_for(agent, dispatch))
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await _through(_client(card, exchange).cancel_task(CancelTaskRequest(id=task_id)))
        except (TimeoutError, *_OF_THE_AGENT) as exc:
            log.debug("task_not_canceled agent=%s problem=%s", agent.name, type(exc).__name__)


def _client(card: AgentCard, exchange: Exchange) -> Client:
    """Return the SDK's client for one dispatch. It asks for an answer at once: a task that is not known cannot be canceled."""
    http = httpx.AsyncClient(transport=exchange, timeout=None, trust_env=False, follow_redirects=False)
    config = ClientConfig(
        streaming=False,
        polling=True,
        httpx_client=http,
        supported_protocol_bindings=list(BINDINGS),
        accepted_output_modes=["application/json", "text/plain"],
    )
    return ClientFactory(config).create(card)


async def _ask(client: Client, exchange: Exchange, request: SendMessageRequest) -> Message | Task:
    """Send the dispatch and wait until the agent has answered it, by a message or by a task that it no longer works on."""
    answer = await _through(_first(client, request))
    if answer.HasField("message"):
        return answer.message
    task, pause, first = answer.task, FIRST_PAUSE, answer.task.id
    while True:
        if task.id != first:
            raise Broken("another task than the one that was asked for")
        if is_over(task):
            exchange.open_task = None
            return task
        if not _TASK_ID.fullmatch(task.id):
            raise Broken("a task with an id that is none")
        exchange.open_task = task.id
        if not is_under_way(task):
            return task
        await asyncio.sleep(pause)
        pause = min(pause * LONGER, LONGEST_PAUSE)
        task = await _through(client.get_task(GetTaskRequest(id=task.id, history_length=0)))


async def _first(client: Client, request: SendMessageRequest) -> StreamResponse:
    answers = [answer async for answer in client.send_message(request)]  # one, where nothing is streamed; the iterator is at its end
    return answers[0]


async def _through(call: Awaitable[T]) -> T:
    """Await a call of the SDK; what its parsers raise for an answer that they cannot read is `Broken`."""
    try:
        return await call
    except aiohttp.ClientError:  # some of them, such as one about a certificate, are also a `ValueError`
        raise
    except (json_format.Error, ProtobufError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise Broken("not a message of A2A 1.0") from exc


def _request(dispatch: AgentDispatch) -> SendMessageRequest:
    asked = dispatch.payload.context.get("raw_query")
    data = Part(media_type="application/json")
    data.data.struct_value.update(DispatchEnvelope(dispatch=dispatch).model_dump(mode="json"))
    message = Message(
        message_id=str(dispatch.dispatch_id),
        context_id=str(dispatch.query_id),
        role=Role.ROLE_USER,
        parts=[
            Part(text=asked if isinstance(asked, str) and asked else dispatch.payload.intent, media_type="text/plain"),
            data,
        ],
    )
    return SendMessageRequest(message=message)


def _is_out_of_date(exc: Exception) -> bool:
    moved = isinstance(exc, Refused) and exc.reply.status in _MOVED
    return moved or isinstance(exc, MethodNotFoundError | VersionNotSupportedError)


def _explain(exc: Exception, sending: Sending, exchange: Exchange) -> AgentFailure:
    match exc:
        case Refused():
            status = exc.reply.status
            if status == HTTPStatus.NOT_FOUND and exchange.open_task is not None:  # the agent is there, and has lost the work
                return sending.refused(HTTPStatus.INTERNAL_SERVER_ERROR, said="no longer knows of the task", begun=True)
            return sending.refused(status, retry_after=exc.reply.retry_after, begun=exchange.begun)
        case CardInvalid():
            return sending.failed(ErrorCode.CARD_INVALID, str(exc))
        case TooLarge():
            return sending.too_large()
        case TooManyValues():
            return sending.too_many_values()
        case OutOfStep():
            said = "answered another request than the one that was sent"
            return sending.failed(ErrorCode.DISPATCH_MISMATCH, said, recoverable=True, begun=True)
        case Broken():
            return sending.failed(ErrorCode.HANDOFF_INVALID, f"broke the A2A protocol: {exc}")
        case A2AError():
            return _explain_rpc_error(exc, sending, exchange)
        case aiohttp.ClientError() | OSError():
            return sending.unreachable(exc, begun=exchange.begun)
    raise exc


def _explain_rpc_error(exc: A2AError, sending: Sending, exchange: Exchange) -> AgentFailure:
    """Read an error of JSON-RPC as the HTTP status that the specification gives it (5.4); one that is not known, as 500."""
    error = exchange.last.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return sending.failed(ErrorCode.HANDOFF_INVALID, "broke the A2A protocol: not an answer of JSON-RPC 2.0")
    known = A2A_ERROR_MAPPING.get(type(exc))
    status = known.http_code if known is not None else 400 if error["code"] == -32700 else 500
    lost = isinstance(exc, TaskNotFoundError)  # as above
    said = f"answered with the JSON-RPC error {error['code']}: {str(error.get('message', ''))[:200]}"
    return sending.refused(500 if lost else status, said=said, begun=exchange.open_task is not None)
