"""`optimize --signature routing` on real stores: a log becomes a dataset, a challenger, a verdict; what is killed can be started again."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from optimizers.case import open_case
from optimizers.order import Order
from optimizers.ruling import Rules
from service.adapters.mlflow_registry import CHALLENGER, CHAMPION, ROLLED_BACK, VERDICT
from service.adapters.sql_store import SqlStore
from service.catalog.loader import load_catalog
from service.contracts.optimization import OptimizationWish
from tests.integration.office import ASKS, logged, make_office, open_office, registry, run

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
SEED = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, begun: Path) -> Path:
    """An office."""
    folder = tmp_path_factory.mktemp("log")
    make_office(folder, begun)
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
    (used,) = registry(folder)._client().get_run(new.run_id).inputs.dataset_inputs
    assert (used.dataset.digest, json.loads(used.dataset.profile)) == (manifest["sha256"][:36], manifest)
    assert (manifest["personal_data_replaced"], manifest["labelled"]) == (1, 12)
    assert done.stderr.count(" s] ") >= 6


def test_where_nothing_is_new_nothing_is_fitted(folder: Path) -> None:
    """The same data, champion and rules end the same way: each try on one test would be another chance to pass by chance."""
    assert run(folder, "--signature", "routing", "--json").returncode == 0
    before = [one.number for one in registry(folder).versions()]
    again = run(folder, "--signature", "routing", "--json")
    told = run(folder, "--signature", "routing")
    made: dict[str, Any] = json.loads(again.stdout)
    found = [{**finding, "found": "for"} for finding in made["verdict"]["findings"]]
    promoted = {**made["verdict"], "ruling": "promote", "reason": "It is better.", "findings": found}
    champion = str(registry(folder).champion_number())
    registry(folder).record(made["version"], "promote", {VERDICT: json.dumps(promoted)})
    cut_off = run(folder, "--signature", "routing", "--json")
    now = registry(folder).champion_number()
    registry(folder).rollback(ROLLED_BACK, "Left by hand.")
    left = run(folder, "--signature", "routing", "--json")
    registry(folder).record(made["version"], made["ruling"], {VERDICT: json.dumps(made["verdict"])})

    assert (made["repeated"], made["version"] in before) == (True, True)
    assert [one.number for one in registry(folder).versions()] == before
    assert "choosing settings" not in again.stderr
    assert f"Nothing is new since version {made['version']}" in told.stdout
    assert Path(made["report"]).is_relative_to(folder / "mlruns")
    assert Path(made["report"]).read_text().lower().startswith("<!doctype html>")
    assert (json.loads(cut_off.stdout)["ruling"], now) == ("promote", made["version"])  # the run before ended before it could
    assert registry(folder).champion_number() == champion
    assert (json.loads(left.stdout)["ruling"], "left since" in json.loads(left.stdout)["reason"]) == ("reject", True)


def test_where_there_is_nothing_yet_the_first_router_is_made_and_challenged(tmp_path: Path) -> None:
    """One command on a fresh clone: a champion, a registered challenger, a verdict and a report; nobody serves what is no better."""
    open_office(tmp_path)

    done = run(tmp_path, "--signature", "routing", "--seed-set", "seed.jsonl", "--json")

    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    versions = {one.number: one for one in registry(tmp_path).versions()}
    assert {number: one.aliases for number, one in versions.items()} == {"1": (CHAMPION,), "2": (CHALLENGER,)}
    assert (made["version"], made["ruling"]) == ("2", "reject")
    assert "<html" in (registry(tmp_path).read_artifact(versions["2"].run_id, "report.html") or "")
    assert "Router version 1 (champion)" in done.stderr


def test_without_a_router_nothing_is_tried_in_vain(tmp_path: Path) -> None:
    """The periodic job says what is missing; what waits has lost no attempt."""
    open_office(tmp_path)
    no_store = run(tmp_path, "--pending")
    asked = asyncio.run(ask_for(tmp_path, routing="high"))

    no_router, no_seeds = run(tmp_path, "--pending"), run(tmp_path, "--signature", "routing")

    assert (no_store.returncode, no_router.returncode, no_seeds.returncode) == (2, 2, 2)
    assert "POINTSMAN_DATABASE_URL" in no_store.stderr
    assert "optimize --bootstrap" in no_router.stderr
    assert "optimize --bootstrap" in no_seeds.stderr
    assert asyncio.run(standing(tmp_path, asked["routing"])) == ("pending", 0)


def test_what_was_received_teaches_and_does_not_judge(folder: Path) -> None:
    """Whoever asks for a better router brings no evidence to the court."""
    asyncio.run(ask_for(folder, routing="low"))
    order = Order(f"sqlite:///{folder}/mlruns/mlflow.db", f"sqlite:///{folder}/var/pointsman.db", Rules(), 0.02)

    case = open_case(order, load_catalog(folder / "catalog"), lambda _: None)

    trial = case.logged_trial()
    assert sum(" as of " in text for text in case.dataset.observations["text"].to_pylist()) == 40
    assert trial is not None
    assert len(trial) > 20
    assert not any(" as of " in text for text in trial.texts)


def test_what_was_asked_for_is_carried_out_and_its_signals_are_learned_from(folder: Path) -> None:
    """Ended at it, killed at it, and taken again; the version is made of the log and of what was received."""
    asked = asyncio.run(ask_for(folder, routing="low", synthesis="high"))
    with at_work(folder) as process:
        process.terminate()
        ended = process.wait(60)
    given_back = asyncio.run(standing(folder, asked["routing"]))
    with at_work(folder) as process:
        refused = run(folder, "--signature", "routing")
        process.kill()

    done = run(folder, "--pending", "--json")

    assert (ended, given_back) == (128 + signal.SIGTERM, ("pending", 0))
    assert (refused.returncode, "`optimize --pending` on " in refused.stderr) == (1, True), refused.stderr
    assert done.returncode == 0, done.stderr
    (made,) = json.loads(done.stdout)["requests"]
    assert (made["request_id"], made["status"], made["attempts"], made["signals"]) == (asked["routing"], "done", 2, 40)
    new = next(one for one in registry(folder).versions() if one.number == made["router_version"])
    manifest = json.loads(registry(folder).read_artifact(new.run_id, "dataset/manifest.json") or "{}")
    assert sum(manifest["observations"].values()) == 340
    assert new.ruling == made["ruling"]


@contextmanager
def at_work(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start to carry out what was asked for, and wait until it is at it."""
    command = [sys.executable, "-m", "optimizers.cli", "--pending"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "reading the signals" not in process.stderr.readline():
            assert process.poll() is None
        yield process


async def standing(folder: Path, request_id: str) -> tuple[str, int]:
    """Return where a request stands, and how often it was tried."""
    store = SqlStore(f"sqlite:///{folder}/var/pointsman.db")
    await store.open()
    found = await store.request("acme", UUID(request_id))
    await store.close()
    assert found is not None
    return found.status.value, found.attempts


async def ask_for(folder: Path, **priorities: str) -> dict[str, str]:
    """Ask for optimizations; each brings the same forty signals, whose agents somebody corrected. Return their ids by signature."""
    store = SqlStore(f"sqlite:///{folder}/var/pointsman.db")
    await store.open()
    signals = []
    for number in range(40):
        label = list(ASKS)[number % len(ASKS)]
        text = f"{ASKS[label][0].format('Acme')} as of {number}"
        made = logged(text, f"r-{number}", "invoices", succeeded=label == "invoices", hour=number)
        signals.append(made.signal.model_copy(update={"signal_id": UUID(int=number), "corrected_agent": label}))
    asked = {}
    for name, priority in priorities.items():
        said = {"agent_name": "orchestrator", "signature_name": name, "priority": priority, "training_signals": signals}
        asked[name] = str((await store.ask_for("acme", OptimizationWish.model_validate(said))).request_id)
    await store.close()
    return asked


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
    draws, before, fresh = random.Random(SEED), registry(folder).champion_number(), ("--signature", "routing", "--risk-target", "0.05")
    for _ in range(2):
        command = [sys.executable, "-m", "optimizers.cli", *fresh]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draws.uniform(1.0, 9.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)

    done = run(folder, *fresh, "--json")

    assert done.returncode == 0, done.stderr
    listed = registry(folder).versions()
    assert Counter(alias for one in listed for alias in one.aliases)[CHAMPION] == 1
    assert registry(folder).champion_number() in {before, *(one.number for one in listed)}
    assert all(registry(folder).version(one.number) is not None for one in listed)
