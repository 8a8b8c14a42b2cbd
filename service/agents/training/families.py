"""The model families: how each is built in scikit-learn, which settings are tried, how complex each is. It knows no data set."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from service.agents.finding import AgentFailure
from service.agents.training.scope import FAMILIES, Family, FixedParameters, TrainingScope
from service.agents.training.target import Task

SEED = 17
TREES = 40
ITERATIONS = 60
LABELS = MappingProxyType(
    {
        "linear": "regularised linear model",
        "decision_tree": "decision tree",
        "k_nearest": "k nearest neighbours",
        "random_forest": "random forest",
        "hist_gradient_boosting": "histogram gradient boosting",
        "neural_network": "neural network",
    }
)
Parameters = dict[str, int | float | str | None]


@dataclass(frozen=True, slots=True)
class Range:
    """Where a setting lies. `grid` are the values of the standard comparison; a search draws between low and high, on a log scale.

    `complexity` is +1 where a larger value makes the model more complex, −1 where it makes it simpler.
    """

    grid: tuple[float, ...]
    low: float
    high: float
    whole: bool
    complexity: int


_LINEAR = {
    "classification": Range((0.01, 0.1, 1.0), 0.001, 10.0, False, 1),
    "regression": Range((1.0, 100.0, 1000.0), 0.1, 3000.0, False, -1),
}
_SETTINGS: dict[Family, dict[str, Range]] = {
    "decision_tree": {"depth": Range((3, 5), 2, 8, True, 1)},
    "k_nearest": {"neighbours": Range((30, 100), 10, 200, True, -1)},
    "random_forest": {"smallest_leaf": Range((10, 30), 5, 60, True, -1)},
    "hist_gradient_boosting": {"depth": Range((2, 4), 1, 6, True, 1), "learning_rate": Range((0.05, 0.12), 0.02, 0.3, False, 1)},
    "neural_network": {"units": Range((8, 16), 4, 48, True, 1), "penalty": Range((0.1, 10.0), 0.01, 30.0, False, -1)},
}


def ranges(family: Family, task: Task) -> dict[str, Range]:
    """Return the settings of a family that are tried."""
    return {"strength": _LINEAR[task]} if family == "linear" else _SETTINGS[family]


def grid(family: Family, scope: TrainingScope) -> list[Parameters]:
    """Return the settings of the standard comparison: every value of one setting, the settings moved together."""
    known = ranges(family, scope.task)
    size = max(len(one.grid) for one in known.values())
    return [_complete(family, scope, {name: one.grid[at % len(one.grid)] for name, one in known.items()}) for at in range(size)]


def draw(family: Family, scope: TrainingScope, count: int) -> list[Parameters]:
    """Return random settings, uniform on a log scale (Bergstra and Bengio 2012); the same each time."""
    rng = np.random.default_rng([SEED, FAMILIES.index(family)])
    known = ranges(family, scope.task)
    drawn = [{name: float(np.exp(rng.uniform(np.log(one.low), np.log(one.high)))) for name, one in known.items()} for _ in range(count)]
    return [_complete(family, scope, values) for values in drawn]


def complexity(family: Family, task: Task, parameters: Parameters) -> tuple[float, ...]:
    """Return a key that grows with complexity: the family first, then its settings."""
    values = [one.complexity * float(parameters.get(name) or 0.0) for name, one in ranges(family, task).items()]
    return (float(FAMILIES.index(family)), *values)


def make_estimator(family: Family, scope: TrainingScope, parameters: Parameters) -> BaseEstimator:
    """Return the unfitted estimator of a family.

    Raises:
        AgentFailure: The parameters are not those of the family (`invalid_input`).
    """
    allowed = set(_complete(family, scope, {name: one.grid[0] for name, one in ranges(family, scope.task).items()}))
    if set(parameters) != allowed:
        raise AgentFailure(
            "invalid_input", f"{family} takes the parameters {', '.join(sorted(allowed))}, not {', '.join(sorted(parameters))}."
        )
    try:
        values = {name: float(value) for name, value in parameters.items() if value is not None}
    except (TypeError, ValueError) as exc:
        raise AgentFailure("invalid_input", f"A parameter of {family} is not a number.") from exc
    limits = {name: (one.low / 10.0, one.high * 10.0) for name, one in ranges(family, scope.task).items()} | {
        "trees": (1.0, 300.0),
        "iterations": (1.0, 300.0),
    }
    for name, value in values.items():
        low, high = limits.get(name, (0.0, 1e4))
        if not low <= value <= high:
            raise AgentFailure("invalid_input", f"{name} of {family} is {value:g}; it must lie between {low:g} and {high:g}.")
    return _build(family, scope, values)


def _complete(family: Family, scope: TrainingScope, drawn: dict[str, float]) -> Parameters:
    """Return drawn settings rounded, with what the text fixes in place of them, and with the settings that are not tried."""
    fixed: FixedParameters = scope.fixed
    known = ranges(family, scope.task)
    parameters: Parameters = {name: round(value) if known[name].whole else float(f"{value:.4g}") for name, value in drawn.items()}
    if family == "random_forest":
        parameters |= {"trees": fixed.trees or TREES, "depth": fixed.depth}
    if family == "hist_gradient_boosting":
        parameters |= {"iterations": fixed.trees or ITERATIONS, "early_stopping": scope.early_stopping}
        parameters |= {"learning_rate": fixed.learning_rate} if fixed.learning_rate is not None else {}
    if fixed.depth is not None and "depth" in known:
        parameters["depth"] = fixed.depth
    return parameters


def _build(family: Family, scope: TrainingScope, values: dict[str, float]) -> BaseEstimator:
    classify = scope.task == "classification"
    weight: dict[str, Any] = {"class_weight": "balanced" if scope.class_weights else None} if classify else {}
    depth = int(values["depth"]) if "depth" in values else None
    if family == "linear":
        strength = values["strength"]
        linear = LogisticRegression(C=strength, max_iter=500, **weight) if classify else Ridge(alpha=strength)
        return make_pipeline(StandardScaler(), linear)
    if family == "decision_tree":
        tree = DecisionTreeClassifier if classify else DecisionTreeRegressor
        return tree(max_depth=depth, min_samples_leaf=20, random_state=SEED, **weight)
    if family == "k_nearest":
        nearest = KNeighborsClassifier if classify else KNeighborsRegressor
        return make_pipeline(StandardScaler(), nearest(n_neighbors=int(values["neighbours"])))
    if family == "random_forest":
        forest = RandomForestClassifier if classify else RandomForestRegressor
        shared = {"n_estimators": int(values["trees"]), "min_samples_leaf": int(values["smallest_leaf"]), "max_depth": depth}
        return forest(max_features="sqrt" if classify else 0.33, max_samples=0.5, n_jobs=1, random_state=SEED, **shared, **weight)
    if family == "hist_gradient_boosting":
        return _boosting(classify, depth, values, weight)
    network = MLPClassifier if classify else MLPRegressor
    settings = {"hidden_layer_sizes": (int(values["units"]),), "alpha": values["penalty"]}
    return make_pipeline(
        StandardScaler(), network(early_stopping=True, learning_rate_init=0.01, max_iter=1_000, random_state=SEED, **settings)
    )


def _boosting(classify: bool, depth: int | None, values: dict[str, float], weight: dict[str, Any]) -> BaseEstimator:
    patience = values.get("early_stopping")
    boosting = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    stopping: dict[str, Any] = (
        {"early_stopping": False} if patience is None else {"early_stopping": True, "n_iter_no_change": int(patience)}
    )
    return boosting(
        max_iter=int(values["iterations"]) if patience is None else 300,
        learning_rate=values["learning_rate"],
        max_depth=depth,
        random_state=SEED,
        **stopping,
        **weight,
    )
