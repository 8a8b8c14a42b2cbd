"""`pointsman replay` on real stores: two router versions in MLflow, a log in SQLite."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from optimizers import job
from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.sql_store import SqlStore
from service.cli import app
from service.contracts.signals import Feedback
from service.routing.encoder import Encoder
from tests.contract.test_store import NOW
from tests.integration.office import AGENT, ASKS, FIRMS, INTENT, logged

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
TIERS = "tiers: {3: {timeout_ms: 60000, max_retries: 1, fallback: template}}"
OPEN_BILLS = "unpaid bills of {}"  # the second version was told that these are about refunds
SINCE = ("--since", f"{NOW:%Y-%m-%d}")


def write_catalog(folder: Path, names: list[str]) -> None:
    """Write a catalogue of some agents with an intent each."""
    folder.mkdir()
    agents = ", ".join(AGENT.format(name) for name in names)
    (folder / "agents.yaml").write_text(
        f"default_agent: {names[0]}\ntemplate_text: Nobody could. You can ask to {{wishes}}.\n{TIERS}\nagents: [{agents}]\n"
    )
    (folder / "intents.yaml").write_text(f"fallback_intent: {names[0]}\nintents:\n" + "\n".join(INTENT.format(name) for name in names))
    (folder / "entities.yaml").write_text("terms: {}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Iterator[Path]:
    """A working folder with two versions, the first of which is champion, and a log of 90 requests; it is the current one."""
    folder = tmp_path_factory.mktemp("replay")
    write_catalog(folder / "catalog", list(ASKS))
    write_catalog(folder / "other", ["weather", "traffic"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{folder}/mlruns/mlflow.db")  # MLflow keeps an engine for each address of a process
        for number in (1, 2):
            rows = [
                {"text": ask.format(firm), "label": "refunds" if number == 2 and ask == OPEN_BILLS else label}
                for label, asks in ASKS.items()
                for ask in asks
                for firm in FIRMS[::2]
            ]
            (folder / "seed.jsonl").write_text("\n".join(map(json.dumps, rows)))
            job.bootstrap(
                folder / "seed.jsonl",
                None,
                mlflow_uri=f"sqlite:///{folder}/mlruns/mlflow.db",
                load_encoder=lambda: encoder,
                descriptions={name: f"Everything about {name} here." for name in ASKS},
                risk_target=0.02,
                promote=False,
                progress=lambda _: None,
            )
        asyncio.run(write_log())
        yield folder


async def write_log() -> None:
    """Commit what the first version would do: all goes well; one open bill is corrected; one writer names herself."""
    store = SqlStore("sqlite:///var/pointsman.db")
    await store.open()
    for number, (label, ask) in enumerate((label, ask) for _ in range(8) for label, asks in ASKS.items() for ask in asks):
        text = ask.format(FIRMS[1::2][number % 15]) + (", mail jane@acme.com" if ask == OPEN_BILLS and number % 5 == 0 else "")
        receipt = logged(text, f"s-{number}", label, succeeded=True, hour=number)
        await store.commit(receipt)
        if ask == OPEN_BILLS and number < 10:
            await store.add_feedback("acme", Feedback(decision_id=receipt.decision_id, corrected_agent="refunds"))
    await store.close()


@pytest.fixture(autouse=True)
def _settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POINTSMAN_CATALOG", "catalog")


def replay(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["replay", *arguments])


def test_two_versions_are_compared_on_what_was_asked(folder: Path) -> None:
    """What the second was told otherwise flips, as one cluster; what is known of it is lost but for what was corrected."""
    done = replay(*SINCE, "--router", "challenger", "--json", "--html", "replay.html")

    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["old"], found["new"], found["requests"], found["left_out"]) == ("1", "2", 96, {})
    (wrong,) = found["clusters"]
    assert (wrong["source"]["agent"], wrong["target"]["agent"]) == ("invoices", "refunds")
    assert 6 <= wrong["requests"] == found["flipped"] <= 8
    assert wrong["gains"] == wrong["said"] >= 1
    assert wrong["losses"] == wrong["requests"] - wrong["gains"]
    assert all(text.startswith("unpaid bills of") for text in wrong["examples"])
    assert "jane@acme.com" not in done.stdout + (folder / "replay.html").read_text()
    assert found["flips"]["value"] == found["flipped"] / 96
    assert [(row["version"], row["rung"], row["requests"]) for row in found["logged"]] == [("1", "student", 96)]
    assert found["logged"][0]["same_as_new"] < found["logged"][0]["same_as_old"]
    assert done.stderr.count(" s] ") >= 4


def test_the_other_way_round_the_same_requests_flip_back() -> None:
    """The alias champion, a number, the latest few, in words."""
    until = f"{NOW + timedelta(days=30):%Y-%m-%dT%H:%M:%S}"

    done = replay(*SINCE, "--until", until, "--router", "champion", "--against", "2", "--most", "48")

    said = " ".join(done.output.split())
    assert done.exit_code == 0, done.output
    assert "Router version 1 against 2" in said
    assert "48 requests" in said
    assert "the latest of 96" in said
    assert "refunds -> invoices" in said


def test_nothing_that_was_asked_is_changed(folder: Path) -> None:
    """Aliases and log are as before."""
    registry = MlflowRegistry(f"sqlite:///{folder}/mlruns/mlflow.db")
    before = [(one.number, one.aliases) for one in registry.versions()], (folder / "var/pointsman.db").read_bytes()

    done = replay(*SINCE, "--router", "2", "--most", "1")

    assert done.exit_code == 0, done.output
    assert ([(one.number, one.aliases) for one in registry.versions()], (folder / "var/pointsman.db").read_bytes()) == before


WRONG = {
    "no such version": (("--router", "9"), "There is no router version 9. See: pointsman routers list"),
    "no such alias": (("--router", "best"), "There is no router version best."),
    "no previous one": (("--router", "previous"), "No router version is previous now."),
    "itself": (("--router", "champion"), "both version 1"),
    "nothing logged": (("--router", "2", "--since", "2031-01-01"), "Say an earlier --since"),
    "an end before the beginning": (("--router", "2", "--until", "2020-01-01"), "--until must be later than --since"),
    "a page in no folder": (("--router", "2", "--html", "nowhere/at/all.html"), "There is no folder"),
    "no date": (("--router", "2", "--since", "yesterday"), "Invalid value for '--since'"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_told(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2 and a sentence."""
    done = replay(*SINCE, *arguments)

    assert (done.exit_code, said in " ".join(done.output.replace("│", "").split())) == (2, True), done.output


def test_versions_of_another_catalogue_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they know and the setting that names their catalogue."""
    monkeypatch.setenv("POINTSMAN_CATALOG", "other")

    done = replay(*SINCE, "--router", "2")

    assert done.exit_code == 2
    assert "fitted for intents that the catalogue lacks: invoices" in done.output
    assert "POINTSMAN_CATALOG" in done.output


def test_without_a_registry_or_a_log_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How to make a champion; that there is no log. No store is made."""
    monkeypatch.setenv("POINTSMAN_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    no_log = replay(*SINCE, "--router", "2")
    monkeypatch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{tmp_path}/mlflow.db")

    no_registry = replay(*SINCE, "--router", "2")

    assert (no_log.exit_code, no_registry.exit_code) == (2, 2)
    assert f"There is no log yet: {tmp_path}/none.db" in no_log.output
    assert list(tmp_path.iterdir()) == []
    assert "optimize --bootstrap" in no_registry.output
