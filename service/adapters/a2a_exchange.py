"""The SDK's HTTP client for one dispatch: its requests go over the connections that all adapters share, within their limits."""

from collections.abc import Mapping
from http import HTTPStatus

import aiohttp
import httpx
from pydantic_core import from_json

from service.adapters.a2a_card import CardInvalid, origin_of
from service.adapters.agent_wire import MAX_ANSWER_BYTES, MAX_ANSWER_VALUES, AgentWire, Reply, count_values
from service.catalog.model import Agent

_PASSED_ON = ("content-type", "accept", "a2a-version", "a2a-extensions")  # of the SDK's headers; the others are the connection's business


class Refused(Exception):
    """The agent answered with another HTTP status than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Broken(Exception):
    """The answer is not what the protocol defines; the message says how, and quotes nothing of it."""


class OutOfStep(Exception):
    """The answer is one to another request."""


class Exchange(httpx.AsyncBaseTransport):
    """All requests about one dispatch. `begun`: the agent may have got the message, and has not refused it."""

    def __init__(self, wire: AgentWire, agent: Agent, url: str, headers: Mapping[str, str]) -> None:
        self.begun = False
        self.last: Mapping[str, object] = {}
        self.open_task: str | None = None
        self._wire = wire
        self._agent = agent
        self._origin = origin_of(url)
        self._headers = headers
        self._bytes = MAX_ANSWER_BYTES
        self._values = MAX_ANSWER_VALUES

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one of the SDK's requests; the answer has its body and no header that could do anything.

        Raises:
            CardInvalid: the request would leave the agent's origin.
            Refused: the status is not 200.
            TooLarge: all answers together are too long.
            TooManyValues: they hold too many values, or too deep ones.
            Broken: the body is not a JSON object.
            OutOfStep: the answer is one to another request.
            aiohttp.ClientError: as `AgentWire.exchange` says.
        """
        url = str(request.url)
        if origin_of(url) != self._origin:
            raise CardInvalid("cannot be called: its card leads away from its origin")
        content = await request.aread() or None
        headers = {**{name: request.headers[name] for name in _PASSED_ON if name in request.headers}, **self._headers}
        before, self.begun = self.begun, True
        try:
            reply = await self._wire.exchange(self._agent, request.method, url, headers=headers, content=content, most=self._bytes)
        except aiohttp.ClientConnectorError:
            self.begun = before
            raise
        if reply.status != HTTPStatus.OK:
            self.begun = before
            raise Refused(reply)
        self._bytes -= len(reply.body)
        self.last = self._read(reply)
        if not _answers(self.last, content):
            self._wire.distrust(url)
            raise OutOfStep
        return httpx.Response(200, headers={"Content-Type": "application/json"}, content=reply.body)

    def _read(self, reply: Reply) -> Mapping[str, object]:
        try:
            value = from_json(reply.body, allow_inf_nan=False)
        except ValueError as exc:
            raise Broken("not valid JSON" + (f", packed as {reply.encoding}" if reply.encoding else "")) from exc
        if not isinstance(value, dict):
            raise Broken("not a JSON object")
        self._values -= count_values(value, most=self._values)
        return value


def _answers(answer: Mapping[str, object], content: bytes | None) -> bool:
    """Say whether a JSON-RPC answer has the id of its request, or none; the SDK does not look. Other bindings have no ids."""
    asked = from_json(content) if content is not None else {}
    return "jsonrpc" not in asked or answer.get("id") in (asked.get("id"), None)
