"""The notes on disk that say what the registry was last seen to name."""

from pathlib import Path

import pytest

from service.adapters.mlflow_registry import RegisteredVersion
from service.adapters.router_source import (
    note_candidate,
    note_given_back,
    note_problem,
    read_candidate,
    read_given_back,
    read_note,
    recall,
    remember,
)
from service.programs import Stage

REGISTRY = "postgresql://pointsman:{}@registry.example:5432/mlflow"


@pytest.mark.parametrize("password", ["s3cret-words", "wi%40th@signs"])
def test_a_password_of_the_registry_stays_out_and_may_change(tmp_path: Path, password: str) -> None:
    uri, changed = REGISTRY.format(password), REGISTRY.format("another")
    version, places = RegisteredVersion("3", tmp_path), [tmp_path / name for name in ("champion", "candidate", "regions", "none")]
    champion, candidate, regions, none = places
    remember(uri, version, champion)
    note_candidate(uri, version, Stage.CANARY, 0.1, candidate)
    note_given_back(uri, "3", frozenset({"weather"}), regions)
    note_problem(uri, "It is down.", none)

    written = "".join(place.read_text() for place in places)
    assert password not in written
    assert "registry.example" in written
    assert recall(changed, champion) == version
    tried = read_candidate(changed, candidate)
    assert tried is not None
    assert (tried.version, tried.share) == ("3", 0.1)
    assert read_given_back(changed, "3", regions) == {"weather"}
    assert read_note(changed, none).problem == "It is down."
    assert recall(changed.replace("5432", "6543"), champion) is None
