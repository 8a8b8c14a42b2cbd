"""The page of a run: what was mended and broken, and that nothing of the data becomes markup."""

from datetime import UTC, datetime

import numpy as np

from optimizers.court import judge_integrity, judge_test
from optimizers.evaluate import Figure
from optimizers.lm_meter import Spent
from optimizers.order import Wish
from optimizers.policy import HeldOut
from optimizers.prompt_diff import diff_programs
from optimizers.ruling import Rules, Ruling, Verdict
from optimizers.run_report import find_changes, write_run_report
from optimizers.search_watch import Searched, Trial
from optimizers.trial import Trial as CourtTrial
from optimizers.trial import hold
from service.contracts.model import JsonObject
from signatures.response import ResponseSynthesis
from tests.unit.turns import a_router

SCRIPT = "<script>alert(1)</script>"
RIGHT = ["invoices"] * 60 + ["refunds"] * 60
BEFORE = ["invoices"] * 50 + ["refunds"] * 10 + ["refunds"] * 57 + [""] * 3
AFTER = ["invoices"] * 58 + ["refunds"] * 2 + ["refunds"] * 55 + ["invoices"] * 2 + ["refunds"] * 3
COMPARED = hold(CourtTrial(tuple(f"request {i} {SCRIPT}" for i in range(120)), tuple(RIGHT), np.ones(120)), BEFORE, AFTER)
OLD: JsonObject = {"signature": {"instructions": "Decide. Judge what is wanted."}, "demos": []}
NEW: JsonObject = {
    "signature": {"instructions": f"Decide. Use the codebook {SCRIPT}."},
    "demos": [{"query": "pay me", "intent": "refunds"}],
}


def a_page() -> str:
    """Return the page of a run with everything in it."""
    rules = Rules()
    verdict = Verdict(
        champion="1",
        challenger="2",
        ruling=Ruling.REJECT,
        reason="Not proven.",
        findings=(judge_integrity([]), judge_test(COMPARED, rules)),
        rules=rules,
        decided_at=datetime(2026, 11, 29, 12, 0, tzinfo=UTC),
    )
    spent = Spent(812, 3, 120_000, 9_000, 0.25)
    trials = [Trial(0.5, 100, True, 60.0, spent), Trial(0.7, 35, False, 80.0, spent), Trial(0.64, 100, True, 140.0, spent)]
    searched = Searched(Wish("routing", "miprov2"), "local/small", trials, spent, {"intent": OLD}, {"intent": NEW}, "812 calls are made")
    held_out = HeldOut(np.linspace(0.1, 0.99, 50), np.arange(50) > 10, np.zeros(50), np.ones(50, bool), np.full(50, "gap"))
    dataset: JsonObject = {"labelled": 120, "observations": {"train": 80, "validation": 10, "test": 10}, "sha256": "a" * 64}
    return write_run_report(
        verdict, COMPARED, {"accuracy": Figure.share(9, 10)}, dataset, fitted=(held_out, a_router().policy), searched=searched
    )


def test_changes_are_what_became_right_or_wrong() -> None:
    """Counted by right agent and by what was chosen before and after; what stayed right or wrong is none."""
    changes = [(c.right, c.before, c.after, c.mended, c.count) for c in find_changes(COMPARED.tried)]

    assert changes == [
        ("invoices", "refunds", "invoices", True, 8),
        ("refunds", "nobody", "refunds", True, 3),
        ("refunds", "refunds", "invoices", False, 2),
    ]


def test_the_page_shows_all_that_led_to_the_verdict() -> None:
    """Figures of before and after with intervals, the search, its cost, and the prompts."""
    page = a_page()

    for said in (
        "89.2 %",
        "96.7 %",
        "11 mended, 2 broken",
        "812",
        "120,000",
        "0.25 USD",
        "812 calls are made",
        "+Use the codebook",
        "-Judge what is wanted.",
    ):
        assert said in page, said
    assert page.count("<svg") == 3


def test_nothing_of_the_data_becomes_markup() -> None:
    """Texts, names and prompts are escaped."""
    page = a_page()

    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_diff_of_programs_is_read_by_sentence_and_demonstration() -> None:
    """What is the same is not told as new; equal programs have no diff."""
    assert diff_programs({"intent": OLD}, {"intent": OLD}) == []
    served = diff_programs({"synthesis": {"signature": {"instructions": ResponseSynthesis.instructions}}}, {"synthesis": OLD})
    assert not any(line.startswith("-") and "no orders" in line for line in served)  # no wording loses that sentence
    assert [line for line in diff_programs({"intent": OLD}, {"intent": NEW}) if line[0] in "+-" and line[1] not in "+-"] == [
        "-Judge what is wanted.",
        f"+Use the codebook {SCRIPT}.",
        "+intent: refunds | query: pay me",
    ]
