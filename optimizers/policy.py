"""Fit the policy's thresholds on cross-fitted readings. Pure: readings in, `Policy` out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from optimizers.student import Fit
from service.routing.encoder import Encoding
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE

RISK_TARGET = 0.02
CONFIDENCE = 0.95
ACCEPTED_IN_SCOPE = 0.95
CLARIFYING_COST = 0.5  # of asking the user, where sending the question to a wrong agent costs 1


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Cross-fitted readings.

    Attributes:
        probability: the best label's calibrated probability, shape (rows,).
        correct: whether that label is right; False for out-of-scope rows.
        oos_score: shape (rows,).
        in_scope: shape (rows,).
    """

    probability: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]
    oos_score: npt.NDArray[np.float64]
    in_scope: npt.NDArray[np.bool_]


def read_held_out(fit: Fit) -> HeldOut:
    """Interpret the cross-fitted logits as the student would."""
    empty = Encoding(np.zeros(1, np.float32), (), 0.0)
    readings = [fit.student.interpret(empty, row.astype(np.float32)) for row in fit.logits]
    truth = [fit.student.weights.labels[t] for t in fit.targets]
    best = [next(iter(r.probabilities.items())) for r in readings]
    return HeldOut(
        np.array([p for _, p in best]),
        np.array([label == t for (label, _), t in zip(best, truth, strict=True)]),
        np.array([r.oos_score for r in readings]),
        np.array([t != OUT_OF_SCOPE for t in truth]),
    )


def fit_policy(held_out: HeldOut, *, risk_target: float = RISK_TARGET) -> Policy:
    """Choose the thresholds: accept `ACCEPTED_IN_SCOPE` of in-scope requests, and act alone where the error is provably small."""
    refuse_above = float(np.quantile(held_out.oos_score[held_out.in_scope], ACCEPTED_IN_SCOPE, method="higher"))
    accepted = held_out.oos_score <= refuse_above
    act_above, coverage = act_threshold(held_out.probability[accepted], held_out.correct[accepted], risk_target)
    return Policy(
        refuse_above=refuse_above,
        act_above=act_above,
        clarify_below=1.0 - CLARIFYING_COST,
        accepted_in_scope=ACCEPTED_IN_SCOPE,
        risk_target=risk_target,
        coverage=coverage,
    )


def act_threshold(probability: npt.NDArray[np.float64], correct: npt.NDArray[np.bool_], risk_target: float) -> tuple[float, float]:
    """Return the lowest threshold at which the error is at most `risk_target` with 95 % confidence, and the share that it covers.

    Thresholds are tested from strict to lax, stopping at the first that fails: fixed-sequence testing keeps the family-wise error
    without a correction (Angelopoulos et al. 2021, Learn then Test). When none passes: (1.01, 0), that is, never act alone.
    """
    thresholds = _grid(probability, risk_target)
    acted = probability[:, None] >= thresholds
    errors = (acted & ~correct[:, None]).sum(axis=0)
    fails = binom.cdf(errors, acted.sum(axis=0), risk_target) > 1.0 - CONFIDENCE
    passed = int(np.argmax(np.append(fails, True)))
    if passed == 0:
        return 1.01, 0.0
    return float(thresholds[passed - 1]), float(acted[:, passed - 1].mean())


def _grid(probability: npt.NDArray[np.float64], risk_target: float) -> npt.NDArray[np.float64]:
    """Candidate thresholds, strict to lax: quantiles from the least that could pass down to the smallest probability."""
    least = np.ceil(np.log(1.0 - CONFIDENCE) / np.log(1.0 - risk_target)) * 2  # twice the rows that zero errors would need
    first = min(1.0, least / max(1, len(probability)))
    return np.quantile(probability, 1.0 - np.linspace(first, 1.0, 100))
