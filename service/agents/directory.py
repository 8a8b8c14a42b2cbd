"""Which agents there are, and how one is loaded and run. The agents' modules, and all that they import, load on first use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from service.agents.finding import AgentFailure, Finding, Run

if TYPE_CHECKING:
    from service.agents.sample_data import Snapshot
    from service.contracts.dispatch import AgentDispatch
    from service.contracts.handoff import AgentHandoff

    Answer = Callable[[AgentDispatch, Snapshot], Finding]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One built-in agent. Its module is `service.agents.<name>` and has the callable `answer`.

    `has_effect`: what it does changes something outside (a model is registered, an alias moves), so nothing may try it out.
    """

    name: str
    tier: int
    description: str
    has_effect: bool = False


AGENTS = {
    entry.name: entry
    for entry in (
        AgentEntry("explainer", 5, "Explains a KPI's change, a method or term, or earlier results."),
        AgentEntry("gap_analyzer", 2, "Ranks the gaps between observed and attainable TRx by brand, region and decile band."),
        AgentEntry("health_score", 3, "Checks the data, the agents' process and the configured health addresses, and scores them."),
        AgentEntry(
            "drift_monitor", 3, "Compares recent weeks with the weeks before, feature by feature, and a model's recent performance."
        ),
        AgentEntry("prediction_synthesizer", 4, "Forecasts a weekly KPI, or an HCP's chance of a conversion within 4 weeks."),
        AgentEntry("heterogeneous_optimizer", 2, "Estimates how an effect differs between subgroups, and who responds best."),
        AgentEntry("experiment_designer", 3, "Plans an experiment: groups, sample size, power, smallest effect, duration, assignment."),
        AgentEntry("resource_optimizer", 4, "Splits a budget over channels or regions by response curves fitted to past spending."),
        AgentEntry("observability_connector", 3, "Reads the platform's metrics from Prometheus, or from the service itself."),
        AgentEntry("scope_definer", 0, "Turns a wish for a model into target, population, horizon, inputs and success measure."),
        AgentEntry("data_preparer", 0, "Builds the training data of a scope and checks its quality; bad data stop the pipeline."),
        AgentEntry("model_selector", 0, "Compares model families by cross-validation on the prepared data and selects one."),
        AgentEntry(
            "model_trainer", 0, "Trains the selected model, evaluates it on later weeks and registers it in MLflow.", has_effect=True
        ),
        AgentEntry("feature_analyzer", 0, "Measures which inputs a model relies on, which overlap and which leak the outcome."),
        AgentEntry("model_deployer", 0, "Moves a model version into or out of service by its MLflow alias.", has_effect=True),
        AgentEntry("causal_impact", 2, "Estimates what a programme changed, adjusted for who was chosen, and tries to refute it."),
    )
}
"""In the order in which the warm-up loads them: the one with the slowest imports is last."""

_loading = threading.Lock()
_loaded: dict[str, Answer] = {}


def load_agent(name: str) -> Answer:
    """Return an agent's callable, importing its module on first use; one import at a time, and none waits for a loaded agent.

    Raises:
        KeyError: There is no such agent.
    """
    entry = AGENTS[name]
    if name not in _loaded:
        with _loading:
            if name not in _loaded:
                module = import_module(f"service.agents.{entry.name}")
                _limit_math_threads()
                _loaded[name] = cast("Answer", module.answer)
    return _loaded[name]


def loaded_agents() -> list[str]:
    """Return the names of the agents that are ready to answer at once."""
    return [name for name in AGENTS if name in _loaded]


def run_agent(name: str, dispatch: AgentDispatch) -> AgentHandoff:
    """Run one agent on the sample data. Whatever happens becomes a handoff.

    Raises:
        KeyError: There is no such agent.
    """
    run = Run(dispatch, name, AGENTS[name].tier)
    try:
        answer = load_agent(name)
        from service.agents.sample_data import load_snapshot  # brings pandas, so it must not load with this module

        return run.succeeded(answer(dispatch, load_snapshot()))
    except AgentFailure as failure:
        return run.failed(failure.error_type, str(failure), recoverable=False)
    except Exception:  # the seam: an agent's bug must reach the orchestrator as a handoff
        logger.exception("agent %s failed on dispatch %s", name, dispatch.dispatch_id)
        return run.failed("internal_error", f"The agent {name} failed unexpectedly; its log has the cause.", recoverable=True)


def _limit_math_threads() -> None:
    """Keep linear algebra on one thread: the matrices are small, and threads that spin on busy cores cost ten times more."""
    # Comes with scikit-learn, and imported here because this module must load nothing of that size.
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1)
