"""What a flip breaks and mends, by what is known and by probabilities."""

import numpy as np
import pytest

from optimizers.flip_risk import ANOTHER, UNKNOWN, Truth, weigh
from optimizers.text_router import ASK_LM, CLARIFY, REFUSE

A, B, C = 0, 1, 2
P_OLD, P_NEW = 0.3, 0.6  # that the old choice is right, and the new one; an error ends with .6 and begins with .3
# old, new, right, wrong: (gain, loss, even), mended, broken
FLIPS = {
    "nothing is known": (A, B, UNKNOWN, UNKNOWN, "unknown", 0.6, 0.3),
    "the new agent is right": (A, B, B, UNKNOWN, "gain", 1.0, 0.0),
    "the old agent is right": (A, B, A, UNKNOWN, "loss", 0.0, 1.0),
    "a third agent is right": (A, B, C, UNKNOWN, "even", 0.0, 0.0),
    "an agent that the catalogue lacks is right": (A, B, ANOTHER, UNKNOWN, "even", 0.0, 0.0),
    "the old agent failed": (A, B, UNKNOWN, A, "gain", 0.6 / 0.7, 0.0),
    "the new agent failed": (A, B, UNKNOWN, B, "loss", 0.0, 0.3 / 0.4),
    "a third agent failed": (A, B, UNKNOWN, C, "unknown", 0.6, 0.3),
    "the right one is refused": (A, REFUSE, A, UNKNOWN, "loss", 0.0, 1.0),
    "what was refused gets its agent": (REFUSE, A, A, UNKNOWN, "gain", 1.0, 0.0),
    "the right one is asked about": (A, CLARIFY, A, UNKNOWN, "even", 0.0, 0.0),
    "the wrong one is asked about": (A, ASK_LM, B, UNKNOWN, "gain", 1.0, 0.0),
    "the failed one is asked about": (A, ASK_LM, UNKNOWN, A, "gain", 1.0, 0.0),
    "something is asked about": (A, ASK_LM, UNKNOWN, UNKNOWN, "unknown", 0.7, 0.0),
    "the right one is no more asked about": (ASK_LM, A, A, UNKNOWN, "even", 0.0, 0.0),
    "a wrong one instead of a question": (CLARIFY, A, B, UNKNOWN, "loss", 0.0, 1.0),
    "something instead of a question": (CLARIFY, A, UNKNOWN, UNKNOWN, "unknown", 0.0, 0.4),
    "one question instead of another": (CLARIFY, ASK_LM, UNKNOWN, UNKNOWN, "even", 0.0, 0.0),
}


@pytest.mark.parametrize(("old", "new", "right", "wrong", "verdict", "mended", "broken"), FLIPS.values(), ids=FLIPS)
def test_a_flip_gains_loses_or_neither(old: int, new: int, right: int, wrong: int, verdict: str, mended: float, broken: float) -> None:
    """What is known goes before probabilities; to ask is no error."""
    truth = Truth(np.array([right]), np.array([wrong]), np.array([False]))

    risk = weigh(np.array([old]), np.array([new]), truth, np.array([P_OLD]), np.array([P_NEW]))

    found = [name for name in ("gain", "loss", "even") if getattr(risk, name)[0]] or ["unknown"]
    assert found == [verdict]
    assert (risk.mended[0], risk.broken[0]) == (pytest.approx(mended), pytest.approx(broken))
