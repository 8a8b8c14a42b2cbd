"""Lets a candidate read what the champion has answered, after the answer: nobody waits for it, and nothing that it does is carried out.

It takes at most `AT_ONCE` requests at a time and lets others pass, so that it cannot crowd out those that somebody waits for. It asks no
LM: what it would put to one counts as decided by its student.
"""

import asyncio
import logging

from service.contracts.decision import RouteDecision
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.ports import Observer, Shadowed
from service.programs import Programs, Router, Stage, Tally
from service.stages.intent import ReadIntent
from service.stages.routing import Route
from service.stages.trace import Trace
from service.stages.triage import Admitted

log = logging.getLogger(__name__)
AT_ONCE = 2
SECONDS = 5.0  # a candidate that takes longer for one request fails on it


class Shadow:
    """Reads beside the champion.

    Args:
        intent, routing: the stages as the champion uses them, the latter without an LM.
        observer: is told how each reading went.

    Attributes:
        reading: what is being read.
    """

    def __init__(self, *, programs: Programs, intent: ReadIntent, routing: Route, observer: Observer) -> None:
        self._programs, self._intent, self._routing, self._observer = programs, intent, routing, observer
        self._tallies: dict[str, Tally] = {}
        self.reading: set[asyncio.Task[None]] = set()

    def read(self, request: OrchestratorInput, trace: Trace, decision: RouteDecision) -> None:
        """Have the candidate in the shadow read a request that the champion has decided, if there is one and it has time."""
        candidate = self._programs.candidate
        shadowed = candidate is not None and candidate.stage is Stage.SHADOW and len(self.reading) < AT_ONCE
        if candidate is None or trace.admitted is None or not shadowed:
            return
        task = asyncio.create_task(self._compare(candidate.router, request, trace.admitted, decision))
        self.reading.add(task)
        task.add_done_callback(self.reading.discard)

    def take(self) -> dict[str, Tally]:
        """Return what was read by version, and begin anew."""
        taken, self._tallies = self._tallies, {}
        return taken

    def put_back(self, version: str, tally: Tally) -> None:
        """Count again what could not be stored."""
        kept = self._tallies.setdefault(version, Tally())
        kept.requests += tally.requests
        kept.differing += tally.differing
        kept.failing += tally.failing

    async def _compare(self, router: Router, request: OrchestratorInput, admitted: Admitted, decision: RouteDecision) -> None:
        differs = fails = False
        try:
            async with asyncio.timeout(SECONDS):
                understanding = await asyncio.to_thread(self._intent, admitted, router)
                own = await self._routing(request.parsed_query.query_id, admitted, understanding, router, Deadline.after(SECONDS))
            differs = (own.action, own.primary_agent) != (decision.action, decision.primary_agent)
        except Exception as exc:  # noqa: BLE001  # whatever a candidate does, it is evidence
            log.info("shadow_failed version=%s: %s", router.version, type(exc).__name__)
            fails = True
        tally = self._tallies.setdefault(router.version, Tally())
        tally.requests += 1
        tally.differing += differs
        tally.failing += fails
        self._observer.notice(Shadowed("failed" if fails else "differed" if differs else "agreed"))
