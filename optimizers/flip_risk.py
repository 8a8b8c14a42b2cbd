"""What a flip may break and mend: what is known of who was right, and else what both versions' probabilities say. Pure; columns only.

An error is a wrong agent, or a refusal of what an agent should have had; to ask an LM or the user is none, it costs something else. What
somebody said of a text (a correction, a choice of several) goes before what came of a request; that the logged agent succeeded is taken
for it being right, which errs on the side of whoever chose it. What neither tells is read off the mean of both versions' probabilities
(a linear opinion pool, Stone 1961), for each version believes in its own choice.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optimizers.text_router import ASK_LM, CLARIFY, Array, Choices

NOBODY, ANOTHER, UNKNOWN = -4, -5, -6  # no agent; one that the catalogue lacks; nothing known: beside a text router's choices
WRONG, RIGHT, OPEN = 1, 0, -1

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of n requests.

    Attributes:
        right: the choice that is right, or `UNKNOWN`; shape (n,).
        wrong: a choice that is wrong, or `UNKNOWN`; shape (n,).
        said: somebody said so; shape (n,).
    """

    right: Choices
    wrong: Choices
    said: Flags


@dataclass(frozen=True, slots=True)
class Risk:
    """What the flips of n requests do; each of shape (n,).

    Attributes:
        gain: the old choice is known to be wrong, and the new one is not.
        loss: the new choice is known to be wrong, and the old one is not.
        even: both are known to be right or wrong alike.
        mended: probability that an error ends.
        broken: probability that one begins.
    """

    gain: Flags
    loss: Flags
    even: Flags
    mended: Array
    broken: Array


def errors(choice: Choices, truth: Truth) -> Choices:
    """Return `WRONG`, `RIGHT` or, where it is not known, `OPEN` for each choice."""
    known = truth.right != UNKNOWN
    return np.select(
        [puts_off(choice), known & (choice == truth.right), known, (truth.wrong != UNKNOWN) & (choice == truth.wrong)],
        [RIGHT, RIGHT, WRONG, WRONG],
        OPEN,
    )


def puts_off(choice: Choices) -> Flags:
    """Say of each choice whether it asks, an LM or the user."""
    return np.isin(choice, (ASK_LM, CLARIFY))


def weigh(old: Choices, new: Choices, truth: Truth, old_right: Array, new_right: Array) -> Risk:
    """Weigh flips.

    Args:
        old: choices, all of which differ from those of `new`.
        new: choices.
        truth: what is known.
        old_right: probability that the old choice is right.
        new_right: the same of the new choice.
    """
    before, after = errors(old, truth), errors(new, truth)
    gain, loss = (before == WRONG) & (after != WRONG), (after == WRONG) & (before != WRONG)
    even = (before == after) & (before != OPEN)
    asked, asks = puts_off(old), puts_off(new)
    mends = np.select([asked, asks], [0.0, 1.0 - old_right], new_right)
    breaks = np.select([asks, asked], [0.0, 1.0 - new_right], old_right)
    mends = np.where(before == WRONG, _given(mends, 1.0 - old_right), mends)
    breaks = np.where(after == WRONG, _given(breaks, 1.0 - new_right), breaks)
    told = (before != OPEN) & (after != OPEN)
    mended = np.where(told | loss, gain & told, mends)
    broken = np.where(told | gain, loss & told, breaks)
    return Risk(gain, loss, even, mended.astype(float), broken.astype(float))


def _given(chance: Array, condition: Array) -> Array:
    """Return the chance of what can only be where the condition is."""
    return np.minimum(1.0, chance / np.maximum(condition, 1e-9))
