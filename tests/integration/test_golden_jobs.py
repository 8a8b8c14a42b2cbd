"""The golden queries of the agents that change or read the platform itself: training, deploying, and the state of the agents.

They run in a copy of the working folder, so that no other test finds their models. Every number is computed anew, another way.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from mlflow import MlflowClient

from service.agents.registry.store import open_registry
from service.agents.sample_data import Snapshot, load_snapshot
from service.catalog.loader import PACKAGED
from tests.golden_checks import model_deployer, observability_connector, scope_definer
from tests.integration.conftest import Program, free_port
from tests.integration.test_golden_queries import ask, golden, handoff_of
from tests.unit.agents.model_store import add_model

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
SELECTION_MS = 8_000  # not 300,000: time for a candidate or two; what is checked of them is the same
SCORES = [0.66, 0.67, 0.69, 0.70, 0.72, 0.73, 0.74]  # of the versions of the one model that is deployed
ALIASES = {"production": 4, "previous": 3, "staging": 6}
MOST_REFUSED = {"ml_training": 12, "model_deploy": 17}  # of 25: they name data, models or means that the platform does not have


@pytest.fixture(scope="module")
def data() -> Snapshot:
    """The sample data of today, as the agents have them."""
    return load_snapshot()


@pytest.fixture(scope="module")
def town(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working folder."""
    return Path(shutil.copytree(workplace, tmp_path_factory.mktemp("town") / "work"))


@pytest.fixture
def client(town: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """The folder's registry, with one model beside the router."""
    monkeypatch.chdir(town)
    registry = open_registry(create=True)
    assert registry is not None
    client = MlflowClient(f"sqlite:///{town}/mlruns/mlflow.db")
    for model in registry.models():
        client.delete_registered_model(model.name)
    add_model(registry, "e2i-all-conversion", list(SCORES), ALIASES)
    return client


@pytest.fixture(scope="module")
def service(town: Path) -> Iterator[Program]:
    """The service and its agents in that folder; the agents know where its metrics are, and models are selected among few candidates."""
    own, others = free_port(), free_port()
    catalog = Path(shutil.copytree(PACKAGED, town / "catalog", ignore=shutil.ignore_patterns("*.py", "__pycache__")))
    text = (catalog / "agents.yaml").read_text()
    hasty = re.sub(r"(name: model_selector\n(?: {4}.*\n)*? {4}timeout_ms: )\d+", rf"\g<1>{SELECTION_MS}", text)
    assert hasty != text
    (catalog / "agents.yaml").write_text(hasty)
    agents = Program(
        ["agents", "--port", str(others)],
        town,
        {"POINTSMAN_METRICS_URL": f"http://127.0.0.1:{own}/metrics"},
        f"http://127.0.0.1:{others}/healthz",
    )
    told = {"POINTSMAN_AGENTS_BASE_URL": agents.url, "POINTSMAN_CATALOG": str(catalog)}
    service = Program(["serve", "--port", str(own)], town, told, f"http://127.0.0.1:{own}/readyz")
    yield service
    service.stop()
    agents.stop()


def test_training_runs_the_pipeline_with_the_right_numbers(service: Program, data: Snapshot) -> None:
    """Scope, rows, gate, selection and scores are those that pandas and scikit-learn find; what is refused is not in the data."""
    texts = golden("ml_training")

    runs = [ask(service, "ml_training", text) for text in texts]  # one at a time: each has SELECTION_MS

    for text, steps in zip(texts, runs, strict=True):
        scope_definer.check_pipeline(text, {step["agent"]: handoff_of(step) for step in steps}, data)
    refused = sum(steps[0]["handoff"] is None for steps in runs)
    trained = sum(len(steps) == 4 and steps[3]["handoff"] is not None for steps in runs)
    assert refused <= MOST_REFUSED["ml_training"]
    assert trained >= 1


def test_deploying_moves_what_it_says_and_nothing_else(service: Program, client: MlflowClient, data: Snapshot) -> None:
    """The registry is read before and after each; a refusal has changed nothing."""
    refused = 0

    for text in golden("model_deploy"):
        before = model_deployer.read_registry(client)
        (run,) = ask(service, "model_deploy", text)
        after = model_deployer.read_registry(client)
        model_deployer.check(text, handoff_of(run), data, {"before": before, "after": after})
        refused += run["handoff"] is None

    assert refused <= MOST_REFUSED["model_deploy"]


def test_the_state_of_the_agents_is_what_the_service_counted(service: Program, data: Snapshot) -> None:
    """Calls, failures and quantiles are those of the service's own metrics, taken before the question."""
    for text in golden("health_check"):
        metrics = httpx.get(f"{service.url}/metrics", timeout=30.0).text
        first, *_ = ask(service, "health_check", f"@observability_connector {text}")
        assert first["agent"] == "observability_connector"
        observability_connector.check(text, handoff_of(first), data, metrics)
