"""Which of the fetched router versions stay on this machine."""

import json
import os
from pathlib import Path

import pytest

from service.adapters.mlflow_artifacts import MOST_KEPT, VERSIONS, forget_old


def test_the_latest_and_those_that_a_note_names_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion of a year is not forgotten for the challengers of a week; what another process is fetching is left alone."""
    monkeypatch.chdir(tmp_path)
    for age in range(MOST_KEPT + 3):
        (VERSIONS / f"v{age}").mkdir(parents=True)
        os.utime(VERSIONS / f"v{age}", (1_000 - age, 1_000 - age))
    (VERSIONS / "partial-abc").mkdir()
    oldest = VERSIONS.absolute() / f"v{MOST_KEPT + 2}"
    (VERSIONS.parent / "last_good.json").write_text(json.dumps({"folder": str(oldest)}))

    forget_old()

    assert {one.name for one in VERSIONS.iterdir()} == {*(f"v{age}" for age in range(MOST_KEPT)), oldest.name, "partial-abc"}
