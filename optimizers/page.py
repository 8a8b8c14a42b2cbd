"""HTML pages of one file: no script, nothing fetched, everything that comes from data escaped."""

import io
from pathlib import Path

import jinja2
from matplotlib.figure import Figure as Drawing

BLUE, GREY, RED = "#2563eb", "#9ca3af", "#dc2626"


def write_page(template: str, path: Path, **values: object) -> None:
    """Render a template of this folder and write it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    path.write_text(environment.get_template(template).render(**values), encoding="utf-8")


def svg(drawing: Drawing) -> str:
    """Return a drawing as an element of a page."""
    text = io.StringIO()
    drawing.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
