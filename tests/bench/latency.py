"""How long one text takes, warm, on a quiet machine: `python -m tests.bench.latency`.

Prints p50 and p99 in milliseconds of the encoder alone and of the whole student, for texts of 8, 13 and 22 tokens, on one thread and on
two, interleaved in one run, and of a follow-up whose history is known or new. The student is fitted on the seed set first.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from optimizers.dataset import read_rows
from optimizers.student import fit
from service.routing.encoder import Encoder
from service.routing.history import History, Said

ROOT = Path(__file__).parents[2]
LENGTHS = (8, 13, 22)
ROUNDS = 600
ANSWER = "Fabhalta TRx in the Northeast was 4,120 last quarter, 6 % below target; the largest gap is in Boston."


def main() -> None:
    """Fit, time in turns, print."""
    rows, encoder = read_rows(ROOT / "datasets/seed"), Encoder(threads=2)
    fitted = fit(rows, encoder)
    texts = {n: [r.text for r in rows if len(encoder.encode(r.text).tokens) + 2 == n][:40] for n in LENGTHS}
    console, history = Console(), History()
    table = Table(title=f"milliseconds, {ROUNDS} texts each", title_justify="left")
    for column in ("tokens", "encoder p50", "student p50", "student p99"):
        table.add_column(column, justify="right")
    with threadpool_limits(1):  # of BLAS, as in the service
        student = fitted.student.on(Encoder())
        for length in LENGTHS:
            alone, whole = _time([student.encoder.encode, student.read], texts[length])
            table.add_row(str(length), *(f"{np.percentile(t, p):.1f}" for t, p in ((alone, 50), (whole, 50), (whole, 99))))
        console.print(table)
        fresh = itertools.count()

        def follow(text: str, *, new: bool) -> None:
            mark = f" {next(fresh)}" if new else ""
            earlier = [Said(texts[13][0] + mark, True), Said(ANSWER + mark, False)]
            history.read(student, student.encoder.encode(text), earlier)

        known, new = _time([lambda t: follow(t, new=False), lambda t: follow(t, new=True)], texts[8])
        console.print(f"8 tokens after two utterances: p50 {np.median(known):.1f} ms where they are known, {np.median(new):.1f} new")


def _time(reads: list[Callable[[str], object]], texts: list[str]) -> list[list[float]]:
    taken: list[list[float]] = [[] for _ in reads]
    for turn, text in enumerate(itertools.islice(itertools.cycle(texts), ROUNDS + 40)):
        for read, times in zip(reads, taken, strict=True):
            started = time.perf_counter()
            read(text)
            if turn >= 40:
                times.append((time.perf_counter() - started) * 1e3)
    return taken


if __name__ == "__main__":
    main()
