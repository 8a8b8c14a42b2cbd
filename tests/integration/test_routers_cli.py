"""`pointsman routers` on a real MLflow store."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optimizers.routers_cli import app
from optimizers.ruling import Finding, Found, Rules, Ruling, Step, Verdict
from service.adapters.mlflow_registry import MlflowRegistry
from signatures.artifact import Manifest, Metric, write_version

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
VERDICT = Verdict(
    champion="1",
    challenger="2",
    ruling=Ruling.REJECT,
    reason="test: Not proven to be better.",
    findings=(Finding(step=Step.TEST, found=Found.AGAINST, reason="Not proven to be better."),),
    rules=Rules(),
    decided_at=datetime(2026, 3, 1, tzinfo=UTC),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with two versions; the second has one intent more, another threshold, and a verdict against it."""
    folder = tmp_path_factory.mktemp("routers")
    registry = MlflowRegistry(f"sqlite:///{folder}/mlflow.db")
    for number, (labels, act_above) in enumerate(((("gap", "drift"), 0.9), (("gap", "drift", "health"), 0.8)), 1):
        manifest = Manifest(
            label_set=labels,
            adapter="json",
            dspy_version="3",
            seed=1,
            data_hash=str(number) * 64,
            parent_version="1" if number > 1 else None,
            metrics={"cross_fitted_accuracy": Metric(value=0.9 + number / 100, low=0.8, high=1.0, n=50)},
        )
        write_version(folder / str(number), manifest, student=b"", policy={"act_above": act_above}, programs={})
        metrics = {"cross_fitted_accuracy": 0.9 + number / 100}
        registry.register(folder / str(number), params={"job": "bootstrap"}, metrics=metrics, promote=False)
    registry.record("2", VERDICT.ruling.value, {"verdict.json": VERDICT.model_dump_json()})
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.chdir(folder)


def say(*arguments: str) -> str:
    """Run a command that succeeds, and return what it prints, in one line."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_versions_are_listed_with_alias_and_ruling() -> None:
    """For people and for programs."""
    listed = json.loads(say("list", "--json"))

    assert [(one["version"], one["aliases"], one["ruling"]) for one in listed] == [
        ("2", ["challenger"], "reject"),
        ("1", ["champion"], None),
    ]
    assert "champion" in say("list")


def test_a_version_is_shown_with_its_verdict() -> None:
    """What it is made of, and why it does not serve."""
    said, told = say("show", "2"), json.loads(say("show", "2", "--json"))

    assert "cross_fitted_accuracy: 0.920" in said
    assert "Not proven to be better." in said
    assert told["verdict"] == VERDICT.model_dump(mode="json")
    assert told["manifest"]["parent_version"] == "1"


def test_two_versions_are_compared() -> None:
    """One line for each thing that differs."""
    said = say("diff", "1", "2")

    for part in ("+ intent health", "policy act_above: 0.9 -> 0.8", "cross_fitted_accuracy: 0.9100 -> 0.9200", "data: 1111111111111111 ->"):
        assert part in said
    assert say("diff", "1", "1") == "They do not differ."


def test_a_version_goes_by_what_it_is_now() -> None:
    """Nobody has to look a number up first."""
    assert json.loads(say("show", "challenger", "--json"))["version"] == "2"
    assert say("diff", "champion", "challenger") == say("diff", "1", "2")
    assert say("promote", "champion") == "Version 1 is champion already."


def test_promotion_and_rollback_are_one_command_each(folder: Path) -> None:
    """And the services of this machine are told."""
    promoted = say("promote", "2")
    noted = json.loads((folder / "var/router/champion.json").read_text())
    back = say("rollback")

    assert promoted.startswith("Version 2 is champion.")
    assert noted["version"] == "2"
    assert back == "Version 1 is champion again, in place of 2."
    assert json.loads((folder / "var/router/champion.json").read_text())["version"] == "1"


def test_what_became_of_a_version_is_said(folder: Path) -> None:
    """How it is tried, and why it was left."""
    registry = MlflowRegistry(f"sqlite:///{folder}/mlflow.db")
    registry.try_out("2", "canary", 0.05)
    tried = say("list")
    registry.dismiss("2")
    registry.promote("2")
    registry.rollback("rolled_back", "Left by hand.")

    assert "(canary)" in tried
    assert json.loads(say("list", "--json"))[0]["ruling"] == "rolled_back"
    assert "now: rolled_back. Left by hand." in say("show", "2")
    assert json.loads(say("list", "--json"))[0]["reason"] == "Left by hand."


@pytest.mark.parametrize(
    "arguments",
    [("show", "9"), ("show", "01"), ("promote", "9"), ("promote", "best"), ("diff", "1", "9"), ("show", "candidate")],
    ids=" ".join,
)
def test_a_version_that_is_not_there_is_told(arguments: tuple[str, ...]) -> None:
    """Exit code 2, and where to look."""
    done = CliRunner().invoke(app, list(arguments))

    assert done.exit_code == 2
    assert "pointsman routers list" in " ".join(done.output.split())


def test_an_empty_registry_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing is no error; going back to nothing is."""
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{tmp_path}/none.db")

    assert "optimize --bootstrap" in say("list")
    assert not (tmp_path / "none.db").exists()
    assert CliRunner().invoke(app, ["rollback"]).exit_code == 2
