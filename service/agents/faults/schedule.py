"""Decides which dispatch meets which fault. It counts and draws, and acts nothing out."""

from random import Random

from service.agents.faults.plan import EVERY_AGENT, FaultPlan, PlannedFault


class Schedule:
    """A plan under way: its entries with what each has counted so far."""

    def __init__(self, plan: FaultPlan) -> None:
        """Begin with every count at zero."""
        self.plan = plan
        self._steps = [_Step(plan.seed, place, entry) for place, entry in enumerate(plan.faults)]

    def next_fault(self, agent: str) -> PlannedFault | None:
        """Return what happens to the agent's next dispatch: the first entry that strikes it, or None."""
        return next((step.entry for step in self._steps if step.strikes(agent)), None)

    def follow(self, plan: FaultPlan) -> None:
        """Go on with a changed plan. Entries that stand in both go on with their counts, unless the seed is another."""
        kept = list(self._steps) if plan.seed == self.plan.seed else []
        steps = []
        for place, entry in enumerate(plan.faults):
            step = next((old for old in kept if old.entry == entry), None)
            if step is None:
                step = _Step(plan.seed, place, entry)
            else:
                kept.remove(step)
            steps.append(step)
        self.plan, self._steps = plan, steps


class _Step:
    def __init__(self, seed: int, place: int, entry: PlannedFault) -> None:
        self.entry = entry
        self._reached = 0
        self._random = Random(f"{seed}/{place}/{entry.agent}/{entry.fault}")

    def strikes(self, agent: str) -> bool:
        entry = self.entry
        if entry.agent not in (agent, EVERY_AGENT):
            return False
        self._reached += 1
        number = self._reached - entry.after
        if number < 1 or (entry.times is not None and number > entry.times):
            return False
        return self._random.random() < entry.share
