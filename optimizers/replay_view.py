"""Shows a replay on a terminal: the figures, and the flips that may break most."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optimizers.evaluate import Figure
from optimizers.replayed import EXAMPLES, Cluster, Cost, Replay

SHOWN_CLUSTERS = 12
LONGEST_TEXT = 90
WIDE = 110  # columns of a terminal with room for all


def show_replay(out: Console, found: Replay, *, alias: str | None, stretch: str) -> None:
    """Print a replay; `alias` is the one that the old version was named by, and `stretch` which part of the log was replayed."""
    lines = [
        f"Router version {found.new} against {found.old}{f' ({alias})' if alias else ''}. {stretch}: "
        f"{found.requests:,} requests in {found.texts:,} texts"
        + (f", the latest of {found.found:,}; for more: --most" if found.found > found.requests else ""),
        f"{found.flipped:,} would flip, {_share(found.flips)}: {found.another_agent:,} to another agent, "
        f"{found.flipped - found.another_agent:,} to another action",
        f"likely to break {_likely(found.broken)} (known: {found.losses:,}), to be mended {_likely(found.mended)} (known: {found.gains:,})",
        f"put to an LM {found.asked_lm[0].value:.1%} -> {found.asked_lm[1].value:.1%}, to the user "
        f"{found.asked_user[0].value:.1%} -> {found.asked_user[1].value:.1%}; agents' mean latency "
        f"{_latency(found.costs[0])} -> {_latency(found.costs[1])}, "
        f"timeout {_seconds(found.costs[0].timeout_ms)} -> {_seconds(found.costs[1].timeout_ms)}",
    ]
    if found.fitted_on.value > 0.0:
        lines.append(
            f"Version {found.new} was fitted on the texts of {found.fitted_on.value:.1%} of these requests: what it gains there proves "
            f"little. On the others: {found.fresh_gains:,} known to be gained, {found.fresh_losses:,} lost"
        )
    out.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    if found.clusters:
        out.print(_clusters(found, wide=out.width >= WIDE))
        hidden = found.clusters[SHOWN_CLUSTERS:]
        if hidden:
            out.print(f"and {len(hidden)} smaller risks with {sum(one.requests for one in hidden):,} requests: --html, --json", style="dim")
    for row in found.logged[:SHOWN_CLUSTERS]:
        alike = (
            f"{version} does the same in {same / row.requests:.1%}" + (f" and asks the LM in {asks / row.requests:.1%}" if asks else "")
            for version, same, asks in ((found.old, row.same_as_old, row.old_asks_lm), (found.new, row.same_as_new, row.new_asks_lm))
        )
        decided = f"{row.requests:,} decided then by version {row.version}, rung {row.rung}: {', '.join(alike)}"
        out.print(decided, highlight=False, markup=False, soft_wrap=True)
    if found.left_out:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in found.left_out.items())
        out.print(f"not replayed: {reasons}", highlight=False, markup=False, soft_wrap=True, style="dim")


def _clusters(found: Replay, *, wide: bool) -> Table:
    table = Table(title="What flips, riskiest first (in brackets: known)", title_justify="left", show_lines=True)
    table.add_column("from -> to, and typical texts", ratio=1)
    for heading in ("requests", "breaks", "mends", *(("cost",) if wide else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.clusters[:SHOWN_CLUSTERS]:
        flip = f"[bold]{one.source} -> {one.target}[/]{' (mixed)' if one.mixed else ''}"
        examples = [f"- {escape(_cut(text))}" for text in one.examples[: EXAMPLES if wide else 1]]
        figures = [f"{one.requests:,}", f"{_likely(one.broken)} ({one.losses:,})", f"{_likely(one.mended)} ({one.gains:,})"]
        table.add_row("\n".join([flip, *examples]), *figures, *([_cost(one)] if wide else []))
    return table


def _cost(one: Cluster) -> str:
    asked = [f"{more:+,} to the {whom}" for more, whom in ((one.lm_requests, "LM"), (one.questions, "user")) if more]
    pairs = (("", one.latency_ms), ("timeout ", one.timeout_ms))
    times = [f"{name}{_seconds(before)} -> {_seconds(after)}" for name, (before, after) in pairs if (before, after) != (None, None)]
    return "\n".join([*asked, *times])


def _share(figure: Figure) -> str:
    return f"{figure.value:.1%} (95 %: {figure.low:.1%} to {figure.high:.1%})"


def _likely(errors: float) -> str:
    return "0" if errors == 0.0 else f"{errors:.1f}" if errors < 10.0 else f"{errors:,.0f}"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1_000:.1f} s"


def _latency(cost: Cost) -> str:
    """Return the agents' mean latency, and of how many of the calls it is known, where that is not all of them."""
    known = f" (known of {cost.latency_told:,} of {cost.dispatched:,} calls)" if cost.latency_told < cost.dispatched else ""
    return _seconds(cost.latency_ms) + known


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]}..."
