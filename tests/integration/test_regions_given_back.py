"""Regions on a real registry, a real store and a real service: counted, audited, given back, taken again, and shown."""

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optimizers.program_job import keep_given_back
from optimizers.routers_cli import app
from service.adapters import rollout_guard
from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.region_log import RegionLog
from service.adapters.registry_watch import guard, look, look_at_regions
from service.adapters.rollout_guard import give_back
from service.adapters.router_source import CHAMPION_NOTE, REGIONS_NOTE, read_given_back
from service.adapters.sql_store import SqlStore
from service.routing.regions import RegionTally
from signatures.artifact import ArtifactError, Manifest, write_version
from tests.unit.turns import a_router

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
TODAY = datetime.now(UTC).date()
Say = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry's file with a champion. MLflow takes seconds to make one."""
    folder = tmp_path_factory.mktemp("made")
    manifest = Manifest(label_set=("gap", "drift"), adapter="json", dspy_version="3", seed=1, data_hash="1" * 64, metrics={})
    policy = a_router(regions={"gap": 0.4}).policy.model_dump(mode="json")
    write_version(folder / "1", manifest, student=b"", policy=policy, programs={})
    MlflowRegistry(f"sqlite:///{folder}/mlflow.db").register(folder / "1", params={"job": "bootstrap"}, metrics={}, promote=True)
    return folder / "mlflow.db"


@pytest.fixture
def uri(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A registry of its own for a test, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(made, tmp_path / "mlflow.db")
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", f"sqlite:///{tmp_path}/store.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def log(tmp_path: Path, uri: str) -> RegionLog:
    """The regions of an empty store."""

    async def make() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/store.db")
        await store.open()
        await store.close()

    asyncio.run(make())
    return RegionLog(f"sqlite:///{tmp_path}/store.db")


def say(*arguments: str) -> str:
    """Run a command that succeeds, and return what it prints, in one line."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_services_add_to_the_same_counts(log: RegionLog) -> None:
    """By version, intent and day."""
    log.add({("1", "gap", TODAY): RegionTally(local=10, audited=2, agreed=1, seconds=0.5, usd=0.25, priced=2)})
    log.add({("1", "gap", TODAY): RegionTally(local=5, asked=1)})
    log.add({("1", "gap", TODAY - timedelta(days=3)): RegionTally(local=100)})
    log.add({("2", "gap", TODAY): RegionTally(local=1_000)})

    assert log.tallies("1") == {"gap": RegionTally(115, 1, 2, 1, 0, 0.5, 0.25, 2)}
    assert log.tallies("1", since=TODAY) == {"gap": RegionTally(15, 1, 2, 1, 0, 0.5, 0.25, 2)}
    assert log.tallies("3") == {}


def test_drift_gives_a_region_back_and_every_service_of_the_machine_is_told(uri: str, log: RegionLog) -> None:
    """What was counted long ago does not count, and what was given back is not given back again."""
    registry = MlflowRegistry(uri)
    look(uri)
    log.add({("1", "gap", TODAY - timedelta(days=30)): RegionTally(local=9_000, audited=2_000, agreed=2_000)})
    log.add({("1", "gap", TODAY): RegionTally(local=5_000, audited=100, agreed=60)})
    log.add({("1", "drift", TODAY): RegionTally(local=5_000, audited=100, agreed=99)})

    said = give_back(registry, log)
    look_at_regions(uri, f"sqlite:///{Path.cwd()}/store.db")

    assert said is not None
    assert "region_given_back version=1 intent=gap" in said
    assert "60 of 100" in said
    assert read_given_back(uri, "1") == {"gap"}
    assert read_given_back(uri, "2") == frozenset()
    assert give_back(registry, log) is None


def test_a_person_can_take_a_region_again(uri: str, log: RegionLog) -> None:
    """One that was not given back is named."""
    look(uri)
    log.give_back("1", {"gap": "the LM agreed on 60 of 100"})
    say("regions", "--take-again", "gap")
    look_at_regions(uri, f"sqlite:///{Path.cwd()}/store.db")

    refused = CliRunner().invoke(app, ["regions", "--take-again", "gap"])

    assert read_given_back(uri, "1") == frozenset()
    assert refused.exit_code == 2
    assert "has given back none of: gap" in refused.output


def test_what_was_taken_again_stays_until_there_is_new_evidence(uri: str, log: RegionLog) -> None:
    """The audits that it was given back for are a matter of the past."""
    registry = MlflowRegistry(uri)
    look(uri)
    log.add({("1", "drift", TODAY): RegionTally(local=5_000, audited=100, agreed=99)})
    log.add({("1", "gap", TODAY): RegionTally(local=5_000, audited=100, agreed=60)})
    first = give_back(registry, log)
    say("regions", "--take-again", "gap")
    second = give_back(registry, log)
    log.add({("1", "gap", TODAY): RegionTally(local=900, audited=100, agreed=60)})

    third = give_back(registry, log)

    assert (first is None, second, third is None) == (False, None, False)
    assert log.tallies("1")["gap"].local == 5_900


def test_a_version_with_the_same_student_leaves_the_same_to_the_lm(log: RegionLog) -> None:
    """Better prompts are no evidence that the student has become better."""
    log.give_back("1", {"gap": "the LM agreed on 60 of 100"})

    keep_given_back(log, "1", "2")

    assert log.given_back("2") == {"gap": "the LM agreed on 60 of 100"}


def test_the_guard_downloads_nothing_that_is_noted(uri: str, log: RegionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry elsewhere would send the whole version at every look."""
    look(uri)
    log.add({("1", "gap", TODAY): RegionTally(local=5_000, audited=100, agreed=100)})
    monkeypatch.setattr(MlflowRegistry, "_fetch", lambda *_: pytest.fail("it was downloaded"))

    assert give_back(MlflowRegistry(uri), log) is None


def test_a_version_that_was_altered_ends_neither_the_guard_nor_its_other_steps(
    uri: str, log: RegionLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process also follows promotions that are made elsewhere."""
    look(uri)
    log.add({("1", "gap", TODAY): RegionTally(local=5_000, audited=100, agreed=60)})
    monkeypatch.setattr(rollout_guard, "read_version", altered)

    guard(uri, f"sqlite:///{Path.cwd()}/store.db", 0.0)

    assert caplog.messages == ["not_guarded: ArtifactError"]


def altered(folder: Path) -> None:
    """Find what was altered."""
    raise ArtifactError(folder, ["policy.json is not what the manifest says"])


def test_a_page_that_cannot_be_written_is_told(uri: str, log: RegionLog) -> None:
    """Exit code 2, with its place."""
    look(uri)

    done = CliRunner().invoke(app, ["regions", "--html", "/nonexistent/x.html"])

    assert done.exit_code == 2
    assert "/nonexistent/x.html cannot be written" in done.output


def test_a_store_that_is_away_changes_no_note(uri: str, log: RegionLog) -> None:
    """What was given back stays given back."""
    look(uri)
    log.give_back("1", {"gap": "why"})
    look_at_regions(uri, f"sqlite:///{Path.cwd()}/store.db")
    note = REGIONS_NOTE.read_text()

    look_at_regions(uri, "sqlite:////dev/null/store.db")

    assert REGIONS_NOTE.read_text() == note
    assert CHAMPION_NOTE.is_file()


def test_the_command_shows_share_agreement_saving_and_reason(uri: str, log: RegionLog, tmp_path: Path) -> None:
    """For people, for programs, and as a page with a chart; before anything was counted it says how to begin."""
    assert "POINTSMAN_LM" in say("regions")
    log.add({("1", "gap", TODAY): RegionTally(local=900, audited=40, agreed=39, seconds=8.0, usd=0.04, priced=40)})
    log.add({("1", "drift", TODAY): RegionTally(local=50, asked=50)})
    log.give_back("1", {"drift": "the LM agreed on 6 of 50"})

    shown, data = say("regions", "1", "--html", str(tmp_path / "page.html")), json.loads(say("regions", "--json"))
    page = (tmp_path / "page.html").read_text()

    for part in ("95.0% of 1,000 requests", "97.5%", "0.9100 USD", "drift was given back: the LM agreed on 6 of 50"):
        assert part in shown, part
    assert (data["share_local"], data["target"]) == (0.95, 0.98)
    regions = [(one["intent"], one["local"], one["given_back"] is None) for one in data["regions"]]
    assert regions == [("gap", 900, True), ("drift", 50, False)]
    assert "<svg" in page
    assert "the LM agreed on 6 of 50" in page
    assert CliRunner().invoke(app, ["regions", "9"]).exit_code == 2
