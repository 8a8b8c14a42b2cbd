"""The analyses that a question about inputs calls for, run on one model, and how sure they are. It writes no sentence."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from service.agents.features.importance import (
    FEWEST_REPEATS,
    MOST_REPEATS,
    Contribution,
    Importance,
    contributions,
    input_groups,
    loss_without,
    shuffle_columns,
    shuffle_groups,
)
from service.agents.features.model import Reference
from service.agents.features.overlap import Alone, Overlap, measure_alone, measure_overlap
from service.agents.features.request import FeatureRequest
from service.agents.features.selection import Reduction, Verdict, reduce_columns, run_shadow_test
from service.agents.resampling import share_true
from service.agents.training.inputs import base_input

SMALL_CHANGE = 0.05
MS_PER_REPEAT = 250
"""A cautious estimate of one round of shuffling every input on one busy core."""
MOST_NAMED = 6


@dataclass(frozen=True, slots=True, eq=False)
class Ablation:
    """What the inputs that a word names are worth: the loss when they are shuffled together, and when a refit lacks them."""

    word: str
    shuffled: Importance
    dropped: float


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """What was measured; None where the question does not ask for it."""

    reference: Reference
    request: FeatureRequest
    groups: list[Importance]
    columns: list[Importance]
    ablations: list[Ablation]
    contributions: list[Contribution] | None
    overlap: Overlap | None
    alone: list[Alone] | None
    reduction: Reduction | None
    shadows: list[Verdict] | None


def analyse(reference: Reference, request: FeatureRequest, budget_ms: int) -> Analysis:
    """Run what the question asks for; the importance always, with fewer repeats where time is short."""
    repeats = int(np.clip(budget_ms // MS_PER_REPEAT, FEWEST_REPEATS, MOST_REPEATS))
    wanted = set(request.analyses)
    named = {word: _columns_of(reference, inputs) for word, inputs in list(request.mentioned.items())[:MOST_NAMED]}
    named = {word: columns for word, columns in named.items() if columns}
    shuffled = {one.name: one for one in shuffle_groups(reference, named, repeats)} if named else {}
    block = tuple(dict.fromkeys(column for columns in named.values() for column in columns))
    return Analysis(
        reference=reference,
        request=request,
        groups=shuffle_groups(reference, input_groups(reference.table.columns), repeats),
        columns=shuffle_columns(reference),
        ablations=[Ablation(word, shuffled[word], loss_without(reference, columns)) for word, columns in named.items()],
        contributions=contributions(reference) if "contribution" in wanted else None,
        overlap=measure_overlap(reference, block if len(block) > 1 else reference.table.columns) if "overlap" in wanted else None,
        alone=measure_alone(reference) if "leakage" in wanted else None,
        reduction=reduce_columns(reference, shuffle_columns(_on_validation(reference))) if "redundant" in wanted else None,
        shadows=run_shadow_test(reference) if "boruta" in wanted else None,
    )


def confidence(found: Analysis) -> float:
    """Return how sure the answer is: the least sure of the analyses that were asked for, times the share of the named data that exist."""
    asked: dict[str, Callable[[], float]] = {
        "importance": lambda: _leads(found.groups),
        "ablation": lambda: _decided(found),
        "contribution": lambda: _same_leaders(found),
        "overlap": lambda: found.overlap.agreement if found.overlap else 1.0,
        "leakage": lambda: _repeated(found.alone or []),
        "redundant": lambda: found.reduction.safe if found.reduction else 1.0,
        "boruta": lambda: 1.0 - sum(one.verdict == "tentative" for one in found.shadows or []) / max(len(found.shadows or []), 1),
    }
    names = found.request.analyses if not found.ablations else (*found.request.analyses, "ablation")
    known = (len(found.ablations) + 1.0) / (len(found.ablations) + len(found.request.absent) + 1.0)
    return min(asked[name]() for name in names if name != "importance" or len(names) == 1) * known


def _columns_of(reference: Reference, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column for column in reference.table.columns if base_input(column) in inputs)


def _on_validation(reference: Reference) -> Reference:
    """Return the model fitted on the training weeks alone, judged on the validation weeks: a choice must not see the test."""
    table = reference.table
    train, later = np.flatnonzero(table.rows("train")), np.flatnonzero(table.rows("validation"))
    fitted = clone(reference.recipe).fit(table.values[train], table.target[train])
    return replace(reference, estimator=fitted, learn=train, test=later)


def _leads(ranked: list[Importance]) -> float:
    """Return the share of repeats in which the first stays before every other."""
    others = np.array([one.losses for one in ranked[1:]])
    return share_true(np.asarray(ranked[0].losses > others.max(axis=0))) if len(others) else 1.0


def _decided(found: Analysis) -> float:
    """Return how clear the named inputs are: their order where there are several, else on which side of nothing they lie."""
    ranked = sorted((one.shuffled for one in found.ablations), key=lambda one: -one.mean)
    if not ranked:
        return _leads(found.groups)
    if len(ranked) > 1:
        return _leads(ranked)
    return share_true(np.sign(ranked[0].losses) == np.sign(ranked[0].mean))


def _same_leaders(found: Analysis) -> float:
    top = min(found.request.top, len(found.columns))
    first = {one.column for one in (found.contributions or [])[:top]}
    return (len(first & {one.name for one in found.columns[:top]}) + 1.0) / (top + 1.0)


def _repeated(alone: list[Alone]) -> float:
    """Return the share of columns whose strength is about the same in the test weeks."""
    return sum(abs(one.value - one.later) < SMALL_CHANGE for one in alone) / max(len(alone), 1)
