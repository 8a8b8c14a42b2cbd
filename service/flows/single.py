"""The flow `single`: the primary agent or its fallbacks; where the answer is not sure enough, the supporting agents beside it."""

import asyncio
from collections.abc import Sequence

from service.errors import ErrorCode
from service.flows.agent_call import CallAgent
from service.flows.chain import chain_seconds, conclude, walk
from service.flows.flow import Outcome, Part, PartRun, Verdict
from service.flows.work import Work


class Single:
    """One agent; the others of the plan only when it is unsure."""

    def __init__(self, *, call: CallAgent) -> None:
        self._call = call

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Walk the first part's chain, and ask the supporting agents where its own agent was unsure."""
        (first, *supports), taken = verdict.parts, set[str]()
        parts = [await walk(self._call, first, work, taken)]
        if _is_unsure(parts[0]) and work.deadline.left > 0.0:
            parts += await asyncio.gather(*(walk(self._call, part, work, taken) for part in supports))
        return conclude(parts)

    def seconds(self, parts: Sequence[Part]) -> float:
        """Return the first chain's time and the longest of the supporting agents'."""
        first, *supports = map(chain_seconds, parts)
        return first + max(supports, default=0.0)


def _is_unsure(run: PartRun) -> bool:
    return run.answer is not None and not run.by_another and any(w.code == ErrorCode.LOW_CONFIDENCE for w in run.answer.warnings)
