"""`pointsman bench ...`: measure on labelled files. Exit codes: 0 measured; 2 wrong usage or data."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from optimizers.progress import shown
from service.cores import cores
from service.errors import ConfigurationError
from service.settings import read_settings
from service.terminal import terminal

if TYPE_CHECKING:
    from optimizers.bench import Benchmark, Figures

app = typer.Typer(help="Measure understanding on labelled files.", no_args_is_help=True, rich_markup_mode="markdown")
out, err = terminal(), terminal(stderr=True)
FILE = {"exists": True, "readable": True}
STDOUT = Path("-")
SHOWN_CONFUSIONS = 5
SHOWN_UNKNOWN = 10


@app.callback()
def bench() -> None:
    """Measure understanding on labelled files."""


@app.command(
    no_args_is_help=True,
    epilog="Example: `pointsman bench intents --train train.jsonl.gz --val val.jsonl.gz --test test.jsonl.gz --report report.html`\n\n"
    'One JSON object a line: `{"text": "...", "label": "...", "history": ["...", "..."]}`. `history` may be left out: what was said '
    'before, oldest first, as `"U: ..."` by the user and `"S: ..."` by the system; '
    "without a mark by the user. The label `oos` means out of scope.",
)
def intents(
    train: Annotated[Path, typer.Option(**FILE, help="Labelled requests to fit on: .jsonl, .jsonl.gz or a folder of them.")],
    test: Annotated[Path, typer.Option(**FILE, help="Labelled requests to evaluate on, once.")],
    val: Annotated[
        Path | None, typer.Option(**FILE, help="Labelled requests to choose and calibrate on; else rows held out of the training set.")
    ] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(
            **FILE,
            dir_okay=False,
            help='The labels to choose from: a JSON list of {"label": ..., "description": ...}; those without rows are told by it.',
        ),
    ] = None,
    oos: Annotated[
        Path | None,
        typer.Option(**FILE, help="Out-of-scope requests to evaluate on; any label will do."),
    ] = None,
    risk_target: Annotated[float, typer.Option(min=0.001, max=0.5, help="Largest share of errors where the student acts alone.")] = 0.02,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file as JSON; - is standard output.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page: reliability, risk against coverage, confusions.")] = None,
) -> None:
    """Fit a student on labelled requests, choose and calibrate on validation, evaluate once on test."""
    for target in (report, json_file if json_file != STDOUT else None):
        if target is not None:
            check_writable(target)
    with shown(err) as progress:
        progress("loading the encoder and scikit-learn")
        from optimizers.bench import bench as measure
        from service.routing.encoder import Encoder

        try:
            encoder = Encoder(read_settings().encoder, threads=cores())
            measured = measure(train, val, test, oos, catalog=catalog, encoder=encoder, risk_target=risk_target, progress=progress)
        except (ValueError, OSError, ConfigurationError) as exc:
            raise _exit(str(exc)) from exc
    figures = json.dumps(asdict(measured.figures), indent=2)
    if json_file == STDOUT:
        typer.echo(figures)
    else:
        _show(measured)
    try:
        if json_file is not None and json_file != STDOUT:
            json_file.write_text(figures + "\n", encoding="utf-8")
        if report is not None:
            from optimizers.report import write_report

            write_report(measured, report, title=f"{train.name} → {test.name}")
    except OSError as exc:
        raise _exit(f"What was measured cannot be written: {exc}") from exc


def check_writable(path: Path) -> None:
    """Refuse, before minutes of fitting, a file that cannot be written after them."""
    folder = path.absolute().parent
    if os.path.isdir(path):
        raise _exit(f"{path} is a folder; name a file in it.")
    if not os.path.isdir(folder):
        raise _exit(f"There is no folder {folder} to write {path.name} to.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise _exit(f"There is no permission to write {path}.")


def _show(measured: "Benchmark") -> None:
    figures = measured.figures
    table = Table(title=f"{figures.test_rows} test rows, {figures.labels} labels", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in _lines(figures):
        table.add_row(name, value)
    out.print(table)
    out.print(f"Settings and thresholds were chosen on {measured.chosen_on}.", highlight=False)
    if figures.act_above > 1.0:
        why = f"no threshold is proven to keep the error at {figures.risk_target:.1%}: too few held-out rows, or errors among the surest"
        out.print(f"The student would not act without a warning: {why}.", highlight=False)
    unknown = sorted({row.label for row in measured.evaluated.rows} - set(measured.student.labels))
    if unknown:
        named = ", ".join(map(repr, unknown[:SHOWN_UNKNOWN]))
        out.print(f"Labels of test rows that no training row and no description has, so all wrong: {named}.", markup=False, highlight=False)
    if measured.left_out:
        out.print(
            f"{measured.left_out} training and validation rows have a label that is not in the catalogue; not fitted on.", highlight=False
        )
    for c in measured.confusions()[:SHOWN_CONFUSIONS]:
        out.print(f"{c.count} x {c.label!r} read as {c.read!r}: {c.texts[0]!r}", markup=False, highlight=False)


def _lines(f: "Figures") -> list[tuple[str, str]]:
    low, high = f.accuracy_interval
    return [
        ("accuracy", f"{f.accuracy:.4f} ({low:.4f} to {high:.4f})"),
        ("macro F1", f"{f.macro_f1:.4f}"),
        ("right label among the three likeliest", f"{f.top3:.4f}"),
        *_where("accuracy of rows without a history", f.accuracy_first if f.accuracy_after is not None else None),
        *_where("accuracy of rows with a history", f.accuracy_after),
        *_where("accuracy of labels told by description alone", f.accuracy_new),
        *_where("such a label among the three likeliest", f.top3_new),
        ("expected calibration error", f"{f.ece:.4f} (by chance ≤ {f.ece_by_chance:.4f})"),
        (f"coverage at risk {f.risk_target:.1%}", f"{f.coverage_at_risk:.4f}"),
        ("observed risk among those", _number(f.risk)),
        ("out of scope: AUROC", _number(f.oos_auroc)),
        ("out of scope: recall, 95 % in scope accepted", _number(f.oos_recall_at_95_inscope)),
        ("latency p50 / p99, one thread", f"{f.latency_ms['p50']:.1f} / {f.latency_ms['p99']:.1f} ms"),
        ("left out, text in a later set: train / val", " / ".join(map(str, f.removed_rows.values()))),
        ("fit", f"{f.fit_seconds:.0f} s"),
        ("artifact", f"{f.artifact_bytes / 2**20:.1f} MiB"),
        ("peak memory", f"{f.peak_rss_mb:.0f} MiB"),
    ]


def _where(name: str, value: float | None) -> list[tuple[str, str]]:
    return [] if value is None else [(name, f"{value:.4f}")]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(2)
