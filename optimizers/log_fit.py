"""Fit on logged requests beside labelled ones: classifier and label model by turns, until each agrees with the other (EM).

A turn costs little: what is believed of the labels changes the targets of a fit, not its kernel. Knows columns only.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from optimizers.calibration import temperature
from optimizers.kernel import Matrix, Problem, Solution
from optimizers.label_model import Beliefs, Evidence, Indices, believe, estimate

TURNS = 6


def settle(problem: Problem, solution: Solution, logged: slice, evidence: Evidence, folds: Sequence[Indices]) -> tuple[Solution, Beliefs]:
    """Return the fit and what is believed of the logged rows' labels.

    Args:
        problem: all rows of the fit.
        solution: a fit of them; its targets are right but for those of the logged rows.
        logged: the logged rows, after all labelled ones.
        evidence: what was observed of them.
        folds: rows that are held out together, so that what is believed of a row is never its own doing.
    """
    labels = solution.targets.shape[1]
    nothing = np.full((evidence.size, labels), 1.0 / labels, np.float32)
    beliefs = believe(nothing, evidence, estimate(nothing[:0], evidence.nothing))
    for _ in range(TURNS):
        solution = problem.solve_again(solution.factor, _with(solution.targets, logged, beliefs))
        scores = problem.held_out(solution, folds)[: logged.stop]
        prior = softmax(scores[logged] / temperature(scores, solution.targets[: logged.stop]), axis=1).astype(np.float32)
        beliefs = believe(prior, evidence, estimate(beliefs, evidence))
    return problem.solve_again(solution.factor, _with(solution.targets, logged, beliefs)), beliefs


def draw(beliefs: Beliefs, seed: int) -> Indices:
    """Draw one label for each row as likely as it is believed (one imputation, Rubin 1987), for what can take no probabilities."""
    steps = beliefs.cumsum(axis=1, dtype=np.float64)
    chance = np.random.default_rng(seed).random(len(beliefs))[:, None] * steps[:, -1:]
    labels: Indices = (steps < chance).sum(axis=1)
    return labels


def _with(targets: Matrix, rows: slice, beliefs: Beliefs) -> Matrix:
    changed = targets.copy()
    changed[rows] = beliefs
    return changed
