"""Fit the student's calibration on held-out scores. Pure: scores in, `Calibration` out."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from service.routing.calibration import Calibration

ACCEPTED_IN_SCOPE = 0.95
PENALTY = 1.0  # inverse strength of the L2 penalty of the logistic regressions

Scores = npt.NDArray[np.float32]
Targets = npt.NDArray[np.int64]


def fit_probabilities(scores: Scores, targets: Targets) -> Calibration:
    """Fit temperature (Guo et al. 2017), then beta calibration of the best label (Kull et al. 2017), by maximum likelihood.

    Args:
        scores: held-out scores of in-scope rows, shape (n, in-scope labels).
        targets: column of the right label, shape (n,).
    """
    plain = Calibration(temperature=temperature(scores, np.eye(scores.shape[1], dtype=np.float32)[targets]))
    probabilities = plain.probabilities(scores)
    right = probabilities.argmax(axis=1) == targets
    if right.all() or not right.any():
        return plain  # one class only: nothing to fit
    top = np.clip(probabilities.max(axis=1), 1e-6, 1.0 - 1e-6)
    features = np.stack([np.log(top), -np.log(1.0 - top)], axis=1)
    model = LogisticRegression(C=PENALTY).fit(features, right)
    rise, fall = model.coef_[0]
    if min(rise, fall) < 0.0:  # Kull et al.: drop the feature with the wrong sign, so that the map rises
        kept = int(rise < 0.0)
        model = LogisticRegression(C=PENALTY).fit(features[:, [kept]], right)
        slope = max(0.0, float(model.coef_[0, 0]))
        rise, fall = (0.0, slope) if kept else (slope, 0.0)
    return replace(plain, rise=float(rise), fall=float(fall), shift=float(model.intercept_[0]))


def temperature(scores: Scores, truth: Scores) -> float:
    """Return the temperature that minimizes the negative log-likelihood of held-out scores.

    As if one more row had been wrong, so that a few rows that are all right do not make the student certain (after Platt 1999).

    Args:
        scores: shape (n, labels).
        truth: probability of each label, or its indicator, shape (n, labels).
    """
    unseen = 1.0 / (len(truth) + 1)

    def loss(log_t: float) -> float:
        logs = log_softmax(scores / np.exp(log_t), axis=1)
        return float(-(1.0 - unseen) * (truth * logs).sum(axis=1).mean() - unseen * logs.mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-6.0, 4.0), method="bounded").x))


def fit_scope(calibration: Calibration, evidence: npt.NDArray[np.float32], in_scope: npt.NDArray[np.bool_]) -> Calibration:
    """Fit the out-of-scope score on held-out evidence that texts are in scope.

    With out-of-scope rows it is a logistic regression (Platt 1999) with balanced classes. Without them nothing says how likely they are, so
    the score is placed: one half where `ACCEPTED_IN_SCOPE` of the in-scope rows are accepted, and as steep as their spread.
    """
    if in_scope.all():
        spread = max(float(evidence.std()), 1e-3)
        slope = 2.0 / spread
        return replace(calibration, scope_slope=slope, scope_shift=slope * float(np.quantile(evidence, 1.0 - ACCEPTED_IN_SCOPE)))
    model = LogisticRegression(C=1e3, class_weight="balanced").fit(evidence[:, None], ~in_scope)
    slope = max(1e-3, -float(model.coef_[0, 0]))
    return replace(calibration, scope_slope=slope, scope_shift=float(model.intercept_[0]))
