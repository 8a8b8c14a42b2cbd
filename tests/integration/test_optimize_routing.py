"""`optimize --signature routing` on real stores: a log becomes a dataset, a challenger, a verdict; what is killed can be started again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.adapters.mlflow_registry import CHALLENGER, CHAMPION
from tests.integration.office import make_office, registry, run

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
SEED = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An office."""
    folder = tmp_path_factory.mktemp("log")
    make_office(folder)
    return folder


def test_a_log_becomes_a_challenger_with_a_verdict(folder: Path) -> None:
    """Registered with its dataset, judged by every step, and champion only if the court says so; progress all the way."""
    done = run(folder, "--signature", "routing", "--json")
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)

    versions = {one.number: one for one in registry(folder).versions()}
    new = versions[made["version"]]
    manifest = json.loads(registry(folder).read_artifact(new.run_id, "dataset/manifest.json") or "{}")
    assert new.aliases == ((CHAMPION,) if made["ruling"] == "promote" else (CHALLENGER,))
    assert (new.params["parent"], new.ruling) == ("1", made["ruling"])
    assert [finding["step"] for finding in made["verdict"]["findings"]] == ["integrity", "test", "off_policy"]
    assert made["verdict"]["findings"][0]["found"] == "for"
    assert made["verdict"]["findings"][1]["figures"]["requests"] >= 200
    assert sum(manifest["observations"].values()) == 300
    assert (manifest["personal_data_replaced"], manifest["labelled"]) == (1, 12)
    assert done.stderr.count(" s] ") >= 6


def test_rules_of_ones_own_are_kept_and_wrong_ones_told(folder: Path) -> None:
    """A court that requires what cannot be had promotes nothing; a misspelled rule is named."""
    (folder / "strict.yaml").write_text("off_policy: required\n")
    (folder / "wrong.yaml").write_text("significanse: 0.01\n")

    strict, wrong = (
        run(folder, "--signature", "routing", "--rules", "strict.yaml", "--json"),
        run(folder, "--signature", "routing", "--rules", "wrong.yaml"),
    )

    assert json.loads(strict.stdout)["ruling"] == "reject"
    assert wrong.returncode == 2
    assert "significanse" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "--signature"), (("--signature", "poetry"), "poetry"), (("--bootstrap", "--signature", "routing"), "either")],
    ids=["nothing", "unknown", "both"],
)
def test_wrong_usage_is_told(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2 and a sentence, or the help."""
    done = run(folder, *arguments)

    assert done.returncode == 2
    assert said in done.stderr + done.stdout


def test_what_is_killed_at_any_moment_can_be_started_again(folder: Path) -> None:
    """Twice: the champion still serves, nothing is half registered, and the next run ends well."""
    draws, before = random.Random(SEED), registry(folder).champion_number()
    for _ in range(2):
        command = [sys.executable, "-m", "optimizers.cli", "--signature", "routing"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draws.uniform(1.0, 9.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)

    done = run(folder, "--signature", "routing", "--json")

    assert done.returncode == 0, done.stderr
    listed = registry(folder).versions()
    assert Counter(alias for one in listed for alias in one.aliases)[CHAMPION] == 1
    assert registry(folder).champion_number() in {before, *(one.number for one in listed)}
    assert all(registry(folder).version(one.number) is not None for one in listed)
