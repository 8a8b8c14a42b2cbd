"""An MLflow store for the tests of the agents that register models: its schema takes seconds, so one serves the whole run."""

import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from service.agents.directory import load_agent
from service.agents.finding import Finding
from service.agents.registry.store import Model, Registry, open_registry
from service.agents.sample_data import Snapshot
from service.contracts.dispatch import AgentDispatch


@lru_cache(maxsize=1)
def store_uri() -> str:
    """Return the address of the store, made once a process."""
    return f"sqlite:///{Path(tempfile.mkdtemp(prefix='agents-store-')) / 'mlflow.db'}"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The store under its setting, without the models of the test before."""
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", store_uri())
    opened = open_registry(create=True)
    assert opened is not None
    yield opened
    for model in opened.models():
        opened._client.delete_registered_model(model.name)


def add_model(registry: Registry, name: str, scores: list[float | None], aliases: Mapping[str, int] | None = None) -> Model:
    """Register a model with one version a score (None: without evaluation) and aliases by version number."""
    client: Any = registry._client
    client.create_registered_model(name)
    for score in scores:
        tags = {} if score is None else {"metric": "roc_auc", "score": repr(score), "higher_is_better": "true"}
        run = client.create_run(registry._experiment())
        client.create_model_version(name, f"{run.info.artifact_uri}/model", run.info.run_id, tags=tags)
    for alias, number in (aliases or {}).items():
        registry.point(name, alias, number)
    found = registry.model(name)
    assert found is not None
    return found


def with_id(dispatch: AgentDispatch, dispatch_id: UUID | None = None) -> AgentDispatch:
    """Return the dispatch under an id of its own, or under a given one."""
    return dispatch.model_copy(update={"dispatch_id": dispatch_id or uuid4()})


def run_pipeline(make: Any, query: str, data: Snapshot, *agents: str, dispatch_id: UUID | None = None, **what: Any) -> dict[str, Finding]:
    """Run the first agents of the training pipeline as the orchestrator does, and return their findings by name."""
    names = agents or ("scope_definer", "data_preparer", "model_selector", "model_trainer")
    found: dict[str, Finding] = {}
    handed: dict[str, object] = {}
    for name in names:
        context = {"raw_query": query, **handed}
        found[name] = load_agent(name)(with_id(make(name, context=context, **what), dispatch_id), data)
        if found[name].blocked is not None:
            break
        output = found[name].primary_output
        handed |= {key: output[key] for key in ("scope", "dataset", "qc_report", "selected") if key in output}
    return found
