"""The flow `parallel`: all perspectives at once, each with its own fallbacks; what some of them bring is brought, whoever fails."""

import asyncio
from collections.abc import Sequence

from service.flows.agent_call import CallAgent
from service.flows.chain import chain_seconds, conclude, walk
from service.flows.flow import Outcome, Part, Verdict
from service.flows.work import Work


class Parallel:
    """Every part of the plan at the same time; the results keep the order of the plan."""

    def __init__(self, *, call: CallAgent) -> None:
        self._call = call

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Walk all chains at once; no agent stands in for two."""
        taken: set[str] = set()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(walk(self._call, part, work, taken)) for part in verdict.parts]
        return conclude([task.result() for task in tasks])

    def seconds(self, parts: Sequence[Part]) -> float:
        """Return the time of the longest chain."""
        return max(map(chain_seconds, parts), default=0.0)
