"""`pointsman agents --faults PLAN`: the built-in agents behind a fault server, and the plan followed while it changes."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import uvicorn

from service.agents.app import create_agents_app
from service.agents.directory import AGENTS
from service.agents.faults.handoffs import made_up_outputs
from service.agents.faults.plan import FaultPlan, read_plan
from service.agents.faults.server import FaultServer, Received
from service.catalog.loader import load_catalog
from service.errors import ConfigurationError
from service.settings import Settings

Say = Callable[[str], None]
LOOK_SECONDS = 0.5  # between two looks at the plan's file
GRACE_SECONDS = 5  # for the agents to finish what they are at
LINES_A_SECOND = 5


class Journal:
    """Says what is acted out, a line a fault, but no more than a few lines a second."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """Say nothing yet."""
        self._say = say
        self._clock = clock
        self._since = clock()
        self._said = self._unsaid = self._struck = 0

    def note(self, received: Received) -> None:
        """Say that a dispatch meets a fault, or count it where too much was said this second."""
        self._struck += 1
        if self._clock() - self._since >= 1.0:
            self._catch_up()
        if self._said < LINES_A_SECOND:
            self._said += 1
            self._say(f"{received.fault}: {received.agent}, dispatch {received.dispatch_id}")
        else:
            self._unsaid += 1

    def close(self, dispatches: int) -> None:
        """Say what is left to say, and the sum."""
        self._catch_up()
        self._say(f"{self._struck} of {dispatches} dispatches met a fault")

    def _catch_up(self) -> None:
        if self._unsaid:
            self._say(f"... and {self._unsaid} more")
        self._since, self._said, self._unsaid = self._clock(), 0, 0


async def run_drill(path: Path, host: str, port: int, settings: Settings, *, say: Say, warn: Say) -> None:
    """Serve the built-in agents with the faults of a plan, until SIGINT or SIGTERM.

    A change of the file is followed after a second; SIGHUP begins the plan anew. A file that has become wrong changes nothing.

    Args:
        path: the plan's file.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        settings: which catalogue says what the agents' answers must have.
        say: is told what is in force.
        warn: is told of each fault that is acted out, and of what is wrong with a changed file.

    Raises:
        ConfigurationError: the plan or the catalogue has problems.
        OSError: the address cannot be bound.
    """
    plan = read_plan(path, AGENTS)
    outputs = made_up_outputs(load_catalog(settings.catalog))
    journal = Journal(warn)
    stopped, anew = asyncio.Event(), asyncio.Event()
    with _signals({signal.SIGINT: stopped, signal.SIGTERM: stopped, signal.SIGHUP: anew}):
        async with (
            agents_behind() as behind,
            FaultServer(plan, host, port, behind, journal.note, outputs) as server,
        ):
            say(f"The agents listen at {server.address} and act out {path}:")
            _describe(plan, say)
            tasks = asyncio.create_task(_follow(path, server, anew, say, warn)), asyncio.create_task(stopped.wait())
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for task in done:
                task.result()
            journal.close(server.counts.total())


@asynccontextmanager
async def agents_behind(*, warm_up: bool = True) -> AsyncIterator[str]:
    """Serve the built-in agents on a free port of loopback, and give their address."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_agents_app(warm_up=warm_up), log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    server = _Agents(config)
    serving = asyncio.create_task(server.serve([bound]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if serving.done():
            serving.result()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        bound.close()


class _Agents(uvicorn.Server):
    """A server that leaves the signals to this program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _signals(events: dict[signal.Signals, asyncio.Event]) -> Iterator[None]:
    """Set events on signals, as long as this is open."""
    loop = asyncio.get_running_loop()
    for number, event in events.items():
        loop.add_signal_handler(number, event.set)
    try:
        yield
    finally:
        for number in events:
            loop.remove_signal_handler(number)


async def _follow(path: Path, server: FaultServer, anew: asyncio.Event, say: Say, warn: Say) -> None:
    """Put the file's plan into force when the file changes, or when `anew` is set."""
    seen = in_force = _content(path)
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await anew.wait()
        asked, seen_before, seen = anew.is_set(), seen, _content(path)
        if not asked and (seen == in_force or seen != seen_before):  # the same, or perhaps still being written
            continue
        anew.clear()
        in_force = seen
        try:
            plan = read_plan(path, AGENTS)
        except ConfigurationError as error:
            warn(f"{error}\nThe plan before stays in force.")
            continue
        server.follow(plan, anew=asked)
        say("The plan begins anew:" if asked else "The plan has changed:")
        _describe(plan, say)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _describe(plan: FaultPlan, say: Say) -> None:
    for entry in plan.faults:
        say(f"  {entry}")
    if not plan.faults:
        say("  no faults")
