"""The benchmark's HTML page: reliability, risk against coverage, and the confusions that cost most.

One file, no script, nothing fetched.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from optimizers.bench import BINS, Benchmark
from optimizers.page import BLUE, GREY, RED, svg, write_page

SHOWN_CONFUSIONS = 25
FEW_ROWS = 10  # of a bin whose share says little


def write_report(measured: Benchmark, path: Path, *, title: str) -> None:
    """Write the page. Texts and labels of the data are escaped."""
    write_page(
        "report.html.j2",
        path,
        title=title,
        figures=measured.figures,
        removed=measured.removed,
        confusions=measured.confusions()[:SHOWN_CONFUSIONS],
        reliability=svg(draw_reliability(measured)),
        selective=svg(draw_risk_coverage(measured)),
        scope=svg(draw_scope(measured)) if len(measured.evaluated.outside) else None,
    )


def draw_reliability(measured: Benchmark) -> Drawing:
    """Accuracy by predicted probability, with the number of rows below (Niculescu-Mizil and Caruana 2005)."""
    probability, correct = measured.evaluated.probability, measured.evaluated.correct
    place = np.clip((probability * BINS).astype(int), 0, BINS - 1)
    used = np.unique(place)
    drawing = Drawing(figsize=(5.2, 4.6), layout="constrained")
    above, below = drawing.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="perfect")
    rows = np.bincount(place, minlength=BINS)[used]
    said, right = (np.bincount(place, of, BINS)[used] / rows for of in (probability, correct.astype(float)))
    many = rows >= FEW_ROWS
    above.plot(said[many], right[many], marker="o", color=BLUE, label="student")
    if not many.all():
        above.plot(said[~many], right[~many], marker="o", mfc="none", linestyle="", color=GREY, label=f"fewer than {FEW_ROWS} rows")
    above.set(ylabel="share that is right", xlim=(0, 1), ylim=(0, 1.02), title="Reliability")
    above.legend(frameon=False)
    below.bar((used + 0.5) / BINS, rows, width=0.9 / BINS, color=BLUE)
    below.set(xlabel="probability of the best label", ylabel="rows", yscale="log")
    return drawing


def draw_risk_coverage(measured: Benchmark) -> Drawing:
    """Error among the requests acted on, from the surest alone to all of them, with the operating point (Geifman and El-Yaniv 2017)."""
    e, policy = measured.evaluated, measured.policy
    order = np.argsort(-e.probability, kind="stable")
    coverage = np.arange(1, len(order) + 1) / len(order)
    risk = np.cumsum(~e.correct[order]) / np.arange(1, len(order) + 1)
    acted = e.acted(policy)
    drawing = Drawing(figsize=(5.2, 4.6), layout="constrained")
    axes: Axes = drawing.subplots()
    axes.plot(coverage, risk, color=BLUE)
    axes.axhline(policy.risk_target, color=GREY, linestyle="--")
    axes.annotate(f"target {policy.risk_target:.1%}", (0.02, policy.risk_target), va="bottom", color=GREY)
    if acted.any():
        axes.plot([acted.mean()], [(~e.correct[acted]).mean()], marker="o", color=RED, linestyle="", label="where the student acts alone")
        axes.legend(frameon=False)
    axes.set(
        xlabel="coverage: share of requests acted on",
        ylabel="risk: share of those that is wrong",
        title="Risk against coverage",
        xlim=(0, 1),
    )
    axes.set_ylim(bottom=0)
    return drawing


def draw_scope(measured: Benchmark) -> Drawing:
    """Out-of-scope scores of both kinds, with the threshold."""
    drawing = Drawing(figsize=(5.2, 4.6), layout="constrained")
    axes: Axes = drawing.subplots()
    bins = np.linspace(0, 1, 41).tolist()
    axes.hist(measured.evaluated.oos_score, bins, density=True, alpha=0.7, color=BLUE, label="in scope")
    axes.hist(measured.evaluated.outside, bins, density=True, alpha=0.6, color=RED, label="out of scope")
    axes.axvline(measured.policy.refuse_above, color=GREY, linestyle="--", label="refused above")
    axes.set(xlabel="out-of-scope score", ylabel="density", title="Scope")
    axes.legend(frameon=False)
    return drawing
