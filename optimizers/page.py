"""HTML pages of the jobs: one file, no script, nothing fetched, and everything that comes from data escaped."""

import io
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Drawing

from optimizers.evaluate import BINS

BLUE, GREY, RED = "#2563eb", "#9ca3af", "#dc2626"
FEW_ROWS = 10  # of a bin whose share says little


def render(template: str, **values: object) -> str:
    """Return a page of a template in this folder. Text is escaped; drawings are not."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def as_svg(drawing: Drawing) -> str:
    """Return a drawing as it stands in a page."""
    text = io.StringIO()
    drawing.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def draw_reliability(probability: npt.NDArray[np.float64], correct: npt.NDArray[np.bool_]) -> Drawing:
    """Accuracy by predicted probability, with the number of rows below (Niculescu-Mizil and Caruana 2005)."""
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
