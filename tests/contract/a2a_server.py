"""An A2A agent on the bare HTTP server: a card, and answers in JSON-RPC, byte by byte and without a2a-sdk, so that it can misbehave."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.contract.http_server import Answer, Request, Server, Writer, good, http

CARD_PATH = "/.well-known/agent-card.json"
OPEN_TASK = "TASK_STATE_WORKING"


def asks_for_card(request: Request) -> bool:
    """Say whether a request is one for the card."""
    return request.line.split(" ")[1].endswith(CARD_PATH)


def card(server: Server, request: Request, *, scheme: str = "http") -> dict[str, Any]:
    """Return a card that passes every check; its one interface is at the address below which the card was asked for."""
    path = request.line.split(" ")[1].removesuffix(CARD_PATH)
    return {
        "name": "Agent of a test",
        "description": "Says what a test wants.",
        "version": "1",
        "supportedInterfaces": [
            {"url": f"{scheme}://127.0.0.1:{server.port}{path}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def behind_card(answer: Answer, change: Callable[[dict[str, Any]], Any] = lambda card: card, *, scheme: str = "http") -> Answer:
    """Answer with a card, changed, where one is asked for, and otherwise as told."""

    async def answer_both(server: Server, request: Request, writer: Writer) -> None:
        if asks_for_card(request):
            writer.write(http(json.dumps(change(card(server, request, scheme=scheme))).encode()))
        else:
            await answer(server, request, writer)

    return answer_both


def method_of(request: Request) -> str:
    """Return the method of JSON-RPC."""
    return str(request.body["method"])


def unwrap(request: Request) -> Request:
    """Return the request as one over plain HTTP, with the dispatch envelope as its body."""
    parts = request.body["params"]["message"]["parts"]
    return Request(request.line, request.headers, next(part["data"] for part in parts if "data" in part))


def result(request: Request, value: Any) -> bytes:
    """Return a complete response with a result."""
    return http(json.dumps({"jsonrpc": "2.0", "id": request.body["id"], "result": value}).encode())


def error(request: Request, code: int, message: str = "It went wrong.") -> bytes:
    """Return a complete response with an error of JSON-RPC."""
    return http(json.dumps({"jsonrpc": "2.0", "id": request.body["id"], "error": {"code": code, "message": message}}).encode())


def text(*said: str) -> list[dict[str, Any]]:
    """Return parts of text."""
    return [{"text": one} for one in said]


def message(parts: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a message of the agent as a result."""
    return {"message": {"messageId": "m-1", "role": "ROLE_AGENT", "parts": list(parts), **fields}}


def task(state: str, said: Sequence[dict[str, Any]] = (), *, produced: Sequence[dict[str, Any]] = (), **fields: Any) -> dict[str, Any]:
    """Return a task with a status message and one artifact."""
    status: dict[str, Any] = {"state": state}
    if said:
        status["message"] = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": list(said), **fields.pop("notes", {})}
    artifacts = [{"artifactId": "a-1", "parts": list(produced)}] if produced else []
    return {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": artifacts, **fields}


def replying(reply: Callable[[Request], bytes]) -> Answer:
    """Answer a request of JSON-RPC with a complete response."""

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        writer.write(reply(request))

    return behind_card(answer)


def saying_message(parts: Sequence[dict[str, Any]], **fields: Any) -> Answer:
    """Answer with a message."""
    return replying(lambda request: result(request, message(parts, **fields)))


def saying_tasks(*tasks: dict[str, Any]) -> Answer:
    """Answer the message with the first task, and each look at it with the next one; the last one stays. A cancellation is granted."""
    left = list(tasks)

    def reply(request: Request) -> bytes:
        if method_of(request) == "CancelTask":
            return result(request, task("TASK_STATE_CANCELED"))
        one = left.pop(0) if len(left) > 1 else left[0]
        return result(request, {"task": one} if method_of(request) == "SendMessage" else one)

    return replying(reply)


def handing_off(change: Callable[[dict[str, Any]], Any] = lambda envelope: envelope) -> Answer:
    """Answer with a message whose data is a good handoff, changed."""
    return replying(lambda request: result(request, message([{"data": change(good(unwrap(request)))}])))
