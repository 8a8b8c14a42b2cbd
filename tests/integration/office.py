"""An office: a working folder with a catalogue of three agents, a first router, and a log of requests. Real stores, no service."""

import asyncio
import json
import os
import random
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.sql_store import SqlStore
from service.contracts.receipt import Receipt
from service.contracts.signals import Feedback
from tests.contract.test_store import NOW, a_receipt
from tests.programs import run_program

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


def make_office(folder: Path, begun: Path, requests: int = 300) -> None:
    """Write catalogue and labelled requests, make the first router and write a log of so many requests."""
    open_office(folder, begun)
    done = run(folder, "--bootstrap", "--seed-set", "seed.jsonl")
    assert done.returncode == 0, done.stderr
    asyncio.run(write_log(folder, requests))


def open_office(folder: Path, begun: Path | None = None) -> None:
    """Write catalogue and labelled requests: there is no router and no log yet, nor anything else where no folder is copied."""
    if begun is not None:
        shutil.copytree(begun, folder, dirs_exist_ok=True)
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


async def write_log(folder: Path, requests: int) -> None:
    """Commit requests: the right agent succeeds, a wrong one fails, and every second failure is corrected; one tells an address."""
    draws, store = random.Random(SEED), SqlStore(f"sqlite:///{folder}/var/pointsman.db")
    await store.open()
    for number in range(requests):
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
    """Return the receipt of a request that one agent was asked, who found something to say."""
    made = a_receipt(text=text)
    found = {"primary_output": {"summary": f"There are {hour + 200} {agent} of that kind."}, "evidence": [], "caveats": []}
    answer = made.output.agent_results[0].model_copy(update={"agent_id": agent, "result": found})
    output = made.output.model_copy(update={"agent_results": (answer,)})
    outcome = {"agents_selected": (agent,), "agents_succeeded": int(succeeded), "agents_failed": int(not succeeded)}
    said = {"intent": agent, "session_id": session, "was_rerouted": not succeeded, "rung": "student", "router_version": "1"}
    signal_ = made.signal.model_validate({**made.signal.model_dump(), **outcome, **said})
    request = made.request.model_copy(update={"session_id": session})
    return made.model_copy(update={"request": request, "signal": signal_, "output": output, "committed_at": NOW + timedelta(hours=hour)})


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `optimize` in a folder, with settings of `POINTSMAN_*`."""
    environment = os.environ | {f"POINTSMAN_{name}": value for name, value in settings.items()}
    return run_program("optimizers.cli", *arguments, folder=folder, environment=environment)


def registry(folder: Path) -> MlflowRegistry:
    """Return the folder's registry."""
    return MlflowRegistry(f"sqlite:///{folder}/mlruns/mlflow.db")
