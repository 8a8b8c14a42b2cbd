"""The server in front of the agents: it reads each request, acts a fault out where the plan has one, and else passes the request on.

With no agents behind it, it answers every dispatch with a plain success, at once, and so serves tests and benchmarks as any agent.
"""

import asyncio
import logging
import re
import socket
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx
from pydantic import ValidationError

from service.agents.faults.acts import Exchange, act_out
from service.agents.faults.handoffs import as_answer, made_up_outputs, plain_handoff
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan
from service.agents.faults.schedule import Schedule
from service.agents.faults.wire import Answer, Connection, Request
from service.agents.finding import Run
from service.catalog.loader import load_catalog
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.model import JsonObject

logger = logging.getLogger(__name__)

MOST_KEPT = 10_000
_OF_ONE_HOP = frozenset({"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})


@dataclass(slots=True)
class Received:
    """One dispatch that arrived, and what became of it. `hung_up`: the client left before its answer was complete."""

    agent: str
    dispatch_id: UUID
    deadline_ms: int | None
    correlation_id: str | None
    headers: dict[str, str]
    fault: Fault | None = None
    hung_up: bool = False


@dataclass
class FaultServer:
    """An async context manager that serves while it is open, and at its end leaves neither task nor socket behind.

    Args:
        plan: the faults; none: a plain answer to everything.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        behind: the address of the agents that answer what meets no fault, such as http://127.0.0.1:8102; None: plain answers.
        on_fault: is told of each dispatch that meets a fault, before the fault is acted out.
        outputs: by agent, the output of a plain answer; None: what the packaged catalogue asks for.
    """

    plan: FaultPlan = field(default_factory=FaultPlan)
    host: str = "127.0.0.1"
    port: int = 0
    behind: str | None = None
    on_fault: Callable[[Received], None] | None = None
    outputs: Mapping[str, JsonObject] | None = None
    received: deque[Received] = field(default_factory=lambda: deque(maxlen=MOST_KEPT), init=False)
    """The latest dispatches, ten thousand at most, in the order of their arrival."""
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """All dispatches so far, by agent."""
    _talks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _client: httpx.AsyncClient | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        self._schedule, self._closing = Schedule(self.plan), False
        if self.outputs is None:
            self.outputs = made_up_outputs(load_catalog())
        async with AsyncExitStack() as opening:
            self._refusing = opening.enter_context(socket.socket())
            self._refusing.bind(("127.0.0.1", 0))
            if self.behind is not None:
                client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None), trust_env=False)
                self._client = await opening.enter_async_context(client)
            self._server = await asyncio.start_server(self._accept, self.host, self.port)
            self.port = self._server.sockets[0].getsockname()[1]
            opening.push_async_callback(self._stop)
            self._opened = opening.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the socket, break off every connection, and wait until all is gone. It can be opened again, at the same port."""
        await self._opened.aclose()

    @property
    def address(self) -> str:
        """Where this listens, as `http://host:port`."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def url(self, agent: str) -> str:
        """Return the address of an agent, whatever its name."""
        return f"{self.address}/agents/{agent}"

    @property
    def refused_url(self) -> str:
        """An address that refuses each TCP connection: its port is taken, so that nobody else gets it, and nobody listens there."""
        return f"http://127.0.0.1:{self._refusing.getsockname()[1]}/agents/refused"

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return len(self._talks)

    def received_by(self, agent: str) -> list[Received]:
        """Return an agent's latest dispatches, in the order of their arrival."""
        return [one for one in self.received if one.agent == agent]

    def follow(self, plan: FaultPlan, *, anew: bool = False) -> None:
        """Go on with another plan.

        Args:
            plan: the plan. Faults that are being acted out go on until they end.
            anew: whether every count begins at zero again; else entries that stand in both plans go on with theirs.
        """
        self.plan = plan
        if anew:
            self._schedule = Schedule(plan)
        else:
            self._schedule.follow(plan)

    async def _stop(self) -> None:
        self._closing = True
        self._server.close()
        for talk in tuple(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:  # it was waiting to be accepted
            writer.transport.abort()
            return
        talk = asyncio.create_task(self._talk(Connection(reader, writer)))
        self._talks.add(talk)
        talk.add_done_callback(self._forget)

    def _forget(self, talk: asyncio.Task[None]) -> None:
        self._talks.discard(talk)
        if not talk.cancelled() and (error := talk.exception()) is not None:
            logger.error("a connection of the fault server broke on a bug", exc_info=error)

    async def _talk(self, connection: Connection) -> None:
        """Answer the requests of one connection until it ends."""
        try:
            while connection.is_usable and (request := await connection.next_request()) is not None:
                await self._answer(connection, request)
            await connection.end()
        except ConnectionError:
            pass  # the client has left
        finally:
            connection.abort()

    async def _answer(self, connection: Connection, request: Request) -> None:
        agent, dispatch = request.agent, _dispatch_of(request)
        if agent is None or dispatch is None:
            await connection.respond(await self._pass_on(request))
            return
        received = self._note(agent, dispatch, request)
        planned = self._schedule.next_fault(agent)
        run, output = Run(dispatch, agent, dispatch.target_tier), (self.outputs or {}).get(agent, {})

        async def right_answer() -> Answer:
            return await self._pass_on(request) if self.behind is not None else as_answer(plain_handoff(run, output))

        if planned is not None:
            received.fault = planned.fault
            if self.on_fault is not None:
                self.on_fault(received)
            await self._while_heard(connection, received, act_out(Exchange(connection, planned, run, output, right_answer)))
        elif self.behind is None:  # at once, so nobody can leave meanwhile
            await connection.respond(await right_answer())
        else:

            async def relay() -> None:
                await connection.respond(await right_answer())

            await self._while_heard(connection, received, relay())

    def _note(self, agent: str, dispatch: AgentDispatch, request: Request) -> Received:
        deadline = request.header("x-deadline-ms") or ""
        deadline_ms = int(deadline) if re.fullmatch(r"[0-9]{1,15}", deadline) else None
        received = Received(agent, dispatch.dispatch_id, deadline_ms, request.header("x-correlation-id"), dict(request.headers))
        self.received.append(received)
        self.counts[agent] += 1
        return received

    async def _while_heard(self, connection: Connection, received: Received, work: Coroutine[Any, Any, None]) -> None:
        """Do the work as long as the client is there."""
        working, leaving = asyncio.create_task(work), asyncio.create_task(connection.left())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            received.hung_up = not working.done() or isinstance(working.exception(), ConnectionError)
        finally:
            leaving.cancel()
            working.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)
        if received.hung_up:
            connection.is_usable = False
        else:
            working.result()

    async def _pass_on(self, request: Request) -> Answer:
        """Return the agents' answer, or, with no agents behind, what is said of a request that is no dispatch."""
        if self._client is None:
            if request.path == "/healthz":
                return Answer(b'{"status":"ok"}')
            return Answer(b"", 404 if request.agent is None else 400)
        headers = [(name, value) for name, value in request.headers if name not in _OF_ONE_HOP]
        try:
            asked = self._client.build_request(request.method, f"{self.behind}{request.path}", headers=headers, content=request.body)
            answer = await self._client.send(asked, stream=True)
            try:
                body = b"".join([piece async for piece in answer.aiter_raw()])
            finally:
                await answer.aclose()
        except (httpx.TransportError, httpx.InvalidURL):
            return Answer(b"", 502)
        return Answer(body, answer.status_code, tuple((n, v) for n, v in answer.headers.multi_items() if n not in _OF_ONE_HOP))


def _dispatch_of(request: Request) -> AgentDispatch | None:
    """Return the dispatch that an agent is sent, or None where the request is something else."""
    if request.agent is None:
        return None
    try:
        return DispatchEnvelope.model_validate_json(request.body).dispatch
    except ValidationError:
        return None
