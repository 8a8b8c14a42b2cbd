"""Measure several intents and negation: `python -m tests.bench.several` fits on the seed set and reads `datasets/several`.

`dev` was tuned on; `test` was looked at once before the last changes; `fresh` was written after them and is the honest one.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from optimizers.dataset import read_rows
from optimizers.policy import fit_policy, read_held_out
from optimizers.several import fit_several
from optimizers.student import fit
from service.catalog.loader import load_catalog
from service.programs import Router
from service.routing.encoder import Encoder
from service.stages.intent import read_wishes
from tests.conftest import ROOT

Row = dict[str, Any]
Answer = tuple[str, ...]


def main() -> None:
    """Fit, read and print."""
    console, encoder = Console(), Encoder(threads=os.cpu_count() or 1)
    descriptions = {intent.name: intent.description for intent in load_catalog().intents}
    fitted = fit(read_rows(ROOT / "datasets/seed"), encoder, descriptions=descriptions)
    router = Router("bench", fitted.student, fit_several(fitted, fit_policy(read_held_out(fitted))))

    def in_clauses(text: str) -> Answer:
        encoding = encoder.encode(text)
        return read_wishes(text, encoding, fitted.student.read_all([encoding])[0], router).intents

    def whole(text: str) -> Answer:
        reading = fitted.student.read(text)
        return tuple(list(reading.probabilities)[:1]) if reading.oos_score <= router.policy.refuse_above else ()

    table = Table("figure", *(f"{name}, {how}" for name in ("dev", "test", "fresh") for how in ("whole", "clauses")))
    columns = []
    for name in ("dev", "test", "fresh"):
        rows = [json.loads(line) for line in (ROOT / f"datasets/several/{name}.jsonl").read_text().splitlines()]
        columns += [_figures(rows, [read(row["text"]) for row in rows]) for read in (whole, in_clauses)]
    for figure in columns[0]:
        table.add_row(figure, *(column[figure] for column in columns))
    console.print(table)


def _figures(rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, str]:
    def share(kind: Callable[[Row], bool], right: Callable[[Row, Answer], bool]) -> str:
        counted = [right(row, answer) for row, answer in zip(rows, answers, strict=True) if kind(row)]
        return f"{100 * sum(counted) / max(1, len(counted)):.1f} ({len(counted)})"

    return {
        "exact set": share(lambda _: True, lambda row, answer: set(row["intents"]) == set(answer)),
        "exact set, several": share(lambda row: len(row["intents"]) > 1, lambda row, answer: set(row["intents"]) == set(answer)),
        "exact order, where ordered": share(lambda row: row["ordered"], lambda row, answer: tuple(row["intents"]) == answer),
        "primary": share(lambda row: bool(row["intents"]), lambda row, answer: row["intents"][:1] == list(answer[:1])),
        "false several": share(lambda row: len(row["intents"]) == 1 and not row["negated"], lambda _, answer: len(answer) > 1),
        "negation respected": share(lambda row: bool(row["negated"]), lambda row, answer: not set(answer) & set(row["negated"])),
    }


if __name__ == "__main__":
    main()
