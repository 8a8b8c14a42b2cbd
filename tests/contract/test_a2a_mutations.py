"""Cards and answers of A2A with a few values put wrong, by chance but the same in each run: never an exception."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from service.adapters import a2a_agents
from service.adapters.a2a_agents import A2aAgents
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.ports import AgentFailure
from tests.contract.a2a_server import asks_for_card, card, message, method_of, task, text, unwrap
from tests.contract.http_server import AMPLE, Request, Server, Writer, agent_at, good, http, send, serving

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**70, "", "x", "\0", "http://a/b", "1.0", [], {}, [[]], {"a": 1}, ["x"], {"handoff": []},
    "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", 3, 7, 99, "é" * 50, {"": None},
)  # fmt: skip
NAMES = ("id", "parts", "data", "text", "status", "metadata", "url", "raw", "error", "result", "securityRequirements")
STATES = ("TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_INPUT_REQUIRED")


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value within a value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from paths(one, (*path, name))


def mutate(value: Any, chance: Random) -> Any:
    """Return a copy in which up to three values are put wrong, taken out or added."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        *way, last = chance.choice([path for path in paths(value) if path])
        holder = value
        for step in way:
            holder = holder[step]
        deed = chance.random()
        if deed < 0.2 and isinstance(holder, dict):
            del holder[last]
        elif deed < 0.3 and isinstance(holder, dict):
            holder[chance.choice(NAMES)] = copy.deepcopy(chance.choice(ODD))
        else:
            holder[last] = copy.deepcopy(chance.choice(ODD))
    return value


def reply_to(request: Request, chance: Random) -> dict[str, Any]:
    """Return a sound answer to a request of JSON-RPC."""
    if chance.random() < 0.1:
        return {"jsonrpc": "2.0", "id": request.body["id"], "error": {"code": -32603, "message": "It went wrong.", "data": [{"a": 1}]}}
    asked = method_of(request) == "SendMessage"
    parts = [*text("Up."), {"data": {"a": 1}}, {"raw": "aGk="}]
    parts += [{"data": good(unwrap(request))}] if asked and chance.random() < 0.5 else []
    one = task(chance.choice(STATES), text("Wait."), produced=parts, metadata={"confidence": 0.5})
    answers = ({"task": one}, message(parts, metadata={"confidence": 0.3}))
    return {"jsonrpc": "2.0", "id": request.body["id"], "result": chance.choice(answers) if asked else one}


@pytest.mark.parametrize("seed", range(4))
async def test_no_card_and_no_answer_makes_the_client_raise(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives a handoff or a failure; and an untouched answer is still understood afterwards."""
    monkeypatch.setattr(a2a_agents, "FIRST_PAUSE", 0.001)
    chance, tampering = Random(seed), True

    async def answer(server: Server, request: Request, writer: Writer) -> None:
        sound = card(server, request) if asks_for_card(request) else reply_to(request, chance)
        spoilt = tampering and chance.random() < 0.7
        writer.write(http(json.dumps(mutate(sound, chance) if spoilt else sound).encode()))

    async with serving(answer) as server:
        agent = agent_at(server.port)
        answers = []
        for _ in range(150):
            client = A2aAgents()
            answers.append(await send(client, agent, timeout=0.5))
            await client.close()
        tampering, client = False, A2aAgents()
        sound = await send(client, agent, timeout=AMPLE)
        await client.close()

    kinds = {one.code if isinstance(one, AgentFailure) else "handoff" for one in [*answers, sound]}
    assert {type(one) for one in [*answers, sound]} == {AgentHandoff, AgentFailure}
    assert kinds >= {"handoff", ErrorCode.CARD_INVALID, ErrorCode.HANDOFF_INVALID, ErrorCode.AGENT_ERROR}
