"""Fit on logged requests beside labelled ones: classifier and label model by turns, until each agrees with the other (EM).

A turn costs little: what is believed of the labels changes the targets of a fit, not its kernel. How sure the classifier is, that is, its
temperature, is set by the likelihood of what was observed, the labels summed out, and not by what is believed at the time: beliefs that
begin unsure would stay so for many turns. Knows columns only.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from optimizers.kernel import Matrix, Problem, Solution
from optimizers.label_model import Array, Beliefs, Evidence, Indices, believe, estimate, log_likelihood

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
    reliability = estimate(np.zeros((0, labels), np.float32), evidence.nothing)
    beliefs = believe(np.full((evidence.size, labels), 1.0 / labels, np.float32), evidence, reliability)
    for _ in range(TURNS):
        solution = problem.solve_again(solution.factor, _with(solution.targets, logged, beliefs))
        scores = problem.held_out(solution, folds)[logged]
        prior = np.exp(log_softmax(scores / _temperature(scores, log_likelihood(evidence, reliability)), axis=1)).astype(np.float32)
        beliefs = believe(prior, evidence, reliability)
        reliability = estimate(beliefs, evidence)
    return problem.solve_again(solution.factor, _with(solution.targets, logged, beliefs)), beliefs


def _temperature(scores: Matrix, observed: Array) -> float:
    """Return the temperature at which what was observed is likeliest, given the scores' softmax as the labels' prior."""

    def loss(log_t: float) -> float:
        return -float(logsumexp(log_softmax(scores / np.exp(log_t), axis=1) + observed, axis=1).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-6.0, 2.0), method="bounded").x))


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
