"""scope_definer (tier 0): turns a wish for a model into what is predicted, for whom, from which weeks and inputs, and how it is judged."""

from service.agents.chart import Row, table
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot
from service.agents.training.metrics import METRICS
from service.agents.training.population import population_mask
from service.agents.training.request import ReadScope, read_scope
from service.agents.training.scope import TrainingScope
from service.agents.training.table import FEWEST_ORIGINS, origins_within, split_origins, week_range
from service.agents.training.target import label_of
from service.contracts.dispatch import AgentDispatch


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Define the scope of the model that the question asks for.

    Confidence is the share of the four decisive parts (target, brand, region, weeks) that the request names; an assumed one, or
    a target that only stands in for what was asked, counts by half.

    Raises:
        AgentFailure: The data lack the target, the brand, the region, the group or the weeks (`missing_data`, `unknown_entity`), or
            no agent trains such a model (`unsupported_request`).
    """
    read = read_scope(dispatch, data)
    scope = read.scope
    hcps = int(population_mask(scope, data).sum())
    start, stop = week_range(scope, data)
    origins = origins_within(start, stop, scope.history_weeks, scope.horizon_weeks)
    caveats = list(read.caveats)
    if len(origins) < FEWEST_ORIGINS:
        caveats.append(
            f"{stop - start} weeks hold {len(origins)} rows an HCP ({scope.history_weeks} weeks of inputs and {scope.horizon_weeks} of "
            "outcome "
            f"each); {FEWEST_ORIGINS} are needed to train, validate and test, so the quality gate will stop it."
        )
    return Finding(
        primary_output={
            "scope": scope.model_dump(mode="json"),
            "target_label": label_of(scope.wanted, scope.horizon_weeks),
            "hcps": hcps,
            "weeks": stop - start,
            "rows_per_hcp": len(origins),
            "split": {name: len(part) for name, part in split_origins(origins).items()},
            "left_out": list(read.left_out),
            "named": list(read.named),
            "assumed": list(read.assumed),
        },
        confidence=(len(read.named) + 0.5 * len(read.assumed)) / (len(read.named) + len(read.assumed)),
        evidence=_evidence(read, hcps, stop - start, len(origins)),
        caveats=caveats,
        tables=(table("Scope", _rows(scope)),),
        model_used="rules over the request's text",
    )


def _evidence(read: ReadScope, hcps: int, weeks: int, origins: int) -> list[str]:
    scope = read.scope
    metric = METRICS[scope.metric].label
    sentences = [
        f"The model is to predict {label_of(scope.wanted, scope.horizon_weeks)} for {hcps:,} HCPs of {', '.join(scope.brands)} in "
        f"{', '.join(scope.regions)}, from the {weeks} weeks ending {scope.first_week.isoformat()} to {scope.last_week.isoformat()}.",
        f"{len(scope.inputs)} inputs, none of them known only after the outcome: sums over up to {scope.history_weeks} weeks before each "
        "of "
        f"{origins} origins, and what is known of the HCP.",
        f"{len(scope.families)} model families ({', '.join(scope.families)}) are compared by {metric} in {scope.folds} folds that keep "
        "an HCP's "
        "rows together; the last weeks are held out.",
    ]
    if scope.trials:
        sentences.append(f"{scope.trials} settings are drawn at random and tried, over all families together.")
    if scope.class_weights:
        sentences.append("The rarer class is weighted up, so that both classes weigh the same.")
    if read.left_out:
        sentences.append(f"Left out of the inputs, as asked: {', '.join(read.left_out)}.")
    return sentences


def _rows(scope: TrainingScope) -> list[Row]:
    shown = scope.model_dump(mode="json")
    return [
        {"part": name.replace("_", " "), "value": ", ".join(value) if isinstance(value, list) else str(value)}
        for name, value in shown.items()
    ]
