"""Exploration: only among near ties, as often as is said, the same for the same query, and written down with its probability."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contracts.decision import Candidate, Rung
from service.deadline import Deadline
from service.routing.exploration import NEAR, draw
from service.stages.routing import Route
from tests.unit.turns import CATALOG, FOREVER, a_router, admitted, understood

SHARE = 0.1
IDS = [UUID(int=i) for i in range(4_000)]


def test_the_second_is_carried_out_as_often_as_is_said() -> None:
    """And the probabilities are those of the draw."""
    drawn = [draw(("a", 0.5), ("b", 0.45), SHARE, one) for one in IDS]

    seconds = [one for one in drawn if one is not None and one.intent == "b"]
    assert len(seconds) / len(IDS) == pytest.approx(SHARE, abs=0.02)
    assert {(one.propensity, one.alternative) for one in seconds} == {(SHARE, "a")}
    assert {(one.propensity, one.alternative) for one in drawn if one is not None and one.intent == "a"} == {(1 - SHARE, "b")}


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.uuids())
def test_only_near_ties_are_explored(first: float, second: float, one: UUID) -> None:
    """Whatever the query; and never where nothing is to be explored."""
    drawn = draw(("a", first), ("b", second), SHARE, one)

    assert (drawn is None) == (second < NEAR * first)
    assert draw(("a", first), ("b", second), 0.0, one) is None
    assert drawn == draw(("a", first), ("b", second), SHARE, one)


async def explored(*candidates: tuple[str, float], share: float = 0.2, **fields: object) -> set[tuple[str, float, str]]:
    """Decide many queries that read alike; return intent, propensity and alternative of the decisions."""
    route = Route(catalog=CATALOG, predictors=None, lm=None, exploration=share)
    listed = tuple(Candidate(intent=intent, probability=p) for intent, p in candidates)
    best = listed[0]
    understanding = replace(understood(), candidates=listed, intents=(best.intent,), confidence=best.probability, **fields)  # type: ignore[arg-type]
    found = set()
    for number in range(60):
        decision = await route(UUID(int=number), admitted(), understanding, a_router(), Deadline.after(FOREVER))
        assert decision.rung is Rung.STUDENT
        found.add((decision.intent or "", decision.propensity, decision.alternative or ""))
    return found


async def test_a_near_tie_of_idempotent_agents_is_explored_and_written_down() -> None:
    """Both are carried out now and then."""
    assert await explored(("gap_analysis", 0.55), ("causal_impact", 0.45)) == {
        ("gap_analysis", 0.8, "causal_impact"),
        ("causal_impact", 0.2, "gap_analysis"),
    }


@pytest.mark.parametrize(
    ("candidates", "understood"),
    [
        ((("gap_analysis", 0.9), ("causal_impact", 0.05)), {}),
        ((("gap_analysis", 0.55), ("model_deploy", 0.45)), {}),
        ((("gap_analysis", 0.55), ("causal_impact", 0.45)), {"carried": True}),
        ((("gap_analysis", 0.99),), {}),
    ],
    ids=["no tie", "cannot be undone", "told by the history", "no second"],
)
async def test_nothing_else_is_explored(candidates: tuple[tuple[str, float], ...], understood: dict[str, object]) -> None:
    """The likeliest is carried out, with probability 1."""
    assert await explored(*candidates, **understood) == {("gap_analysis", 1.0, "")}


async def test_it_is_off_by_default() -> None:
    """A near tie gets the likeliest."""
    assert await explored(("gap_analysis", 0.55), ("causal_impact", 0.45), share=0.0) == {("gap_analysis", 1.0, "")}
