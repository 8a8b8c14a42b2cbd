"""How long the student takes with a catalogue of many agents: `python -m tests.bench.catalogue`.

The twelve intents of the analytics catalogue have examples; the others are told by their descriptions, which are made up of words. Prints
p50 and p99 of reading one text on one thread, and of the encoder's part alone, in one run.
"""

import argparse
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
from service.catalog.loader import load_catalog
from service.routing.encoder import Encoder

ROOT = Path(__file__).parents[2]
VERBS = (
    "book cancel compare explain find list order plan price rate renew report return review schedule send share sort track update".split()
)
THINGS = (
    "flight hotel table taxi train parcel invoice contract meeting ticket loan claim policy visa lease recipe song film book course "
    "exam garden tent roof boiler car bicycle phone laptop printer camera"
).split()
PLACES = "Lisbon Oslo Cairo Lagos Lima Quito Delhi Seoul Osaka Perth Dublin Tunis Accra Turin Graz Basel Porto Malmo Leeds Nantes".split()
TEXTS = 500


def main() -> None:
    """Fit, widen, time."""
    parser = argparse.ArgumentParser(description="Time the student with a catalogue of many agents.")
    parser.add_argument("--agents", type=int, default=10_000)
    given = parser.parse_args()
    rows, encoder = read_rows(ROOT / "datasets/seed"), Encoder(threads=2)
    fitted = fit(rows[::4], encoder)
    words: dict[str, list[str]] = {name: list(texts) for name, texts in load_catalog().words.items()}
    for verb, thing, place in itertools.islice(itertools.product(VERBS, THINGS, PLACES), given.agents - len(words)):
        words[f"{verb}_{thing}_{place}"] = [f"{verb} a {thing} for customers in {place}", f"{thing}: {verb} it, with the office of {place}"]
    started = time.perf_counter()
    student = fitted.student.knowing(words)
    encoding = time.perf_counter() - started
    single = student.on(Encoder(threads=1))
    texts = [r.text for r in rows[:: len(rows) // TEXTS][:TEXTS]]
    table = Table(title=f"{len(student.labels)} agents; their descriptions were encoded in {encoding:.0f} s", title_justify="left")
    for column in ("one text, one thread", "p50, ms", "p99, ms"):
        table.add_column(column, justify="left" if column.startswith("one") else "right")
    encoded = {text: single.encoder.encode(text) for text in texts}
    with threadpool_limits(1):
        for name, read in (
            ("encoder", single.encoder.encode),
            ("student, text encoded before", lambda text: single.read_all([encoded[text]])),
            ("student, encoder included", single.read),
        ):
            table.add_row(name, *(f"{np.percentile(_time(read, texts), share):.1f}" for share in (50, 99)))
    Console().print(table)


def _time(read: Callable[[str], object], texts: list[str]) -> list[float]:
    taken = []
    for text in [*texts[:20], *texts]:
        started = time.perf_counter()
        read(text)
        taken.append((time.perf_counter() - started) * 1e3)
    return taken[20:]


if __name__ == "__main__":
    main()
