"""Fit when a request counts as several: the policy's `several_above` and `says_no`, on requests that each ask for one thing."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from optimizers.dataset import Row
from optimizers.policy import CONFIDENCE
from optimizers.student import Fit
from service.routing.clauses import Clauses, split
from service.routing.policy import Policy
from service.routing.student import Reading
from service.routing.wishes import texts, understand

STEPS = 101
LONE_NEGATIONS = 0.01  # share of a label's texts that are a negation and nothing else, from which a negation may mean the label

Cut = tuple[Reading, Clauses, list[Reading]]


def fit_several(fitted: Fit, policy: Policy) -> Policy:
    """Return the policy with the lowest `several_above` at which too few requests are taken to have several intents to be chance.

    Thresholds are tested from strict to lax, stopping at the first that fails (Angelopoulos et al. 2021, Learn then Test): with 95 %
    confidence at most `risk_target` of the requests with one intent are taken to have several. Each row is read by a fit that has not
    seen it.
    """
    rows = fitted.rows
    clauses = [split(row.text) for row in rows]
    policy = policy.model_copy(update={"says_no": _says_no(rows, clauses)})
    cut = _read_cut(fitted, clauses)
    allowed = int(binom.ppf(1.0 - CONFIDENCE, len(rows), policy.risk_target)) - 1
    chosen = 1.01
    for threshold in np.linspace(1.0, policy.clarify_below, STEPS).tolist():
        tried = policy.model_copy(update={"several_above": threshold})
        if sum(len(understand(*one, tried).intents) > 1 for one in cut) > allowed:
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
                made.append((whole, found, readings))
    return made


def _says_no(rows: Sequence[Row], clauses: Sequence[Clauses | None]) -> tuple[str, ...]:
    total = Counter(row.label for row in rows)
    lone = Counter(row.label for row, c in zip(rows, clauses, strict=True) if c is not None and c.negated and not c.rest)
    return tuple(sorted(label for label, count in lone.items() if count >= LONE_NEGATIONS * total[label]))
