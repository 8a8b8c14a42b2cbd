"""`pointsman run` and `pointsman ask`: where to ask, what to show, and a clear word when there is no answer."""

import asyncio
import io
import json
import sys
from typing import Any

import pytest
from rich.console import Console

from service import supervisor
from service.contracts.query import ConversationTurn, OrchestratorInput
from service.settings import Settings
from service.supervisor import NotAnswered, _ready, _stop, ask_service, service_url, show_answer
from tests.contract.http_server import Request, Server, Writer, free_port, http, saying, serving

ANSWER: dict[str, Any] = {
    "status": "success",
    "response_text": "Visits lift TRx by **0.12**.",
    "response_confidence": 0.87,
    "total_latency_ms": 41,
    "action": "dispatch",
    "intent": "causal_impact",
    "agents_dispatched": ["causal_impact"],
    "rung": "student",
    "router_version": "3",
    "decision_id": "6f1b7c0e-54a6-4f5b-9a6e-0d1a2b3c4d5e",
    "follow_up_suggestions": ["For whom [most]?"],
    "warnings": [{"code": "x", "message": "Mind [red]this[/red]."}],
}


def shown(question: str = "Did it [bold]work[/bold]?", **changes: Any) -> str:
    """Return what a terminal would show."""
    console = Console(file=io.StringIO(), width=120)
    show_answer(question, {**ANSWER, **changes}, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_refusal_names_no_intent_and_no_confidence() -> None:
    """Neither was acted on, and they would read as if something were sure."""
    refused = shown(status="failed", action="refuse", intent="explanation", agents_dispatched=[], response_confidence=1.0)

    assert "refuse → no agent" in refused
    assert "confidence" not in refused
    assert "success, confidence 0.87" in shown()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8100"),
        ("localhost", "http://127.0.0.1:8100"),
        ("0.0.0.0", "http://127.0.0.1:8100"),
        ("::", "http://127.0.0.1:8100"),
        ("::1", "http://[::1]:8100"),
        ("10.0.0.7", "http://10.0.0.7:8100"),
        ("box.example", "http://box.example:8100"),
    ],
)
def test_the_service_is_asked_where_it_listens(host: str, url: str) -> None:
    """An address that means every interface is reached by loopback."""
    settings = Settings(_env_file=None, host=host, port=8100)  # type: ignore[call-arg]  # pydantic-settings' own argument

    assert service_url(settings) == url


@pytest.mark.parametrize("key", [None, "secret"])
async def test_a_question_is_posted_with_a_fresh_id_and_the_key(key: str | None) -> None:
    """The body is a valid request; the answer is returned as it is."""
    async with serving(saying(http(json.dumps(ANSWER).encode()))) as server:
        answers = [await ask_service(f"http://127.0.0.1:{server.port}", "Did it?", key) for _ in range(2)]

    assert answers == [ANSWER, ANSWER]
    first, second = server.requests
    assert first.line == "POST /orchestrate HTTP/1.1"
    assert first.body["parsed_query"]["raw_query"] == "Did it?"
    assert first.body["parsed_query"]["query_id"] != second.body["parsed_query"]["query_id"]
    assert first.headers.get("authorization") == (f"Bearer {key}" if key else None)


async def test_what_was_said_before_is_posted_too() -> None:
    """Oldest first, as the contract wants it."""
    history = (ConversationTurn(content="Did it?"), ConversationTurn(role="assistant", content="Yes."))
    async with serving(saying(http(json.dumps(ANSWER).encode()))) as server:
        await ask_service(f"http://127.0.0.1:{server.port}", "And in the Midwest?", history=history)

    said = OrchestratorInput.model_validate_json(json.dumps(server.requests[0].body)).conversation_history
    assert said == history


async def test_a_service_that_is_not_there_is_said_so() -> None:
    """With the command that starts it."""
    with pytest.raises(NotAnswered, match=r"cannot be reached.*make run"):
        await ask_service(f"http://127.0.0.1:{await free_port()}", "Did it?")


async def test_an_address_without_its_scheme_is_said_so() -> None:
    """Starting a service would not help."""
    with pytest.raises(NotAnswered, match="begins with http://"):
        await ask_service("127.0.0.1:8100", "Did it?")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail": "No router is loaded yet."}', "No router is loaded yet."),
        (b'{"title": "Not ready"}', "Not ready"),
        (b"<html>Bad gateway</html>", "Bad gateway"),
        (b"[]", "503"),
    ],
    ids=["a problem", "a problem without detail", "a proxy's page", "another shape"],
)
async def test_a_service_that_refuses_is_quoted(body: bytes, said: str) -> None:
    """Status and reason, whatever answered in its place."""
    async with serving(saying(http(body, "503 Service Unavailable"))) as server:
        with pytest.raises(NotAnswered, match=f"503: .*{said}" if said != "503" else said):
            await ask_service(f"http://127.0.0.1:{server.port}", "Did it?")


def test_the_answer_is_shown_with_all_that_a_reader_needs() -> None:
    """Text, status, route, rung, version, receipt, follow-ups and warnings."""
    text = shown()

    for part in ("0.12", "success", "0.87", "41 ms", "causal_impact", "student", "version 3", "/decisions/6f1b7c0e"):
        assert part in text


def test_what_people_and_agents_write_is_shown_as_they_wrote_it() -> None:
    """Brackets are text, not markup."""
    text = shown()

    assert "Did it [bold]work[/bold]?" in text
    assert "For whom [most]?" in text
    assert "Mind [red]this[/red]." in text


@pytest.mark.parametrize("question", ["[/]", "[/bold] x", "a \\[b]", "[link=http://x]y[/link]", "\\"])
def test_no_text_breaks_the_display(question: str) -> None:
    """Markup that does not close is no error."""
    text = shown(question, warnings=[{"code": "x", "message": question}], follow_up_suggestions=[question], response_text=question)

    assert "success" in text


@pytest.mark.parametrize("status", ["success", "partial", "failed"])
def test_an_answer_without_agent_or_intent_is_shown_too(status: str) -> None:
    """A refusal or a greeting has neither."""
    text = shown(status=status, intent=None, agents_dispatched=[], warnings=[], follow_up_suggestions=[])

    assert "dispatch → no agent" in text


async def a_child(code: str) -> asyncio.subprocess.Process:
    """Start a Python program."""
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code)


async def test_waiting_ends_when_the_service_is_ready() -> None:
    """Not before."""
    calls: list[str] = []

    async def getting_ready(server: Server, request: Request, writer: Writer) -> None:
        calls.append(request.line)
        writer.write(http(b"{}", "503 Service Unavailable" if len(calls) < 3 else "200 OK"))

    async with serving(getting_ready) as server:
        await _ready(f"http://127.0.0.1:{server.port}/readyz", (), Console(file=io.StringIO()))

    assert calls == ["GET /readyz HTTP/1.1"] * 3


async def test_who_waits_long_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the service says of itself, once."""
    monkeypatch.setattr(supervisor, "READY_SECONDS", 0.5)
    monkeypatch.setattr(supervisor, "LONG_SECONDS", 0.0)
    terminal = io.StringIO()

    async def without_router(server: Server, request: Request, writer: Writer) -> None:
        writer.write(http(json.dumps({"ready": False, "notes": ["No router version is loaded."]}).encode(), "503 Service Unavailable"))

    async with serving(without_router) as server:
        with pytest.raises(NotAnswered, match="No router version is loaded"):
            await _ready(f"http://127.0.0.1:{server.port}/readyz", (), Console(file=terminal, width=200))

    assert terminal.getvalue().count("is not ready yet: No router version is loaded.") == 1


async def test_waiting_ends_when_a_program_has_ended() -> None:
    """Nobody waits two minutes for a program that is gone."""
    child = await a_child("raise SystemExit(3)")
    await child.wait()

    with pytest.raises(NotAnswered, match="ended while it was starting"):
        await _ready(f"http://127.0.0.1:{await free_port()}/readyz", [child], Console(file=io.StringIO()))


async def test_waiting_ends_with_the_last_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit, the message says what was the matter."""
    monkeypatch.setattr(supervisor, "READY_SECONDS", 0.1)

    with pytest.raises(NotAnswered, match="ConnectError"):
        await _ready(f"http://127.0.0.1:{await free_port()}/readyz", (), Console(file=io.StringIO()))


async def test_programs_are_stopped_and_waited_for() -> None:
    """One that has ended already is no trouble."""
    running, ended = await a_child("import time; time.sleep(60)"), await a_child("pass")
    await ended.wait()

    await _stop([running, ended], 20.0)

    assert (running.returncode, ended.returncode) == (-15, 0)
