"""How an A2A agent is asked, and what its messages, tasks and errors become."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from service.adapters.a2a_agents import A2aAgents
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.errors import ErrorCode
from service.flows.work import build_dispatch
from tests.contract.a2a_server import error, message, replying, result, saying_message, saying_tasks, task, text, unwrap
from tests.contract.agent_client_suite import E, H, U, failed, putting
from tests.contract.http_server import AMPLE, Answer, Request, agent_at, good, http, send, serving
from tests.unit.turns import a_request, some_work

UNSTATED = "The agent states no confidence; 0.5 stands for it."


@pytest.fixture
async def client() -> AsyncIterator[A2aAgents]:
    """The client under test, closed at the end."""
    agents = A2aAgents()
    yield agents
    await agents.close()


async def answer_to(client: A2aAgents, answer: Answer) -> AgentHandoff:
    """Return the handoff that an agent's answer becomes."""
    async with serving(answer) as server:
        handoff = await send(client, agent_at(server.port))
    assert isinstance(handoff, AgentHandoff), handoff
    return handoff


@pytest.mark.parametrize(
    ("receives", "said"), [(("raw_query",), "Did it lift TRx?"), (("entities",), "causal_impact")], ids=["with the question", "without"]
)
async def test_the_message_is_a_text_for_everybody_and_the_dispatch_as_data(
    client: A2aAgents, receives: tuple[str, ...], said: str
) -> None:
    """The question where the agent may have it, else the intent; ids by which a repeated attempt and a request's messages are known."""
    async with serving(saying_message(text("Yes."))) as server:
        agent = agent_at(server.port, receives=receives)
        dispatch = build_dispatch(agent, some_work(request=a_request("Did it lift TRx?")), AMPLE, uuid4())
        await client.send(agent, str(agent.urls[0]), dispatch, timeout=AMPLE)

    sent = server.requests[1]
    assert sent.headers["a2a-version"] == "1.0"
    assert (sent.body["jsonrpc"], sent.body["method"]) == ("2.0", "SendMessage")
    assert sent.body["params"]["message"] == {
        "messageId": str(dispatch.dispatch_id),
        "contextId": str(dispatch.query_id),
        "role": "ROLE_USER",
        "parts": [
            {"text": said, "mediaType": "text/plain"},
            {"data": {"dispatch": json.loads(dispatch.model_dump_json())}, "mediaType": "application/json"},
        ],
    }
    assert sent.body["params"]["configuration"] == {
        "acceptedOutputModes": ["application/json", "text/plain"],
        "returnImmediately": True,
    }


async def test_a_request_that_the_protocol_cannot_carry_is_a_failure(client: A2aAgents) -> None:
    """Objects within objects without end; nothing is sent."""
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"in": nested}
    async with serving(saying_message(text("Yes."))) as server:
        agent = agent_at(server.port, receives=("context",))
        failure = failed(await send(client, agent, work=some_work(request=a_request("Did it?", context=nested))))

    assert (failure.code, failure.recoverable, failure.unavailable, server.requests) == (E, False, False, [])
    assert "nested too deeply" in failure.detail


async def test_a_text_becomes_the_summary(client: A2aAgents) -> None:
    """With half a confidence, and the caveat that the agent states none."""
    handoff = await answer_to(client, saying_message(text("Sales rose by 4 %.", "In all regions.")))

    assert handoff.result.primary_output == {"summary": "Sales rose by 4 %.\nIn all regions."}
    assert (handoff.execution.status, handoff.result.confidence) == (HandoffStatus.SUCCESS, 0.5)
    assert handoff.result.caveats == (UNSTATED,)
    assert (handoff.agent_id, handoff.agent_tier) == ("causal_impact", 2)


PARTS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "data beside a text": (
        [*text("Up."), {"data": {"rise": 4, "by": {"north": 1.5}}}],
        {"summary": "Up.", "rise": 4, "by": {"north": 1.5}},
    ),
    "several data": ([{"data": {"a": 1}}, {"data": {"b": 2, "a": 3}}], {"a": 3, "b": 2}),
    "a list": ([{"data": [1, 2.5, None]}], {"data": [1, 2.5, None]}),
    "nameless values": ([{"data": 7}, {"data": "x"}], {"data": [7, "x"]}),
    "a text that goes before a field": ([{"data": {"summary": "old"}}, *text("New.")], {"summary": "New."}),
}


@pytest.mark.parametrize(("parts", "output"), PARTS.values(), ids=PARTS)
async def test_data_without_a_handoff_are_the_output(client: A2aAgents, parts: list[dict[str, Any]], output: dict[str, Any]) -> None:
    """Fields by their names."""
    handoff = await answer_to(client, saying_message(parts))

    assert handoff.result.primary_output == output


@pytest.mark.parametrize(
    ("stated", "read"), [(0.75, 0.75), (1, 1.0), (0, 0.0), (1.5, 0.5), (-0.1, 0.5), ("high", 0.5), (True, 0.5), (None, 0.5)], ids=str
)
async def test_a_confidence_is_read_from_the_metadata_where_it_is_one(client: A2aAgents, stated: object, read: float) -> None:
    """A number from 0 to 1."""
    handoff = await answer_to(client, saying_message(text("Up."), metadata={"confidence": stated}))

    assert handoff.result.confidence == read
    assert (UNSTATED in handoff.result.caveats) is (read == 0.5)


async def test_files_are_counted_and_not_fetched(client: A2aAgents) -> None:
    """An agent cannot make us ask another server for something."""
    async with serving(saying_message(text("Elsewhere."))) as elsewhere:
        parts = [*text("See there."), {"url": f"http://127.0.0.1:{elsewhere.port}/file"}, {"raw": "aGk=", "filename": "a.txt"}]
        handoff = await answer_to(client, saying_message(parts))

    assert handoff.result.primary_output == {"summary": "See there."}
    assert "The agent's answer has 2 files that Pointsman does not pass on." in handoff.result.caveats
    assert elsewhere.requests == []


DONE = "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("place", ["artifact", "status message"])
async def test_a_handoff_is_found_wherever_a_task_holds_it(client: A2aAgents, place: str) -> None:
    """Beside whatever else the task says."""

    def reply(request: Request) -> bytes:
        parts = [*text("Done."), {"data": good(unwrap(request))}]
        return result(request, {"task": task(DONE, produced=parts) if place == "artifact" else task(DONE, parts)})

    handoff = await answer_to(client, replying(reply))

    assert handoff.result.evidence == ("Seen in 12 rows.",)


async def test_what_a_task_has_produced_is_its_answer_and_its_last_word_is_not(client: A2aAgents) -> None:
    """Only without artifacts does the status message count; metadata count wherever they stand."""
    whole = task(DONE, text("I am done."), produced=text("Up by 4 %."), metadata={"confidence": 0.9})
    produced = await answer_to(client, saying_tasks(whole))
    said = await answer_to(client, saying_tasks(task(DONE, text("Up by 4 %."))))

    assert produced.result.primary_output == said.result.primary_output == {"summary": "Up by 4 %."}
    assert produced.result.confidence == 0.9


@pytest.mark.parametrize(
    "answer",
    [
        saying_message([]),
        saying_message(text(" ")),
        saying_message([{"url": "http://a/b"}]),
        saying_tasks(task(DONE)),
        replying(lambda request: result(request, {})),
        replying(lambda request: result(request, None)),
        replying(lambda request: result(request, "done")),
        replying(lambda request: result(request, {"message": "done"})),
        replying(lambda request: result(request, {"message": {"parts": [{"text": 5}]}})),
        replying(lambda request: result(request, {"message": {"parts": [{"text": "a", "data": {}}]}})),
        saying_tasks(task("TASK_STATE_UNSPECIFIED")),
        saying_tasks(task("TASK_STATE_OF_THE_FUTURE")),
        saying_tasks({**task(DONE, text("x")), "status": {"state": 99}}),
        replying(lambda request: result(request, message([{"data": {"handoff": None}}]))),
        replying(lambda request: result(request, message([{"data": {"a": json.loads("[" * 60 + "]" * 60)}}]))),
    ],
    ids=[
        "no parts", "blank", "a file only", "a task without a word", "nothing", "null", "a string", "a message that is none",
        "a number as text", "two contents in a part", "no state", "an unknown state", "a state by number", "a handoff that is none", "deep",
    ],
)  # fmt: skip
async def test_an_answer_that_says_nothing_is_a_broken_one(client: A2aAgents, answer: Answer) -> None:
    """As over plain HTTP: asking again does not help."""
    async with serving(answer) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.recoverable, failure.unavailable) == (H, False, False)


@pytest.mark.parametrize(
    ("state", "metadata", "code", "recoverable", "said"),
    [
        ("TASK_STATE_FAILED", {}, E, False, "failed: Out of paper."),
        ("TASK_STATE_FAILED", {"recoverable": True}, E, True, "failed: Out of paper."),
        ("TASK_STATE_FAILED", {"recoverable": "yes"}, E, False, "failed: Out of paper."),
        ("TASK_STATE_REJECTED", {"recoverable": True}, E, False, "rejected the work: Out of paper."),
        ("TASK_STATE_CANCELED", {}, E, False, "canceled the work: Out of paper."),
        ("TASK_STATE_AUTH_REQUIRED", {}, E, False, "asks for an authentication that Pointsman cannot give: Out of paper."),
    ],
)
async def test_a_task_that_went_wrong_is_the_agents_error(
    client: A2aAgents, state: str, metadata: dict[str, Any], code: ErrorCode, recoverable: bool, said: str
) -> None:
    """With its reason; asking again helps where a failed task says so."""
    async with serving(saying_tasks(task(state, text("Out of paper."), notes={"metadata": metadata}))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.recoverable, failure.unavailable) == (code, recoverable, False)
    assert failure.detail == f"causal_impact {said}"


async def test_a_long_reason_is_cut(client: A2aAgents) -> None:
    """It goes to callers and logs."""
    async with serving(saying_tasks(task("TASK_STATE_FAILED", text("x" * 100_000)))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert len(failure.detail) < 600


@pytest.mark.parametrize("status", ["failed", "success"])
async def test_a_failed_task_may_say_why_in_a_handoff_but_not_that_all_went_well(client: A2aAgents, status: str) -> None:
    """The handoff of a failure is passed on; a success in a failed task is not believed."""

    def reply(request: Request) -> bytes:
        handoff = putting(status, "execution", "status")(good(unwrap(request)))
        return result(request, {"task": task("TASK_STATE_FAILED", [{"data": handoff}])})

    async with serving(replying(reply)) as server:
        answer = await send(client, agent_at(server.port))

    assert isinstance(answer, AgentHandoff) is (status == "failed")


async def test_a_question_back_is_a_partial_answer(client: A2aAgents) -> None:
    """Its summary is what the agent asks, and no confidence stands for it."""
    asking = task("TASK_STATE_INPUT_REQUIRED", text("Which brand?"), produced=text("A draft."))
    handoff = await answer_to(client, saying_tasks(asking))

    assert (handoff.execution.status, handoff.result.confidence) == (HandoffStatus.PARTIAL, 0.0)
    assert handoff.result.primary_output == {"summary": "Which brand?"}
    assert any("it asks for more" in caveat for caveat in handoff.result.caveats)


@pytest.mark.parametrize(
    ("number", "code", "recoverable", "unavailable", "may_have_run"),
    [
        (-32700, E, False, False, False),
        (-32600, E, False, False, False),
        (-32602, E, False, False, False),
        (-32601, U, False, True, False),
        (-32603, E, True, False, True),
        (-32001, E, True, False, True),
        (-32004, E, False, False, False),
        (-32005, E, False, False, False),
        (-32006, E, True, False, True),
        (-32008, E, False, False, False),
        (-32009, E, False, False, False),
        (-32042, E, True, False, True),
        (17, E, True, False, True),
    ],
)
async def test_an_error_of_json_rpc_means_what_its_http_status_would(
    client: A2aAgents, number: int, code: ErrorCode, recoverable: bool, unavailable: bool, may_have_run: bool
) -> None:
    """By the table of the specification; unknown ones count as the server's fault."""
    async with serving(replying(lambda request: error(request, number, "No. " * 1_000))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.recoverable, failure.unavailable) == (code, recoverable, unavailable)
    assert failure.may_have_run is may_have_run
    assert failure.detail.startswith(f"causal_impact answered with the JSON-RPC error {number}: No.")
    assert len(failure.detail) < 300


@pytest.mark.parametrize("wrong", ["x", [], {}, {"message": "no code"}, {"code": "x", "message": "y"}, 5, True], ids=str)
async def test_an_error_that_is_none_is_a_broken_answer(client: A2aAgents, wrong: object) -> None:
    """What JSON-RPC does not define is not guessed at."""
    body = {"jsonrpc": "2.0", "error": wrong}
    async with serving(replying(lambda request: http(json.dumps({**body, "id": request.body["id"]}).encode()))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert failure.code is H


async def test_an_answer_of_very_many_values_stops_nobody(client: A2aAgents) -> None:
    """The SDK would parse two million numbers for ten seconds, and nothing else would run meanwhile."""
    async with serving(saying_message([{"data": [1] * 1_500_000}])) as server:
        started = time.monotonic()
        failure = failed(await send(client, agent_at(server.port)))
        took = time.monotonic() - started

    assert (failure.code, failure.recoverable) == (H, False)
    assert "more than 100000 JSON values" in failure.detail
    assert took < 3.0
