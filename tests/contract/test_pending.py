"""`optimize --pending` over a real database: requests are carried out once, what fails says why, and only one job works at a time."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from optimizers import improve_cli, routing_job
from optimizers.case import Case
from optimizers.cli import app
from optimizers.dataset import Row
from optimizers.improve import Improved
from optimizers.lease import held
from optimizers.order import NotDone, Order, Wish
from optimizers.routing_job import Hearing, hear
from optimizers.ruling import Rules, Verdict, Weight
from optimizers.snapshot import labelled_only
from optimizers.trial import golden_trial, hold
from service.adapters.job_lease import LEASE_SECONDS, Lease, LeaseTaken
from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.adapters.optimization_jobs import OptimizationJobs
from service.adapters.optimization_requests import ask, listed
from service.adapters.sql_engine import normalise, open_engine
from service.catalog.model import Catalog
from service.contracts.optimization import OptimizationRequest, Ruling
from service.errors import ConfigurationError
from tests.contract.test_optimization_queue import a_wish

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def heard(number: str = "7", ruling: Ruling = Ruling.PROMOTE) -> Hearing:
    """Return what the court made of a challenger."""
    verdict = Verdict(champion="6", challenger=number, ruling=ruling, reason="Because it is.", findings=(), rules=Rules(), decided_at=NOW)
    return Hearing("6", RegisteredVersion(number, Path("nowhere")), labelled_only([]).manifest(), {}, verdict)


class Workshop:
    """`improve` by script: each call gives the next of `script`, the last one again and again; `orders` keeps what was asked."""

    def __init__(self, script: list[Hearing | BaseException]) -> None:
        self.script = script
        self.orders: list[tuple[Order, Wish | None]] = []

    def __call__(self, settings: object, order: Order, wish: Wish | None, err: object) -> Improved:
        """Give the scripted answer."""
        self.orders.append((order, wish))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, BaseException):
            raise answer
        return Improved(answer, None, 1.0)


class World:
    """A database with requests, and the command line on it."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.engine, self._monkeypatch = url, open_engine(normalise(url), 3.0), monkeypatch
        monkeypatch.setenv("POINTSMAN_DATABASE_URL", url)
        monkeypatch.setenv("POINTSMAN_LM", "")
        self.asked = 0

    def wish(self, signature: str = "routing", priority: str = "medium", agent: str = "explainer") -> OptimizationRequest:
        """Ask for an optimization, as long ago as there were wishes before."""
        self.asked += 1
        at = datetime.now(UTC) - timedelta(hours=1, seconds=-self.asked)
        return ask(self.engine, "acme", a_wish(signature, agent=agent, priority=priority), at)

    def optimize(self, *arguments: str, script: list[Hearing | BaseException] | None = None) -> tuple[Result, Workshop]:
        """Run the command with a scripted workshop."""
        workshop = Workshop(script or [heard()])
        self._monkeypatch.setattr(improve_cli, "improve", workshop)
        return CliRunner().invoke(app, list(arguments)), workshop

    def look(self) -> dict[str, tuple[str, str | None, str | None]]:
        """Return the status, version and reason of the requests by signature."""
        return {
            one.signature_name.value: (one.status.value, one.router_version, one.reason)
            for one in listed(self.engine, "acme", None, datetime.now(UTC))
        }


@pytest.fixture
def world(sqlite_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    """An empty database, a working folder without anything, and a registry that names a champion."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MlflowRegistry, "champion_number", lambda _: "6")
    world = World(sqlite_database, monkeypatch)
    yield world
    world.engine.dispose()


def test_without_requests_nothing_is_done(world: World) -> None:
    """It says so, and that is no failure."""
    done, workshop = world.optimize("--pending")

    assert (done.exit_code, workshop.orders) == (0, [])
    assert "No optimization is pending." in done.output


def test_requests_are_carried_out_in_their_turn(world: World) -> None:
    """Each by the job that --signature runs; what the court said is written down."""
    first, urgent = world.wish(), world.wish("intent", priority="high")

    done, workshop = world.optimize("--pending", "--json", "--lm", "x/y", script=[heard("7", Ruling.REJECT), heard("8")])

    assert done.exit_code == 0, done.output
    assert [wish and wish.signature for _, wish in workshop.orders] == ["intent", "routing"]
    told = json.loads(done.stdout)["requests"]
    assert [(one["request_id"], one["status"], one["router_version"], one["ruling"]) for one in told] == [
        (str(urgent.request_id), "done", "7", "reject"),
        (str(first.request_id), "done", "8", "promote"),
    ]


def test_so_many_at_most_are_carried_out(world: World) -> None:
    """The others wait for the next run."""
    world.wish(agent="explainer")
    world.wish(agent="gap_analyzer")

    (first, one), (_, other), (last, none) = (world.optimize("--pending", "--most", "1") for _ in range(3))

    assert [len(workshop.orders) for workshop in (one, other, none)] == [1, 1, 0]
    assert (first.exit_code, last.exit_code) == (0, 0)


def test_what_nobody_can_optimize_fails_with_its_reason_and_blocks_nothing(world: World) -> None:
    """Also what only an LM could, where there is none; the request behind them is carried out, and the exit code tells."""
    world.wish("synthesis", priority="high")
    world.wish("intent", priority="high")
    world.wish("routing", priority="low")

    done, workshop = world.optimize("--pending")

    assert (done.exit_code, len(workshop.orders)) == (1, 1)
    assert world.look() == {
        name: ("failed", None, f"The student has no part in the signature '{name}'; an LM has. Set POINTSMAN_LM or --lm.")
        for name in ("synthesis", "intent")
    } | {
        "routing": ("done", "7", "Because it is."),
    }


def test_with_an_lm_its_programs_are_made_better(world: World) -> None:
    """As --signature does: MIPROv2 unless another optimizer is named."""
    world.wish("intent")

    done, workshop = world.optimize("--pending", "--lm", "openai/gpt-5-mini", "--budget-calls", "9")

    assert done.exit_code == 0, done.output
    assert [wish for _, wish in workshop.orders] == [Wish("intent", "miprov2", "light", 9, None)]


FAILURES: dict[str, tuple[Exception, str]] = {
    "no champion": (ConfigurationError("There is no champion to challenge."), "There is no champion to challenge."),
    "an LM that fails": (NotDone("The run is void."), "The run is void."),
    "a bug": (
        ZeroDivisionError("user text"),
        "Something went wrong that nobody foresaw (ZeroDivisionError). The log of the job has it.",
    ),
}


@pytest.mark.parametrize(("error", "reason"), FAILURES.values(), ids=FAILURES.keys())
def test_an_attempt_that_fails_keeps_no_other_request_from_its_turn(world: World, error: Exception, reason: str) -> None:
    """It is tried again by the next two runs, then it has failed."""
    world.wish(priority="high")
    world.wish("intent", priority="low")
    world.optimize("--pending", "--lm", "openai/gpt-5-mini", script=[error, heard()])
    once = world.look()

    runs = [world.optimize("--pending", script=[error]) for _ in range(2)]

    assert once == {"routing": ("pending", None, reason), "intent": ("done", "7", "Because it is.")}
    assert [(done.exit_code, len(workshop.orders)) for done, workshop in runs] == [(1, 1), (1, 1)]
    assert world.look()["routing"] == ("failed", None, reason)


@pytest.mark.parametrize("arguments", [["--pending"], ["--signature", "routing"]], ids=["pending", "signature"])
def test_a_second_job_says_who_is_at_work_and_ends(world: World, arguments: list[str]) -> None:
    """Exit code 1, whoever came first; when that has ended it can run."""
    world.wish()
    with OptimizationJobs(world.url) as jobs, held(jobs, "optimize --signature routing"):
        done, workshop = world.optimize(*arguments)

        assert (done.exit_code, workshop.orders) == (1, [])
        assert "`optimize --signature routing` on " in done.output

    done, workshop = world.optimize(*arguments)
    assert (done.exit_code, len(workshop.orders)) == (0, 1)


def test_a_job_that_is_stopped_gives_its_request_back(world: World) -> None:
    """Ctrl-C: the next run need not wait for a lease to end."""
    world.wish()

    world.optimize("--pending", script=[KeyboardInterrupt()])
    done, workshop = world.optimize("--pending")

    assert (done.exit_code, len(workshop.orders)) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pending", "--signature", "routing"], "either"),
        (["--pending", "--dry-run"], "--dry-run"),
        (["--signature", "routing", "--dry-run"], "The student asks nobody"),
        (["--pending", "--optimizer", "hope"], "no optimizer 'hope'"),
        (["--pending", "--lm", "x/y", "--auto", "endless"], "--auto is one of"),
        (["--signature", "poetry"], "These can: routing, intent, synthesis"),
    ],
    ids=["two", "dry", "dry student", "optimizer", "auto", "signature"],
)
def test_wrong_usage_is_told_before_anything_is_taken(world: World, arguments: list[str], said: str) -> None:
    """Exit code 2, a sentence, and the request still waits."""
    world.wish()

    done, workshop = world.optimize(*arguments)

    assert (done.exit_code, workshop.orders) == (2, [])
    assert said in " ".join(done.output.split())
    assert world.look() == {"routing": ("pending", None, None)}


class RenewedJobs(OptimizationJobs):
    """Jobs that say when a lease was renewed."""

    def __init__(self, url: str) -> None:
        super().__init__(url, now=lambda: self.at)
        self.at = NOW
        self.renewed = threading.Event()

    def renew(self, lease: Lease) -> None:
        """Renew, and say so."""
        super().renew(lease)
        self.renewed.set()


def test_the_lease_is_renewed_as_long_as_the_job_lives(world: World) -> None:
    """Long after it would have ended nobody else gets it; when the job has ended anybody does."""
    with RenewedJobs(world.url) as jobs:
        with held(jobs, "the long one", every=0.005):
            for _ in range(3):
                jobs.at += timedelta(seconds=LEASE_SECONDS - 1)
                jobs.renewed.clear()
                assert jobs.renewed.wait(10)
            with pytest.raises(LeaseTaken, match="the long one"):
                jobs.take("optimize", "another")

        assert jobs.take("optimize", "another").name == "optimize"


class Shelf:
    """A registry whose champion may have changed, and what was done to it."""

    def __init__(self, champion: str) -> None:
        self.champion, self.done = champion, list[str]()

    def run_of(self, number: str) -> str:
        """Name the run that made a version."""
        return f"run-{number}"

    def where(self, run_id: str, path: str) -> str | None:
        """Have no report of it."""
        return None

    def champion_number(self) -> str:
        """Name the champion of now."""
        return self.champion

    def record(self, number: str, ruling: str, verdict: str) -> None:
        """Note that a verdict was recorded."""
        self.done.append(f"{number} {ruling}")

    def promote(self, number: str, *, over: str) -> None:
        """Note that a version was promoted."""
        assert over == self.champion
        self.done.append(f"{number} champion")


@pytest.mark.parametrize(("now", "done"), [("6", ["7 promote", "7 champion"]), ("8", [])], ids=["the same", "another"])
def test_a_challenger_is_promoted_only_over_the_champion_that_it_was_tried_against(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: str, done: list[str]
) -> None:
    """Who lost its lease, or was overtaken by a person, undoes nobody's promotion."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(routing_job, "_problems", lambda *_: [])
    shelf, rules = Shelf(now), Rules(least_test=1, off_policy=Weight.SKIPPED)
    trial = golden_trial([Row(f"text {number}", "explanation") for number in range(20)], {"explanation": "explainer"})
    better = hold(trial, ["gap_analyzer"] * 20, ["explainer"] * 20)
    order = Order("sqlite:///mlflow.db", "sqlite:///pointsman.db", rules, 0.02)
    champion, challenger = (RegisteredVersion(number, tmp_path) for number in "67")
    case = Case(order, catalog, shelf, champion, [], [], labelled_only([]), frozenset(), {})  # type: ignore[arg-type]  # a stand-in

    if done:
        assert hear(case, challenger, {}, better, None).verdict.ruling is Ruling.PROMOTE  # type: ignore[arg-type]  # not looked at
    else:
        with pytest.raises(NotDone, match="version 8 became champion"):
            hear(case, challenger, {}, better, None)  # type: ignore[arg-type]  # not looked at
    assert shelf.done == done
