"""Where the student answers without the LM: how much that is, whether the LM would have said the same, and where it no longer would. Pure.

A region is an intent: the requests that the student reads so and is sure of. Of those a few are put to the LM as well, after the
answer; from their share that agrees one sees whether a region is still the student's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from service.routing.arms import Sums, bound

CHANCE = 0.05  # of giving any region back wrongly in a window
FEWEST = 20  # audited requests of a region that tell anything


@dataclass(slots=True)
class RegionTally:
    """What became of the requests that read as one intent.

    Attributes:
        local: answered by the student, where the LM might have been asked.
        asked: put to the LM before the answer.
        audited: answered by the student and put to the LM afterwards; it answered.
        agreed: of those, on which the LM chose the same agent.
        failed: of audits, on which the LM gave nothing usable.
        seconds, usd: what the audited calls took and cost; `priced` of them have a known price.
    """

    local: int = 0
    asked: int = 0
    audited: int = 0
    agreed: int = 0
    failed: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    priced: int = 0

    def __iadd__(self, other: "RegionTally") -> "RegionTally":
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        return self

    @property
    def share_local(self) -> float | None:
        """Share of the requests that the student answered alone."""
        decided = self.local + self.asked
        return self.local / decided if decided else None

    @property
    def usd_saved(self) -> float | None:
        """What the LM would have cost for the requests that it was not asked about, at the price of those that it was."""
        return self.local * self.usd / self.priced - self.usd if self.priced else None


def total(tallies: Mapping[str, RegionTally]) -> RegionTally:
    """Return the sum of all regions."""
    everything = RegionTally()
    for tally in tallies.values():
        everything += tally
    return everything


def find_drifted(tallies: Mapping[str, RegionTally], target: float) -> dict[str, str]:
    """Return the regions that the student should give back, with the reason.

    The LM agrees with it provably less than the target, and provably less than in all other regions: an LM that errs everywhere alike says
    nothing of one of them.

    Args:
        tallies: of one router version in the window that is looked at.
        target: share of right answers that the student has to reach alone.
    """
    judged = {intent: tally for intent, tally in tallies.items() if tally.audited >= FEWEST}
    found = {}
    for intent, tally in judged.items():
        others = total({other: one for other, one in tallies.items() if other != intent})
        most, share = bound(Sums.of_share(tally.agreed, tally.audited), side=1.0, chance=CHANCE / len(judged) / 2)
        least, elsewhere = bound(Sums.of_share(others.agreed, others.audited), side=-1.0, chance=CHANCE / len(judged) / 2)
        if most < min(target, least) or (most < target and not others.audited):
            found[intent] = (
                f"the LM agreed on {tally.agreed} of {tally.audited} ({share:.0%}, at most {most:.0%}), "
                f"elsewhere on {others.agreed} of {others.audited} ({elsewhere:.0%}); the target is {target:.0%}"
            )
    return found
