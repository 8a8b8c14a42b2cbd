"""Which registered model and version a request to deploy means; where it is not plain, a failure that lists what there is."""

import re
from dataclasses import dataclass

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.registry.store import CANARY, PREVIOUS, PRODUCTION, STAGING, Model, Version
from service.agents.registry.words import DeployRequest, Step
from service.agents.sample_data import Snapshot
from service.agents.scope import entity_values, question_of, quoted
from service.agents.training.population import FOREIGN_BRANDS
from service.agents.training.target import TARGETS
from service.agents.training.words import NO_LABEL, UNSUPPORTED
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

_NOUN = (
    r"(?:models?|classifiers?|scorers?|rankers?|forecasters?|recommenders?|learners?|predictors?|graders?|taggers?|engine|algorithm|"
    r"scoring|scores?|detector|planner|finder|thing)"
)
_NEUTRAL = frozenset(
    "the a an our my your this that its new newer newest old older current present latest last previous former next best same whole "
    "right only approved validated "
    "retrained trained tuned refit fitted fresh first second first challenger champion candidate production prod staging live shadow "
    "canary scoring better other "
    "updated final joint 2 two three all every any which what deploy promote ship release retire serve regional big good one put make of "
    "in up s is was for with on at to and no not us me new-old brand default active champion's tested signed".split()
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model with the versions to act on; `named` are the parts that the request names itself."""

    model: Model
    versions: tuple[Version, ...]
    version_named: bool
    model_named: bool
    caveats: tuple[str, ...]


def find_model(dispatch: AgentDispatch, text: str, models: tuple[Model, ...], data: Snapshot) -> tuple[Model, bool, list[str]]:
    """Return the model that a request means, whether it names it, and caveats. `text` is the question in normal form, numbers as digits.

    Raises:
        AgentFailure: There is no such model, or several fit (`unknown_entity`); the message lists them.
    """
    question, listing = question_of(dispatch), list_models(models)
    if not models:
        raise AgentFailure("missing_data", "No agent's model is registered yet. Train one first.")
    literal = [one for one in models if normal_form(one.name) in f" {normal_form(question)} "]
    if literal:
        return max(literal, key=lambda one: len(one.name)), True, []
    known = [normal_form(name) for name in dict.fromkeys(data.labels("brand").tolist())]
    brands, foreign = _brands(dispatch, text, known)
    targets, near = _targets(text)
    strangers = foreign or _identifiers(question, known) or ([] if targets else _strangers(question, text, known, models))
    if strangers:
        raise AgentFailure("unknown_entity", f"No registered model is meant by {quoted(strangers[0])}. {listing}")
    fitting = [one for one in models if _fits(one, brands, targets, known)]
    if len(fitting) > 1 and (brands or targets):
        fitting = _narrow(fitting, text, known)
    if len(fitting) == 1 and (brands or targets) and not set(_further_words(fitting[0], known)) <= set(text.split()):
        fitting = []  # a model of one region or specialty is meant by nobody who does not say so
    if len(fitting) == 1:
        caveats = [f"'{near}' was read as the model {fitting[0].name}."] if near else []
        named = bool(brands or targets)
        return fitting[0], named, caveats if named else [f"No model was named; {fitting[0].name} is the only one that is registered."]
    what = "no registered model fits" if not fitting else f"{len(fitting)} models fit ({', '.join(one.name for one in fitting)})"
    raise AgentFailure("unknown_entity", f"{what[0].upper()}{what[1:]}. {listing}")


def choose_versions(request: DeployRequest, model: Model) -> tuple[tuple[Version, ...], bool, list[str]]:
    """Return the versions that a request means, whether it names them, and caveats.

    Raises:
        AgentFailure: There is no such version, or nothing to take (`unknown_entity`, `missing_data`).
    """
    if request.run is not None:
        hits = [one for one in model.versions if one.run_id.startswith(request.run)]
        if len(hits) != 1:
            runs = ", ".join(f"{one.run_id[:8]} (version {one.number})" for one in model.versions)
            raise AgentFailure(
                "unknown_entity", f"Nothing was changed: {model.name} has {len(hits)} runs that begin with {request.run}. Runs: {runs}."
            )
        return (hits[0],), True, []
    if request.versions:
        return tuple(numbered(model, text) for text in request.versions), True, []
    implied = {
        Step.ROLL_BACK: _older,
        Step.RETIRE: _retiring,
        Step.HOLD: _serving,
        Step.STATUS: _serving,
    }.get(request.step, _newer)
    return implied(request, model)


def list_models(models: tuple[Model, ...]) -> str:
    """Return a sentence with all models, versions and aliases."""
    parts = []
    for model in models[:8]:
        versions = ", ".join(f"{one.number}{f' ({chr(47).join(one.aliases)})' if one.aliases else ''}" for one in model.versions[-6:])
        parts.append(f"{model.name} versions {versions}")
    more = f" and {len(models) - 8} more" if len(models) > 8 else ""
    return f"Registered: {'; '.join(parts)}{more}."


def _newer(request: DeployRequest, model: Model) -> tuple[tuple[Version, ...], bool, list[str]]:
    """The version that waits: a full canary's, else under `staging`, else the newest after the one in production."""
    production = model.under(PRODUCTION)
    waiting = model.under(CANARY) if request.share is not None and request.share >= 1.0 else None
    waiting = waiting or model.under(STAGING)
    if request.step is Step.STAGE or waiting is None or waiting == production:
        live = [one for one in model.versions if one.tags.get("retired") != "true"]
        waiting = live[-1] if live else None
    if waiting is None or (production is not None and waiting.number <= production.number and waiting != model.under(CANARY)):
        current = f"version {production.number} is in production" if production else "there is no version in use"
        raise AgentFailure(
            "missing_data", f"Nothing was changed: {current}, and no later version of {model.name} waits. Versions: {_numbers(model)}."
        )
    where = f"under the alias {STAGING}" if STAGING in waiting.aliases else "the newest"
    return (waiting,), False, [f"No version was named; version {waiting.number}, {where}, was taken."]


def _older(request: DeployRequest, model: Model) -> tuple[tuple[Version, ...], bool, list[str]]:
    previous = model.under(PREVIOUS)
    if previous is None:
        raise AgentFailure(
            "missing_data",
            f"Nothing was changed: {model.name} has no version under the alias {PREVIOUS} to go back to. Versions: {_numbers(model)}.",
        )
    return (previous,), False, [f"No version was named; version {previous.number}, which was in production before, was taken."]


def _retiring(request: DeployRequest, model: Model) -> tuple[tuple[Version, ...], bool, list[str]]:
    previous = model.under(PREVIOUS)
    if request.wants_older and previous is not None:
        return (previous,), False, [f"No version was named; version {previous.number}, under the alias {PREVIOUS}, was taken."]
    used = tuple(one for one in model.versions if one.aliases)
    if not used:
        raise AgentFailure("missing_data", f"Nothing was changed: no version of {model.name} is in use. Versions: {_numbers(model)}.")
    return used, False, [f"No version was named; every version in use was taken: {', '.join(str(one.number) for one in used)}."]


def _serving(request: DeployRequest, model: Model) -> tuple[tuple[Version, ...], bool, list[str]]:
    return tuple(one for one in model.versions if one.aliases), False, []


def numbered(model: Model, text: str) -> Version:
    """Return the version with a number such as 5 or 5.0.0.

    Raises:
        AgentFailure: There is none (`unknown_entity`).
    """
    whole = re.fullmatch(r"(\d+)(?:\.0)*", text)
    found = model.version(int(whole[1])) if whole else None
    if found is None:
        raise AgentFailure("unknown_entity", f"{model.name} has no version {text}. Versions: {_numbers(model)}.")
    return found


def _numbers(model: Model) -> str:
    return ", ".join(str(one.number) for one in model.versions) or "none"


def _brands(dispatch: AgentDispatch, text: str, known: list[str]) -> tuple[list[str], list[str]]:
    said = [normal_form(value) for value in entity_values(dispatch, EntityType.BRAND)]
    words = set(text.split())
    brands = [brand for brand in known if brand in words or brand in said]
    return brands, [one for one in said if one not in known] or [word for word in text.split() if word in FOREIGN_BRANDS]


def _targets(text: str) -> tuple[list[str], str | None]:
    """Return the targets that a text names by their own words, else by words that they stand in for, and such a word."""
    exact = [name for name, target in TARGETS.items() if re.search(rf"\b(?:{target.words}|{name.replace('_', ' ')})\b", text)]
    if exact:
        return exact, None
    for name in ("conversion", "lapse", "growth"):
        if found := re.search(rf"\b(?:{_named_models(name)})\b", text):
            return [name], found[0]
    return [], None


def _named_models(name: str) -> str:
    """Near words that name a model; verbs such as 'start' and 'switch' mean a step here."""
    return {"conversion": r"propensity|adoption|uptake|lookalike", "lapse": r"attrition|defection|dropout", "growth": r"expansion"}[name]


def _strangers(question: str, text: str, known: list[str], models: tuple[Model, ...]) -> list[str]:
    """Return words that name a model which is not registered: 'nba', 'adherence model'."""
    registered = {word for model in models for word in normal_form(model.name).split()}
    found = [hit[0] for pattern in (NO_LABEL, *(pattern for pattern, _ in UNSUPPORTED)) if (hit := re.search(rf"\b(?:{pattern})\b", text))]
    sentences = [normal_form(part.replace("_", " ")) for part in re.split(r"[.;:!?\n]", question)]
    for hit in (hit for sentence in sentences for hit in re.finditer(rf"\b([a-z]\w+) {_NOUN}\b", sentence)):
        if hit[1] not in _NEUTRAL and hit[1] not in registered and hit[1] not in known and not re.fullmatch(r"v?\d+\w*", hit[1]):
            found.append(hit[1])
    return found


def _fits(model: Model, brands: list[str], targets: list[str], known: list[str]) -> bool:
    name = f"-{model.name}-"
    if targets and not any(f"-{target.replace('_', '-')}-" in name for target in targets):
        return False
    return set(brands) == {brand for brand in known if f"-{brand}-" in name} if brands else True


def _narrow(fitting: list[Model], text: str, known: list[str]) -> list[Model]:
    """Of several, keep those whose further words (region, specialty) are all said; else drop what a model without such words covers."""
    extra = {one.name: _further_words(one, known) for one in fitting}
    said = [one for one in fitting if extra[one.name] and set(extra[one.name]) <= set(text.split())]
    plain = {one.name for one in fitting if not extra[one.name]}
    covered = {
        one.name
        for one in fitting
        if extra[one.name] and "-".join(word for word in one.name.split("-") if word not in extra[one.name]) in plain
    }
    return said or [one for one in fitting if one.name not in covered]


def _further_words(model: Model, known: list[str]) -> list[str]:
    """Return the words of a model's name beside brand and target: its region or specialty."""
    common = {word for target in TARGETS for word in target.split("_")} | {"e2i", "all", *known}
    return [word for word in model.name.split("-") if word not in common]


def _identifiers(question: str, known: list[str]) -> list[str]:
    """Return technical names in a text, such as hcp_convert_03, that are made of more than a brand, a target and a version."""
    usual = {"e2i", "all", "model", "v", *known, *(word for target in TARGETS for word in target.split("_"))}
    found = re.findall(r"\b[A-Za-z]\w*_\w+\b|\b[a-z]{2,}-\d+\b", question)
    return [
        one for one in found if not all(word in usual or re.fullmatch(r"v?\d{1,4}", word) for word in re.split(r"[_-]", one.casefold()))
    ]
