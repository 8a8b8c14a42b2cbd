"""From a request to a training scope: what the text says, what is assumed, and what the data cannot give."""

import re
from dataclasses import dataclass
from typing import Literal

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.sample_data import Snapshot
from service.agents.scope import context_text, question_of, quoted
from service.agents.training.inputs import absent_data, all_inputs, find_inputs
from service.agents.training.metrics import METRICS
from service.agents.training.population import Population, resolve_population
from service.agents.training.scope import LONGEST_HORIZON, TrainingScope, handed_over
from service.agents.training.table import DEFAULT_WEEKS, choose_history
from service.agents.training.target import TARGETS, Target, find_target
from service.agents.training.window import Window, read_window, replace_number_words
from service.agents.training.words import DEFAULT_FOLDS, NO_LABEL, STANDARD, UNSUPPORTED, Wishes, excluded_phrases, read_wishes
from service.contracts.dispatch import AgentDispatch

DEFAULT_HORIZON = 4


@dataclass(frozen=True, slots=True)
class ReadScope:
    """A scope with how it came about: `named` holds its decisive parts that the request names, `assumed` the others."""

    scope: TrainingScope
    named: tuple[str, ...]
    assumed: tuple[str, ...]
    left_out: tuple[str, ...]
    caveats: tuple[str, ...]


def scope_for(dispatch: AgentDispatch, data: Snapshot) -> tuple[TrainingScope, tuple[str, ...]]:
    """Return the scope that was handed over, or the one that the question asks for, with its caveats.

    Raises:
        AgentFailure: What was handed over does not fit, or the question asks for what the data cannot give.
    """
    handed = handed_over(dispatch, "scope", TrainingScope)
    if handed is not None:
        return handed, ()
    read = read_scope(dispatch, data)
    return read.scope, read.caveats


def read_scope(dispatch: AgentDispatch, data: Snapshot) -> ReadScope:
    """Read a request for a model.

    Raises:
        AgentFailure: The request needs a target, a group or a kind of model that the data or the agents do not have.
    """
    question = question_of(dispatch)
    population = resolve_population(dispatch, data)
    _refuse_unsupported(question)
    wishes = read_wishes(f"{question} {context_text(dispatch, 'target_variable')}")
    horizon, horizon_caveat = _horizon(wishes)
    window = read_window(question, data.week_ends, DEFAULT_WEEKS)
    target, target_caveat, exact = _target(dispatch, question, window)
    scope, left_out, exclusion_caveats = make_scope(target, population, data, window, wishes, horizon, excluded_phrases(question))
    metric_caveat = None
    if wishes.metric not in {None, scope.metric}:
        metric_caveat = (
            f"{METRICS[str(wishes.metric)].label} does not judge a {target.task} model; {METRICS[scope.metric].label} was taken."
        )
    parts = {"target": target_caveat is None or exact, "brand": population.brand_named, "region": population.region_named}
    parts["window"] = window.words is not None
    caveats = [target_caveat, *population.caveats, window.caveat, horizon_caveat, *exclusion_caveats, metric_caveat, *wishes.caveats]
    caveats += [_absent_caveat(question), "The new version is registered without an alias, as asked." if wishes.hold else None]
    return ReadScope(
        scope=scope,
        named=tuple(name for name, is_named in parts.items() if is_named),
        assumed=tuple(name for name, is_named in parts.items() if not is_named),
        left_out=left_out,
        caveats=tuple(caveat for caveat in caveats if caveat),
    )


def make_scope(
    target: Target, population: Population, data: Snapshot, window: Window, wishes: Wishes, horizon: int, excluded: list[str]
) -> tuple[TrainingScope, tuple[str, ...], list[str]]:
    """Return the scope, the inputs that were left out, and a caveat for each phrase that names none.

    Raises:
        AgentFailure: Nothing is left to learn from (`insufficient_data`).
    """
    history = choose_history(window.stop - window.start, horizon)
    available = tuple(name for name in all_inputs(history) if name != "brand" or len(population.brands) > 1)
    found = {phrase: find_inputs(phrase, available) for phrase in excluded}
    left_out = tuple(dict.fromkeys(name for names in found.values() for name in names))
    inputs = tuple(name for name in available if name not in left_out)
    if not inputs:
        raise AgentFailure("insufficient_data", f"Nothing is left to learn from: the inputs are {', '.join(available)}.")
    default = "roc_auc" if target.task == "classification" else "rmse"
    scope = TrainingScope(
        target=target.name,
        task=target.task,
        brands=population.brands,
        regions=population.regions,
        specialties=population.specialties,
        settings=population.settings,
        horizon_weeks=horizon,
        history_weeks=history,
        first_week=data.week_ends[window.start],
        last_week=data.week_ends[window.stop - 1],
        inputs=inputs,
        families=wishes.families or STANDARD,
        fixed=wishes.fixed,
        trials=wishes.trials,
        early_stopping=wishes.early_stopping,
        class_weights=wishes.class_weights and target.task == "classification",
        calibration=_calibration(wishes, target),
        folds=wishes.folds or DEFAULT_FOLDS,
        metric=wishes.metric if wishes.metric is not None and METRICS[wishes.metric].task == target.task else default,
        alias=None if wishes.hold else "staging",
    )
    unknown = [
        f"{quoted(phrase)} is not among the inputs, so there was nothing to leave out." for phrase, names in found.items() if not names
    ]
    return scope, left_out, unknown


def _refuse_unsupported(question: str) -> None:
    text = normal_form(question.replace("_", " "))
    for pattern, what in UNSUPPORTED:
        if found := re.search(rf"\b(?:{pattern})\b", text):
            raise AgentFailure("unsupported_request", f"'{found[0]}' asks for {what}. Models can be trained for: {', '.join(TARGETS)}.")


def _target(dispatch: AgentDispatch, question: str, window: Window) -> tuple[Target, str | None, bool]:
    """Return the target, a caveat when it is assumed or only near to what was asked, and whether the request names it.

    Context goes before the text; a recorded outcome goes before words for what the data lack.
    """
    text = normal_form(question.replace("_", " "))
    available = ", ".join(TARGETS)
    for key in ("target_variable", "model_type"):
        if said := context_text(dispatch, key):
            if hit := find_target(normal_form(said.replace("_", " "))):
                return hit[0], None, True
            raise AgentFailure("missing_data", f"The data have no target {quoted(said)}. Available: {available}.")
    hit = find_target(_target_words(text, question, window))
    missing = re.search(rf"\b(?:{NO_LABEL})\b", text)
    if hit is not None and hit[2]:
        return hit[0], None, True
    patients = re.search(r"\bpatients?\b", text)
    if hit is not None and not (hit[0].name == "lapse" and patients) and not missing:
        note = f"'{hit[1]}' is not recorded as such; the nearest that the data can tell stands in: {hit[0].name.replace('_', ' ')}."
        return hit[0], note, False
    if missing or (hit is not None and patients):
        word = missing[0] if missing else f"{hit[1] if hit else ''} by patient"
        raise AgentFailure("missing_data", f"The data do not record '{word}', so nothing can be learnt of it. Targets: {available}.")
    return TARGETS["conversion"], "No target was named; conversion within 4 weeks was taken.", False


def _target_words(text: str, question: str, window: Window) -> str:
    """Return the text without what is left out ('without the trx columns') and without the window ('24 months of scripts')."""
    text = replace_number_words(text).replace(window.words or "\n", " ")
    for phrase in excluded_phrases(question):
        text = text.replace(normal_form(phrase.replace("_", " ")), " ")
    return text


def _horizon(wishes: Wishes) -> tuple[int, str | None]:
    if wishes.horizon_weeks is None:
        return DEFAULT_HORIZON, f"No horizon was named; {DEFAULT_HORIZON} weeks were taken."
    if wishes.horizon_weeks > LONGEST_HORIZON:
        return LONGEST_HORIZON, f"A horizon of {wishes.horizon_weeks} weeks was named; {LONGEST_HORIZON} is the longest that is modelled."
    return wishes.horizon_weeks, None


def _calibration(wishes: Wishes, target: Target) -> Literal["sigmoid", "isotonic"] | None:
    if target.task == "regression":
        return None
    return "isotonic" if wishes.calibration == "isotonic" else "sigmoid" if wishes.calibration else None


def _absent_caveat(question: str) -> str | None:
    """Say which data that the text brings up are not there, but for those that are to be left out anyway."""
    excluded = " ".join(excluded_phrases(question))
    words = [word for word in absent_data(question) if word not in normal_form(excluded)]
    if not words:
        return None
    return f"The data have no {', '.join(words[:4])}; nothing of it entered the model."
