"""Fit when a request counts as several: the policy's `several_above` and `says_no`, on requests that each ask for one thing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from optimizers.dataset import Row
from optimizers.policy import CONFIDENCE
from optimizers.student import Fit
from service.routing.clauses import Clauses, split
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE, Reading
from service.routing.wishes import texts, understand

STEPS = 101
LONE_NEGATIONS = 0.01  # share of a label's texts that are a negation and nothing else, from which a negation may mean the label


@dataclass(frozen=True, slots=True)
class Cut:
    """A row in clauses: the readings of the whole and of each part, and whether the row is in scope."""

    whole: Reading
    clauses: Clauses
    parts: list[Reading]
    in_scope: bool


def fit_several(fitted: Fit, policy: Policy) -> Policy:
    """Return the policy with the lowest `several_above` at which too few requests are taken to ask for too much to be chance.

    Too much: several intents, where there is one; or an intent, for the sake of a clause, where the whole is out of scope and refused.
    Thresholds are tested from strict to lax, stopping at the first that fails (Angelopoulos et al. 2021, Learn then Test): with 95 %
    confidence at most `risk_target` of the requests are. Each row is read by a fit that has not seen it.
    """
    rows = fitted.rows
    clauses = [split(row.text) for row in rows]
    policy = policy.model_copy(update={"says_no": _says_no(rows, clauses)})
    cut = _read_cut(fitted, clauses)
    allowed = int(binom.ppf(1.0 - CONFIDENCE, len(rows), policy.risk_target)) - 1
    chosen = 1.01
    for threshold in np.linspace(1.0, policy.clarify_below, STEPS).tolist():
        tried = policy.model_copy(update={"several_above": threshold})
        if sum(_asks_for_too_much(one, tried) for one in cut) > allowed:
            break
        chosen = threshold
    return policy.model_copy(update={"several_above": chosen})


def _read_cut(fitted: Fit, clauses: Sequence[Clauses | None]) -> list[Cut]:
    parts = {i: texts(c) for i, c in enumerate(clauses) if c is not None}
    encoded = iter(fitted.student.encoder.encode_many([text for some in parts.values() for text in some]))
    encodings = {i: [next(encoded) for _ in some] for i, some in parts.items()}
    made: list[Cut] = []
    for fold in fitted.groups():
        student = fitted.without(fold)
        for i in fold:
            found = clauses[i]
            if found is not None:
                whole, *readings = student.read_all([fitted.prepared.own.encodings[i], *encodings[i]])
                made.append(Cut(whole, found, readings, fitted.rows[i].label != OUT_OF_SCOPE))
    return made


def _asks_for_too_much(cut: Cut, policy: Policy) -> bool:
    intents = understand(cut.whole, cut.clauses, cut.parts, policy).intents
    return len(intents) > 1 or (len(intents) == 1 and not cut.in_scope and cut.whole.oos_score > policy.refuse_above)


def _says_no(rows: Sequence[Row], clauses: Sequence[Clauses | None]) -> tuple[str, ...]:
    total = Counter(row.label for row in rows)
    lone = Counter(row.label for row, c in zip(rows, clauses, strict=True) if c is not None and c.negated and not c.rest)
    return tuple(sorted(label for label, count in lone.items() if count >= LONE_NEGATIONS * total[label]))
