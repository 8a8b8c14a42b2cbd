"""Shows on a terminal what the court made of a challenger."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optimizers.ruling import Found, Ruling, Verdict
from service.adapters.mlflow_registry import REPORT, MlflowRegistry

if TYPE_CHECKING:
    from optimizers.routing_job import Hearing
    from optimizers.search_watch import Searched

MARKS = {Found.FOR: "for", Found.AGAINST: "against", Found.NO_VERDICT: "no verdict", Found.PENDING: "waits", Found.SKIPPED: "skipped"}
WHAT_NOW = {
    Ruling.PROMOTE: "It is champion now. To go back: pointsman routers rollback",
    Ruling.REJECT: "The champion stays. More signals, or more labelled requests, may make a better one.",
    Ruling.WAIT: "The champion stays until the evidence is complete.",
}


def report_of(registry: MlflowRegistry, number: str) -> str | None:
    """Return where the page about a version lies, a path of this machine or a URI; None where it has none."""
    return registry.where(registry.run_of(number), REPORT)


def show_hearing(out: Console, heard: "Hearing", seconds: float) -> None:
    """Print what was learned from, and the verdict."""
    if heard.repeated:
        number = heard.version.number
        said = f"Nothing is new since version {number} was made: the same data, champion and rules. Nothing was fitted; its verdict stands."
        out.print(said, highlight=False, soft_wrap=True)
    else:
        out.print(_learned_from(heard, seconds), highlight=False, soft_wrap=True)
    show_verdict(out, heard.verdict)
    if heard.report is not None:
        out.print(f"Report: {heard.report}", highlight=False, markup=False, soft_wrap=True)


def _learned_from(heard: "Hearing", seconds: float) -> str:
    data = heard.dataset
    learned = f"{data['labelled']} labelled requests and {_total(data['observations'])} observations of logged ones"
    left_out = f"{_total(data['left_out'])} signals left out{_reasons(data['left_out'])}"
    return f"Router version {heard.version.number}, from {learned} ({left_out}), {seconds:.0f} s"


def show_search(out: Console, searched: "Searched") -> None:
    """Print what the search did."""
    full = [trial for trial in searched.trials if trial.full]
    spent = searched.spent
    found = f"from {full[0].score:.1%} to {max(t.score for t in full):.1%} of {full[0].n} validation questions" if full else "nothing"
    cost = "" if not spent.usd else f", {spent.usd:.2f} USD"
    tokens = spent.input_tokens + spent.output_tokens
    out.print(
        f"{searched.wish.optimizer} on {searched.lm}: {found} in {len(searched.trials)} trials; {spent.calls} calls"
        f" ({spent.failures} failed), {tokens:,} tokens{cost}",
        highlight=False,
        soft_wrap=True,
    )
    if searched.ended_early is not None:
        out.print(f"The search ended early: {searched.ended_early}.", highlight=False, soft_wrap=True)


def show_verdict(out: Console, verdict: Verdict, *, now: bool = True) -> None:
    """Print each step's finding and the ruling; where that is `now`, also what it leads to."""
    table = Table(title=f"Version {verdict.challenger} against {verdict.champion or 'none'}", title_justify="left")
    for heading in ("step", "counts", "found", "because"):
        table.add_column(heading)
    for finding in verdict.findings:
        table.add_row(finding.step.value, verdict.rules.weight(finding.step).value, MARKS[finding.found], escape(finding.reason))
    out.print(table)
    what_now = f" {WHAT_NOW[verdict.ruling]}" if now else ""
    out.print(f"{verdict.ruling.value}: {verdict.reason}{what_now}", highlight=False, markup=False, soft_wrap=True)


def _reasons(counts: object) -> str:
    return ": " + ", ".join(f"{reason} {n}" for reason, n in counts.items()) if isinstance(counts, Mapping) and counts else ""


def _total(counts: object) -> int:
    return sum(int(n) for n in counts.values()) if isinstance(counts, Mapping) else 0
