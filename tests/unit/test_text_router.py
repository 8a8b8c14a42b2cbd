"""A version decides a text by itself as the service would decide it."""

import json
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest

from optimizers.dataset import read_rows
from optimizers.text_router import ASK_LM, CLARIFY, REFUSE, TextRouter, encode
from service.catalog.model import Catalog
from service.contracts.decision import Action, RouteDecision
from service.contracts.lm import LMFailure, LMQuestion
from service.deadline import Deadline
from service.programs import Router
from service.routing.encoder import Encoder
from service.routing.entities import Gazetteer
from service.routing.history import History
from service.stages.intent import ReadIntent
from service.stages.routing import Route
from service.stages.triage import Triage
from tests.conftest import ROOT
from tests.unit.turns import HOSTED, a_request

OTHERS = [
    "Where are we leaving Fabhalta scripts on the table? And is the nightly job up?",
    "Don't retrain the churn model, just check it for drift",
    "no forecast please",
    "Wo verschenken wir bei Fabhalta Potenzial?",
    "what is the capital of France",
    "Hi there, please roll back the churn model",
]
ACTIONS = {Action.REFUSE: REFUSE, Action.CLARIFY: CLARIFY}


class Silent:
    """An LM that was asked and did not answer."""

    async def route(self, question: LMQuestion, *, timeout: float) -> LMFailure:
        """Fail."""
        return LMFailure(reason="silent", detail="it says nothing")


@pytest.fixture(scope="module")
def some_texts() -> list[str]:
    """Golden texts of every kind, and some that need more than their reading."""
    lines = (ROOT / "datasets" / "several" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [*(row.text for row in read_rows(ROOT / "datasets" / "golden")), *(json.loads(line)["text"] for line in lines)]
    return [*texts[::20], *OTHERS]


async def decide(text: str, router: Router, catalog: Catalog, lm: str | None) -> RouteDecision:
    """Decide as the service does, by its stages."""
    admitted = Triage(catalog=catalog, gazetteer=Gazetteer(catalog))(a_request(text))
    route = Route(catalog=catalog, predictors=Silent() if lm is not None else None, lm=lm)
    return await route(uuid4(), admitted, ReadIntent(History())(admitted, router), router, Deadline.after(60.0))


def as_choice(decision: RouteDecision, catalog: Catalog) -> int:
    """Return the choice of a decision."""
    if any(warning.code == "lm_silent" for warning in decision.warnings):
        return ASK_LM
    if decision.action is Action.DISPATCH:
        return [agent.name for agent in catalog.agents].index(decision.primary_agent or "")
    return ACTIONS[decision.action]


@pytest.mark.parametrize("lm", [None, HOSTED], ids=["without an LM", "with one"])
async def test_a_version_decides_as_the_service_does(
    lm: str | None, some_texts: list[str], router: Router, catalog: Catalog, encoder: Encoder
) -> None:
    """Agent, question, refusal, or the LM; what the service asks about before it cannot be undone, it has chosen all the same."""
    router = replace(router, policy=router.policy.model_copy(update={"act_above": 0.8}), student=router.student.knowing(catalog.words))
    decisions = [await decide(text, router, catalog, lm) for text in some_texts]
    compared = [i for i, decision in enumerate(decisions) if "cannot be undone" not in decision.rationale and decision.rung == "student"]

    decided = TextRouter(router, catalog, lm).decide(encode(some_texts, encoder))

    expected = {some_texts[i]: as_choice(decisions[i], catalog) for i in compared}
    assert {some_texts[i]: int(decided.choice[i]) for i in compared} == expected
    assert len(compared) > 0.8 * len(some_texts)
    assert set(expected.values()) >= {ASK_LM if lm is not None else CLARIFY, REFUSE}


def test_probabilities_of_choices_add_up(router: Router, catalog: Catalog, encoder: Encoder) -> None:
    """One agent is right, or none is; to ask is never wrong."""
    decided = TextRouter(router, catalog, None).decide(encode(OTHERS, encoder))

    total = decided.agents.sum(axis=1) + decided.outside
    assert total == pytest.approx(np.ones(len(OTHERS)), abs=1e-6)
    assert decided.right(np.full(len(OTHERS), REFUSE)) == pytest.approx(decided.outside)
    assert decided.right(np.full(len(OTHERS), ASK_LM)).tolist() == [1.0] * len(OTHERS)
    assert decided.right(np.full(len(OTHERS), 2)) == pytest.approx(decided.agents[:, 2])


def test_the_same_texts_are_read_the_same_in_any_company(router: Router, catalog: Catalog, encoder: Encoder) -> None:
    """Each clause is read with its own text."""
    version = TextRouter(router, catalog, None)

    together, alone = version.decide(encode(OTHERS, encoder)), [version.decide(encode([text], encoder)) for text in OTHERS]

    assert together.choice.tolist() == [int(one.choice[0]) for one in alone]
    assert together.agents == pytest.approx(np.concatenate([one.agents for one in alone]), abs=1e-4)
