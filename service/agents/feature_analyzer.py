"""feature_analyzer (tier 0): which inputs a model relies on, which overlap, which leak, and which it could do without."""

from service.agents.features.analysis import Analysis, analyse, confidence
from service.agents.features.model import find_reference
from service.agents.features.report import charts, describe, sentences, tables
from service.agents.features.request import FeatureRequest, read_feature_request
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.agents.scope import question_of
from service.agents.training.inputs import all_inputs
from service.contracts.dispatch import AgentDispatch


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Answer a question about a model's inputs on held-out rows of the latest weeks.

    Confidence is that of the least sure analysis (for the importance, the share of repeats in which the first input stays first;
    for overlap, the pairs that later weeks confirm; and so on), times the share of the named data that exist.

    Raises:
        AgentFailure: The data lack the named inputs, target, brand or region (`missing_data`, `unknown_entity`), or a named
            version is not registered.
    """
    question = question_of(dispatch)
    request = read_feature_request(question, all_inputs(26))
    if request.absent and not request.mentioned and not request.protected:
        raise AgentFailure(
            "missing_data",
            f"The data have no {', '.join(request.absent[:4])}, so no model here uses it. The inputs are: {', '.join(all_inputs(26))}.",
        )
    reference = find_reference(dispatch, data, request.version)
    found = analyse(reference, request, dispatch.payload.constraints.max_latency_ms)
    return Finding(
        primary_output=describe(found),
        confidence=confidence(found),
        evidence=[*_protected(request, found), *sentences(found)],
        caveats=(*reference.caveats, *_caveats(request, found), *request.caveats),
        visualizations=charts(found),
        tables=tables(found),
        model_used=f"scikit-learn {reference.family}, permutation on held-out rows",
    )


def _protected(request: FeatureRequest, found: Analysis) -> list[str]:
    if not request.absent or not request.protected:
        return []
    names = " or ".join(request.absent[:4])
    return [
        f"None of the {len(found.reference.table.columns)} columns is {names}, so the model gives no direct weight to it. Whether other "
        "inputs stand in for it cannot "
        "be tested or certified, because the data do not have it."
    ]


def _caveats(request: FeatureRequest, found: Analysis) -> list[str]:
    caveats = ["Importance tells what this model uses, not what causes the outcome; inputs that go together share it."]
    if request.absent and not request.protected:
        caveats.append(f"The data have no {', '.join(request.absent[:4])}; only what they do have was measured.")
    if "contribution" in request.analyses and found.reference.family != "linear":
        caveats.append("The model is not linear; the contributions are those of a linear model of the same rows.")
    return caveats
