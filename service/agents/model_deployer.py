"""model_deployer (tier 0): moves a registered model version into or out of service by its MLflow alias, and says what it cannot do."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from service.agents.chart import Row, table
from service.agents.finding import AgentFailure, Finding
from service.agents.registry.match import choose_versions, find_model
from service.agents.registry.store import CANARY, PREVIOUS, PRODUCTION, SHADOW, STAGING, Model, Registry, Version, open_registry, writing
from service.agents.registry.words import DeployRequest, Step, read_request
from service.agents.sample_data import Snapshot
from service.agents.scope import question_of
from service.contracts.dispatch import AgentDispatch

_DONE = "dispatch."
"""A version's tag `dispatch.<id>` says that this dispatch has been carried out, and how."""


@dataclass(slots=True)
class _Moves:
    """The changes of one request, collected before the first is made; a version of None removes the alias."""

    aliases: dict[str, int | None] = field(default_factory=dict)
    tags: list[tuple[int, str, str]] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Carry out one step: promote, stage, roll back, retire, shadow, canary; or report where things stand.

    Confidence is the share of the three decisive parts (step, model, version) that the request names; one that had to be
    inferred counts by half.

    Raises:
        AgentFailure: The step is impossible (`unsupported_request`), model or version are unknown or not plain (`unknown_entity`), or
            no evaluation speaks for the version (`insufficient_data`). Then nothing was changed.
    """
    request = read_request(question_of(dispatch))
    with writing:
        registry = open_registry(create=False)
        models = registry.models() if registry is not None else ()
        model, model_named, caveats = find_model(dispatch, request.text, models, data)
        if registry is None:  # cannot be: a model was found in it
            raise RuntimeError("a model without a registry")
        done = _done_before(str(dispatch.dispatch_id), models)
        if done is not None:
            return _finding(
                done[0], request, done[1], (True, True), [*caveats, "The request came a second time; nothing was changed again."]
            )
        versions, version_named, notes = choose_versions(request, model)
        moves = _plan(request, model, versions, version_named)
        outcome = _carry_out(registry, model, versions, moves, request, str(dispatch.dispatch_id))
        after = registry.model(model.name) or model
    return _finding(after, request, outcome, (model_named, version_named), [*caveats, *notes, *moves.caveats, *request.notes])


def _plan(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    """Return what is to change, without changing anything."""
    plans: dict[Step, Callable[[DeployRequest, Model, tuple[Version, ...], bool], _Moves]] = {
        Step.PROMOTE: _promote,
        Step.STAGE: _stage,
        Step.ROLL_BACK: _roll_back,
        Step.RETIRE: _retire,
        Step.SHADOW: _shadow,
        Step.CANARY: _canary,
    }
    plan = plans.get(request.step)
    return plan(request, model, versions, named) if plan else _Moves()


def _promote(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    version, production = versions[0], model.under(PRODUCTION)
    moves = _Moves(caveats=_check_evaluation(version, production, named))
    if production == version:
        moves.caveats.append(f"Version {version.number} is in production already; nothing was changed.")
        return moves
    if production is not None:
        moves.aliases[PREVIOUS] = production.number
    moves.aliases[PRODUCTION] = version.number
    moves.aliases |= {alias: None for alias in (STAGING, SHADOW, CANARY) if alias in version.aliases}
    if PREVIOUS in version.aliases and production is None:
        moves.aliases[PREVIOUS] = None
    if version.tags.get("retired") == "true":
        moves.tags.append((version.number, "retired", "false"))
        moves.caveats.append(f"Version {version.number} had been retired.")
    if production is None:
        moves.caveats.append("No version was in production before, so there is none to go back to.")
    return moves


def _stage(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    version = versions[0]
    moves = _Moves()
    if STAGING in version.aliases:
        moves.caveats.append(f"Version {version.number} is in staging already; nothing was changed.")
        return moves
    moves.aliases[STAGING] = version.number
    if version.score is None:
        moves.caveats.append(f"Version {version.number} has no recorded evaluation.")
    return moves


def _roll_back(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    version, production = versions[0], model.under(PRODUCTION)
    if production is None:
        raise AgentFailure(
            "missing_data", f"Nothing was changed: no version of {model.name} is in production, so there is nothing to roll back."
        )
    if version == production:
        return _Moves(caveats=[f"Version {version.number} is in production already; nothing was changed."])
    moves = _Moves({PRODUCTION: version.number, PREVIOUS: production.number})
    moves.caveats.append(f"Version {production.number} is kept under the alias {PREVIOUS}; its evaluation was not asked for.")
    return moves


def _retire(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    moves = _Moves()
    for version in versions:
        moves.aliases |= dict.fromkeys(version.aliases)
        moves.tags.append((version.number, "retired", "true"))
        if PRODUCTION in version.aliases:
            moves.caveats.append(f"Version {version.number} was in production: {model.name} serves nobody now.")
    return moves


def _shadow(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    moves = _Moves({SHADOW: versions[0].number})
    if model.under(PRODUCTION) is None:
        moves.caveats.append("No version is in production, so the shadow runs beside nothing.")
    moves.caveats.append("Whoever serves the model must call the version under the alias shadow, and keep its scores from users.")
    return moves


def _canary(request: DeployRequest, model: Model, versions: tuple[Version, ...], named: bool) -> _Moves:
    version, production = versions[0], model.under(PRODUCTION)
    if request.share is None or not 0.0 < request.share <= 1.0:
        raise AgentFailure("missing_data", "Nothing was changed: a canary needs a share of the traffic, such as 5 %.")
    if request.share >= 1.0:
        return _promote(request, model, versions, named)
    if production is None or production == version:
        raise AgentFailure(
            "missing_data", f"Nothing was changed: a canary needs another version of {model.name} in production to take the rest."
        )
    moves = _Moves(
        {CANARY: version.number}, [(version.number, "canary_share", f"{request.share:g}")], _check_evaluation(version, production, named)
    )
    moves.caveats.append("The share is a tag: whoever serves the model must send that part of the calls to the alias canary.")
    return moves


def _check_evaluation(version: Version, production: Version | None, named: bool) -> list[str]:
    """Return caveats, or refuse a version that nobody named and whose evaluation does not speak for it."""
    doubt = None
    if version.score is None:
        doubt = f"version {version.number} has no recorded evaluation"
    elif production is not None and production != version:
        doubt = _compare(version, production)
    if doubt is None:
        return []
    if not named:
        raise AgentFailure(
            "insufficient_data", f"Nothing was changed: {doubt}. Name the version ('v{version.number}') to take it all the same."
        )
    return [f"{doubt[0].upper()}{doubt[1:]}; it was taken because it was named."]


def _compare(version: Version, production: Version) -> str | None:
    metric = version.tags.get("metric", "")
    if production.score is None or version.score is None or production.tags.get("metric") != metric:
        return f"version {version.number} and version {production.number} in production were not judged by the same metric"
    higher = version.tags.get("higher_is_better") == "true"
    worse = version.score < production.score if higher else version.score > production.score
    if not worse:
        return None
    return (
        f"version {version.number} has a worse {metric} ({version.score:.3f}) than version {production.number} in production "
        f"({production.score:.3f})"
    )


def _carry_out(
    registry: Registry, model: Model, versions: tuple[Version, ...], moves: _Moves, request: DeployRequest, dispatch_id: str
) -> dict[str, object]:
    """Make the changes: first what is kept, then what serves, and last the tag that says it is done."""
    before = {alias: one.number for one in model.versions for alias in one.aliases}
    order = sorted(moves.aliases.items(), key=lambda item: (item[1] is None, item[0] != PREVIOUS, item[0] != PRODUCTION))
    made: list[dict[str, object]] = []
    for alias, number in order:
        if before.get(alias) == number:
            continue
        if number is None:
            registry.unpoint(model.name, alias)
        else:
            registry.point(model.name, alias, number)
        made.append({"alias": alias, "from": before.get(alias), "to": number})
    for number, key, text in moves.tags:
        registry.tag(model.name, number, key, text)
    outcome: dict[str, object] = {
        "action": request.step.value,
        "versions": [one.number for one in versions],
        "moves": made,
        "tags": [{"version": number, "tag": key, "value": text} for number, key, text in moves.tags],
    }
    if made or moves.tags:
        registry.tag(model.name, versions[0].number, f"{_DONE}{dispatch_id}", json.dumps(outcome))
    return outcome


def _done_before(dispatch_id: str, models: tuple[Model, ...]) -> tuple[Model, dict[str, object]] | None:
    for model in models:
        for version in model.versions:
            if (text := version.tags.get(f"{_DONE}{dispatch_id}")) is not None:
                return model, dict(json.loads(text))
    return None


def _finding(after: Model, request: DeployRequest, outcome: dict[str, object], named: tuple[bool, bool], caveats: list[str]) -> Finding:
    rows: list[Row] = [
        {
            "version": one.number,
            "aliases": ", ".join(one.aliases),
            "metric": one.tags.get("metric"),
            "score": one.score,
            "retired": one.tags.get("retired") == "true",
            "run_id": one.run_id,
        }
        for one in after.versions
    ]
    aliases = {alias: one.number for one in after.versions for alias in one.aliases}
    return Finding(
        primary_output={
            "action": outcome["action"],
            "model": after.name,
            "versions": outcome["versions"],
            "changed": bool(outcome["moves"] or outcome["tags"]),
            "moves": outcome["moves"],
            "tags": outcome["tags"],
            "aliases": aliases,
            "canary_share": request.share if outcome["action"] == Step.CANARY.value else None,
            "registry": rows,
        },
        confidence=(1.0 + sum(1.0 if one else 0.5 for one in named)) / 3.0,
        evidence=_evidence(after, outcome, aliases),
        caveats=caveats,
        tables=(table(f"Versions of {after.name}", rows),),
        models=tuple({"mlflow_uri": f"models:/{after.name}@{alias}", "stage": alias.capitalize()} for alias in sorted(aliases)),
        model_used="MLflow model registry",
    )


def _evidence(after: Model, outcome: dict[str, object], aliases: dict[str, int]) -> list[str]:
    stand = ", ".join(f"{alias}: version {number}" for alias, number in sorted(aliases.items())) or "no version is in use"
    moves = outcome["moves"] if isinstance(outcome["moves"], list) else []
    what = "; ".join(_write_move(move) for move in moves) or "nothing was changed"
    step = str(outcome["action"]).replace("_", " ")
    sentences = [f"{after.name}, {step}: {what}.", f"Now {stand}."]
    serving = after.under(PRODUCTION)
    if serving is not None and serving.score is not None:
        sentences.append(
            f"The version in production was registered with {serving.tags.get('metric')} {serving.score:.3f} on its test weeks."
        )
    return sentences


def _write_move(move: dict[str, object]) -> str:
    if move["to"] is None:
        return f"the alias {move['alias']} was removed from version {move['from']}"
    former = f" (before: version {move['from']})" if move["from"] is not None else ""
    return f"the alias {move['alias']} points to version {move['to']} now{former}"
