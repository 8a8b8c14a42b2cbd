"""The page of an `optimize` run: before and after on the test, what was mended and broken, the search, its cost, the prompts.

It shows what the court looked at and decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from optimizers.court import Comparison, Tried
from optimizers.evaluate import Figure
from optimizers.hearing import MARKS, WHAT_NOW
from optimizers.page import BLUE, GREY, as_svg, draw_reliability, render
from optimizers.policy import HeldOut
from optimizers.prompt_diff import diff_programs
from optimizers.regions import draw_regions, held_out_regions
from optimizers.ruling import Verdict
from optimizers.search_watch import Searched
from service.contracts.model import JsonObject
from service.routing.policy import Policy

SHOWN_CHANGES, SHOWN_TEXTS = 40, 5


@dataclass(frozen=True, slots=True)
class Change:
    """Requests of one right agent whose answer changed in the same way.

    Attributes:
        mended: wrong before and right now, or the other way round.
    """

    right: str
    before: str
    after: str
    mended: bool
    count: int
    texts: tuple[str, ...]


def write_run_report(
    verdict: Verdict,
    compared: Comparison | None,
    figures: Mapping[str, Figure],
    dataset: JsonObject,
    *,
    fitted: tuple[HeldOut, Policy] | None,
    searched: Searched | None,
) -> str:
    """Return the page. Texts and names of the data are escaped.

    `fitted` is, where a policy was fitted, the requests as they were read without themselves, and that policy.
    """
    changes = find_changes(compared.tried) if compared is not None else []
    return render(
        "run_report.html.j2",
        title=f"Router version {verdict.challenger} against {verdict.champion}",
        verdict=verdict,
        marks=MARKS,
        what_now=WHAT_NOW[verdict.ruling],
        dataset=dataset,
        figures=figures,
        accuracy=[_share(compared, name) for name in ("champion", "challenger")] if compared is not None else None,
        paired=compared.paired if compared is not None else None,
        slices=sorted(compared.slices.items(), key=lambda one: one[1].difference) if compared is not None else [],
        mended=[c for c in changes if c.mended][:SHOWN_CHANGES],
        broken=[c for c in changes if not c.mended][:SHOWN_CHANGES],
        reliability=_reliability(fitted[0]) if fitted is not None else None,
        regions=_regions(*fitted) if fitted is not None else None,
        searched=searched,
        trials=as_svg(draw_trials(searched)) if searched is not None and searched.trials else None,
        prompts=diff_programs(searched.before, searched.after) if searched is not None else [],
    )


def _reliability(held_out: HeldOut) -> str:
    in_scope = held_out.in_scope
    return as_svg(draw_reliability(held_out.probability[in_scope], held_out.correct[in_scope]))


def _regions(held_out: HeldOut, policy: Policy) -> str:
    return as_svg(draw_regions(held_out_regions(held_out, policy), 1.0 - policy.risk_target))


def find_changes(tried: Sequence[Tried]) -> list[Change]:
    """Return what is right now and was not, and the other way round; the most frequent first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in tried:
        if (one.champion == one.right) != (one.challenger == one.right):
            found.setdefault((one.right, one.champion, one.challenger), []).append(one.text)
    changes = [
        Change(_named(right), _named(before), _named(after), after == right, len(texts), tuple(texts[:SHOWN_TEXTS]))
        for (right, before, after), texts in found.items()
    ]
    return sorted(changes, key=lambda c: (-c.count, c.right, c.before, c.after))


def draw_trials(searched: Searched) -> Drawing:
    """Validation score by trial, with the best full one so far."""
    drawing = Drawing(figsize=(7.2, 3.6), layout="constrained")
    axes: Axes = drawing.subplots()
    numbers = np.arange(1, len(searched.trials) + 1)
    scores = np.array([trial.score for trial in searched.trials])
    full = np.array([trial.full for trial in searched.trials])
    axes.plot(numbers[~full], scores[~full], marker="o", mfc="none", linestyle="", color=GREY, label="on some questions")
    axes.plot(numbers[full], scores[full], marker="o", linestyle="", color=BLUE, label="on all of them")
    axes.step(numbers, np.maximum.accumulate(np.where(full, scores, -1.0)), where="post", color=BLUE, linewidth=1, label="best on all")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="trial", ylabel="share that is right", title="Search on validation questions", ylim=(0, 1.02))
    axes.legend(frameon=False, loc="lower right")
    return drawing


def _share(compared: Comparison, name: str) -> Figure:
    """Return an accuracy with its interval; where requests stand for others, the interval is that of as many requests."""
    value: float = getattr(compared.paired, name)
    return Figure.share(round(value * compared.paired.n), compared.paired.n)


def _named(agent: str) -> str:
    return agent or "nobody"
