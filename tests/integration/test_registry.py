"""The registry on a real MLflow store: aliases move together, a verdict stays with its version, and going back is one call."""

from pathlib import Path

import pytest

from service.adapters.mlflow_registry import CHALLENGER, CHAMPION, PREVIOUS, VERDICT, MlflowRegistry
from service.errors import ConfigurationError

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> MlflowRegistry:
    """A registry with three versions; the first is champion."""
    folder = tmp_path_factory.mktemp("registry")
    registry = MlflowRegistry(f"sqlite:///{folder}/mlflow.db")
    for name in ("one", "two", "three"):
        (folder / name).mkdir()
        (folder / name / "content.txt").write_text(name)
        (folder / f"{name}.json").write_text("{}")
        attached = {"data": folder / name, "note": folder / f"{name}.json"}
        registry.register(folder / name, params={"job": name}, metrics={"accuracy": 0.5}, promote=False, attached=attached)
    return registry


def aliases(registry: MlflowRegistry) -> dict[str, str]:
    """Return the version under each alias."""
    return {alias: one.number for one in registry.versions() for alias in one.aliases}


def test_promotion_and_rollback_move_the_aliases_together(registry: MlflowRegistry) -> None:
    """The old champion is kept as `previous`; going back twice is where one was."""
    before = aliases(registry)
    registry.promote("3")
    promoted = aliases(registry)
    went_back = registry.rollback()
    back = aliases(registry)

    assert before == {CHAMPION: "1", CHALLENGER: "3"}
    assert promoted == {CHAMPION: "3", PREVIOUS: "1"}
    assert (went_back, back) == (("3", "1"), {CHAMPION: "1", PREVIOUS: "3"})


def test_versions_are_listed_with_what_they_were_made_with(registry: MlflowRegistry) -> None:
    """The newest first."""
    listed = registry.versions()

    assert [(one.number, one.params["job"], one.metrics["accuracy"]) for one in listed] == [
        ("3", "three", 0.5),
        ("2", "two", 0.5),
        ("1", "one", 0.5),
    ]
    assert (registry.version("2") or listed[0]).number == "2"
    assert registry.version("99") is None


def test_a_verdict_stays_with_its_version(registry: MlflowRegistry) -> None:
    """A later one replaces it; what was attached is there too."""
    registry.record("2", "wait", {VERDICT: '{"a": 1}'})
    registry.record("2", "reject", {VERDICT: '{"a": 2}'})
    two = next(one for one in registry.versions() if one.number == "2")

    assert (two.ruling, registry.verdict("2"), registry.verdict("1")) == ("reject", '{"a": 2}', None)
    assert registry.read_artifact(two.run_id, "data/content.txt") == "two"
    assert registry.read_artifact(two.run_id, "two.json") == "{}"


def test_what_is_not_there_is_named(registry: MlflowRegistry, tmp_path: Path) -> None:
    """No alias is moved."""
    empty = MlflowRegistry(f"sqlite:///{tmp_path}/none/mlflow.db")

    with pytest.raises(ConfigurationError, match="no router version 99"):
        registry.promote("99")
    with pytest.raises(ConfigurationError, match="no earlier champion"):
        empty.rollback()
    assert empty.champion() is None
    assert CHAMPION in aliases(registry)
