"""Fixtures that every ring shares: a catalogue, an encoder, a router fitted on a part of the seed set, and an app over fakes."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import structlog
from fastapi import FastAPI

from optimizers.dataset import Row, read_rows
from optimizers.policy import fit_policy, read_held_out
from optimizers.student import fit
from service.access.door import Door
from service.access.keys import Keys
from service.access.limits import Limits
from service.access.stored_keys import StoredKeys
from service.api.app import create_app
from service.bootstrap import Services, assemble
from service.catalog.loader import load_catalog
from service.catalog.model import Catalog
from service.contracts.surface import RolledBack
from service.errors import NothingToRollBack
from service.flows.health import Health
from service.flows.slots import Slots
from service.metrics import Live, Metrics
from service.ports import Predictors
from service.programs import Programs, Router
from service.routing.encoder import Encoder
from service.settings import Settings
from tests.fakes import MemoryStore, ScriptedAgents, some_health

ROOT = Path(__file__).parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, and run them with little of it.

    What is imported stays, and to look at it again and again is half of the time of collecting, and a twentieth of running.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with a module that needs the fitted working folder, then the contracts, then the other rings in turns.

    One process takes a minute to fit that folder, and others would wait for it. The tests of real programs wait much and the unit tests
    compute: beside each other they use a machine better than one after the other.
    """
    first = next((item.path for item in items if "workplace" in getattr(item, "fixturenames", ())), None)
    rings = dict[str, list[Path]]()
    for path in dict.fromkeys(item.path for item in items):
        rings.setdefault(path.relative_to(ROOT / "tests").parts[0], []).append(path)
    turn = {path: number / len(paths) for ring, paths in rings.items() for number, path in enumerate(paths, 1) if ring != "contract"}
    items.sort(key=lambda item: -1.0 if item.path == first else turn.get(item.path, 0.0))


@pytest.fixture(scope="session", autouse=True)
def _one_ssl_context() -> Iterator[None]:
    """Make it once, not for every client of httpx: it reads all authorities, for 40 ms, where the tests speak plain HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    return Encoder(threads=2)


@pytest.fixture(scope="session")
def some_rows() -> list[Row]:
    """Every fourth row of the seed set: enough for a router that is right most of the time, and quick to fit."""
    return read_rows(ROOT / "datasets" / "seed")[::4]


@pytest.fixture(scope="session")
def router(encoder: Encoder, some_rows: list[Row]) -> Router:
    fitted = fit(some_rows, encoder)
    return Router("test", fitted.student, fit_policy(read_held_out(fitted)))


async def _nowhere_to_go() -> RolledBack:
    raise NothingToRollBack("There is no earlier champion to go back to.")


@dataclass
class World:
    """Everything that an app over fakes is made of; change it before the app is opened."""

    catalog: Catalog
    router: Router | None
    store: MemoryStore = field(default_factory=MemoryStore)
    agents: ScriptedAgents = field(default_factory=ScriptedAgents)
    health: Health = field(default_factory=some_health)
    deciding: Slots = field(default_factory=lambda: Slots(4, most_waiting=64))
    predictors: Predictors | None = None
    settings: Settings = field(default_factory=lambda: Settings(_env_file=None))  # type: ignore[call-arg]  # pydantic-settings' own argument
    roll_back: Callable[[], Awaitable[RolledBack]] = field(default_factory=lambda: _nowhere_to_go)
    keys: Keys = field(default_factory=lambda: Keys({}))
    stored: StoredKeys | None = None
    limits: Limits = field(default_factory=Limits)

    def app(self) -> FastAPI:
        """Make the app."""

        @asynccontextmanager
        async def opener(settings: Settings) -> AsyncIterator[Services]:
            programs = Programs(self.router)
            version = self.router.version if self.router is not None else None
            metrics = Metrics(lambda: Live(version, dict(self.health.states(self.catalog.agents))))
            pipeline = assemble(
                settings, self.catalog, programs, self.store, self.agents, self.health, self.deciding, self.predictors, metrics
            )
            tried = asyncio.Event()
            tried.set()
            yield Services(
                settings,
                self.catalog,
                Door(self.keys, self.stored, limits=self.limits),
                programs,
                pipeline,
                self.store,
                self.store,
                self.health,
                metrics,
                tried,
                lambda: self.roll_back(),
            )

        return create_app(self.settings, opener=opener)

    @asynccontextmanager
    async def client(self, peer: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
        """Open the app and a client for it that seems to call from `peer`."""
        app = self.app()
        async with app.router.lifespan_context(app) as state:
            transport = httpx.ASGITransport(_with_state(app, dict(state or {})), raise_app_exceptions=False, client=(peer, 40_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                yield client


def _with_state(app: FastAPI, state: dict[str, Any]) -> Any:
    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": dict(state)}, receive, send)

    return wrapped


@pytest.fixture
def world(catalog: Catalog, router: Router) -> World:
    return World(catalog, router)


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()


def body(text: str = "Did the rep visits lift Kisqali TRx?", **parsed: Any) -> dict[str, Any]:
    """Return a valid request body; keywords replace fields of the parsed query."""
    return {
        "parsed_query": {"query_id": str(uuid4()), "raw_query": text, **parsed},
        "user_id": "u-1",
        "session_id": "s-1",
    }
