"""The registry on a real MLflow store: aliases move together, a verdict stays with its version, and going back is one call."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from optimizers.routing_job import was_left
from service.adapters.mlflow_client import shown, told
from service.adapters.mlflow_registry import (
    CHALLENGER,
    CHAMPION,
    MODEL,
    PREVIOUS,
    ROLLED_BACK,
    SINCE,
    TAKEN_BACK,
    VERDICT,
    MlflowRegistry,
    NoWayBack,
)
from service.errors import ConfigurationError
from signatures.artifact import Manifest, write_version

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1

MANIFEST = Manifest(label_set=("gap", "drift"), adapter="json", dspy_version="3", seed=1, data_hash="1" * 64, metrics={})


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> MlflowRegistry:
    """A registry with three versions; the first is champion."""
    folder = tmp_path_factory.mktemp("registry")
    registry = MlflowRegistry(f"sqlite:///{folder}/mlflow.db")
    for name in ("one", "two", "three"):
        (folder / "data" / name).mkdir(parents=True)
        (folder / "data" / name / "content.txt").write_text(name)
        write_version(folder / name, MANIFEST, student=b"", policy={}, programs={})
        attached = {"data": folder / "data" / name}
        registry.register(folder / name, params={"job": name}, metrics={"accuracy": 0.5}, promote=False, attached=attached)
    return registry


def aliases(registry: MlflowRegistry) -> dict[str, str]:
    """Return the version under each alias."""
    return {alias: one.number for one in registry.versions() for alias in one.aliases}


def test_promotion_and_rollback_move_the_aliases_together(registry: MlflowRegistry) -> None:
    """The old champion is kept as `previous`; nobody goes back to the one that was left, but by promoting it."""
    before = aliases(registry)
    registry.promote("3")
    promoted = aliases(registry)
    went_back = registry.rollback(ROLLED_BACK, "Left by hand.")
    back = aliases(registry)
    with pytest.raises(NoWayBack, match="pointsman routers promote 3"):
        registry.rollback(ROLLED_BACK, "Left by hand.")
    left = registry.ruling("3")
    registry.promote("3")
    again = (registry.champion_number(), registry.ruling("3"))
    registry.rollback(ROLLED_BACK, "Left by hand.")

    assert before == {CHAMPION: "1", CHALLENGER: "3"}
    assert promoted == {CHAMPION: "3", PREVIOUS: "1"}
    assert (went_back, back) == (("3", "1"), {CHAMPION: "1", PREVIOUS: "3"})
    assert (left, again) == (ROLLED_BACK, ("3", None))


def test_only_the_version_that_was_judged_is_taken_back(registry: MlflowRegistry) -> None:
    """Another one may have been promoted meanwhile; and who was champion and is no more is known."""
    registry.promote("2")
    registry.promote("3")
    before = aliases(registry)

    with pytest.raises(NoWayBack, match="Version 3 is champion by now, not 2"):
        registry.rollback(TAKEN_BACK, "Proven worse.", only="2")

    assert aliases(registry) == before
    assert [was_left(registry, number) for number in ("1", "2", "3", "9")] == [False, True, False, False]
    assert registry.rollback(TAKEN_BACK, "Proven worse.", only="3") == ("3", "2")
    assert was_left(registry, "3")
    registry.promote("1")


@pytest.mark.parametrize("harm", [shutil.rmtree, lambda folder: (folder / "manifest.json").write_text("{}")], ids=["gone", "altered"])
def test_nobody_goes_back_to_a_version_that_cannot_be_served(
    registry: MlflowRegistry, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    """It is looked at first: the one that serves goes on, and neither alias nor ruling is touched."""
    registry.promote("3")
    before, ruling = aliases(registry), registry.ruling("3")
    target = registry.version(before[PREVIOUS])
    assert target is not None
    shutil.copytree(target.folder, tmp_path / "kept")
    harm(target.folder)

    with pytest.raises(ConfigurationError, match=f"ersion {before[PREVIOUS]}"):
        registry.rollback(ROLLED_BACK, "Left by hand.")
    after = (aliases(registry), registry.ruling("3"))
    shutil.rmtree(target.folder, ignore_errors=True)
    shutil.copytree(tmp_path / "kept", target.folder)
    registry.rollback(ROLLED_BACK, "Left by hand.")

    assert after == (before, ruling)
    assert aliases(registry)[CHAMPION] == before[PREVIOUS]


def test_nobody_is_promoted_over_another_champion_than_the_one_it_was_tried_against(registry: MlflowRegistry) -> None:
    """Who was overtaken changes nothing."""
    before = aliases(registry)

    with pytest.raises(ConfigurationError, match="Version 1 is champion by now, not 2"):
        registry.promote("3", over="2")

    assert aliases(registry) == before


@pytest.mark.parametrize("written", [0, 1])
def test_a_promotion_that_ends_half_way_can_be_made_again(registry: MlflowRegistry, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """Whatever serves afterwards, the version before is not forgotten, and the time is known since which the new one is watched."""
    from mlflow.tracking import MlflowClient

    registry.promote("1")
    real, done = MlflowClient.set_registered_model_alias, list[str]()

    def some(self: MlflowClient, name: str, alias: str, version: str) -> None:
        if len(done) == written:
            raise OSError("the process was killed")
        done.append(alias)
        real(self, name, alias, version)

    with monkeypatch.context() as half:
        half.setattr(MlflowClient, "set_registered_model_alias", some)
        with pytest.raises(OSError, match="killed"):
            registry.promote("2")
    champion = registry.champion_number()
    registry.promote("2")

    assert champion == "1"
    assert (registry.promoted() or ("", ""))[:2] == ("2", "1")
    registry.promote("1")


def test_a_rollback_that_ended_half_way_does_not_cost_the_way_back(registry: MlflowRegistry) -> None:
    """The champion is ruled to be left and serves still; to promote it again keeps the one before."""
    registry.promote("1")
    registry.promote("2")
    registry.rule("2", ROLLED_BACK, "Left by hand.")
    registry.promote("2")

    assert (registry.promoted() or ("", ""))[:2] == ("2", "1")
    registry.promote("1")


def test_what_somebody_set_by_hand_does_not_stop_anything(registry: MlflowRegistry) -> None:
    """An instant without a zone is one in UTC; no instant at all is nobody who is tried."""
    registry.try_out("2", "canary", 0.1)
    client = registry._client()
    client.set_model_version_tag(MODEL, "2", SINCE, "2026-01-02T03:04:05")
    plain = registry.tried()
    client.set_model_version_tag(MODEL, "2", SINCE, "yesterday")
    odd = registry.tried()
    registry.dismiss("2")

    assert (plain and plain.since, odd) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None)


def test_a_version_whose_run_was_purged_is_listed_with_what_is_left(registry: MlflowRegistry, tmp_path: Path) -> None:
    """Whoever removes a run for the personal texts in it does not take the registry with it."""
    run = registry.run_of("2")
    shutil.copy(registry.uri.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    database = sqlite3.connect(tmp_path / "mlflow.db")
    tables = ("metrics", "latest_metrics", "params", "tags", "inputs", "runs")
    with database:
        for table in tables:
            column = "destination_id" if table == "inputs" else "run_uuid"
            database.execute(f"DELETE FROM {table} WHERE {column} = ?", (run,))
    database.close()

    listed = {one.number: one for one in MlflowRegistry(f"sqlite:///{tmp_path}/mlflow.db").versions()}

    assert (listed["2"].params, listed["2"].metrics) == ({}, {})
    assert listed["3"].params["job"] == "three"


@pytest.mark.parametrize(
    ("uri", "said", "password"),
    [
        ("postgresql://ops:s3cr%40t@db:5432/mlflow", "postgresql://ops:***@db:5432/mlflow", "s3cr%40t"),
        ("https://ops:pw@mlflow.example/x", "https://ops:***@mlflow.example/x", "pw"),
        ("http://ops:s3cret#x/y@db:5000", "http://ops:***@db:5000", "s3cret#x/y"),
        (
            "postgresql://db/mlflow?user=ops&password=s3cret&sslmode=require",
            "postgresql://db/mlflow?user=ops&password=***&sslmode=require",
            "s3cret",
        ),
        ("sqlite:///var/mlflow.db", "sqlite:///var/mlflow.db", ""),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", ""),
    ],
)
def test_no_message_holds_a_password(uri: str, said: str, password: str) -> None:
    """Neither in the address nor in what a library says of it, written as there or as it is meant."""
    plain = f" as {unquote(password)}" if password else ""

    assert shown(uri) == said
    assert told(ValueError(f"cannot connect to {uri}{plain}"), uri) == f"cannot connect to {said}{' as ***' if password else ''}"


@pytest.mark.parametrize("write", [lambda r: r.rule("1", "reject", "x"), lambda r: r.dismiss("1")])
def test_what_goes_wrong_while_writing_is_told_without_the_password(write: Callable[[MlflowRegistry], object]) -> None:
    """A job that took hours ends with a sentence."""
    with pytest.raises(ConfigurationError, match="cannot be written") as caught:
        write(MlflowRegistry("http://ops:s3cret@127.0.0.1:9"))

    assert "s3cret" not in str(caught.value)


@pytest.fixture
def strange() -> Iterator[str]:
    """The address of a server that answers JSON, but not as MLflow does."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"model_version": 5, "registered_model": "x"}')

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_is_no_registry_is_told(strange: str) -> None:
    """Another program's server, and what is no address at all."""
    with pytest.raises(ConfigurationError, match="does not answer as an MLflow registry does"):
        MlflowRegistry(strange).champion_number()
    with pytest.raises(ConfigurationError, match=r"http://ops:\*\*\*@\[::1 cannot be opened"):
        MlflowRegistry("http://ops:s3cret@[::1").champion_number()


def test_a_database_that_does_not_answer_is_told_at_once() -> None:
    """MLflow alone would try again and again for minutes."""
    with pytest.raises(ConfigurationError, match="cannot be opened") as refused:
        MlflowRegistry("postgresql://ops:s3cret@127.0.0.1:9/mlflow").champion_number()

    assert "s3cret" not in str(refused.value)


def test_an_alias_that_somebody_set_by_hand_is_nobody_who_is_tried(registry: MlflowRegistry) -> None:
    """It has no tags that say how."""
    registry._client().set_registered_model_alias("pointsman-router", "candidate", "2")

    assert registry.tried() is None
    registry.dismiss("2")


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


def test_what_is_not_there_is_named(registry: MlflowRegistry, tmp_path: Path) -> None:
    """No alias is moved."""
    empty = MlflowRegistry(f"sqlite:///{tmp_path}/none/mlflow.db")

    with pytest.raises(ConfigurationError, match="no router version 99"):
        registry.promote("99")
    with pytest.raises(ConfigurationError, match="no registry of router versions"):
        empty.rollback(ROLLED_BACK, "Left by hand.")
    assert empty.champion() is None
    assert CHAMPION in aliases(registry)
