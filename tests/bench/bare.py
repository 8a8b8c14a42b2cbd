"""The least that a routed request costs: encode its text, call one agent over HTTP, commit one row.

`python -m tests.bench.bare PORT AGENTS_URL FOLDER`. The same entry, encoder, agents and disk as Pointsman in the same run; nothing is
decided, checked, bounded or measured. How fast the machine is at the moment shows here, so what Pointsman costs can be said as a multiple.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import Body, FastAPI

from service.routing.encoder import Encoder
from tests.bench.orchestrators import AGENTS, HttpAgents


def create_app(address: str, folder: str) -> FastAPI:
    """Make the app with the same route as Pointsman's."""
    encoder, opened = Encoder(threads=2), dict[str, HttpAgents]()
    deciding, writer = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
    connection = sqlite3.connect(f"{folder}/bare.db", check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE answer (query_id TEXT PRIMARY KEY, request TEXT, answer TEXT)")

    def commit(query_id: str, request: dict[str, Any], text: str) -> None:
        connection.execute("INSERT INTO answer VALUES (?, ?, ?)", (query_id, json.dumps(request), text))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        opened["agents"] = HttpAgents(address)
        yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orchestrate")
    async def orchestrate(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008  (FastAPI's way)
        loop, query = asyncio.get_running_loop(), body["parsed_query"]
        encoding = await loop.run_in_executor(deciding, encoder.encode, query["raw_query"])
        agent = AGENTS[int(encoding.tokens[-1]) % len(AGENTS)] if len(encoding.tokens) else AGENTS[0]
        text = await opened["agents"].ask(agent, query["raw_query"])
        await loop.run_in_executor(writer, commit, query["query_id"], body, text)
        return {"status": "success", "response_text": text}

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app


if __name__ == "__main__":
    _, port, address, folder = sys.argv
    config = uvicorn.Config(create_app(address, folder), host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
    asyncio.run(uvicorn.Server(config).serve())
