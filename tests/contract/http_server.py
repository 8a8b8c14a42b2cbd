"""A bare HTTP server on loopback that answers as a test tells it to, byte by byte, and so can misbehave; and an agent that lives there."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pydantic import AnyHttpUrl

from service.catalog.loader import load_catalog
from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.flows.work import Work, build_dispatch
from service.ports import AgentClient, AgentFailure
from tests.fakes import handoff_for
from tests.unit.turns import some_work

CATALOG = load_catalog()
TIMEOUT = 0.3  # seconds, for an agent that will not answer
AMPLE = 10.0  # seconds, for one that will
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Answer = Callable[["Server", "Request", Writer], Awaitable[None]]


@dataclass
class Request:
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Server:
    """A bare HTTP server: `answer` gets the request and writes to the socket what it likes."""

    answer: Answer
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Answer the requests of one connection until it ends."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *fields = head.decode("latin-1").strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(line, headers, json.loads(body or b"null")))
                await self.answer(self, self.requests[-1], writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve on a free port of loopback, and end every connection at the end."""
    state = Server(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def track(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.CancelledError):
            await state.serve(reader, writer)

    server = await asyncio.start_server(track, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def free_port() -> int:
    """Return a port on which nobody listens."""
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


def http(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """Return a complete HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(f"{n.replace('_', '-')}: {v}" for n, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def saying(*parts: bytes, pause: float = 0.0, close: bool = False) -> Answer:
    """Write bytes, with pauses between them, and perhaps hang up."""

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if close:
            writer.close()

    return answer


async def hanging(server: Server, request: Request, writer: Writer) -> None:
    """Never answer."""
    await asyncio.sleep(60)


def agent_at(
    *ports: int, name: str = "causal_impact", timeout_ms: int = int(TIMEOUT * 1_000), scheme: str = "http", **fields: Any
) -> Agent:
    """Return an agent that listens on the given ports."""
    urls = tuple(AnyHttpUrl(f"{scheme}://127.0.0.1:{port}/agents/{name}") for port in ports)
    return CATALOG.agent[name].model_copy(update={"urls": urls, "timeout_ms": timeout_ms, **fields})


async def send(client: AgentClient, agent: Agent, *, timeout: float = AMPLE, work: Work | None = None) -> AgentHandoff | AgentFailure:
    """Send some work to the first address of an agent."""
    dispatch = build_dispatch(agent, work or some_work(), timeout, uuid4())
    return await client.send(agent, str(agent.urls[0]), dispatch, timeout=timeout)


def good(request: Request, agent: Agent = CATALOG.agent["causal_impact"]) -> dict[str, Any]:
    """Return a handoff envelope that passes every check."""
    dispatch = AgentDispatch.model_validate(request.body["dispatch"])
    return {"handoff": handoff_for(agent, dispatch).model_dump(mode="json")}


def answering(change: Callable[[dict[str, Any]], Any] = lambda envelope: envelope) -> Answer:
    """Answer with a good handoff, changed."""

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        writer.write(http(json.dumps(change(good(request))).encode()))

    return answer
