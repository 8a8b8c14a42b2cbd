"""Calibration: class scores → probabilities that mean what they say, and evidence → the out-of-scope score.

NumPy only; `optimizers/calibration.py` fits.
"""

from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_EDGE = 1e-6  # keeps logarithms finite


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted numbers.

    Attributes:
        temperature: divides the scores before the softmax (Guo et al. 2017, On Calibration of Modern Neural Networks).
        rise, fall, shift: beta calibration of the best label's probability p (Kull et al. 2017): the log-odds of its being right are
            rise · ln p - fall · ln(1 - p) + shift. The other labels share the rest in proportion.
        scope_slope, scope_shift: the log-odds of being out of scope are scope_shift - scope_slope · evidence.
    """

    temperature: float = 1.0
    rise: float = 1.0
    fall: float = 1.0
    shift: float = 0.0
    scope_slope: float = 1.0
    scope_shift: float = 0.0

    def probabilities(self, scores: npt.NDArray[np.floating]) -> Array:
        """Return the probability of each label; scores and result have shape (texts, labels)."""
        shares = softmax(np.asarray(scores, np.float64) / self.temperature)
        rows, best = np.arange(len(shares)), shares.argmax(axis=1)
        top = shares[rows, best]
        second = np.partition(shares, -2, axis=1)[:, -2]
        log_odds = self.rise * np.log(np.clip(top, _EDGE, 1.0)) - self.fall * np.log(np.clip(1.0 - top, _EDGE, 1.0)) + self.shift
        least = second / np.maximum(1.0 - top + second, _EDGE) + _EDGE  # the best label stays the best
        calibrated = np.clip(sigmoid(log_odds), least, 1.0 - _EDGE)
        shares *= ((1.0 - calibrated) / np.maximum(1.0 - top, _EDGE))[:, None]
        shares[rows, best] = calibrated
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def out_of_scope(self, evidence: npt.NDArray[np.floating]) -> Array:
        """Return the out-of-scope score of each text from the evidence that it is in scope, both of shape (texts,)."""
        return sigmoid(self.scope_shift - self.scope_slope * np.asarray(evidence, np.float64))

    @property
    def usable(self) -> bool:
        """Whether every number is finite and the maps rise."""
        return bool(np.isfinite(astuple(self)).all()) and min(self.temperature, self.scope_slope) > 0.0 and min(self.rise, self.fall) >= 0.0


def softmax(logits: Array) -> Array:
    """Return exp(logits), each row divided by its sum."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def sigmoid(log_odds: Array) -> Array:
    """Return the probability that belongs to the log-odds."""
    odds: Array = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -60.0, 60.0)))
    return odds
