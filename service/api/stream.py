"""`POST /orchestrate/stream`: the turn as server-sent events (WHATWG HTML, 9.2), each with a name, a number and one JSON object.

The work runs in a task of its own. When the client leaves, the task is cancelled; what it had by then is stored by the pipeline.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

from fastapi import Response
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from service.api.middleware import ENDING, STREAM_PROBLEM
from service.api.problems import describe
from service.contracts.model import Contract
from service.contracts.problem import Problem
from service.contracts.progress import AgentEnd, AgentStart, DecisionMade, FinalOutput, PartialResult, ProgressEvent, StreamProblem
from service.errors import PointsmanError, ShuttingDown
from service.pipeline import Answered, Tell

log = logging.getLogger(__name__)
KEEP_ALIVE = 15.0  # seconds of silence after which a comment is sent, so that no proxy takes the connection for dead
PATIENCE = 30.0  # seconds that a client may take to read an event
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Name = Literal["decision", "agent_start", "agent_end", "partial", "output", "problem"]
Events = asyncio.Queue[ProgressEvent | None]
NAMES: dict[type[Contract], Name] = {
    DecisionMade: "decision",
    AgentStart: "agent_start",
    AgentEnd: "agent_end",
    PartialResult: "partial",
    FinalOutput: "output",
    StreamProblem: "problem",
}


class EventStream(Response):
    """Sends a turn's events until the last one, or until the client has left.

    Args:
        work: the turn under way.
        events: what it tells, and None once it has ended.
        told: events that were taken from `events` before the stream began.
        describe_error: how an error becomes a problem.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        work: asyncio.Future[Answered],
        events: Events,
        told: Sequence[ProgressEvent],
        describe_error: Callable[[PointsmanError], Problem],
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._work = work
        self._events = events
        self._told = told
        self._describe_error = describe_error
        self._count = 0
        self._state: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; the work ends with it."""
        self._state = scope["state"]
        leaving, sending = asyncio.ensure_future(_left(receive)), asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server ends
            await self._end(leaving, sending)
            await self._send(send, StreamProblem(problem=self._describe_error(ShuttingDown(ENDING))))
            await _within_patience(send({"type": "http.response.body", "body": b"", "more_body": False}))
            raise
        finally:
            await self._end(leaving, sending)

    async def _end(self, leaving: asyncio.Future[None], sending: asyncio.Future[None]) -> None:
        for task in (leaving, sending):
            task.cancel()
        self._work.cancel()
        await asyncio.gather(leaving, sending, self._work, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        await _within_patience(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
        for event in self._told:
            await self._send(send, event)
        while (event_or_end := await self._next(send)) is not None:
            await self._send(send, event_or_end)
        await self._send(send, self._last())
        await _within_patience(send({"type": "http.response.body", "body": b"", "more_body": False}))

    async def _next(self, send: Send) -> ProgressEvent | None:
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE):
                    return await self._events.get()
            except TimeoutError:
                await _within_patience(send({"type": "http.response.body", "body": b": still working\n\n", "more_body": True}))

    def _last(self) -> FinalOutput | StreamProblem:
        try:
            answered = self._work.result()
        except PointsmanError as exc:
            return StreamProblem(problem=self._describe_error(exc))
        except Exception:  # the edge: the status line is sent, so the error handlers cannot answer
            log.exception("unforeseen_error")
            error = PointsmanError("Something went wrong inside the service. The log has the request id.")
            return StreamProblem(problem=self._describe_error(error))
        return FinalOutput(output=answered.receipt.output, replayed=answered.replayed)

    async def _send(self, send: Send, event: ProgressEvent | FinalOutput | StreamProblem) -> None:
        self._count += 1
        if isinstance(event, StreamProblem):
            self._state[STREAM_PROBLEM] = event.problem
        data = event.model_dump_json(exclude_none=isinstance(event, StreamProblem))
        body = format_sse_event(data_str=data, event=NAMES[type(event)], id=str(self._count))
        await _within_patience(send({"type": "http.response.body", "body": body, "more_body": True}))


async def open_stream(run: Callable[[Tell], Coroutine[Any, Any, Answered]], path: str, request_id: str) -> EventStream:
    """Start a turn and return the stream of its events, once there is a first one, or after a while without one.

    Raises:
        PointsmanError: the turn failed before there was anything to tell; then it is an ordinary problem with its status.
    """
    events: Events = asyncio.Queue()
    work = asyncio.create_task(run(events.put_nowait))
    work.add_done_callback(lambda _: events.put_nowait(None))
    told: tuple[ProgressEvent, ...] = ()
    try:
        async with asyncio.timeout(KEEP_ALIVE):
            first = await events.get()
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        work.cancel()
        raise
    else:
        if first is None:
            work.result()  # raises what the turn has failed with
            events.put_nowait(None)
        else:
            told = (first,)
    return EventStream(work, events, told, lambda error: describe(error, path, request_id))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _within_patience(sending: Awaitable[None]) -> None:
    async with asyncio.timeout(PATIENCE):
        await sending
