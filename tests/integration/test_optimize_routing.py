"""`optimize --signature routing` on real stores: a log becomes a dataset, a challenger, a verdict; what is killed can be started again."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from optimizers.case import open_case
from optimizers.order import Order
from optimizers.ruling import Rules
from service.adapters.mlflow_registry import CHALLENGER, CHAMPION, MlflowRegistry
from service.adapters.sql_store import SqlStore
from service.catalog.loader import load_catalog
from service.contracts.optimization import OptimizationWish
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from tests.contract.test_store import NOW, a_receipt

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
ASKS = {
    "invoices": ["which invoices of {} are overdue", "does {} owe us money", "list what {} has not paid", "unpaid bills of {}"],
    "refunds": ["give {} the money back", "refund the order of {}", "{} wants to be reimbursed", "pay back what {} paid twice"],
    "shipping": [
        "where is the parcel of {}",
        "has the order of {} left the warehouse",
        "when does the delivery reach {}",
        "track what we sent {}",
    ],
}
FIRMS = [
    f"{a} {b}"
    for a in ("Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine")
    for b in ("Ltd", "Group", "Works")
]
AGENT = "{{name: {0}, tier: 3, description: Sees to {0} of the office., urls: [http://127.0.0.1:8201/agents/{0}]}}"
INTENT = "  - {{name: {0}, description: Everything about {0} here., wish: see to {0}, primary_agent: {0}}}"
SEED = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a catalogue of three agents, a first router, and a log of 300 requests."""
    folder = tmp_path_factory.mktemp("log")
    (folder / "catalog").mkdir()
    agents = ", ".join(AGENT.format(name) for name in ASKS)
    tiers = "tiers: {3: {timeout_ms: 60000, max_retries: 1, fallback: template}}"
    texts = {
        "agents": f"default_agent: invoices\ntemplate_text: Nobody could. You can ask to {{wishes}}.\n{tiers}\nagents: [{agents}]\n",
        "intents": "fallback_intent: invoices\nintents:\n" + "\n".join(INTENT.format(name) for name in ASKS),
        "entities": "terms: {}",
    }
    for name, text in texts.items():
        (folder / "catalog" / f"{name}.yaml").write_text(text)
    (folder / ".env").write_text("POINTSMAN_CATALOG=catalog\n")
    rows = [{"text": ask.format("Acme"), "label": label} for label, asks in ASKS.items() for ask in asks]
    (folder / "seed.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = run(folder, "--bootstrap", "--seed-set", "seed.jsonl")
    assert done.returncode == 0, done.stderr
    asyncio.run(write_log(folder))
    return folder


async def write_log(folder: Path) -> None:
    """Commit 300 requests: the right agent succeeds, a wrong one fails, and every second failure is corrected; one tells an address."""
    draws, store = random.Random(SEED), SqlStore(f"sqlite:///{folder}/var/pointsman.db")
    await store.open()
    for number in range(300):
        label = draws.choice(list(ASKS))
        text = draws.choice(ASKS[label]).format(draws.choice(FIRMS)) + f" since {number}"
        chosen = label if draws.random() < 0.8 else draws.choice([name for name in ASKS if name != label])
        receipt = logged(
            text if number else f"{text}, mail jane@acme.com", f"s-{number // 3}", chosen, succeeded=chosen == label, hour=number
        )
        await store.commit(receipt)
        if chosen != label and number % 2:
            await store.add_feedback("acme", Feedback(decision_id=receipt.decision_id, corrected_agent=label))
    await store.close()


def logged(text: str, session: str, agent: str, *, succeeded: bool, hour: int) -> Receipt:
    """Return the receipt of a request that one agent was asked."""
    made = a_receipt(text=text)
    outcome = {"agents_selected": (agent,), "agents_succeeded": int(succeeded), "agents_failed": int(not succeeded)}
    said = {"intent": agent, "session_id": session, "was_rerouted": not succeeded, "rung": "student", "router_version": "1"}
    signal_ = made.signal.model_validate({**made.signal.model_dump(), **outcome, **said})
    return made.model_copy(update={"signal": signal_, "committed_at": NOW + timedelta(hours=hour)})


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `optimize` in a folder."""
    command = [sys.executable, "-m", "optimizers.cli", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def let_lease_end(folder: Path) -> None:
    """Let the minute pass for which a killed job keeps others waiting."""
    with closing(sqlite3.connect(folder / "var/pointsman.db")) as database, database:
        database.execute("UPDATE job_lease SET expires_at = taken_at")


def registry(folder: Path) -> MlflowRegistry:
    """Return the folder's registry."""
    return MlflowRegistry(f"sqlite:///{folder}/mlruns/mlflow.db")


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
    """Killed at it, and taken again; the version is made of the log and of what was received."""
    asked = asyncio.run(ask_for(folder, synthesis="high", routing="low"))
    command = [sys.executable, "-m", "optimizers.cli", "--pending"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "reading the signals" not in process.stderr.readline():
            assert process.poll() is None
        process.kill()
    refused = run(folder, "--signature", "routing")
    let_lease_end(folder)

    done = run(folder, "--pending", "--json")

    assert (refused.returncode, "`optimize --pending` on " in refused.stderr) == (1, True), refused.stderr
    assert done.returncode == 0, done.stderr
    (made,) = json.loads(done.stdout)["requests"]
    assert (made["request_id"], made["status"], made["attempts"], made["signals"]) == (asked["routing"], "done", 2, 40)
    new = next(one for one in registry(folder).versions() if one.number == made["router_version"])
    manifest = json.loads(registry(folder).read_artifact(new.run_id, "dataset/manifest.json") or "{}")
    assert sum(manifest["observations"].values()) == 340
    assert new.ruling == made["ruling"]


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
    draws, before = random.Random(SEED), registry(folder).champion_number()
    for _ in range(2):
        command = [sys.executable, "-m", "optimizers.cli", "--signature", "routing"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draws.uniform(1.0, 9.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        let_lease_end(folder)

    done = run(folder, "--signature", "routing", "--json")

    assert done.returncode == 0, done.stderr
    listed = registry(folder).versions()
    assert Counter(alias for one in listed for alias in one.aliases)[CHAMPION] == 1
    assert registry(folder).champion_number() in {before, *(one.number for one in listed)}
    assert all(registry(folder).version(one.number) is not None for one in listed)
