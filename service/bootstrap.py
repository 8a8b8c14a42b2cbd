"""The only place that names concrete adapters: settings in, `Services` out, and everything that was opened closed again."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from service.access.door import Door
from service.access.keys import MAKE_KEYS, Keys
from service.access.limits import Limits
from service.access.stored_keys import StoredKeys
from service.adapters.http_agents import HttpAgents
from service.adapters.region_log import RegionLog
from service.adapters.registry_rollback import REGISTRY
from service.adapters.registry_watch import DATABASE
from service.adapters.rollout_log import RolloutLog
from service.adapters.router_source import CHAMPION_NOTE, RouterSource, last_asked
from service.adapters.spooled_store import SpooledStore
from service.adapters.sql_engine import normalise, require_there
from service.adapters.sql_store import SqlStore
from service.audit import Audit
from service.catalog.coverage import say_described_only, without_examples
from service.catalog.loader import load_catalog
from service.catalog.model import Agent, Catalog
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff
from service.contracts.surface import AgentListing, IntentListing, Readiness, RolledBack
from service.cores import cores
from service.errors import ConfigurationError, StoreUnavailable
from service.flows.agent_call import CallAgent
from service.flows.health import Health
from service.flows.parallel import Parallel
from service.flows.pipeline import PipelineFlow
from service.flows.single import Single
from service.flows.slots import Slots
from service.logs import RequestLog
from service.metrics import SHARED, Live, Metrics
from service.pipeline import Pipeline, Stages
from service.ports import AgentClient, AgentFailure, Event, Observer, OptimizationQueue, Predictors, Store
from service.programs import Programs
from service.reload import Follower
from service.rollback import Rollback
from service.routing.encoder import Encoder
from service.routing.entities import Gazetteer
from service.routing.history import History
from service.routing.policy import LOCAL_LM
from service.settings import KEYS_NOTE, SPOOL, Settings
from service.shadow import Shadow
from service.stages.commit import Commit
from service.stages.dispatch import Dispatch
from service.stages.gate import Gate
from service.stages.intent import ReadIntent
from service.stages.routing import Route
from service.stages.synthesis import Synthesize
from service.stages.triage import Triage
from service.starting import report_agents, waiting_for
from service.tallies import store_tallies
from service.tracing import traced

if TYPE_CHECKING:
    from service.adapters.a2a_agents import A2aAgents

log = logging.getLogger(__name__)
SWITCH_SECONDS = 0.0001  # the event loop waits this long, not 5 ms, for the interpreter while a thread decides
DECIDING = min(4, cores())  # decisions at once: they are work for the processor, and more of them only share it
RESERVED = 8  # one part in so many of the dispatches is for the critical path only
DRAIN_SECONDS = 5.0  # for storing what was cut off at the end; the grace of what is under way has passed by then
TALLY_SECONDS = 5.0  # between writings of what was read in the shadow and of what the student answered alone
REFRESH_SECONDS = 1.0
WATCH_LATER = 20.0  # seconds that the noted version serves before the registry is asked


@dataclass(frozen=True, slots=True)
class Services:
    """What the HTTP surface needs. `router_tried` is set once the first attempt to load a router has ended."""

    settings: Settings
    catalog: Catalog
    door: Door
    programs: Programs
    pipeline: Pipeline
    store: Store
    optimizations: OptimizationQueue
    health: Health
    metrics: Metrics
    router_tried: asyncio.Event
    roll_back: Callable[[], Awaitable[RolledBack]]

    def list_agents(self) -> list[AgentListing]:
        """Describe the agents of the catalogue."""
        return [
            AgentListing(
                **agent.model_dump(include=AgentListing.model_fields.keys() - {"required_entities"}),
                required_entities=tuple(e.value for e in agent.required_entities),
                priority=agent.priority,
                intents=tuple(i.name for i in self.catalog.intents if i.primary_agent == agent.name),
                available=self.health.available(agent, agent.timeout_ms / 1_000) and not self.health.left_alone(agent),
                breaker=self.health.state(agent).value,
            )
            for agent in self.catalog.agents
        ]

    def list_intents(self) -> list[IntentListing]:
        """Describe the intents of the catalogue."""
        shown = IntentListing.model_fields.keys() - {"pipeline"}
        return [IntentListing(**i.model_dump(include=shown), pipeline=tuple(s.agent for s in i.pipeline)) for i in self.catalog.intents]

    def readiness(self, store: str, said: str | None = None) -> Readiness:
        """Say whether requests can be answered as configured; `store` is `ok` or what is wrong with it, `said` what it says besides."""
        router, lm = self.programs.current, self.settings.lm
        notes = [said] if said is not None else []
        if router is None:
            notes.append("No router version is loaded; rules and the safe default answer. What is missing is said by: pointsman doctor")
        if lm is None:
            notes.append("No LM is configured (POINTSMAN_LM), so unsure questions are answered by the student or with a question.")
        elif router is not None and not router.policy.lm_may_decide(lm):
            notes.append(f"The LM {lm} decides only when asked for (preferences.rung): there is no evidence that it beats the student.")
        if router is not None and (described := without_examples(self.catalog.intent, router.student.practised)):
            notes.append(say_described_only(described))
        rungs = ["rules", *(["student"] if router else []), *(["lm"] if lm else []), "safe_default"]
        return Readiness(
            ready=router is not None and store == "ok",
            router_version=router.version if router else None,
            rungs=tuple(rungs),
            lm=lm,
            store=store,
            notes=tuple(notes),
        )


class Observers:
    """Passes each event on to several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def notice(self, event: Event) -> None:
        """Tell every observer."""
        for observer in self._observers:
            observer.notice(event)


class Agents:
    """Sends each dispatch by the protocol of its agent; a2a-sdk takes a second to import, so only where an agent speaks it."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._a2a = _open_a2a([agent for agent in agents if agent.protocol == "a2a"])
        self._http = HttpAgents(agent for agent in agents if agent.protocol == "http")

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()
        if self._a2a is not None:
            await self._a2a.close()

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Send one dispatch; see `AgentClient`."""
        client = self._a2a if agent.protocol == "a2a" and self._a2a is not None else self._http
        return await client.send(agent, url, dispatch, timeout=timeout)


def _open_a2a(agents: Sequence[Agent]) -> A2aAgents | None:
    if not agents:
        return None
    from service.adapters.a2a_agents import A2aAgents

    return A2aAgents(agents)


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open everything that the settings ask for, and close it again.

    Raises:
        ConfigurationError: the service cannot start as configured; the message says what to change.
    """
    keys = Keys.parse(settings.api_keys.get_secret_value() if settings.api_keys else None)
    _require_database_of_keys(settings, keys)
    log.info("start version=%s", version("pointsman"))
    loading = asyncio.create_task(asyncio.to_thread(Encoder, settings.encoder))  # beside all else
    catalog = load_catalog(settings.catalog, agents_base_url=settings.agents_address)
    programs, store, agents = Programs(), _make_store(settings), Agents(catalog.agents)
    health = Health(slots=Slots(settings.max_dispatches, most_waiting=settings.max_waiting, reserved=settings.max_dispatches // RESERVED))
    deciding = Slots(DECIDING, most_waiting=settings.max_waiting)

    def live() -> Live:
        router = programs.current
        under_way = {"decision": deciding.taken, "dispatch": health.slots.taken}
        waiting = {"decision": deciding.waiting, "dispatch": health.slots.waiting, "commit": store.waiting}
        told = Live(
            breakers=dict(health.states(catalog.agents)),
            under_way=under_way,
            waiting=waiting,
            spool=store.spool,
            registry_asked=last_asked(),
        )
        if router is None:
            return told
        return replace(told, router_version=router.version, router_made=router.made_at, given_back=len(router.policy.given_back))

    metrics = Metrics(live)
    observer = Observers([metrics, RequestLog()])
    sys.setswitchinterval(SWITCH_SECONDS)
    with traced(settings.otlp_endpoint), threadpool_limits(1):  # more BLAS threads would wait for each other: products are small
        async with _opened(store, agents), _door(settings, keys, store) as door, _predictors(settings, observer) as predictors:
            pipeline = assemble(settings, catalog, programs, store, agents, health, deciding, predictors, observer)
            with waiting_for("encoder"):
                encoder = await loading
            if not History().reads(encoder):
                log.warning("history_not_read: only the packaged encoder reads conversation_history; each text is read alone")
            source = RouterSource(settings.mlflow_uri, encoder)
            follower = Follower(source, programs, catalog, metrics)
            evidence = RolloutLog(settings.database_url)
            following = [
                asyncio.create_task(follower.follow()),
                asyncio.create_task(door.follow()),
                asyncio.create_task(_keep_fresh(metrics)),
                asyncio.create_task(_report_start(follower.tried, catalog)),
                asyncio.create_task(store_tallies(pipeline.stages.shadow, evidence.add, TALLY_SECONDS)),
                asyncio.create_task(store_tallies(pipeline.stages.audit, RegionLog(settings.database_url).add, TALLY_SECONDS)),
            ]
            try:
                async with _watched_registry(settings):
                    roll_back = Rollback(settings.mlflow_uri)
                    tried = follower.tried
                    yield Services(settings, catalog, door, programs, pipeline, store, store, health, metrics, tried, roll_back)
            finally:
                await pipeline.drain(DRAIN_SECONDS)
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)


def assemble(
    settings: Settings,
    catalog: Catalog,
    programs: Programs,
    store: Store,
    agents: AgentClient,
    health: Health,
    deciding: Slots,
    predictors: Predictors | None,
    observer: Observer,
) -> Pipeline:
    """Join stages and ports into a pipeline; tests join their fakes with it."""
    writer = settings.lm_strong or settings.lm  # a small local one would drop numbers and take the seconds that are left
    call = CallAgent(client=agents, health=health, observer=observer)
    routing = Route(catalog=catalog, predictors=predictors, lm=settings.lm, exploration=settings.exploration)
    stages = Stages(
        triage=Triage(catalog=catalog, gazetteer=Gazetteer(catalog)),
        intent=ReadIntent(History()),
        routing=routing,
        gate=Gate(catalog=catalog),
        dispatch=Dispatch(
            catalog=catalog, flows={"single": Single(call=call), "parallel": Parallel(call=call), "pipeline": PipelineFlow(call=call)}
        ),
        synthesis=Synthesize(catalog=catalog, predictors=predictors if writer != LOCAL_LM else None),
        commit=Commit(store=store, catalog_hash=catalog.hash),
        shadow=Shadow(
            programs=programs, intent=ReadIntent(History()), routing=Route(catalog=catalog, predictors=None, lm=None), observer=observer
        ),
        audit=Audit(programs=programs, routing=routing, share=settings.lm_audit, observer=observer),
    )
    budget = settings.decision_budget_ms / 1_000
    return Pipeline(
        stages=stages, programs=programs, health=health, store=store, observer=observer, deciding=deciding, decision_budget=budget
    )


def _make_store(settings: Settings) -> SqlStore | SpooledStore:
    """Make the store; a database on this machine's disk has no spool, since that would be away with it."""
    main = SqlStore(settings.database_url)
    if not main.is_remote:
        return main
    return SpooledStore(main, SqlStore(f"sqlite:///{SPOOL}"), most=settings.spool_most)


@asynccontextmanager
async def _opened(store: SqlStore | SpooledStore, agents: Agents) -> AsyncIterator[None]:
    try:
        with waiting_for("database"):
            await store.open()
        yield
    finally:
        await agents.close()
        await store.close()


def _require_database_of_keys(settings: Settings, keys: Keys) -> None:
    """Refuse to make a database where there have to be keys in it."""
    if settings.on_loopback or keys.callers or settings.oidc_issuer is not None:
        return
    try:
        require_there(normalise(settings.database_url))
    except StoreUnavailable as exc:
        raise _open_to_all(settings) from exc


def _open_to_all(settings: Settings) -> ConfigurationError:
    return ConfigurationError(f"POINTSMAN_HOST={settings.host} is reachable from outside, so callers need API keys. {MAKE_KEYS}")


@asynccontextmanager
async def _door(settings: Settings, keys: Keys, store: SqlStore | SpooledStore) -> AsyncIterator[Door]:
    """Open what tells who sends a request.

    Raises:
        ConfigurationError: others can reach the service, and nobody of them would have to say who it is.
    """
    stored = StoredKeys(store.stored_keys, KEYS_NOTE, normalise(settings.database_url).render_as_string(hide_password=True))
    limits = Limits(settings.rate_per_minute, settings.quota_per_day, settings.limits_url, store.count_questions)
    await stored.open()
    async with AsyncExitStack() as stack:
        tokens = None
        if settings.oidc_issuer is not None and settings.oidc_audience is not None:
            from service.adapters.oidc import OidcTokens

            tokens = OidcTokens(settings.oidc_issuer, settings.oidc_audience, settings.oidc_tenant_claim)
            stack.push_async_callback(tokens.close)
        door = Door(keys, stored, tokens, limits)
        if not settings.on_loopback and stored.known and not door.locked:
            raise _open_to_all(settings)
        stack.push_async_callback(limits.close)
        yield door


@asynccontextmanager
async def _predictors(settings: Settings, observer: Observer) -> AsyncIterator[Predictors | None]:
    """Open the LM rung, where an LM is configured; DSPy takes a second to import, so only there."""
    if settings.lm is None:
        yield None
        return
    from service.adapters.dspy_predictors import DspyPredictors
    from service.adapters.lm_client import open_endpoints

    async with AsyncExitStack() as stack:
        light, primary, strong = await stack.enter_async_context(open_endpoints(settings))
        predictors = DspyPredictors(primary, light=light, strong=strong, observer=observer)
        stack.push_async_callback(predictors.close)
        with waiting_for("lm"):
            try:
                await predictors.warm()
            except TimeoutError:
                log.warning("lm_not_warm: the LM's first answers will be slow")
        yield predictors


async def _report_start(router_tried: asyncio.Event, catalog: Catalog) -> None:
    """Tell the log of what the service goes on without: a router, and agents."""
    with waiting_for("router"):
        await router_tried.wait()
    await report_agents(catalog)


async def _keep_fresh(metrics: Metrics) -> None:
    """Write down every second what is so at the moment, where another process may be the one who is asked."""
    while SHARED in os.environ:
        metrics.refresh()
        await asyncio.sleep(REFRESH_SECONDS)


@asynccontextmanager
async def _watched_registry(settings: Settings) -> AsyncIterator[None]:
    """Have another process ask the registry for its champion as long as the service runs."""
    starting = asyncio.create_task(_start_watcher(settings))
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def _start_watcher(settings: Settings) -> None:
    """Start the watcher, later where a version serves already: it takes seconds of CPU to begin; start it again when it has ended."""
    if CHAMPION_NOTE.is_file():
        await asyncio.sleep(WATCH_LATER)
    while True:
        command = (sys.executable, "-m", "service.adapters.registry_watch", str(settings.rollback_margin), settings.log_level)
        told = {DATABASE: settings.database_url, REGISTRY: settings.mlflow_uri}  # passwords, maybe: a command line would show them
        watcher = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=os.environ | told)
        try:
            await watcher.wait()
        finally:
            if watcher.returncode is None:
                watcher.terminate()
        log.warning("registry_watcher_ended code=%s", watcher.returncode)
        await asyncio.sleep(WATCH_LATER)
