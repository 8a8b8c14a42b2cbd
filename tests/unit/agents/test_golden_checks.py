"""The checks of the first six agents pass on a good answer, and fail on answers whose numbers are false."""

import copy
import json
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest

from service.agents.directory import AGENTS, run_agent
from service.agents.sample_data import Snapshot, load_snapshot
from service.catalog.loader import load_catalog
from service.contracts.dispatch import AgentDispatch
from service.routing.entities import Gazetteer

pytestmark = pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")  # DoWhy 0.14 under pandas 3

AGENT_OF = {
    "causal_impact": "causal_impact",
    "gap_analysis": "gap_analyzer",
    "health_check": "health_score",
    "drift_check": "drift_monitor",
    "prediction": "prediction_synthesizer",
    "explanation": "explainer",
}
Handoff = dict[str, Any]
Answer = Callable[[str, str], Handoff]


@pytest.fixture(scope="session")
def today() -> Snapshot:
    """The sample data of today, which `run_agent` reads."""
    return load_snapshot()


@pytest.fixture(scope="session")
def answer_of() -> Answer:
    """Ask an agent as the service would, with the entities that its gazetteer finds; each question is asked once."""
    gazetteer = Gazetteer(load_catalog())
    known: dict[tuple[str, str], str] = {}

    def ask(agent: str, text: str) -> Handoff:
        if (agent, text) not in known:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)  # DoWhy 0.14, compiled at its first import
                known[agent, text] = run_agent(agent, _dispatch(gazetteer, agent, text)).model_dump_json()
        return dict(json.loads(known[agent, text]))

    return ask


def _dispatch(gazetteer: Gazetteer, agent: str, text: str) -> AgentDispatch:
    entities = [entity.model_dump(mode="json") for entity in gazetteer.extract(text)]
    return AgentDispatch.model_validate(
        {
            "dispatch_id": UUID(int=1),
            "query_id": UUID(int=2),
            "target_agent": agent,
            "target_tier": AGENTS[agent].tier,
            "payload": {
                "intent": next(intent for intent, name in AGENT_OF.items() if name == agent),
                "entities": entities,
                "context": {"raw_query": text},
                "constraints": {"max_latency_ms": 30_000, "required_confidence": 0.5},
            },
            "routing": {"priority": 1, "timeout_ms": 30_000, "retry_count": 0, "fallback_agent": None},
            "metadata": {"dispatched_at": "2026-06-17T00:00:00Z", "correlation_id": "test"},
        }
    )


def verify(agent: str, text: str, handoff: Handoff, data: Snapshot) -> None:
    """Run an agent's check."""
    import_module(f"tests.golden_checks.{agent}").check(text, handoff, data)


ASKED = {
    "causal_impact": "Did the rep visits raise Kisqali TRx?",
    "gap_analyzer": "Which specialties in the South are below the best, and in which accounts?",
    "gap_analyzer contact": "Which Kisqali docs with many patients has no rep visited?",
    "health_score": "Are all services up, and is the data load fresh?",
    "drift_monitor": "Has the AUC of the Fabhalta conversion model come down, did calls drift?",
    "prediction_synthesizer": "Forecast the market share of Kisqali for each region by year end",
    "prediction_synthesizer ranking": "Rank the Kisqali docs by their chance of a conversion",
    "prediction_synthesizer stopping": "Which docs are about to stop writing Fabhalta?",
    "prediction_synthesizer hcp": "How likely is a conversion of HCP-00012?",
    "explainer change": "Why did the conversion rate of Fabhalta drop?",
    "explainer term": "What does confounding mean?",
}
"""One good answer of each kind, which is then falsified."""

Path = tuple[str | int, ...]
FALSE = [
    ("causal_impact", ("ate",), lambda old: old * 1.05),
    ("causal_impact", ("confidence_interval", 0), lambda old: old - 0.05),
    ("causal_impact", ("confidence_interval", 1), lambda old: old * 2),
    ("causal_impact", ("naive_difference",), lambda old: old * 0.9),
    ("causal_impact", ("n_treated",), lambda old: old + 1),
    ("causal_impact", ("p_value",), lambda _: 0.4),
    ("causal_impact", ("measured_treatment",), lambda _: "email_campaign"),
    ("causal_impact", ("measured_outcome",), lambda _: "nrx"),
    ("causal_impact", ("scope",), lambda _: "Fabhalta in all regions"),
    ("causal_impact", ("scope",), lambda _: "Kisqali in the South"),
    ("causal_impact", ("effect_by_setting", "academic", "ate"), lambda old: old / 2),
    ("causal_impact", ("total_effect", "value"), lambda old: old * 1.1),
    ("causal_impact", ("level",), lambda old: old * 1.02),
    ("causal_impact", ("refutation_passed",), lambda old: not old),
    ("gap_analyzer", ("total_gap",), lambda old: old * 1.02),
    ("gap_analyzer", ("total_gap_interval", 0), lambda old: old * 0.5),
    ("gap_analyzer", ("observed",), lambda old: old * 1.01),
    ("gap_analyzer", ("ranked", 0, "gap"), lambda old: old + 5),
    ("gap_analyzer", ("ranked", 0, "low"), lambda old: old - 40),
    ("gap_analyzer", ("ranked",), lambda old: old[:-1]),
    ("gap_analyzer", ("ranked",), lambda old: old[::-1]),
    ("gap_analyzer", ("benchmarks",), lambda old: [row for row in old if row["region"] != "Northeast"]),
    ("gap_analyzer", ("segments", 0, "attainable"), lambda old: old + 1),
    ("gap_analyzer", ("weeks",), lambda old: old - 13),
    ("gap_analyzer", ("by_specialty", 0, "gap"), lambda old: old + 3),
    ("gap_analyzer", ("hcps", 0, "hcp_id"), lambda _: "HCP-00001"),
    ("gap_analyzer", ("hcps", 1, "attainable"), lambda old: old + 0.1),
    ("gap_analyzer contact", ("seldom_called_count",), lambda old: old + 1),
    ("gap_analyzer contact", ("seldom_called", 0, "calls"), lambda old: old + 1),
    ("health_score", ("score",), lambda old: old - 0.02),
    ("health_score", ("grade",), lambda _: "unhealthy"),
    ("health_score", ("components", 0, "score"), lambda _: 0.5),
    ("health_score", ("components", 1, "score"), lambda old: old - 0.05),
    ("health_score", ("components", 2, "score"), lambda _: 0.4),
    ("health_score", ("components", 3, "weight"), lambda old: old * 2),
    ("health_score", ("asked_and_measured",), lambda _: 1.0),
    ("drift_monitor", ("features", 0, "psi"), lambda old: old * 1.05),
    ("drift_monitor", ("features", 0, "level"), lambda _: "stable"),
    ("drift_monitor", ("features", 1, "ks"), lambda old: old + 0.02),
    ("drift_monitor", ("features", 2, "mean_recent"), lambda old: old * 1.1),
    ("drift_monitor", ("features", 3, "adjusted_p"), lambda old: 1.0 - old),
    ("drift_monitor", ("drifted_features",), lambda _: []),
    ("drift_monitor", ("status",), lambda _: "stable"),
    ("drift_monitor", ("model", "groups", 0, "expected"), lambda old: old * 1.1),
    ("drift_monitor", ("model", "groups", 0, "observed"), lambda old: old + 3),
    ("drift_monitor", ("model", "decayed_groups"), lambda _: []),
    ("drift_monitor", ("model", "auc_recent"), lambda old: old + 0.02),
    ("drift_monitor", ("model", "brier_before"), lambda old: old * 0.9),
    ("drift_monitor", ("recent_weeks",), lambda old: [old[0], old[0]]),
    ("prediction_synthesizer", ("forecast", 0, "value"), lambda old: old * 1.01),
    ("prediction_synthesizer", ("forecast", -1, "low"), lambda old: old * 0.95),
    ("prediction_synthesizer", ("forecast", 1, "week_end"), lambda _: "2030-01-06"),
    ("prediction_synthesizer", ("mean_of_horizon",), lambda old: old * 1.05),
    ("prediction_synthesizer", ("mean_of_last_weeks",), lambda old: old * 1.05),
    ("prediction_synthesizer", ("backtest", "mean_absolute_error"), lambda old: old * 0.8),
    ("prediction_synthesizer", ("backtest", "inside_interval"), lambda old: old - 0.2),
    ("prediction_synthesizer", ("asked_window", "mean"), lambda old: old * 1.02),
    ("prediction_synthesizer", ("by_region", 0, "value"), lambda old: old * 1.05),
    ("prediction_synthesizer", ("target",), lambda _: "nrx"),
    ("prediction_synthesizer", ("horizon_weeks",), lambda old: old + 1),
    ("prediction_synthesizer ranking", ("ranked", 0, "probability"), lambda _: 0.999),
    ("prediction_synthesizer ranking", ("ranked", 2, "hcp_id"), lambda _: "HCP-02400"),
    ("prediction_synthesizer ranking", ("observed_share_of_like",), lambda old: old - 0.2),
    ("prediction_synthesizer ranking", ("hcps",), lambda _: 2400),
    ("prediction_synthesizer ranking", ("target",), lambda _: "no_trx_within_8_weeks"),
    ("prediction_synthesizer stopping", ("ranked", 0, "probability"), lambda old: old + 0.1),
    ("prediction_synthesizer hcp", ("probability",), lambda old: old + 0.12),
    ("prediction_synthesizer hcp", ("rank",), lambda old: old + 500),
    ("prediction_synthesizer hcp", ("auc",), lambda old: old + 0.1),
    ("prediction_synthesizer hcp", ("hcp_id",), lambda _: "HCP-00013"),
    ("explainer change", ("change",), lambda old: -old),
    ("explainer change", ("after", "value"), lambda old: old * 1.03),
    ("explainer change", ("change_interval", 1), lambda old: old + 0.05),
    ("explainer change", ("contributions", "region", 0, "contribution"), lambda old: old * 1.1),
    ("explainer change", ("contributions", "region", 0, "rate"), lambda old: old + 0.01),
    ("explainer change", ("contributions", "region"), lambda old: old[1:]),
    ("explainer change", ("kpi",), lambda _: "trx"),
    ("explainer term", ("term",), lambda _: "SHAP"),
    ("explainer term", ("example",), lambda old: old.replace("%", "0 %")),
]

FALSE_IDS = [f"{kind}-{'.'.join(map(str, path))}-{at}" for at, (kind, path, _) in enumerate(FALSE)]


def falsified(handoff: Handoff, path: Path, change: Callable[[Any], Any]) -> Handoff:
    """Return a copy of a handoff with one value of its primary output changed."""
    copied = copy.deepcopy(handoff)
    place = copied["result"]["primary_output"]
    for step in path[:-1]:
        place = place[step]
    before = place[path[-1]]
    place[path[-1]] = change(before)
    assert place[path[-1]] != before, "nothing was falsified"
    return copied


@pytest.mark.parametrize("kind", ASKED)
def test_a_true_answer_passes(kind: str, answer_of: Answer, today: Snapshot) -> None:
    """What is falsified below is right to begin with."""
    agent = kind.partition(" ")[0]
    handoff = answer_of(agent, ASKED[kind])

    assert handoff["execution"]["status"] in {"success", "partial"}
    verify(agent, ASKED[kind], handoff, today)


@pytest.mark.parametrize(("kind", "path", "change"), FALSE, ids=FALSE_IDS)
def test_a_false_number_is_caught(kind: str, path: Path, change: Callable[[Any], Any], answer_of: Answer, today: Snapshot) -> None:
    """One value of a true answer is changed, and the check fails."""
    agent = kind.partition(" ")[0]
    handoff = falsified(answer_of(agent, ASKED[kind]), path, change)

    with pytest.raises((AssertionError, LookupError, StopIteration, ValueError)):
        verify(agent, ASKED[kind], handoff, today)


@pytest.mark.parametrize("kind", [kind for kind in ASKED if kind != "explainer term"])  # its confidence is no number of the data
def test_a_confidence_that_the_data_do_not_bear_is_caught(kind: str, answer_of: Answer, today: Snapshot) -> None:
    """An answer that is surer, or less sure, than its evidence by 0.3 fails."""
    agent = kind.partition(" ")[0]
    handoff = copy.deepcopy(answer_of(agent, ASKED[kind]))
    confidence = handoff["result"]["confidence"]
    handoff["result"]["confidence"] = confidence - 0.3 if confidence > 0.65 else confidence + 0.3

    with pytest.raises(AssertionError):
        verify(agent, ASKED[kind], handoff, today)


REFUSED = [
    ("causal_impact", "Did rep visits raise Kisqali TRx?", "unknown_entity", "The data have no brand 'Kisqali'. Available: Fabhalta."),
    ("causal_impact", "Did rep visits raise Kisqali TRx?", "unknown_entity", "The data have no brand 'Leqvio'. Available: Kisqali."),
    ("causal_impact", "Did rep visits raise TRx?", "missing_data", "'trx' is not an outcome in the data. Available: nrx."),
    ("causal_impact", "Did rep visits raise TRx?", "internal_error", "The agent failed unexpectedly."),
    (
        "causal_impact",
        "Did rep visits raise TRx?",
        "insufficient_data",
        "Too few HCPs: 400 in the programme and 395 outside it; 30 are needed.",
    ),
    ("gap_analyzer", "Gaps in the South?", "unknown_entity", "The data have no region 'South'. Available: West."),
    ("gap_analyzer", "Gaps last quarter?", "missing_data", "The data have no week in 'last quarter'; they cover the weeks ending ..."),
    ("gap_analyzer", "Gaps in Cosentyx?", "unknown_entity", "There is no such brand."),
    ("health_score", "Is all well?", "unknown_entity", "The data have no brand 'Leqvio'. Available: Kisqali."),
    ("health_score", "Is all well?", "missing_data", "The data have no KPI 'uptime'. Available: trx."),
    ("drift_monitor", "PSI for emails?", "missing_data", "The data have no KPI 'emails'. Available: trx."),
    ("drift_monitor", "PSI for the West?", "insufficient_data", "The West has 481 HCPs; 50 are needed."),
    ("prediction_synthesizer", "Forecast TRx", "missing_data", "The data have no patients, only HCPs."),
    ("prediction_synthesizer", "Forecast NRx", "missing_data", "The data have no KPI 'NRx'. Available: trx."),
    ("prediction_synthesizer", "Forecast TRx", "unknown_entity", "The data have no doctor 'Dr. Who', only ids."),
    (
        "explainer",
        "What is a p-value?",
        "missing_data",
        "There is nothing to explain: the question names no brand. The known terms are: PSI.",
    ),
    (
        "explainer",
        "Why did TRx drop?",
        "missing_data",
        "There is nothing to explain: the question is about an earlier result, and none came with it.",
    ),
]


@pytest.mark.parametrize(("agent", "text", "error_type", "message"), REFUSED, ids=[f"{one[0]}-{at}" for at, one in enumerate(REFUSED)])
def test_a_refusal_without_reason_is_caught(agent: str, text: str, error_type: str, message: str, today: Snapshot) -> None:
    """A failure is not accepted because it is one: what it says must be true of the question and of the data."""
    handoff = {
        "execution": {"status": "failed"},
        "result": {"primary_output": {}, "confidence": 0.0, "evidence": [], "caveats": []},
        "errors": {"error_type": error_type, "error_message": message, "recoverable": False},
    }

    with pytest.raises(AssertionError):
        verify(agent, text, handoff, today)
