"""Puts a few of the requests that the student answered alone to the LM as well, after the answer: would it have chosen the same agent?

Nobody waits for it and nothing that it says is carried out. It tells how good the student is where it has taken over, notices when that
changes, and what the LM costs where it is asked no more.
"""

import asyncio
import logging
import time
from datetime import UTC, date, datetime

from service.contracts.decision import Action, RouteDecision, Rung
from service.contracts.lm import LMFailure, LMVerdict
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.ports import Audited, Observer
from service.programs import Programs, Router, in_share
from service.routing.regions import RegionTally
from service.stages.intent import Understanding
from service.stages.routing import Route
from service.stages.trace import Trace
from service.stages.triage import Admitted

log = logging.getLogger(__name__)
AT_ONCE = 1
SECONDS = 10.0
LM_FAILED = "lm_"  # what the codes of warnings about the LM begin with
Key = tuple[str, str, date]  # version, intent, day (UTC)


class Audit:
    """Counts what the student answers alone, and has the LM read a share of it.

    Args:
        routing: asks the LM as it would have been asked.
        share: of the requests that the student answered alone, from 0 to 1.

    Attributes:
        reading: what is being read.
    """

    def __init__(self, *, programs: Programs, routing: Route, share: float, observer: Observer) -> None:
        self._programs, self._routing, self._share, self._observer = programs, routing, share, observer
        self._tallies: dict[Key, RegionTally] = {}
        self.reading: set[asyncio.Task[None]] = set()

    def read(self, request: OrchestratorInput, trace: Trace, decision: RouteDecision) -> None:
        """Count a decision, and perhaps have the LM read it."""
        router, intent = self._programs.of(request.session_id), decision.intent
        decided = decision.action is Action.DISPATCH and decision.rung in (Rung.STUDENT, Rung.LM)
        if router is None or intent is None or not decided or router.version != decision.router_version:
            return
        if not self._routing.lm_may_decide(router) or (request.preferences is not None and request.preferences.rung is not None):
            return
        admitted, understanding = trace.admitted, trace.understanding
        today = datetime.now(UTC).date()
        if decision.rung is Rung.LM:
            read = next(iter(understanding.intents), intent) if understanding is not None else intent
            self._tally((router.version, read, today)).asked += 1
            return
        if any(warning.code.startswith(LM_FAILED) for warning in decision.warnings):
            return  # the student answered because the LM could not: that is not its region
        self._tally((router.version, intent, today)).local += 1
        if admitted is None or understanding is None or decision.propensity < 1.0 or len(self.reading) >= AT_ONCE:
            return
        if in_share("audit", str(decision.query_id), self._share):
            task = asyncio.create_task(self._ask(router, admitted, understanding, decision))
            self.reading.add(task)
            task.add_done_callback(self.reading.discard)

    def take(self) -> dict[Key, RegionTally]:
        """Return what was counted, and begin anew."""
        taken, self._tallies = self._tallies, {}
        return taken

    def put_back(self, key: Key, tally: RegionTally) -> None:
        """Count again what could not be stored."""
        kept = self._tally(key)
        kept += tally

    def _tally(self, key: Key) -> RegionTally:
        return self._tallies.setdefault(key, RegionTally())

    async def _ask(self, router: Router, admitted: Admitted, understanding: Understanding, decision: RouteDecision) -> None:
        began = time.monotonic()
        try:
            verdict: LMVerdict | LMFailure = await self._routing.ask_lm(admitted, understanding, router, Deadline.after(SECONDS))
        except Exception as exc:  # noqa: BLE001  # an audit that fails is no evidence
            log.info("audit_failed: %s", type(exc).__name__)
            verdict = LMFailure(reason="error", detail="")
        tally = self._tally((router.version, decision.intent or "", datetime.now(UTC).date()))
        if isinstance(verdict, LMFailure):
            tally.failed += 1
            self._observer.notice(Audited(decision.intent or "", "failed", None))
            return
        agreed = verdict.primary_agent == decision.primary_agent
        tally += RegionTally(
            audited=1,
            agreed=int(agreed),
            seconds=time.monotonic() - began,
            usd=verdict.usd or 0.0,
            priced=int(verdict.usd is not None),
        )
        self._observer.notice(Audited(decision.intent or "", "agreed" if agreed else "differed", verdict.usd))
