"""`pointsman run` and `pointsman ask`: both programs as children, one question over HTTP, and an answer that a person can read."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from service.contracts.query import ConversationTurn
from service.errors import PointsmanError
from service.listening import require_free_port
from service.settings import Settings

READY_SECONDS = 120.0
LONG_SECONDS = 10.0  # after which it is told what is waited for
ANSWER_SECONDS = 180.0
CLOSING_SECONDS = 15.0  # for storing what was cut off, after the grace of what is under way
SWAP_SECONDS = 2.0  # between two looks at which router serves
Answer = dict[str, Any]


class NotAnswered(PointsmanError):
    """A running service could not be asked."""

    code, title = "not_answered", "Not answered"


def service_url(settings: Settings) -> str:
    """Return where the service of these settings listens, as seen from this machine."""
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::", "localhost"} else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


async def ask_service(url: str, text: str, key: str | None = None, history: Sequence[ConversationTurn] = ()) -> Answer:
    """Post one question to a running service, after what was said before it.

    Raises:
        NotAnswered: it cannot be reached, or it answered with a problem.
    """
    body = {
        "parsed_query": {"query_id": str(uuid4()), "raw_query": text},
        "user_id": "cli",
        "session_id": "cli",
        "conversation_history": [turn.model_dump() for turn in history],
    }
    headers = [(b"Authorization", f"Bearer {key}".encode())] if key else []
    try:
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
            response = await client.post(f"{url.rstrip('/')}/orchestrate", json=body, headers=headers)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        if not url.startswith(("http://", "https://")):
            raise NotAnswered(f"{url} is no address of a service; it begins with http:// or https://.") from exc
        raise NotAnswered(f"{url} cannot be reached ({type(exc).__name__}). A service on this machine is started with: make run") from exc
    except UnicodeEncodeError as exc:
        raise NotAnswered("The question is not valid text.") from exc
    if response.status_code != httpx.codes.OK:
        hint = " Here: --key KEY, or POINTSMAN_KEY." if response.status_code == httpx.codes.UNAUTHORIZED else ""
        raise NotAnswered(f"{url} answered with {response.status_code}: {_reason(response)}{hint}")
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "response_text" not in answer:
        raise NotAnswered(f"{url} is not a Pointsman service: it answered with {response.text[:80]!r}")
    return answer


def _reason(response: httpx.Response) -> str:
    """Return a problem's detail or title, or else the start of whatever a proxy has sent."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    said = (problem.get("detail") or problem.get("title")) if isinstance(problem, dict) else None
    return str(said or response.text[:200])


async def run_all(settings: Settings, question: str, console: Console) -> int:
    """Start agents and service, wait until both are ready, ask, show, and serve until Ctrl-C. Return the exit code."""
    level = settings.log_level if "log_level" in settings.model_fields_set else "WARNING"  # the answer is what this terminal is for
    environment = os.environ | {"POINTSMAN_LOG_LEVEL": level}
    require_free_port(settings.host, settings.port, "Another Pointsman may be running. Set POINTSMAN_PORT to another port.")
    children: list[asyncio.subprocess.Process] = []
    commands: list[tuple[str, ...]] = [("serve", "--host", settings.host, "--port", str(settings.port))]
    if settings.agents_base_url is None:
        require_free_port("127.0.0.1", settings.agents_port, "Set POINTSMAN_AGENTS_PORT to another port.")
        environment["POINTSMAN_AGENTS_BASE_URL"] = f"http://127.0.0.1:{settings.agents_port}"
        commands.append(("agents", "--port", str(settings.agents_port)))
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    try:
        children += [await _start(*command, environment=environment) for command in commands]
        ended = [asyncio.create_task(child.wait()) for child in children]
        first = asyncio.create_task(_ask_first(settings, question, console, children))
        await asyncio.wait([first, stopped], return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
            swaps = asyncio.create_task(_tell_swaps(f"{service_url(settings)}/readyz", console))
            await asyncio.wait([*ended, stopped], return_when=asyncio.FIRST_COMPLETED)
            swaps.cancel()
        first.cancel()
        return 0 if stop.is_set() else 1
    finally:
        await _stop(children, settings.grace_seconds + CLOSING_SECONDS)


async def _ask_first(settings: Settings, question: str, console: Console, children: Sequence[asyncio.subprocess.Process]) -> None:
    """Wait until the children are ready, ask one question and show the answer."""
    started, url = time.monotonic(), service_url(settings)
    with console.status("starting service and agents"):
        await _ready(f"{url}/readyz", children, console)
        if settings.agents_base_url is None:
            await _ready(f"http://127.0.0.1:{settings.agents_port}/healthz", children, console)
    console.print(f"ready after {time.monotonic() - started:.1f} s: {url} (API at {url}/docs)", highlight=False)
    try:
        with console.status("asking the first question"):
            answer = await ask_service(url, question, os.environ.get("POINTSMAN_KEY"))
        show_answer(question, answer, console)
    except NotAnswered as exc:
        console.print(f"{exc} The service keeps running. Where keys are in use, set POINTSMAN_KEY.", style="yellow", markup=False)
    console.print('Ask more with: .venv/bin/pointsman ask "..."   Stop with Ctrl-C.', highlight=False)


def show_answer(question: str, answer: Answer, console: Console) -> None:
    """Print an answer for a person."""
    colour = {"success": "green", "partial": "yellow"}.get(answer["status"], "red")
    console.print(Panel(Markdown(answer["response_text"]), title=f"[bold]{_plain(question)}", border_style=colour, padding=(1, 2)))
    facts = Table.grid(padding=(0, 2))
    sure = f", confidence {answer['response_confidence']:.2f}" if answer["agents_dispatched"] else ""
    facts.add_row("status", f"[{colour}]{answer['status']}[/]{sure}, {answer['total_latency_ms']} ms")
    read = f": {answer['intent']}" if answer["intent"] and answer["action"] != "refuse" else ""
    facts.add_row("route", f"{answer['action']}{read} → {', '.join(answer['agents_dispatched']) or 'no agent'}")
    facts.add_row("decided by", f"rung {answer['rung']}, router version {answer['router_version']}")
    facts.add_row("receipt", f"GET /decisions/{answer['decision_id']}")
    for follow_up in answer["follow_up_suggestions"]:
        facts.add_row("ask next", _plain(follow_up))
    for warning in answer["warnings"]:
        facts.add_row("[yellow]warning", _plain(warning["message"]))
    console.print(facts)


async def _start(*arguments: str, environment: dict[str, str]) -> asyncio.subprocess.Process:
    program = (sys.executable, "-m", "service.cli")
    return await asyncio.create_subprocess_exec(*program, *arguments, env=environment, start_new_session=True)


async def _ready(url: str, children: Sequence[asyncio.subprocess.Process], console: Console) -> None:
    last, told = "no answer yet", False
    async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
        started = time.monotonic()
        limit = started + READY_SECONDS
        while time.monotonic() < limit:
            if any(child.returncode is not None for child in children):
                raise NotAnswered("A program ended while it was starting; its message is above.")
            try:
                response = await client.get(url)
                if response.status_code == httpx.codes.OK:
                    return
                last = _why_not(response)
            except httpx.TransportError as exc:
                last = type(exc).__name__
            if not told and time.monotonic() - started > LONG_SECONDS:
                console.print(f"{url} is not ready yet: {last}", style="yellow", highlight=False, markup=False)
                told = True
            await asyncio.sleep(0.05)
    raise NotAnswered(f"{url} was not ready within {READY_SECONDS:g} s: {last}")


def _why_not(response: httpx.Response) -> str:
    """Return what a service that is not ready says of it, or else the start of whatever has answered."""
    try:
        return " ".join(response.json()["notes"]) or response.text[:300]
    except (ValueError, LookupError, TypeError):
        return response.text[:300]


async def _tell_swaps(url: str, console: Console) -> None:
    """Say whenever another router version has come to serve."""
    serving = None
    async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
        while True:
            with suppress(httpx.TransportError, ValueError, AttributeError):  # no answer, or none that says so
                version = (await client.get(url)).json().get("router_version")
                if serving is not None and version not in {None, serving}:
                    console.print(f"{datetime.now():%H:%M:%S} router version {version} serves now, in place of {serving}", highlight=False)
                serving = version or serving
            await asyncio.sleep(SWAP_SECONDS)


async def _stop(children: Sequence[asyncio.subprocess.Process], seconds: float) -> None:
    """Tell all to end, and end those that are not done in time."""
    for child in children:
        if child.returncode is None:
            child.terminate()
    ended = asyncio.gather(*(child.wait() for child in children))
    try:
        await asyncio.wait_for(ended, seconds)
    except TimeoutError:
        for child in children:
            if child.returncode is None:
                child.kill()


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
