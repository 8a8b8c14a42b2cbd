"""The benchmark's HTML page: reliability, risk against coverage, and the confusions that cost most."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from optimizers.bench import Benchmark
from optimizers.page import BLUE, GREY, RED, as_svg, draw_reliability, render

SHOWN_CONFUSIONS = 25


def write_report(measured: Benchmark, path: Path, *, title: str) -> None:
    """Write the page. Texts and labels of the data are escaped."""
    page = render(
        "report.html.j2",
        title=title,
        figures=measured.figures,
        removed=measured.removed,
        confusions=measured.confusions()[:SHOWN_CONFUSIONS],
        reliability=as_svg(draw_reliability(measured.evaluated.probability, measured.evaluated.correct)),
        selective=as_svg(draw_risk_coverage(measured)),
        scope=as_svg(draw_scope(measured)) if len(measured.evaluated.outside) else None,
    )
    path.write_text(page, encoding="utf-8")


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
