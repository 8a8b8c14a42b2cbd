"""Do the intervals of off-policy estimates hold what they say? `python -m tests.bench.off_policy`: 500 simulated logs with known truth.

Logs of 2,000 to 10,000 requests; half of them are near ties, of which a tenth or a twentieth are explored. Prints how often the
95 % intervals hold the truth, what the verdicts were, and what they are without exploration.
"""

import argparse
from collections import Counter

import numpy as np
from rich.table import Table

from optimizers.evaluate import Figure
from optimizers.off_policy import estimate
from service.terminal import terminal
from tests.unit.test_off_policy import simulate

console = terminal()


def main() -> None:
    """Simulate, estimate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    table = Table(title=f"{given.runs} logs each; share of the 95 % intervals that hold the truth", title_justify="left")
    for heading in ("requests", "explored", "gain", "ips", "snips", "dr", "verdicts"):
        table.add_column(heading, justify="left" if heading == "verdicts" else "right")
    for requests, explored, gain in ((2_000, 0.1, 0.1), (10_000, 0.1, 0.1), (10_000, 0.05, 0.1), (10_000, 0.1, -0.3), (10_000, 0.0, 0.3)):
        held, verdicts = Counter[str](), Counter[str]()
        for _ in range(given.runs):
            log, usual, truth = simulate(rng, requests, explored=explored, better=gain)
            found = estimate(log, usual)
            verdicts[found.answer.value] += 1
            for name in ("ips", "snips", "dr"):
                one = getattr(found, name)
                held[name] += one.low <= truth <= one.high
        shares = [_show(Figure.share(held[name], given.runs)) if explored else "-" for name in ("ips", "snips", "dr")]
        said = ", ".join(f"{name} {count}" for name, count in verdicts.most_common())
        table.add_row(f"{requests:,}", f"{explored:.0%}", f"{gain / 6:+.3f}", *shares, said)
    console.print(table)


def _show(figure: Figure) -> str:
    return f"{figure.value:.1%} ({figure.low:.1%} to {figure.high:.1%})"


if __name__ == "__main__":
    main()
