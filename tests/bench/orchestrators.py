"""Two other orchestrators behind the same entry as Pointsman: `python -m tests.bench.orchestrators langgraph|squad PORT AGENTS_URL FOLDER`.

FastAPI on uvicorn; a scripted model that takes no time chooses the agent; the same HTTP agents are called through aiohttp; what each
library keeps is kept on disk (langgraph: its SQLite checkpointer; agent-squad: its SQL storage). Runs in an environment of its own
(`tests/bench/orchestrators.txt`); imports nothing of Pointsman.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
import uvicorn
from fastapi import Body, FastAPI

AGENTS = (
    "causal_impact gap_analyzer heterogeneous_optimizer experiment_designer health_score drift_monitor observability_connector "
    "prediction_synthesizer resource_optimizer explainer scope_definer data_preparer model_selector model_trainer feature_analyzer "
    "model_deployer"
).split()
Answer = Callable[[str, str, str], Awaitable[str]]


class HttpAgents:
    """Posts a dispatch to an agent and returns what it finds, in words."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def ask(self, agent: str, text: str) -> str:
        """Ask one agent."""
        dispatch = {
            "dispatch_id": str(uuid4()),
            "query_id": str(uuid4()),
            "target_agent": agent,
            "target_tier": 2,
            "payload": {
                "intent": agent,
                "entities": [],
                "context": {"raw_query": text},
                "constraints": {"max_latency_ms": 60_000, "required_confidence": 0.0},
            },
            "routing": {"priority": 4, "timeout_ms": 60_000, "retry_count": 2, "fallback_agent": None},
            "metadata": {"dispatched_at": datetime.now(UTC).isoformat(), "correlation_id": "bench"},
        }
        async with self._session.post(f"{self._address}/agents/{agent}", json={"dispatch": dispatch}) as response:
            return str((await response.json())["handoff"]["result"]["primary_output"])


@asynccontextmanager
async def langgraph(agents: HttpAgents, folder: str) -> AsyncIterator[Answer]:
    """A supervisor over sixteen one-node agents, with the SQLite checkpointer in its fastest durable mode (write-ahead log)."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph_supervisor import create_supervisor

    turn = itertools.count()

    class Scripted(BaseChatModel):
        """Hands over to an agent, in turn; after the agent it repeats what that said."""

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
            return self

        def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            last = messages[-1]
            if isinstance(last, HumanMessage):
                name = f"transfer_to_{AGENTS[next(turn) % len(AGENTS)]}"
                message = AIMessage(content="", tool_calls=[{"name": name, "args": {}, "id": str(uuid4())}])
            else:
                said = next(m.content for m in reversed(messages) if isinstance(m, AIMessage) and m.content and not m.tool_calls)
                message = AIMessage(content=said)
            return ChatResult(generations=[ChatGeneration(message=message)])

    def graph_of(name: str) -> Any:
        async def work(state: Any) -> dict[str, Any]:
            text = next(m.content for m in reversed(state["messages"]) if isinstance(m, HumanMessage))
            return {"messages": [AIMessage(content=await agents.ask(name, text), name=name)]}

        graph = StateGraph(MessagesState)
        graph.add_node(name, work)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
        return graph.compile(name=name)

    supervisor = create_supervisor([graph_of(name) for name in AGENTS], model=Scripted())
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
        compiled = supervisor.compile(checkpointer=saver)

        async def answer(user: str, session: str, text: str) -> str:
            state = await compiled.ainvoke({"messages": [HumanMessage(content=text)]}, {"configurable": {"thread_id": f"{user}/{session}"}})
            return str(state["messages"][-1].content)

        yield answer


@asynccontextmanager
async def squad(agents: HttpAgents, folder: str) -> AsyncIterator[Answer]:
    """agent-squad with a classifier that takes the agents in turn, and its SQL storage on a local file."""
    from agent_squad.agents import Agent, AgentOptions
    from agent_squad.classifiers import Classifier, ClassifierResult
    from agent_squad.orchestrator import AgentSquad
    from agent_squad.storage.sql_chat_storage import SqlChatStorage
    from agent_squad.types import ConversationMessage, ParticipantRole

    class OverHttp(Agent):
        async def process_request(
            self, input_text: str, user_id: str, session_id: str, chat_history: Any, additional_params: Any = None
        ) -> ConversationMessage:
            found = await agents.ask(self.name, input_text)
            return ConversationMessage(role=ParticipantRole.ASSISTANT.value, content=[{"text": found}])

    class InTurn(Classifier):
        def __init__(self, chosen: list[Agent]) -> None:
            super().__init__()
            self._turns = itertools.cycle(chosen)

        async def process_request(self, input_text: str, chat_history: Any) -> ClassifierResult:
            return ClassifierResult(selected_agent=next(self._turns), confidence=1.0)

    chosen = [OverHttp(AgentOptions(name=name, description=f"Does what {name} does.")) for name in AGENTS]
    storage = SqlChatStorage(url=f"file:{folder}/squad.db")
    await storage.initialize()
    orchestrator = AgentSquad(storage=storage, classifier=InTurn(chosen), default_agent=chosen[0])
    for agent in chosen:
        orchestrator.add_agent(agent)

    async def answer(user: str, session: str, text: str) -> str:
        response = await orchestrator.route_request(text, user, session)
        return str(response.output.content[0]["text"])

    yield answer


def create_app(kind: str, address: str, folder: str) -> FastAPI:
    """Make the app with the same route as Pointsman's."""
    opened: dict[str, Answer] = {}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with {"langgraph": langgraph, "squad": squad}[kind](HttpAgents(address), folder) as answer:
            opened["answer"] = answer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orchestrate")
    async def orchestrate(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008  (FastAPI's way)
        text = await opened["answer"](body["user_id"], body["session_id"], body["parsed_query"]["raw_query"])
        return {"status": "success", "response_text": text}

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app


if __name__ == "__main__":
    _, kind, port, address, folder = sys.argv
    config = uvicorn.Config(create_app(kind, address, folder), host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
    asyncio.run(uvicorn.Server(config).serve())
