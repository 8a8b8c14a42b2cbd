"""A replay as an HTML page: what flips, what that may break and mend, and what it costs. One file, no script, nothing fetched."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from optimizers.page import BLUE, GREY, RED, as_svg, render
from optimizers.replayed import Choice, Cluster, Replay

SHOWN_CLUSTERS = 60
SHOWN_PAIRS = 12
PALE = "#d1d5db"


def write_replay(found: Replay, path: Path, *, alias: str | None, stretch: str) -> None:
    """Write the page. Texts and names of the data are escaped.

    Args:
        found: the replay.
        path: the file.
        alias: of the old version, where it was named by one.
        stretch: which part of the log was replayed, in words.
    """
    page = render(
        "replay.html.j2",
        title=f"Router version {found.new} against {found.old}",
        found=found,
        alias=alias,
        stretch=stretch,
        shown=found.clusters[:SHOWN_CLUSTERS],
        hidden=found.clusters[SHOWN_CLUSTERS:],
        pairs=as_svg(draw_pairs(found.clusters)) if found.clusters else None,
    )
    path.write_text(page, encoding="utf-8")


def draw_pairs(clusters: tuple[Cluster, ...]) -> Drawing:
    """Requests that flip by old and new choice, in what is known of them; the largest pairs, the largest on top."""
    pairs: dict[tuple[Choice, Choice], list[Cluster]] = {}
    for cluster in clusters:
        pairs.setdefault((cluster.source, cluster.target), []).append(cluster)
    largest = sorted(pairs.items(), key=lambda pair: -sum(one.requests for one in pair[1]))[:SHOWN_PAIRS][::-1]
    names = [f"{source} → {target}" for (source, target), _ in largest]
    drawing = Drawing(figsize=(9.6, 1.2 + 0.34 * len(largest)), layout="constrained")
    axes: Axes = drawing.subplots()
    left = [0] * len(largest)
    for field, colour, label in (
        ("losses", RED, "lost"),
        ("gains", BLUE, "gained"),
        ("even", GREY, "no difference"),
        ("unknown", PALE, "not known"),
    ):
        counts = [sum(getattr(one, field) for one in of_pair) for _, of_pair in largest]
        axes.barh(names, counts, left=left, color=colour, label=label, height=0.68)
        left = [start + count for start, count in zip(left, counts, strict=True)]
    axes.set(xlabel="requests")
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.legend(frameon=False, ncols=4, loc="outside upper right")
    return drawing
