"""`optimize --bootstrap` on a real MLflow store: the first version is champion, later ones challengers, and mistakes are told."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from signatures.artifact import MANIFEST, STUDENT
from tests.integration.conftest import ROOT
from tests.programs import run_program

pytestmark = pytest.mark.timeout(600)
TEXTS = {
    "invoices": ["which invoices are overdue", "unpaid bills", "who owes us money", "list open invoices", "late payers", "bills past due"],
    "refunds": ["give the money back", "refund order 7", "I want a refund", "return the payment", "reimburse the customer", "pay it back"],
    "oos": ["what is the weather", "tell me a joke", "who won the match", "book a flight", "capital of France", "play a song"],
}
AGENTS = """
default_agent: clerk
template_text: Nobody could answer. You can ask to {wishes}.
tiers: {3: {timeout_ms: 60000, max_retries: 1, fallback: template}}
agents: [{name: clerk, tier: 3, description: Answers what the office is asked., urls: [http://127.0.0.1:8201/agents/clerk]}]
"""
INTENTS = """
fallback_intent: invoices
intents:
  - {name: invoices, description: Lists invoices that are open or overdue., wish: see invoices, primary_agent: clerk}
  - {name: refunds, description: Pays money back to a customer., wish: give a refund, primary_agent: clerk}
  - {name: shipping, description: Says where a parcel is now., wish: follow a parcel, primary_agent: clerk}
"""


def run(program: str, folder: Path, *arguments: str, catalog: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the system in a folder, with the packaged catalogue or another one."""
    return run_program(program, *arguments, folder=folder, environment=os.environ | {"POINTSMAN_CATALOG": str(catalog or "")})


def optimize(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run `optimize --bootstrap` on the small seed set and return what it prints as JSON."""
    done = run("optimizers.cli", folder, "--bootstrap", "--seed-set", "seed.jsonl", "--json", *arguments, catalog=folder / "office")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, begun: Path) -> Path:
    """A working folder with a small seed set, and the catalogue `office` whose intents it labels but for one."""
    folder = Path(shutil.copytree(begun, tmp_path_factory.mktemp("optimize"), dirs_exist_ok=True))
    lines = [json.dumps({"text": text, "label": label}) for label, texts in TEXTS.items() for text in texts]
    (folder / "seed.jsonl").write_text("\n".join(lines))
    (folder / "office").mkdir()
    for name, text in (("agents", AGENTS), ("intents", INTENTS), ("entities", "terms: {}")):
        (folder / "office" / f"{name}.yaml").write_text(text)
    return folder


def test_labels_that_the_catalogue_lacks_are_refused(folder: Path) -> None:
    """A router that no service would load is not made: the message names the labels and what to do, and nothing is registered."""
    done = run("optimizers.cli", folder, "--bootstrap", "--seed-set", "seed.jsonl", "--promote")

    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "invoices, refunds" in said
    assert "POINTSMAN_CATALOG" in said
    assert not (folder / "var/router").exists()


def test_golden_labels_that_the_catalogue_lacks_are_refused(folder: Path) -> None:
    """They would count as errors of the router."""
    golden = str(ROOT / "datasets/golden/test.jsonl")

    done = run("optimizers.cli", folder, "--bootstrap", "--seed-set", "seed.jsonl", "--golden", golden, catalog=folder / "office")

    assert (done.returncode, "causal_impact" in done.stderr) == (2, True)


def test_versions_follow_each_other_and_only_promotion_moves_the_champion(folder: Path) -> None:
    """Champion, challenger, nothing when there is one (even when only the registry knows), and champion by --promote."""
    first = optimize(folder)
    second = optimize(folder)
    (folder / "var/router/champion.json").unlink()
    skipped = optimize(folder, "--if-missing")
    third = optimize(folder, "--promote", "--risk-target", "0.1")

    assert (first["version"], first["alias"], first["described_only"]) == ("1", "champion", ["shipping"])
    assert (second["version"], second["alias"]) == ("2", "challenger")
    assert skipped == {}
    assert (third["version"], third["alias"], third["policy"]["risk_target"]) == ("3", "champion", 0.1)
    assert json.loads((folder / "var/router/champion.json").read_text())["version"] == "3"


def test_a_router_of_other_intents_is_named_by_doctor_and_not_served(folder: Path) -> None:
    """The packaged catalogue has no invoices: doctor and --if-missing say so and how to mend it; a decision falls to the safe default."""
    checks = {c["name"]: c for c in json.loads(run("service.cli", folder, "doctor", "--json").stdout)}
    decided = json.loads(run("service.cli", folder, "route", "which invoices are overdue", "--json").stdout)

    needed = run("optimizers.cli", folder, "--bootstrap", "--if-missing")

    assert not checks["encoder and router"]["ok"]
    assert "invoices, refunds" in checks["encoder and router"]["detail"]
    assert (needed.returncode, "the catalogue lacks: invoices, refunds" in " ".join(needed.stderr.split())) == (2, True)
    assert checks["store"]["ok"]
    assert decided["rung"] == "safe_default"


def test_an_intent_without_requests_is_named_by_doctor_as_a_note(folder: Path) -> None:
    """It is served by its description, which is no fault."""
    checks = {c["name"]: c for c in json.loads(run("service.cli", folder, "doctor", "--json", catalog=folder / "office").stdout)}

    assert checks["encoder and router"]["ok"]
    assert "for 2 intents" in checks["encoder and router"]["detail"]
    assert checks["encoder and router"]["detail"].endswith("shipping.")


def test_a_champion_of_an_older_format_is_replaced_where_one_is_needed(folder: Path) -> None:
    """After an upgrade `make run` must end with a router that can be served."""
    before = json.loads((folder / "var/router/champion.json").read_text())
    student = Path(before["folder"]) / STUDENT
    save_file({"coef": np.zeros(1, np.float32)}, student, metadata={"config": json.dumps({"format": 1, "encoder": "x"})})
    damaged = run("optimizers.cli", folder, "--bootstrap", "--seed-set", "seed.jsonl", "--if-missing", catalog=folder / "office")
    manifest = json.loads((student.parent / MANIFEST).read_text())
    manifest["files"][STUDENT] = hashlib.sha256(student.read_bytes()).hexdigest()
    (student.parent / MANIFEST).write_text(json.dumps(manifest))

    made = optimize(folder, "--if-missing")

    assert (made["version"], made["alias"]) == (str(int(before["version"]) + 1), "champion")
    assert optimize(folder, "--if-missing") == {}
    assert (damaged.returncode, "is damaged" in damaged.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [('{"text": "no label"}', "bad.jsonl:1"), ("not json", "bad.jsonl:1"), ('{"text": "x", "label": "prediction"}', "at least two labels")],
    ids=["no label", "no JSON", "one label"],
)
def test_data_that_cannot_be_used_is_told_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    """Exit code 2 and a sentence, no traceback."""
    (tmp_path / "bad.jsonl").write_text(line + "\n")

    done = run("optimizers.cli", tmp_path, "--bootstrap", "--seed-set", "bad.jsonl")

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_golden_texts_in_the_seed_set_are_refused(tmp_path: Path) -> None:
    """A test query never enters training."""
    leaked = (ROOT / "datasets/golden/test.jsonl").read_text()
    (tmp_path / "seed.jsonl").write_text(leaked)
    (tmp_path / "golden.jsonl").write_text(leaked)

    done = run("optimizers.cli", tmp_path, "--bootstrap", "--seed-set", "seed.jsonl", "--golden", "golden.jsonl")

    assert done.returncode == 2
    assert "golden texts are in the seed set" in done.stderr
