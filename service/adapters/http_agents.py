"""Agents over HTTP: `POST` of the dispatch envelope to the catalogue's URL, the handoff envelope back. Their answers are untrusted.

It decides nothing: what to try again is said by `service/flows/agent_call.py`.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import aiohttp
from pydantic_core import from_json

from service.adapters.agent_wire import (
    CORRELATION_HEADER,
    DEADLINE_HEADER,
    MAX_ANSWER_BYTES,
    AgentWire,
    Reply,
    Sending,
    TooLarge,
    TooManyValues,
    count_values,
)
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff, HandoffEnvelope
from service.ports import AgentFailure

__all__ = ["CORRELATION_HEADER", "DEADLINE_HEADER", "MAX_ANSWER_BYTES", "HttpAgents"]


class HttpAgents:
    """`AgentClient` over plain HTTP."""

    def __init__(self, agents: Iterable[Agent] = (), *, environment: Mapping[str, str] = os.environ) -> None:
        """Read keys and certificates. To be called where an event loop runs.

        Raises:
            ConfigurationError: an agent's key is not in the environment, or a TLS file cannot be used.
        """
        self._wire = AgentWire(agents, environment)

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Send one dispatch; whatever goes wrong is an `AgentFailure` within `timeout` seconds."""
        sending = Sending(agent, timeout)
        try:
            async with asyncio.timeout(timeout):
                reply = await self._post(agent, url, dispatch)
        except TimeoutError:
            return sending.timed_out(begun=True)
        except (aiohttp.ClientError, OSError) as exc:
            return sending.unreachable(exc, begun=not isinstance(exc, aiohttp.ClientConnectorError))
        except TooLarge:
            return sending.too_large()
        if reply.status != HTTPStatus.OK:
            return sending.refused(reply.status, retry_after=reply.retry_after)
        try:
            value = from_json(reply.body, allow_inf_nan=False)
            count_values(value)
            handoff = HandoffEnvelope.model_validate(value).handoff
        except TooManyValues:
            return sending.too_many_values()
        except ValueError as exc:
            return sending.broke_contract(exc, reply.encoding)
        if handoff.dispatch_id != dispatch.dispatch_id:
            self._wire.distrust(url)
        return handoff

    async def _post(self, agent: Agent, url: str, dispatch: AgentDispatch) -> Reply:
        headers = {"Content-Type": "application/json", **self._wire.headers_for(agent, dispatch)}
        content = DispatchEnvelope(dispatch=dispatch).model_dump_json().encode()
        return await self._wire.exchange(agent, "POST", url, headers=headers, content=content, most=MAX_ANSWER_BYTES)
