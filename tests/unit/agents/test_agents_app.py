"""The agents' app: its addresses, its refusals, its threads, and how quickly it starts."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.agents import directory
from service.agents.app import LARGEST_BODY, MOST_WAITING, WORKERS, create_agents_app
from service.agents.finding import Finding
from service.catalog.loader import load_catalog
from service.contracts.dispatch import AgentDispatch, DispatchEnvelope
from service.contracts.handoff import HandoffEnvelope, HandoffStatus

MakeDispatch = Callable[..., AgentDispatch]
ROOT = Path(__file__).parents[3]
HEAVY = ("pandas", "scipy", "sklearn", "statsmodels", "dowhy")


def call(talk: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Run a conversation with a new app that does not warm up."""

    async def run() -> Any:
        transport = httpx.ASGITransport(app=create_agents_app(warm_up=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
            return await talk(client)

    return asyncio.run(run())


def body(dispatch: AgentDispatch) -> str:
    """Return the request body of a dispatch."""
    return DispatchEnvelope(dispatch=dispatch).model_dump_json()


def install(monkeypatch: pytest.MonkeyPatch, name: str, answer: Callable[[Any, Any], Finding]) -> None:
    """Put another callable in an agent's place."""
    directory.load_agent(name)
    monkeypatch.setitem(directory._loaded, name, answer)


def test_importing_the_app_loads_nothing_heavy() -> None:
    """Each of these libraries costs seconds; the app must listen before they are there."""
    code = f"import sys, service.agents.app; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning", "ignore:The copy keyword is deprecated")  # DoWhy 0.14
def test_the_start_loads_every_agent_and_answers_meanwhile() -> None:
    """The health address answers from the start on; when the warm-up is over all agents are loaded."""

    async def run() -> tuple[int, dict[str, Any]]:
        app = create_agents_app()
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
            first = (await client.get("/healthz")).status_code
            while (report := (await client.get("/healthz")).json())["warming_up"]:
                await asyncio.sleep(0.02)
            return first, report

    first, report = asyncio.run(run())

    assert first == 200
    assert report["loaded"] == list(directory.AGENTS)


def test_a_dispatch_comes_back_as_a_handoff(make_dispatch: MakeDispatch) -> None:
    """The envelope goes in and the other one comes out, with the ids that belong to it."""
    dispatch = make_dispatch("gap_analyzer", brand="Kisqali")
    response = call(lambda client: client.post("/agents/gap_analyzer", content=body(dispatch)))
    handoff = HandoffEnvelope.model_validate_json(response.content).handoff

    assert response.status_code == 200
    assert (handoff.dispatch_id, handoff.agent_id, handoff.agent_tier) == (dispatch.dispatch_id, "gap_analyzer", 2)
    assert handoff.execution.status is HandoffStatus.SUCCESS


def test_the_agents_are_listed_with_their_tiers() -> None:
    """The tiers are the contract's."""
    agents = call(lambda client: client.get("/agents")).json()["agents"]

    assert {one["name"]: one["tier"] for one in agents} == {agent.name: agent.tier for agent in load_catalog().agents}
    assert all(one["description"].endswith(".") for one in agents)


def test_the_health_address_answers() -> None:
    """It says which agents are loaded."""
    response = call(lambda client: client.get("/healthz"))

    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert set(response.json()["loaded"]) <= set(directory.AGENTS)


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/agents/nobody", "{}", 404),
        ("GET", "/nothing", "", 404),
        ("GET", "/agents/explainer", "", 405),
        ("POST", "/agents/explainer", "", 400),
        ("POST", "/agents/explainer", "not json", 400),
        ("POST", "/agents/explainer", '{"dispatch": {"dispatch_id": "d-001"}}', 400),
        ("POST", "/agents/explainer", "[" * 100_000, 400),
        ("POST", "/agents/explainer", " " * (LARGEST_BODY + 1), 413),
    ],
    ids=["unknown-agent", "unknown-path", "method", "empty", "no-json", "invalid", "deep", "large"],
)
def test_what_cannot_be_dispatched_is_a_problem(method: str, path: str, content: str, status: int) -> None:
    """Every refusal is problem+json with the status in its body."""
    response = call(lambda client: client.request(method, path, content=content))

    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_an_invalid_dispatch_is_answered_with_the_fields_at_fault() -> None:
    """The caller learns which fields, and not a word of what was in them."""
    content = '{"dispatch": {"dispatch_id": "secret-text"}}'
    response = call(lambda client: client.post("/agents/explainer", content=content))

    fields = {error["field"] for error in response.json()["errors"]}
    assert {"dispatch.dispatch_id", "dispatch.payload", "dispatch.routing"} <= fields
    assert "secret-text" not in response.text


def test_a_dispatch_for_another_agent_is_refused(make_dispatch: MakeDispatch) -> None:
    """A misdirected dispatch is the sender's mistake, and is not answered by whoever got it."""
    response = call(lambda client: client.post("/agents/explainer", content=body(make_dispatch("drift_monitor"))))

    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == "dispatch.target_agent"


def test_an_unexpected_exception_is_a_failed_handoff_and_a_traceback_in_the_log(
    make_dispatch: MakeDispatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The orchestrator may try again; the operator sees why; the caller does not."""

    def explode(*_: Any) -> Finding:
        raise ZeroDivisionError("a private detail")

    install(monkeypatch, "explainer", explode)
    with caplog.at_level(logging.ERROR):
        response = call(lambda client: client.post("/agents/explainer", content=body(make_dispatch("explainer"))))
    handoff = HandoffEnvelope.model_validate_json(response.content).handoff

    assert handoff.execution.status is HandoffStatus.FAILED
    assert handoff.errors.recoverable is True
    assert "private detail" not in response.text
    assert "ZeroDivisionError" in caplog.text


def test_the_loop_stays_free_while_an_agent_works(make_dispatch: MakeDispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health address answers while an agent is held up, which an agent in the event loop would make impossible."""
    let_go = threading.Event()

    def wait(*_: Any) -> Finding:
        let_go.wait(10)
        return Finding({"waited": let_go.is_set()}, 1.0, [])

    async def talk(client: httpx.AsyncClient) -> tuple[bool, httpx.Response]:
        working = asyncio.ensure_future(client.post("/agents/explainer", content=body(make_dispatch("explainer"))))
        await asyncio.sleep(0.05)
        healthy = (await client.get("/healthz")).status_code == 200 and not working.done()
        let_go.set()
        return healthy, await working

    install(monkeypatch, "explainer", wait)
    healthy, response = call(talk)

    assert healthy
    assert response.json()["handoff"]["result"]["primary_output"] == {"waited": True}


def test_an_agent_that_takes_too_long_is_cut_off(make_dispatch: MakeDispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """After max_latency_ms the answer is a handoff with status timeout, that may be tried again."""
    let_go = threading.Event()
    install(monkeypatch, "explainer", lambda *_: Finding({"late": let_go.wait(10)}, 1.0, []))

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        try:
            return await client.post("/agents/explainer", content=body(make_dispatch("explainer", max_latency_ms=50)))
        finally:
            let_go.set()

    handoff = HandoffEnvelope.model_validate_json(call(talk).content).handoff

    assert handoff.execution.status is HandoffStatus.TIMEOUT
    assert handoff.execution.latency_ms >= 50
    assert (handoff.errors.error_type, handoff.errors.recoverable) == ("timeout", True)


def test_more_work_than_there_is_room_for_is_turned_away(make_dispatch: MakeDispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is bounded: the one beyond it gets 503 at once, and all others their answer."""
    let_go = threading.Event()
    install(monkeypatch, "explainer", lambda *_: Finding({"done": let_go.wait(10)}, 1.0, []))
    content = body(make_dispatch("explainer"))

    async def talk(client: httpx.AsyncClient) -> tuple[httpx.Response, list[httpx.Response]]:
        accepted = [asyncio.ensure_future(client.post("/agents/explainer", content=content)) for _ in range(WORKERS + MOST_WAITING)]
        await asyncio.sleep(0.2)
        turned_away = await client.post("/agents/explainer", content=content)
        let_go.set()
        return turned_away, await asyncio.gather(*accepted)

    turned_away, answers = call(talk)

    assert turned_away.status_code == 503
    assert turned_away.headers["retry-after"] == "1"
    assert {answer.status_code for answer in answers} == {200}
