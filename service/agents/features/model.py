"""The model whose inputs are asked about: a registered version, or one fitted for the target that the question names."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError
from sklearn.base import BaseEstimator, clone

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.registry.match import find_model, numbered
from service.agents.registry.store import Model, open_registry
from service.agents.sample_data import Counts, Reals, Snapshot
from service.agents.scope import question_of
from service.agents.training.families import Parameters, make_estimator
from service.agents.training.metrics import METRICS, Metric
from service.agents.training.population import resolve_population
from service.agents.training.request import DEFAULT_HORIZON, make_scope
from service.agents.training.scope import Family, Selected, TrainingScope
from service.agents.training.search import predict
from service.agents.training.table import DEFAULT_WEEKS, Table, build_table
from service.agents.training.target import TARGETS, Target, find_target, label_of
from service.agents.training.window import Window
from service.agents.training.words import NO_LABEL, read_wishes
from service.contracts.dispatch import AgentDispatch

MOST_TEST_ROWS = 1_500
_NOUN = (
    r"(?:models?|classifiers?|scorers?|scores?|rankers?|forecasters?|forecasts?|regression|set|inputs|table|v\d+|predictors?|"
    r"features?|engine)"
)
_OTHER_MODELS = rf"nba|next best(?: action)?|{NO_LABEL}|sentiment|uplift|survival|segmentation"
_CANDIDATES: tuple[tuple[Family, Parameters], ...] = (
    ("linear", {"strength": 0.05}),
    ("hist_gradient_boosting", {"depth": 3, "learning_rate": 0.08, "iterations": 60, "early_stopping": None}),
)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A fitted model with its table: `test` are the held-out rows that it is judged on (at most 1,500), `learn` those it may have seen.

    `recipe` is the same model before it was fitted, for refits on fewer columns.
    """

    estimator: BaseEstimator
    recipe: BaseEstimator
    family: str
    parameters: Parameters
    source: str
    scope: TrainingScope
    table: Table
    learn: Counts
    test: Counts
    caveats: tuple[str, ...]
    score: float = field(init=False)

    def __post_init__(self) -> None:
        """Judge the model once on the test rows."""
        score = self.metric.measure(self.table.target[self.test], predict(self.estimator, self.table.values[self.test]), None)
        object.__setattr__(self, "score", score)

    @property
    def metric(self) -> Metric:
        """The metric by which a loss is told."""
        return METRICS["roc_auc" if self.scope.task == "classification" else "rmse"]

    def losses(self, tables: Reals) -> Reals:
        """Return how much worse the metric is on changed test values than on the real ones; below 0 it is better.

        Args:
            tables: several changes at once, shape (tables, test rows, columns).
        """
        truth = self.table.target[self.test]
        predicted = predict(self.estimator, tables.reshape(-1, tables.shape[-1])).reshape(len(tables), -1)
        changes = np.array([self.metric.measure(truth, one, None) - self.score for one in predicted])
        return -changes if self.metric.higher_is_better else changes

    @property
    def label(self) -> str:
        """What the model predicts, in words."""
        return label_of(self.scope.wanted, self.scope.horizon_weeks)


def find_reference(dispatch: AgentDispatch, data: Snapshot, version: int | None) -> Reference:
    """Return the registered version that a question names, else a model fitted for the target, brand and region that it names.

    Raises:
        AgentFailure: The data lack the target, brand or region, or there is no such version.
    """
    if version is not None:
        return _registered(dispatch, data, version)
    population = resolve_population(dispatch, data)
    target, caveat = _target(question_of(dispatch))
    window = Window(data.weeks - DEFAULT_WEEKS, data.weeks, None)
    scope, _, _ = make_scope(target, population, data, window, read_wishes(""), DEFAULT_HORIZON, [])
    table = build_table(scope, data)
    learn, test = np.flatnonzero(table.rows("train", "validation")), _test_rows(table)
    if scope.task == "classification" and min(table.target[test].sum(), (1.0 - table.target[test]).sum()) < 10:
        raise AgentFailure(
            "insufficient_data", f"Fewer than 10 of the {len(test)} test rows belong to one class; the inputs cannot be judged on them."
        )
    family, parameters = _better(table, scope)
    recipe = make_estimator(family, scope, parameters)
    estimator = clone(recipe).fit(table.values[learn], table.target[learn])
    note = "A model was fitted for this question on the last 52 weeks; no registered version was named."
    caveats = [note, *([caveat] if caveat else []), *population.caveats]
    return Reference(estimator, recipe, family, parameters, "fitted for this question", scope, table, learn, test, tuple(caveats))


def linear_model(reference: Reference) -> BaseEstimator:
    """Return the reference model where it is linear, else a linear model of the same rows."""
    if reference.family == "linear" and hasattr(reference.estimator, "named_steps"):
        return reference.estimator
    strength: Parameters = {"strength": 0.05 if reference.scope.task == "classification" else 100.0}
    fitted: BaseEstimator = make_estimator("linear", reference.scope, strength).fit(
        reference.table.values[reference.learn], reference.table.target[reference.learn]
    )
    return fitted


def _better(table: Table, scope: TrainingScope) -> tuple[Family, Parameters]:
    """Fit a linear and a boosted model on the training weeks; return the one that is better on the validation weeks."""
    metric = METRICS[scope.metric]
    train, later = table.rows("train"), table.rows("validation")
    scored: list[tuple[float, Family, Parameters]] = []
    for family, settings in _CANDIDATES:
        parameters: Parameters = {"strength": 100.0} if family == "linear" and scope.task == "regression" else dict(settings)
        fitted = make_estimator(family, scope, parameters).fit(table.values[train], table.target[train])
        scored.append((metric.measure(table.target[later], predict(fitted, table.values[later]), None), family, parameters))
    _, family, parameters = max(scored, key=lambda one: one[0] if metric.higher_is_better else -one[0])
    return family, parameters


def _registered(dispatch: AgentDispatch, data: Snapshot, number: int) -> Reference:
    registry = open_registry(create=False)
    models: tuple[Model, ...] = registry.models() if registry is not None else ()
    if registry is None or not models:
        raise AgentFailure(
            "unknown_entity",
            f"There is no version {number}: no agent's model is registered yet. Ask without a version, and one is fitted for the question.",
        )
    model, _, caveats = find_model(dispatch, normal_form(question_of(dispatch).replace("_", " ")), models, data)
    version = numbered(model, str(number))
    estimator, card = registry.load(version)
    try:
        scope = TrainingScope.model_validate(_mapping(card.get("scope")))
        selected = Selected.model_validate(card)
        recipe = make_estimator(selected.family, scope, selected.parameters)
        table = build_table(scope, data)
    except (ValidationError, AgentFailure) as exc:
        raise AgentFailure(
            "missing_data", f"{model.name} version {number} was trained on weeks or inputs that the data do not have any more."
        ) from exc
    if list(table.columns) != card.get("columns"):
        raise AgentFailure("missing_data", f"{model.name} version {number} was trained on other columns than the data have now.")
    learn = np.flatnonzero(table.rows("train", "validation"))
    source = f"models:/{model.name}/{number}"
    return Reference(
        estimator, recipe, selected.family, dict(selected.parameters), source, scope, table, learn, _test_rows(table), tuple(caveats)
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _test_rows(table: Table) -> Counts:
    rows = np.flatnonzero(table.rows("test"))
    return rows if len(rows) <= MOST_TEST_ROWS else np.sort(np.random.default_rng(5).choice(rows, MOST_TEST_ROWS, replace=False))


def _target(question: str) -> tuple[Target, str | None]:
    """Return the target of the model in question and a caveat.

    An outcome's own words count anywhere for a class ('conversion', 'churn'); words that also name inputs (TRx, demand) count before
    a word for a model only.
    """
    text = normal_form(question.replace("_", " "))
    near = " ".join(found[1] for found in re.finditer(rf"((?:\b\w+ ){{1,3}}){_NOUN}\b", text))
    for name in ("conversion", "lapse", "growth"):
        if re.search(rf"\b(?:{TARGETS[name].words})\b", text):
            return TARGETS[name], None
    hit = find_target(near)
    if hit is not None and hit[2]:
        return hit[0], None
    if other := re.search(rf"\b(?:{_OTHER_MODELS})\b(?= (?:\w+ )?{_NOUN}\b)", text) or re.search(
        rf"(?<=predict )\b(?:{_OTHER_MODELS})|(?<=predicting )(?:{_OTHER_MODELS})", text
    ):
        raise AgentFailure(
            "missing_data",
            f"There is no '{other[0]}' model: the data record no such outcome. Models can be analysed for: {', '.join(TARGETS)}.",
        )
    if hit is not None:
        return hit[0], f"'{hit[1]}' is not recorded as such; the nearest that the data can tell stands in: {hit[0].name.replace('_', ' ')}."
    if (wide := find_target(text)) and wide[0].name in {"conversion", "lapse"}:
        return wide[0], f"'{wide[1]}' is not recorded as such; the nearest that the data can tell stands in: {wide[0].name}."
    return TARGETS["conversion"], "No target was named; conversion within 4 weeks was taken."
