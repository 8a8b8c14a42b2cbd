"""What history adds on labelled conversations of the analytics catalogue: `python -m tests.bench.conversations`.

Prints for each kind of turn, with the text alone and after its history: how many have the right label and are not refused (of out-of-scope
turns: how many are refused), and how many are acted on wrongly. A student is fitted on the seed set first, half a minute on two cores.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from optimizers.dataset import Row, read_rows, said_before
from optimizers.policy import fit_policy, read_held_out
from optimizers.student import fit
from service.catalog.loader import load_catalog
from service.routing.encoder import Encoder
from service.routing.history import History
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE, Reading

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Fit, read and print."""
    parser = argparse.ArgumentParser(description="Measure what history adds on labelled conversations.")
    parser.add_argument("--wrong", action="store_true", help="also print the turns that are read wrongly after their history")
    given = parser.parse_args()
    console, encoder, history = Console(), Encoder(threads=os.cpu_count() or 1), History()
    descriptions = {intent.name: intent.description for intent in load_catalog().intents}
    fitted = fit(read_rows(ROOT / "datasets/seed"), encoder, descriptions=descriptions)
    policy = fit_policy(read_held_out(fitted))
    for name in ("dev", "test"):
        path = ROOT / f"datasets/conversations/{name}.jsonl"
        rows, kinds = read_rows(path), [json.loads(line)["kind"] for line in path.read_text(encoding="utf-8").splitlines()]
        encodings = encoder.encode_many([r.text for r in rows])
        alone = fitted.student.read_all(encodings)
        after = history.read_all(fitted.student, encodings, [said_before(r) for r in rows])
        table = Table(title=f"{name}, {len(rows)} turns", title_justify="left")
        for column in ("kind", "turns", "right, text alone", "right, after history", "acted wrongly, alone", "acted wrongly, after"):
            table.add_column(column, justify="left" if column == "kind" else "right")
        for kind in dict.fromkeys(kinds):
            places = [i for i, k in enumerate(kinds) if k == kind]
            some = [rows[i] for i in places]
            figures = [
                f"{100 * sum(count(row, reading[i], policy) for row, i in zip(some, places, strict=True)) / len(places):.1f}"
                for count in (_right, _acted_wrongly)
                for reading in (alone, after)
            ]
            table.add_row(kind, str(len(places)), *figures)
        console.print(table)
        if given.wrong:
            _print_wrong(console, rows, kinds, after, policy)


def _right(row: Row, reading: Reading, policy: Policy) -> bool:
    refused = reading.oos_score > policy.refuse_above
    return refused if row.label == OUT_OF_SCOPE else not refused and _best(reading) == row.label


def _acted_wrongly(row: Row, reading: Reading, policy: Policy) -> bool:
    acted = reading.oos_score <= policy.refuse_above and reading.probabilities[_best(reading)] >= policy.act_above
    return acted and _best(reading) != row.label


def _print_wrong(console: Console, rows: Sequence[Row], kinds: Sequence[str], readings: Sequence[Reading], policy: Policy) -> None:
    for row, kind, reading in zip(rows, kinds, readings, strict=True):
        if not _right(row, reading, policy):
            probability = reading.probabilities[_best(reading)]
            read = f"{row.label} read as {_best(reading)} {probability:.2f}, out of scope {reading.oos_score:.2f}"
            console.print(f"{kind}: {row.text!r} after {row.history[0]!r}: {read}", markup=False, highlight=False)


def _best(reading: Reading) -> str:
    return next(iter(reading.probabilities))


if __name__ == "__main__":
    main()
