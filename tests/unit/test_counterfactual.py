"""From a dataset's observations to an off-policy estimate: what counts as a choice, and the answer in a world with a known truth."""

import numpy as np
import pyarrow as pa
import pytest

from optimizers.counterfactual import LEAST, estimate_challenger
from optimizers.observations import SCHEMA
from optimizers.off_policy import Answer
from service.routing.student import Reading
from tests.unit.test_evidence import PLAIN

SERVES = {"invoices": "invoices_agent", "refunds": "refunds_agent"}
READING = Reading({"invoices": 0.55, "refunds": 0.45}, 0.1, np.zeros(3, np.float32))


def world(n: int, *, explored: float, better: float) -> pa.Table:
    """Return n near ties of which a share got the second; the second earns so much more on average."""
    rng, rows = np.random.default_rng(1), []
    for i in range(n):
        second = rng.random() < explored
        intent, other = ("refunds", "invoices") if second else ("invoices", "refunds")
        reward = float(np.clip(rng.normal(0.5 + better * second, 0.2), 0.0, 1.0))
        row = {"asked": SERVES[intent], "intent": intent, "propensity": explored if second else 1.0 - explored, "reward": reward}
        rows.append({**PLAIN, "text": f"text {i}", **row, "alternative": other if explored else None})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def asked(table: pa.Table, agent: str) -> Answer | None:
    """Say what the log tells of a challenger that always asks one agent."""
    found = estimate_challenger(table, SERVES, [READING] * len(table), lambda _: agent)
    return found.answer if found is not None else None


@pytest.mark.parametrize(
    ("explored", "better", "agent", "answer"),
    [
        (0.1, 0.3, "refunds_agent", Answer.BETTER),
        (0.1, -0.3, "refunds_agent", Answer.WORSE),
        (0.1, 0.3, "invoices_agent", Answer.NO_DIFFERENCE),
        (0.0, 0.3, "refunds_agent", Answer.NO_VERDICT),
    ],
    ids=["better", "worse", "the same", "nothing explored"],
)
def test_the_answer_is_the_worlds(explored: float, better: float, agent: str, answer: Answer) -> None:
    """Where the log explored; else it does not know."""
    assert asked(world(3_000, explored=explored or 1e-12, better=better), agent) is answer


@pytest.mark.parametrize("told", ["chosen", "caller", "lm"])
def test_what_others_decided_is_no_choice_of_the_student(told: str) -> None:
    """Nor is what was not rewarded; too few are no evidence."""
    table = world(LEAST + 50, explored=0.1, better=0.0)
    others = pa.Table.from_pylist([{**row, told: "invoices"} for row in table.to_pylist()], schema=SCHEMA)
    unrewarded = pa.Table.from_pylist([{**row, "reward": None} for row in table.to_pylist()], schema=SCHEMA)

    assert (asked(others, "refunds_agent"), asked(unrewarded, "refunds_agent")) == (None, None)
    assert asked(table.slice(0, LEAST - 1), "refunds_agent") is None
