"""Serving the champion: the last good version at once, then whatever version the registry's alias names, swapped in while requests go on.

A version is loaded into fresh objects on a thread of its own, checked and rehearsed under a time limit, and then one reference is swapped:
each request keeps the router that it began with. Whatever a version or a registry does, the last good one goes on serving.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from service.catalog.coverage import name_some
from service.catalog.model import Catalog
from service.errors import ConfigurationError
from service.ports import NotedCandidate, Observer, ProgramSource, RouterTried
from service.programs import Candidate, Programs, Router

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between looks at what the registry was last seen to name: a small file on this machine
LOAD_SECONDS = 20.0  # for loading and rehearsing a version
RETRY_SECONDS = 60.0  # until a version that could not be served is tried again: a disk that was away may be back


class Follower:
    """Keeps `programs` at the registry's champion. `tried` is set once it is known whether there is one."""

    def __init__(self, source: ProgramSource, programs: Programs, catalog: Catalog, observer: Observer) -> None:
        self._source, self.programs, self._catalog, self._observer = source, programs, catalog, observer
        self._tried: NotedCandidate | None = None
        self.tried = asyncio.Event()

    async def follow(self) -> None:
        """Follow until cancelled. Nothing that goes wrong here ends the service or this task."""
        await self._serve(self._source.load_last_good)
        if self.programs.current is not None:
            self.tried.set()
        refused, again_at, complained = None, 0.0, None
        while True:
            noted = await asyncio.to_thread(self._source.noted)
            problem, now = noted.problem, time.monotonic()
            if noted.version not in (None, self._version) and (noted != refused or now >= again_at):
                problem = await self._serve(self._source.load_noted)
                refused, again_at = (noted, now + RETRY_SECONDS) if problem is not None else (None, 0.0)
            await self._follow_regions()
            await self._follow_candidate()
            if noted.asked:
                self.tried.set()
            if problem is not None and problem != complained:
                log.warning("no_champion: %s", problem)
                complained = problem
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def _version(self) -> str | None:
        current = self.programs.current
        return current.version if current is not None else None

    async def _follow_regions(self) -> None:
        """Leave to the LM what the champion's student was last seen to have given back."""
        router = self.programs.current
        if router is None:
            return
        given_back = await asyncio.to_thread(self._source.given_back, router.version)
        if given_back != router.policy.given_back and router is self.programs.current:
            self.programs.swap(replace(router, policy=router.policy.model_copy(update={"given_back": given_back})))
            log.info("regions_given_back version=%s intents=%s", router.version, ",".join(sorted(given_back)) or "none")

    async def _follow_candidate(self) -> None:
        """Try the challenger that the registry was last seen to try; one that cannot be loaded is not tried."""
        noted = await asyncio.to_thread(self._source.noted_candidate)
        if noted == self._tried:
            return
        self._tried, current = noted, self.programs.candidate
        if noted is None or noted.version == self._version:
            self.programs.try_out(None)
        elif current is not None and current.router.version == noted.version:
            self.programs.try_out(replace(current, stage=noted.stage, share=noted.share))
        else:
            router, problem = await self._load(self._source.load_candidate)
            self.programs.try_out(Candidate(router, noted.stage, noted.share) if router is not None else None)
            if problem is not None:
                log.warning("candidate_not_tried version=%s: %s", noted.version, problem)

    async def _serve(self, load: Callable[[], Router | None]) -> str | None:
        """Load a version and serve it; return why not, or None."""
        router, problem = await self._load(load)
        if router is not None and router.version != self._version:
            self.programs.swap(router)
            self._observer.notice(RouterTried(router.version, served=True))
            log.info("router_loaded version=%s", router.version)
            await asyncio.to_thread(self._source.keep, router)
        return problem

    async def _load(self, load: Callable[[], Router | None]) -> tuple[Router | None, str | None]:
        """Load a version in time; return it, or why it cannot be served."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="router-load")
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(thread, _load_for, load, self._catalog), None
        except TimeoutError:
            problem = f"A router version was not ready within {LOAD_SECONDS:.0f} s."
        except Exception as exc:  # noqa: BLE001  # whatever a version does, the service goes on
            problem = f"{type(exc).__name__}: {exc}"
        finally:
            thread.shutdown(wait=False)  # a load that hangs keeps its thread, and nobody waits for it
        self._observer.notice(RouterTried(None, served=False))
        return None, problem


def _load_for(load: Callable[[], Router | None], catalog: Catalog) -> Router | None:
    router = load()
    return for_catalog(router, catalog) if router is not None else None


def for_catalog(router: Router, catalog: Catalog) -> Router:
    """Return the router as it is served with a catalogue: it knows the intents that it was fitted on, and the others by description.

    Raises:
        ConfigurationError: the catalogue lacks an intent that it can choose.
    """
    check_labels(router.version, router.student.practised, catalog)
    return replace(router, student=router.student.knowing(catalog.words))


def check_labels(version: str, labels: Iterable[str], catalog: Catalog) -> None:
    """Check that the catalogue knows every intent that a router version was fitted for.

    Raises:
        ConfigurationError: it does not.
    """
    unknown = sorted(set(labels) - set(catalog.intent))
    if unknown:
        raise ConfigurationError(
            f"Router {version} was fitted for intents that the catalogue lacks: {name_some(unknown)}. "
            "Fit and serve one for this catalogue with: optimize --bootstrap --seed-set FOLDER --promote. "
            "Or set POINTSMAN_CATALOG to the folder of the one that it was fitted for."
        )
