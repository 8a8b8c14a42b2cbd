"""Where the student answers without the LM, region by region, for tables and charts: on held-out rows, and in the running service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from optimizers.evaluate import Figure
from optimizers.page import BLUE, GREY, RED
from optimizers.policy import HeldOut, acts_alone
from service.routing.policy import NEVER, Policy
from service.routing.regions import RegionTally

MOST_DRAWN = 40


@dataclass(frozen=True, slots=True)
class Region:
    """Requests that read as one intent.

    Attributes:
        acts_from: probability from which the student answers alone; 1.01: never.
        requests: how many there were.
        alone: how many of them it answered, or would have answered, alone.
        agreement: share of those on which its answer agrees with what is held to be right: on held-out rows the label, in the
            service what the LM says of a sample.
        given_back: why the LM decides again, where it does.
    """

    intent: str
    acts_from: float
    requests: int
    alone: int
    agreement: Figure
    given_back: str | None = None
    usd_saved: float | None = None

    @property
    def share_alone(self) -> float:
        """Share of the requests that the student answers alone."""
        return self.alone / self.requests if self.requests else 0.0


def held_out_regions(held_out: HeldOut, policy: Policy) -> list[Region]:
    """Return the regions of a fit, the largest first. Rows that the policy refuses belong to none."""
    accepted, alone = held_out.oos_score <= policy.refuse_above, acts_alone(held_out, policy)
    found = []
    for intent in np.unique(held_out.read[accepted]).tolist():
        own = held_out.read == intent
        acted = own & alone
        agreement = Figure.share(int((acted & held_out.correct).sum()), int(acted.sum()))
        found.append(Region(intent, policy.act_from(intent), int((own & accepted).sum()), int(acted.sum()), agreement))
    return sorted(found, key=lambda region: -region.requests)


def live_regions(tallies: Mapping[str, RegionTally], policy: Policy, given_back: Mapping[str, str]) -> list[Region]:
    """Return the regions as the services counted them, the largest first."""
    found = [
        Region(
            intent,
            NEVER if intent in given_back else policy.act_from(intent),
            tally.local + tally.asked,
            tally.local,
            Figure.share(tally.agreed, tally.audited),
            given_back.get(intent),
            tally.usd_saved,
        )
        for intent, tally in ({name: RegionTally() for name in given_back} | dict(tallies)).items()
    ]
    return sorted(found, key=lambda region: -region.requests)


def draw_regions(regions: Sequence[Region], target: float) -> Drawing:
    """Agreement of what the student answers alone with its 95 % interval, and how much that is, by region; the largest first."""
    shown = list(regions[:MOST_DRAWN])[::-1]
    place = np.arange(len(shown))
    drawing = Drawing(figsize=(7.2, 1.6 + 0.24 * len(shown)), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_agreement(left, shown, target)
    left.set_yticks(place, [region.intent for region in shown])
    right.barh(place, [region.share_alone for region in shown], color=[RED if region.given_back else BLUE for region in shown])
    right.set(xlabel="share answered without the LM", xlim=(0, 1))
    for row, region in enumerate(shown):
        right.annotate(f"{region.alone:,} of {region.requests:,}", (0.02, row), va="center", fontsize="x-small")
    return drawing


def _draw_agreement(axes: Axes, shown: Sequence[Region], target: float) -> None:
    known = [(row, region.agreement) for row, region in enumerate(shown) if region.agreement.n]
    values = np.array([figure.value for _, figure in known])
    reach = np.array([[figure.value - figure.low, figure.high - figure.value] for _, figure in known]).reshape(-1, 2).T
    axes.errorbar(values, [row for row, _ in known], xerr=np.maximum(0.0, reach), fmt="o", color=BLUE, ecolor=GREY, markersize=4)
    axes.axvline(target, color=GREY, linestyle="--")
    lowest = min([0.8, *(figure.low for _, figure in known)])
    axes.set(xlabel=f"agreement where it answers alone (target {target:.0%})", xlim=(max(0.0, lowest - 0.02), 1.005))
