"""The ASGI app of the built-in agents: `POST /agents/{name}`, `GET /agents`, `GET /healthz`, `/a2a/explainer`. It knows no agent's work.

Importing this module loads none of pandas, scipy, scikit-learn, statsmodels or dowhy: they load in the background after the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from service.agents.directory import AGENTS, loaded_agents, run_agent
from service.agents.finding import Run
from service.agents.warmup import WarmUp
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import AgentHandoff, HandoffEnvelope, HandoffStatus

if TYPE_CHECKING:
    from service.agents.a2a_server import A2aServer

WORKERS = 4
MOST_WAITING = 64
LARGEST_BODY = 4 * 2**20
PROBLEM_TITLES = {
    400: "Invalid dispatch",
    404: "Not found",
    405: "Method not allowed",
    413: "Dispatch too large",
    503: "Too much work is waiting",
}


class Workers:
    """Runs agents in a bounded number of threads, with a bounded number of dispatches waiting, each within its own time."""

    def __init__(self, workers: int = WORKERS, most_waiting: int = MOST_WAITING) -> None:
        """Start no thread: they start with the first dispatch."""
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="agent")
        self._room = workers + most_waiting
        self._taken = 0

    @property
    def is_full(self) -> bool:
        """Whether another dispatch would have to be turned away."""
        return self._taken >= self._room

    async def run(self, name: str, dispatch: AgentDispatch) -> AgentHandoff:
        """Return the agent's handoff, or one with status `timeout` when its time is over. The thread's work goes on unheard."""
        run = Run(dispatch, name, AGENTS[name].tier)
        limit_ms = dispatch.payload.constraints.max_latency_ms
        self._taken += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, run_agent, name, dispatch)
        future.add_done_callback(self._release)
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit_ms / 1000.0)
        except TimeoutError:
            message = f"The agent {name} did not answer within {limit_ms} ms."
            return run.failed("timeout", message, recoverable=True, status=HandoffStatus.TIMEOUT)

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _release(self, _: object) -> None:
        self._taken -= 1


class A2aDoor:
    """Leads to the agents that speak A2A. What they need is imported with the first request, and a request is bounded as elsewhere."""

    def __init__(self, workers: Workers) -> None:
        """Import nothing yet."""
        self._workers = workers
        self._opening = asyncio.Lock()
        self._server: A2aServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or turn it away."""
        if self._workers.is_full and scope["method"] == "POST":
            await _busy()(scope, receive, send)
            return
        read = 0

        async def receive_bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > LARGEST_BODY:
                raise HTTPException(413)  # the SDK makes an answer of JSON-RPC of it
            return message

        await (await self._open())(scope, receive_bounded, send)

    async def close(self) -> None:
        """End what is under way."""
        if self._server is not None:
            await self._server.close()

    async def _open(self) -> A2aServer:
        async with self._opening:
            if self._server is None:
                module = await asyncio.to_thread(import_module, "service.agents.a2a_server")
                self._server = module.A2aServer(self._workers.run)
            return self._server


def create_agents_app(*, warm_up: bool = True) -> Starlette:
    """Return the app. The warm-up begins with the app's lifespan and holds back no request."""
    workers = Workers()
    warmth = WarmUp()
    a2a = A2aDoor(workers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if warm_up:
            warmth.start()
        yield
        warmth.stop()
        await a2a.close()
        workers.close()

    async def dispatch_to_agent(request: Request) -> Response:
        name = request.path_params["name"]
        dispatch = await _accept(name, request)
        if isinstance(dispatch, Response):
            return dispatch
        if workers.is_full:
            return _busy()
        handoff = await workers.run(name, dispatch)
        return Response(HandoffEnvelope(handoff=handoff).model_dump_json(), media_type="application/json")

    async def list_agents(_: Request) -> Response:
        return JSONResponse(
            {
                "agents": [
                    {"name": one.name, "tier": one.tier, "description": one.description, "path": f"/agents/{one.name}"}
                    for one in AGENTS.values()
                ]
            }
        )

    async def report_health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "loaded": loaded_agents(), "warming_up": warmth.is_running})

    return Starlette(
        routes=[
            Route("/agents/{name}", dispatch_to_agent, methods=["POST"]),
            Route("/agents", list_agents, methods=["GET"]),
            Route("/healthz", report_health, methods=["GET"]),
            Mount("/a2a", a2a),
        ],
        exception_handlers={HTTPException: _handle_http_exception},
        lifespan=lifespan,
    )


def _busy() -> Response:
    return _problem(503, f"{WORKERS + MOST_WAITING} dispatches are already taken.", headers={"Retry-After": "1"})


async def _accept(name: str, request: Request) -> AgentDispatch | Response:
    """Return the dispatch that the request carries, or the problem that it is answered with."""
    if name not in AGENTS:
        return _problem(404, f"There is no agent of this name. There are: {', '.join(AGENTS)}.")
    body = await _read(request)
    if body is None:
        return _problem(413, f"The dispatch is larger than {LARGEST_BODY:,} bytes.")
    try:
        dispatch = DispatchEnvelope.model_validate_json(body).dispatch
    except ValidationError as problem:
        return _problem(400, "The body is not a dispatch envelope.", _fields(problem))
    if dispatch.target_agent != name:
        fields = [{"field": "dispatch.target_agent", "message": f"must be {name}, the agent that this address belongs to"}]
        return _problem(400, "The dispatch is for another agent.", fields)
    return dispatch


async def _read(request: Request) -> bytes | None:
    """Return the body, or None as soon as it is larger than allowed."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


async def _handle_http_exception(_: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    headers = problem.headers if isinstance(problem, HTTPException) else None
    return _problem(status, PROBLEM_TITLES.get(status, "Error") + ".", headers=dict(headers or {}))


def _problem(status: int, detail: str, errors: list[dict[str, str]] | None = None, headers: dict[str, str] | None = None) -> Response:
    body: dict[str, object] = {"type": "about:blank", "title": PROBLEM_TITLES.get(status, "Error"), "status": status, "detail": detail}
    if errors is not None:
        body["errors"] = errors
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


def _fields(problem: ValidationError) -> list[dict[str, str]]:
    return [
        {"field": ".".join(str(step) for step in error["loc"]), "message": error["msg"]}
        for error in problem.errors(include_url=False, include_input=False, include_context=False)[:50]
    ]
