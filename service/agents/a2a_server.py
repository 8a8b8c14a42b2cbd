"""The explainer as an A2A 1.0 agent: its card, and JSON-RPC by the server side of a2a-sdk. It knows neither the explainer nor HTTP limits.

The SDK takes seconds to import, so `app.py` imports this module with the first request to `/a2a/...`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message, Part, Role, SendMessageRequest, Task
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from google.protobuf import json_format
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from service.agents.directory import AGENTS
from service.contracts.dispatch import (
    AgentDispatch,
    DispatchConstraints,
    DispatchEnvelope,
    DispatchMetadata,
    DispatchPayload,
    DispatchRouting,
)
from service.contracts.handoff import AgentHandoff, HandoffEnvelope

NAME = "explainer"
PATH = f"/{NAME}"  # below the app's own path
PLAIN_LIMIT_MS = 30_000  # for a message that is not a dispatch, and so names no limit
Answer = Callable[[str, AgentDispatch], Awaitable[AgentHandoff]]


class A2aServer:
    """The ASGI app of the agent, from its own path on; `answer` runs a built-in agent within its time."""

    def __init__(self, answer: Answer) -> None:
        """Join the parts; nothing runs yet."""
        self._handler = _Handler(agent_executor=Explainer(answer), task_store=InMemoryTaskStore(), agent_card=card_at(PATH))
        card = Route(PATH + AGENT_CARD_WELL_KNOWN_PATH, show_card, methods=["GET"])
        self._router = Router([card, *create_jsonrpc_routes(self._handler, PATH)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._router(scope, receive, send)

    async def close(self) -> None:
        """End what is under way."""
        await self._handler.aclose()


async def show_card(request: Request) -> JSONResponse:
    """Return the card, with an address of the origin that the client sees: one of another origin is of no use to it."""
    here = request.url.replace(path=request.scope["root_path"] + PATH, query="")
    return JSONResponse(agent_card_to_dict(card_at(str(here))))


class _Handler(DefaultRequestHandler):
    """Refuses what is no question before the SDK makes a task of it, which it would keep for ever."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        read_dispatch(params.message)
        answer: Message | Task = await super().on_message_send(params, context)
        return answer


def card_at(address: str) -> AgentCard:
    """Return the card of the agent that listens at `address`."""
    entry = AGENTS[NAME]
    skill = AgentSkill(
        id="explain",
        name="Explain",
        description=entry.description,
        tags=["explanation"],
        examples=["Why did Kisqali TRx change in the Northeast last quarter?", "What is a confidence interval?"],
    )
    return AgentCard(
        name=entry.name,
        description=entry.description,
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=address, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=False, push_notifications=False),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[skill],
    )


class Explainer(AgentExecutor):
    """Answers each message with one message, so that no task is left to be kept: its text, and `{"handoff": ...}` as data."""

    def __init__(self, answer: Answer) -> None:
        """Keep the way to run the agent."""
        self._answer = answer

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer the message of the context.

        Raises:
            InvalidParamsError: it holds neither text nor a dispatch for this agent.
        """
        handoff = await self._answer(NAME, read_dispatch(context.message or Message()))
        said = " ".join(handoff.result.evidence) or handoff.errors.error_message or "There is no answer."
        data = Part(media_type="application/json")
        data.data.struct_value.update(HandoffEnvelope(handoff=handoff).model_dump(mode="json"))
        message = Message(
            message_id=str(uuid4()),
            context_id=context.context_id,
            role=Role.ROLE_AGENT,
            parts=[Part(text=said, media_type="text/plain"), data],
        )
        message.metadata.update({"confidence": handoff.result.confidence})
        await event_queue.enqueue_event(message)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Refuse: there are no tasks.

        Raises:
            UnsupportedOperationError: always.
        """
        raise UnsupportedOperationError("The explainer answers by a message; there is no task to cancel.")


def read_dispatch(message: Message) -> AgentDispatch:
    """Return the dispatch of a message: that of its data, or one made of its text, for a client that knows nothing of dispatches.

    Raises:
        InvalidParamsError: it holds neither text nor a dispatch for this agent.
    """
    for part in message.parts:
        if part.WhichOneof("content") == "data" and "dispatch" in part.data.struct_value.fields:
            try:
                dispatch = DispatchEnvelope.model_validate(json_format.MessageToDict(part.data)).dispatch
            except ValidationError as exc:
                first = exc.errors(include_url=False, include_input=False)[0]
                raise InvalidParamsError(f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}") from exc
            if dispatch.target_agent != NAME:
                raise InvalidParamsError(f"The dispatch is for another agent; target_agent must be {NAME}.")
            return dispatch
    text = "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()
    if not text:
        raise InvalidParamsError("The message has neither a text nor a data part with a dispatch.")
    return _make_dispatch(text, message)


def _make_dispatch(text: str, message: Message) -> AgentDispatch:
    return AgentDispatch(
        dispatch_id=_uuid(message.message_id),
        query_id=_uuid(message.context_id),
        target_agent=NAME,
        target_tier=AGENTS[NAME].tier,
        payload=DispatchPayload(
            intent="explanation",
            context={"raw_query": text},
            constraints=DispatchConstraints(max_latency_ms=PLAIN_LIMIT_MS, required_confidence=0.0),
        ),
        routing=DispatchRouting(priority=2 + AGENTS[NAME].tier, timeout_ms=PLAIN_LIMIT_MS, retry_count=0, fallback_agent=None),
        metadata=DispatchMetadata(dispatched_at=datetime.now(UTC), correlation_id=message.message_id),
    )


def _uuid(text: str) -> UUID:
    """Return the client's id where it is a UUID, which it need not be."""
    try:
        return UUID(text)
    except ValueError:
        return uuid4()
