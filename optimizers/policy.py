"""Fit the policy's thresholds on cross-fitted readings. Pure: readings in, `Policy` out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from optimizers.calibration import ACCEPTED_IN_SCOPE
from optimizers.student import Fit
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE

RISK_TARGET = 0.02
CONFIDENCE = 0.95
STARTS = 5
CLARIFYING_COST = 0.5  # of asking the user, where sending the question to a wrong agent costs 1


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Cross-fitted readings.

    Attributes:
        probability: the best label's calibrated probability, shape (rows,).
        correct: whether that label is right; False for out-of-scope rows.
        oos_score: shape (rows,).
        in_scope: shape (rows,).
        read: the best label, shape (rows,).
    """

    probability: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]
    oos_score: npt.NDArray[np.float64]
    in_scope: npt.NDArray[np.bool_]
    read: npt.NDArray[np.str_]


def read_held_out(fit: Fit) -> HeldOut:
    """Calibrate the held-out scores as the student would."""
    probabilities, oos_scores = fit.student.calibrate(fit.held_out)
    labels = np.array(fit.student.weights.labels)
    truth = np.where(fit.targets >= 0, labels[fit.targets], "")
    best = np.array(fit.student.labels)[probabilities.argmax(axis=1)]
    return HeldOut(probabilities.max(axis=1), best == truth, oos_scores, (truth != OUT_OF_SCOPE) & (truth != ""), best)


def fit_policy(held_out: HeldOut, *, risk_target: float = RISK_TARGET) -> Policy:
    """Choose the thresholds: accept `ACCEPTED_IN_SCOPE` of in-scope requests, and act alone where the error is provably small."""
    refuse_above = float(np.quantile(held_out.oos_score[held_out.in_scope], ACCEPTED_IN_SCOPE, method="higher"))
    accepted = held_out.oos_score <= refuse_above
    act_above, _ = act_threshold(held_out.probability[accepted], held_out.correct[accepted], risk_target)
    policy = Policy(
        refuse_above=refuse_above,
        act_above=act_above,
        clarify_below=1.0 - CLARIFYING_COST,
        accepted_in_scope=ACCEPTED_IN_SCOPE,
        risk_target=risk_target,
        coverage=0.0,
        regions=fit_regions(held_out, accepted, act_above, risk_target),
    )
    return policy.model_copy(update={"coverage": float(acts_alone(held_out, policy)[accepted].mean()) if accepted.any() else 0.0})


def acts_alone(held_out: HeldOut, policy: Policy) -> npt.NDArray[np.bool_]:
    """Say of which rows the student would act alone, shape (rows,)."""
    names, of = np.unique(held_out.read, return_inverse=True)
    acts_from = np.array([policy.act_from(str(name)) for name in names])[of] if len(names) else np.zeros(0)
    acts: npt.NDArray[np.bool_] = (held_out.oos_score <= policy.refuse_above) & (held_out.probability >= acts_from)
    return acts


def fit_regions(held_out: HeldOut, accepted: npt.NDArray[np.bool_], act_above: float, risk_target: float) -> dict[str, float]:
    """Return the thresholds of the labels whose own rows say something else than all rows together.

    A label that is right from a lower probability on, with `CONFIDENCE`, is acted on from there. One whose rows above the common threshold
    are wrong more often than allowed, with the same confidence, is acted on where its own rows prove it, or never.
    """
    regions = {}
    for label in np.unique(held_out.read[accepted]).tolist():
        own = accepted & (held_out.read == label)
        probability, correct = held_out.probability[own], held_out.correct[own]
        proven, _ = act_threshold(probability, correct, risk_target, starts=1)
        above = probability >= act_above
        errors, acted = int((above & ~correct).sum()), int(above.sum())
        too_often = acted > 0 and binom.sf(errors - 1, acted, risk_target) <= 1.0 - CONFIDENCE
        if too_often or proven < act_above:
            regions[label] = max(proven, act_above) if too_often else proven
    return regions


def act_threshold(
    probability: npt.NDArray[np.float64], correct: npt.NDArray[np.bool_], risk_target: float, *, starts: int = STARTS
) -> tuple[float, float]:
    """Return the lowest threshold at which the error is at most `risk_target` with 95 % confidence, and the share that it covers.

    Thresholds are tested from strict to lax, stopping at the first that fails, from each of `starts` points with its share of the
    allowed chance of failure: multi-start fixed-sequence testing keeps the family-wise error (Angelopoulos et al. 2021, Learn then Test).
    One start alone would end where a few rows with a wrong label fail the strictest threshold. When none passes: (1.01, 0), that is, never
    act alone.
    """
    thresholds = _grid(probability, risk_target, starts)
    acted = probability[:, None] >= thresholds
    errors = (acted & ~correct[:, None]).sum(axis=0)
    fails = binom.cdf(errors, acted.sum(axis=0), risk_target) > (1.0 - CONFIDENCE) / starts
    passed = [
        i
        for start in range(0, len(thresholds), len(thresholds) // starts)
        for i in range(start, start + int(np.argmax([*fails[start:], True])))
    ]
    if not passed:
        return 1.01, 0.0
    return float(thresholds[max(passed)]), float(acted[:, max(passed)].mean())


def _grid(probability: npt.NDArray[np.float64], risk_target: float, starts: int) -> npt.NDArray[np.float64]:
    """Candidate thresholds, strict to lax: quantiles from the least that could pass down to the smallest probability."""
    least = np.ceil(np.log((1.0 - CONFIDENCE) / starts) / np.log(1.0 - risk_target))
    least *= 2 if starts > 1 else 1  # twice the rows that zero errors would need, where there are other points to start from
    first = min(1.0, least / max(1, len(probability)))
    return np.quantile(probability, 1.0 - np.linspace(first, 1.0, 100))
