"""Shadow, canary and going back on a real registry and a real store: evidence comes in, and what is proven worse does not stay."""

import asyncio
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from optimizers.advance import advance, begin_trying, pending_steps
from optimizers.court import judge_integrity
from optimizers.ruling import Finding, Found, Rules, Ruling, Step, Verdict, Weight
from service.adapters.mlflow_registry import TAKEN_BACK, VERDICT, MlflowRegistry, NoWayBack
from service.adapters.registry_watch import look, look_at_candidate
from service.adapters.rollout_guard import stop_canary, take_back
from service.adapters.rollout_log import RolloutLog
from service.adapters.router_source import CANDIDATE_NOTE, CHAMPION_NOTE, read_candidate, read_note
from service.adapters.sql_store import SqlStore
from service.errors import ConfigurationError
from service.ports import NotedCandidate
from service.programs import Stage, Tally
from signatures.artifact import write_version
from tests.contract.test_store import a_receipt
from tests.unit.signatures.test_artifact import MANIFEST

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
MARGIN = 0.02
RULES = Rules(shadow=Weight.REQUIRED, canary=Weight.REQUIRED, shadow_least=200, canary_least=200, canary_share=0.1)
Serve = Callable[..., None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry's file with two versions: the first is champion, the second challenger. MLflow takes seconds to make one."""
    folder = tmp_path_factory.mktemp("made")
    registry = MlflowRegistry(f"sqlite:///{folder}/mlflow.db")
    for name in ("one", "two"):
        write_version(folder / name, MANIFEST, student=b"", policy={}, programs={})
        registry.register(folder / name, params={"job": name}, metrics={}, promote=False)
    return folder / "mlflow.db"


@pytest.fixture
def registry(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowRegistry:
    """A registry of its own for a test, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(made, tmp_path / "mlflow.db")
    return MlflowRegistry(f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def log(tmp_path: Path) -> RolloutLog:
    """The evidence of an empty store."""

    async def make() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/store.db")
        await store.open()
        await store.close()

    asyncio.run(make())
    return RolloutLog(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def serve(tmp_path: Path, log: RolloutLog) -> Serve:
    """Have a version serve requests, of which a share fails, some hours ago."""

    async def commit(version: str, count: int, failing: float, hours_ago: float) -> None:
        store, draws = SqlStore(f"sqlite:///{tmp_path}/store.db"), random.Random(1)
        await store.open()
        for _ in range(count):
            made, failed = a_receipt(), int(draws.random() < failing)
            outcome = {"router_version": version, "agents_succeeded": 1 - failed, "agents_failed": failed, "agents_unavailable": 0}
            signal = made.signal.model_validate({**made.signal.model_dump(), **outcome})
            at = datetime.now(UTC) - timedelta(hours=hours_ago)
            await store.commit(made.model_copy(update={"signal": signal, "committed_at": at}))
        await store.close()

    return lambda version, count, failing, hours_ago=0.0: asyncio.run(commit(version, count, failing, hours_ago))


def test_what_came_of_requests_is_counted_by_intent(log: RolloutLog, tmp_path: Path) -> None:
    """Only calls of agents that could be had count as calls; the safe default's requests and those asked back are requests all the same."""
    outcomes = [
        {"intent": "gap_analysis", "agents_succeeded": 1},
        {"intent": "gap_analysis", "agents_succeeded": 0, "agents_failed": 1},
        {"intent": "gap_analysis", "agents_succeeded": 0, "agents_failed": 1, "agents_unavailable": 1},
        {"intent": "drift_check", "agents_succeeded": 0},
        {"intent": "drift_check", "agents_succeeded": 1, "rung": "safe_default"},
    ]

    async def commit() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/store.db")
        await store.open()
        for outcome in outcomes:
            made = a_receipt()
            signal = made.signal.model_validate({**made.signal.model_dump(), "agents_failed": 0, "agents_unavailable": 0, **outcome})
            await store.commit(made.model_copy(update={"signal": signal, "committed_at": datetime.now(UTC)}))
        await store.close()

    asyncio.run(commit())
    arm = log.arm(a_receipt().signal.router_version or "", since=datetime.now(UTC) - timedelta(hours=1))

    assert (arm.requests, arm.fallbacks, arm.unavailable) == (5, 1, 1)
    assert {intent: (one.requests, one.errors, one.rewarded) for intent, one in arm.called.items()} == {
        "gap_analysis": (2, 1, 2),
        "drift_check": (1, 0, 1),
    }


def test_a_canary_that_is_worse_is_stopped(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """With its ruling and the reason; the champion stays, and the services are told to try nothing."""
    registry.try_out("2", Stage.CANARY.value, 0.1)
    look_at_candidate(registry.uri)
    tried = read_candidate(registry.uri)
    serve("1", 400, 0.02)
    serve("2", 200, 0.4)

    done = stop_canary(registry, log)
    again = stop_canary(registry, log)
    look_at_candidate(registry.uri)

    assert tried == NotedCandidate("2", Stage.CANARY, 0.1)
    assert done is not None
    assert "errors" in done
    assert (again, registry.tried(), registry.champion_number(), registry.ruling("2")) == (None, None, "1", "reject")
    assert not CANDIDATE_NOTE.exists()


def test_a_canary_that_is_as_good_goes_on(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """Two of a hundred fail at either."""
    registry.try_out("2", Stage.CANARY.value, 0.1)
    serve("1", 300, 0.02)
    serve("2", 150, 0.03)

    assert stop_canary(registry, log) is None
    assert registry.tried() is not None


def test_a_canary_may_be_as_much_worse_as_its_rules_allow(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """The service stops by the same measure as the court judges."""
    registry.try_out("2", Stage.CANARY.value, 0.1, 0.3)
    serve("1", 300, 0.02)
    serve("2", 200, 0.25)

    assert stop_canary(registry, log) is None


def test_two_services_that_go_back_at_once_go_back_once(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """Each machine has a guard of its own."""
    serve("1", 400, 0.02, hours_ago=2)
    registry.promote("2")
    serve("2", 200, 0.4)

    first = take_back(registry, log, MARGIN)
    with pytest.raises(NoWayBack):
        registry.rollback(TAKEN_BACK, "The other guard had looked before.")

    assert first is not None
    assert registry.champion_number() == "1"


def test_a_challenger_is_not_promoted_over_a_champion_that_it_was_not_tried_against(
    registry: MlflowRegistry, log: RolloutLog, tmp_path: Path
) -> None:
    """What was found against the version before says nothing of the one that serves now."""
    write_version(tmp_path / "three", MANIFEST, student=b"", policy={}, programs={})
    registry.register(tmp_path / "three", params={"job": "three"}, metrics={}, promote=False)
    wait(registry, RULES)
    registry.promote("3")
    log.add({"2": Tally(300, 5, 0)})

    judged = advance(registry, log, registry.uri)

    assert judged is not None
    assert judged.ruling is Ruling.REJECT
    assert "meanwhile version 3 became champion" in judged.reason
    assert (registry.champion_number(), registry.tried(), registry.ruling("2")) == ("3", None, "reject")


def test_a_new_champion_that_is_worse_is_taken_back_once(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """The one before serves again within a look; and it does not give way to the one that was taken back, whatever comes."""
    serve("1", 400, 0.02, hours_ago=2)
    registry.promote("2")
    assert take_back(registry, log, MARGIN) is None
    serve("2", 200, 0.4)

    done = take_back(registry, log, MARGIN)
    look(registry.uri)
    serve("1", 200, 0.9)
    again = take_back(registry, log, MARGIN)

    assert done is not None
    assert "version=2 now=1" in done
    assert (registry.champion_number(), registry.ruling("2"), again) == ("1", "taken_back", None)
    assert read_note(registry.uri, CHAMPION_NOTE).version == "1"


@pytest.mark.parametrize(("failing", "margin"), [(0.02, MARGIN), (0.4, 1.0)], ids=["as good", "never to go back"])
def test_a_new_champion_stays(registry: MlflowRegistry, log: RolloutLog, serve: Serve, failing: float, margin: float) -> None:
    """When it is not worse, or when the operator wants nothing to be taken back."""
    serve("1", 300, 0.02, hours_ago=2)
    registry.promote("2")
    serve("2", 200, failing)

    assert take_back(registry, log, margin) is None
    assert registry.champion_number() == "2"


def wait(registry: MlflowRegistry, rules: Rules) -> None:
    """Have version 2 tried against version 1: the test has found for it."""
    findings = (judge_integrity([]), Finding(step=Step.TEST, found=Found.FOR, reason="Better."), *pending_steps(rules))
    verdict = Verdict(
        champion="1", challenger="2", ruling=Ruling.WAIT, reason="Waits.", findings=findings, rules=rules, decided_at=datetime.now(UTC)
    )
    registry.record("2", "wait", {VERDICT: verdict.model_dump_json()})
    begin_trying(registry, "2", findings, rules)


def test_a_challenger_goes_from_shadow_to_canary_to_champion(registry: MlflowRegistry, log: RolloutLog, serve: Serve) -> None:
    """Each step begins when the one before has found for it; while a step lacks evidence, nothing moves."""
    wait(registry, RULES)
    stages = [registry.tried()]

    log.add({"2": Tally(100, 5, 0)})
    early = advance(registry, log, registry.uri)
    log.add({"2": Tally(150, 8, 0)})
    shadowed = advance(registry, log, registry.uri)
    stages.append(registry.tried())
    serve("1", 400, 0.02)
    serve("2", 250, 0.02)
    served = advance(registry, log, registry.uri)

    assert [(one.stage, one.share) for one in stages if one is not None] == [("shadow", 0.0), ("canary", 0.1)]
    assert [one.ruling for one in (early, shadowed, served) if one is not None] == [Ruling.WAIT, Ruling.WAIT, Ruling.PROMOTE]
    assert (registry.champion_number(), registry.tried(), registry.ruling("2")) == ("2", None, "promote")
    assert read_note(registry.uri).version == "2"
    assert advance(registry, log, registry.uri) is None


def test_a_promotion_that_fails_is_heard_again(
    registry: MlflowRegistry, log: RolloutLog, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends it there, the challenger is not lost."""
    rules = RULES.model_copy(update={"canary": Weight.SKIPPED})
    wait(registry, rules)
    log.add({"2": Tally(250, 8, 0)})
    with monkeypatch.context() as patched:
        patched.setattr(registry, "version", lambda _: None)
        with pytest.raises(ConfigurationError, match="gone"):
            advance(registry, log, registry.uri)

    again = advance(registry, log, registry.uri)

    assert again is not None
    assert (again.ruling, registry.champion_number(), registry.tried()) == (Ruling.PROMOTE, "2", None)


def test_a_challenger_that_reads_otherwise_too_often_is_rejected_in_the_shadow(registry: MlflowRegistry, log: RolloutLog) -> None:
    """It never answers anybody."""
    wait(registry, RULES)
    log.add({"2": Tally(300, 200, 0)})

    judged = advance(registry, log, registry.uri)

    assert judged is not None
    assert (judged.ruling, registry.tried(), registry.champion_number()) == (Ruling.REJECT, None, "1")
