"""What is carried out: `python -m tests.bench.decisions` decides labelled texts through triage, intent and routing, without an LM.

`datasets/replies` has last turns of conversations (`none`: nothing is to be carried out), `datasets/near` requests that speak of the
catalogue's matters and those that only seem to (`oos`). Prints by kind what became of them; `--wrong` lists what went wrong. A text that
was learned from ("yes please" stands in `replies/train` too) is left out. A student is fitted on the seed set first, a minute on two cores.
"""

import argparse
import asyncio
import json
import os
from collections import Counter, defaultdict
from typing import Any
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from optimizers.dataset import read_rows
from optimizers.policy import fit_policy, read_held_out
from optimizers.several import fit_several
from optimizers.student import fit
from service.catalog.loader import load_catalog
from service.catalog.model import Catalog
from service.contracts.decision import Action, RouteDecision
from service.contracts.query import OrchestratorInput
from service.deadline import Deadline
from service.programs import Router
from service.routing.encoder import Encoder
from service.routing.entities import Gazetteer
from service.routing.history import History
from service.stages.intent import ReadIntent
from service.stages.routing import Route
from service.stages.triage import Triage
from tests.conftest import ROOT

OUTCOMES = ("right", "asked for the right one", "nothing", "another agent, with a warning", "another agent", "another agent, not undone")
Row = dict[str, Any]


def main() -> None:
    """Fit, decide and print."""
    parser = argparse.ArgumentParser(description="Measure what is carried out.")
    parser.add_argument("--wrong", action="store_true", help="also print what is carried out wrongly, or not at all")
    given = parser.parse_args()
    console, encoder, catalog = Console(), Encoder(threads=os.cpu_count() or 1), load_catalog()
    seed = read_rows(ROOT / "datasets/seed")
    learned = {bare(row.text) for row in seed} | {bare(row["text"]) for row in read_lines("replies/train")}
    fitted = fit(seed, encoder, descriptions={i.name: i.description for i in catalog.intents})
    router = Router("bench", fitted.student, fit_several(fitted, fit_policy(read_held_out(fitted))))
    console.print(repr(router.policy), markup=False)
    for name in ("replies/dev", "replies/test", "near/test"):
        every = read_lines(name)
        rows = [row for row in every if bare(row["text"]) not in learned]
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            decision = asyncio.run(decide(row, catalog, router))
            kind = row.get("kind", "out of scope" if row["label"] == "oos" else "in scope")
            outcome = outcome_of(row["label"], decision, catalog)
            counts[kind][outcome] += 1
            if given.wrong and outcome != "right":
                said = f"{kind}, {outcome}: {row['label']} -> {decision.action.value} {decision.intent} {decision.confidence:.2f}"
                console.print(f"{said}, oos {decision.oos_score:.2f}: {row['text']!r} after {row.get('history', [])[-2:]}", markup=False)
        table = Table("kind", "turns", *OUTCOMES, title=f"{name}, {len(every) - len(rows)} left out", title_justify="left")
        for kind, found in counts.items():
            table.add_row(kind, str(found.total()), *(str(found[outcome] or "") for outcome in OUTCOMES))
        console.print(table)


def read_lines(name: str) -> list[Row]:
    """Read one of the sets of turns."""
    return [json.loads(line) for line in (ROOT / f"datasets/{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def bare(text: str) -> str:
    """Return letters and digits only, so that "Thank you!" is no new text beside "thank you"."""
    return "".join(filter(str.isalnum, text.casefold()))


async def decide(row: Row, catalog: Catalog, router: Router) -> RouteDecision:
    """Decide one text after its history."""
    history = [{"role": "user" if said.startswith("U: ") else "assistant", "content": said[3:]} for said in row.get("history", [])]
    body = {"parsed_query": {"query_id": str(uuid4()), "raw_query": row["text"]}, "user_id": "u", "session_id": "s"}
    request = OrchestratorInput.model_validate({**body, "conversation_history": history})
    admitted = Triage(catalog=catalog, gazetteer=Gazetteer(catalog))(request)
    understanding = ReadIntent(History())(admitted, router)
    route = Route(catalog=catalog, predictors=None, lm=None)
    return await route(request.parsed_query.query_id, admitted, understanding, router, Deadline.after(5.0))


def outcome_of(label: str, decision: RouteDecision, catalog: Catalog) -> str:
    """Name what became of a text; "not undone" is an agent that is not idempotent."""
    acts, wanted = decision.action is Action.DISPATCH, label not in {"none", "oos"}
    if (acts and decision.intent == label) or not (acts or wanted):
        return "right"
    if not acts:
        return "asked for the right one" if decision.intent == label and decision.action is Action.CLARIFY else "nothing"
    if not catalog.agent[decision.primary_agent or ""].idempotent:
        return "another agent, not undone"
    return "another agent, with a warning" if decision.warnings else "another agent"


if __name__ == "__main__":
    main()
