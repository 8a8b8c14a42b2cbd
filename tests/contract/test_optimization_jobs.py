"""Carrying out: no request is taken twice, a killed job's is taken again, and who has lost its lease ends nothing. On each database."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.adapters.job_lease import LEASE_SECONDS, LeaseLost, LeaseTaken
from service.adapters.optimization_jobs import OptimizationJobs
from service.adapters.optimization_requests import KILLED, ask, find, listed
from service.adapters.signal_log import SignalLog
from service.adapters.sql_engine import normalise, open_engine
from service.adapters.sql_tables import ReceivedSignal
from service.contracts.optimization import MOST_ATTEMPTS, OptimizationRequest, RequestStatus, Ruling
from tests.contract.test_optimization_queue import a_wish

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
AGENTS = ("explainer", "gap_analyzer", "health_score", "drift_monitor")


class World:
    """A database, and a clock that a test turns."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.engine = open_engine(normalise(database), 3.0)
        self.now = START

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def wish(self, agent: str = "gap_analyzer", *, priority: str = "medium", signals: int = 0, first: int = 0) -> OptimizationRequest:
        """Ask for an optimization of the routing, a second after what came before."""
        self.later(1)
        return ask(self.engine, "acme", a_wish(agent=agent, priority=priority, signals=signals, first=first), self.now)

    def look(self, request: OptimizationRequest) -> OptimizationRequest:
        """Look at a request as its tenant does."""
        found = find(self.engine, "acme", request.request_id, self.now)
        assert found is not None
        return found

    def signals(self) -> int:
        """Return how many signals are kept."""
        with self.engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(ReceivedSignal)).scalar_one())


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """An empty database."""
    world = World(database)
    yield world
    world.engine.dispose()


@pytest.fixture
def jobs(world: World) -> Iterator[OptimizationJobs]:
    """A job by the world's clock."""
    with OptimizationJobs(world.database, now=lambda: world.now) as opened:
        yield opened


def test_the_most_wanted_is_taken_first_then_the_oldest(world: World, jobs: OptimizationJobs) -> None:
    """Each once, and then none is left."""
    wanted = {name: world.wish(name, priority=priority) for name, priority in zip(AGENTS, ("low", "medium", "high", "medium"), strict=True)}
    lease = jobs.take("optimize", "a")

    taken = [jobs.claim(lease, world.now) for _ in range(5)]

    assert [one and one.agent_name for one in taken] == ["health_score", "gap_analyzer", "drift_monitor", "explainer", None]
    assert taken[0] is not None
    assert (taken[0].status, taken[0].attempts, taken[0].started_at) == (RequestStatus.RUNNING, 1, world.now)
    assert world.look(wanted["explainer"]).status is RequestStatus.RUNNING


def test_what_was_made_of_a_request_is_told_and_its_signals_stay(world: World, jobs: OptimizationJobs) -> None:
    """The version, the ruling, the reason and when; what came with it teaches the jobs after it, too."""
    request = world.wish(signals=3)
    lease = jobs.take("optimize", "a")
    jobs.claim(lease, world.now)

    ended = jobs.finish(lease, request.request_id, "7", Ruling.REJECT, "Not proven to be better.")

    assert (world.signals(), ended.signals) == (3, 3)
    assert (ended.status, ended.router_version, ended.ruling, ended.reason) == (
        RequestStatus.DONE,
        "7",
        Ruling.REJECT,
        "Not proven to be better.",
    )
    assert ended.finished_at == world.now
    assert world.look(request) == ended
    assert jobs.claim(lease, world.now) is None


def test_a_signal_that_is_brought_again_says_what_was_said_last(world: World) -> None:
    """A tenant has each signal once, so that feedback that came meanwhile can be told."""
    world.wish(signals=1)
    wish = a_wish(agent="explainer", signals=1)
    corrected = wish.training_signals[0].model_copy(update={"corrected_agent": "health_score"})

    ask(world.engine, "acme", wish.model_copy(update={"training_signals": (corrected,)}), world.now)

    (batch,) = SignalLog(world.database).received()
    assert [row["corrected_agent"] for row in batch.to_pylist()] == ["health_score"]


def test_a_request_that_is_carried_out_is_joined_by_nobody(world: World, jobs: OptimizationJobs) -> None:
    """What is wished while the job reads its data needs another run."""
    first = world.wish()
    jobs.claim(jobs.take("optimize", "a"), world.now)

    second = world.wish()

    assert second.request_id != first.request_id
    assert [one.status for one in listed(world.engine, "acme", None, world.now)] == [RequestStatus.RUNNING, RequestStatus.PENDING]


def test_what_ended_is_listed_last_and_the_latest_of_it_first(world: World, jobs: OptimizationJobs) -> None:
    """By their state, too."""
    done = [world.wish(name) for name in AGENTS[:2]]
    lease = jobs.take("optimize", "a")
    for request in done:
        jobs.claim(lease, world.now)
        jobs.finish(lease, request.request_id, "7", Ruling.WAIT, "because")
        world.later(1)
    waiting = world.wish(priority="low")

    everything = listed(world.engine, "acme", None, world.now)

    assert [one.request_id for one in everything] == [waiting.request_id, done[1].request_id, done[0].request_id]
    assert [one.request_id for one in listed(world.engine, "acme", RequestStatus.DONE, world.now)] == [r.request_id for r in reversed(done)]
    assert listed(world.engine, "acme", RequestStatus.RUNNING, world.now) == []


def test_the_request_of_a_killed_job_is_taken_again(world: World, jobs: OptimizationJobs) -> None:
    """Once its lease has ended: until then nobody may, and from then on it waits, to be seen and joined."""
    request = world.wish()
    jobs.claim(jobs.take("optimize", "the killed one"), world.now)
    world.later(LEASE_SECONDS - 1)
    with pytest.raises(LeaseTaken, match="the killed one"):
        jobs.take("optimize", "b")
    assert world.look(request).status is RequestStatus.RUNNING
    world.later(1)

    assert world.look(request).status is RequestStatus.PENDING
    assert world.wish(priority="high").request_id == request.request_id
    again = jobs.claim(jobs.take("optimize", "b"), world.now)

    assert again is not None
    assert (again.request_id, again.attempts, again.priority.value) == (request.request_id, 2, "high")


def test_a_lease_that_is_renewed_does_not_end(world: World, jobs: OptimizationJobs) -> None:
    """As long as the job lives its request is its own."""
    request = world.wish()
    lease = jobs.take("optimize", "a")
    jobs.claim(lease, world.now)

    for _ in range(5):
        world.later(LEASE_SECONDS / 2)
        jobs.renew(lease)

    assert world.look(request).status is RequestStatus.RUNNING
    assert jobs.finish(lease, request.request_id, "7", Ruling.PROMOTE, "because").status is RequestStatus.DONE


def test_a_job_that_gives_its_lease_back_lets_the_next_one_begin_at_once(world: World, jobs: OptimizationJobs) -> None:
    """It was told to stop: its request waits again without delay."""
    request = world.wish()
    lease = jobs.take("optimize", "a")
    jobs.claim(lease, world.now)

    jobs.release(lease)

    assert world.look(request).status is RequestStatus.PENDING
    world.later(1)
    assert jobs.claim(jobs.take("optimize", "b"), world.now) is not None


def test_who_has_lost_its_lease_takes_and_ends_nothing(world: World, jobs: OptimizationJobs) -> None:
    """A job that slept too long cannot overwrite what the next one did, nor take its lease away."""
    request = world.wish()
    old = jobs.take("optimize", "a")
    jobs.claim(old, world.now)
    world.later(LEASE_SECONDS)
    new = jobs.take("optimize", "b")
    jobs.claim(new, world.now)

    for late in (
        lambda: jobs.renew(old),
        lambda: jobs.claim(old, world.now),
        lambda: jobs.finish(old, request.request_id, "6", Ruling.PROMOTE, "late"),
        lambda: jobs.fail(old, request.request_id, "late", for_good=True),
    ):
        with pytest.raises(LeaseLost):
            late()
    jobs.release(old)

    jobs.renew(new)
    assert jobs.finish(new, request.request_id, "7", Ruling.PROMOTE, "in time").router_version == "7"


def test_after_three_killed_jobs_a_request_has_failed(world: World, jobs: OptimizationJobs) -> None:
    """It says why, and the next one is taken in its place."""
    request = world.wish(priority="high")
    for _ in range(MOST_ATTEMPTS):
        jobs.claim(jobs.take("optimize", "a"), world.now)
        world.later(LEASE_SECONDS)
    other = world.wish("explainer", priority="low")

    taken = jobs.claim(jobs.take("optimize", "a"), world.now)

    assert taken is not None
    assert taken.request_id == other.request_id
    given_up = world.look(request)
    assert (given_up.status, given_up.reason, given_up.attempts) == (RequestStatus.FAILED, KILLED, MOST_ATTEMPTS)
    assert world.wish().request_id != request.request_id


def test_an_attempt_that_failed_is_made_again_by_the_next_run(world: World, jobs: OptimizationJobs) -> None:
    """Not by the same one, and not more than three times; the reason can be read meanwhile."""
    request, seen = world.wish(), []
    for number in range(MOST_ATTEMPTS):
        world.later(1)
        began = world.now
        lease = jobs.take("optimize", "a")
        world.later(1)
        jobs.claim(lease, began)
        jobs.fail(lease, request.request_id, f"reason {number}", for_good=False)
        seen.append((world.look(request).status.value, world.look(request).reason))
        assert jobs.claim(lease, began) is None
        jobs.release(lease)

    assert seen == [("pending", "reason 0"), ("pending", "reason 1"), ("failed", "reason 2")]
    assert world.look(request).finished_at == world.now


def test_what_cannot_succeed_fails_for_good_at_once(world: World, jobs: OptimizationJobs) -> None:
    """Without two more attempts."""
    request = world.wish()
    lease = jobs.take("optimize", "a")
    jobs.claim(lease, world.now)

    failed = jobs.fail(lease, request.request_id, "cannot be", for_good=True)

    assert (failed.status, failed.reason, failed.attempts) == (RequestStatus.FAILED, "cannot be", 1)


def test_what_is_asked_for_after_the_beginning_waits_for_the_next_run(world: World, jobs: OptimizationJobs) -> None:
    """So a run ends, however often somebody asks."""
    began = world.now
    lease = jobs.take("optimize", "a")
    world.wish()

    assert jobs.claim(lease, began) is None
    assert jobs.claim(lease, world.now) is not None


def test_two_processes_never_take_the_same_request(world: World) -> None:
    """Thirty times both take one at the same moment; each has a lease of its own, so that only the claim itself keeps them apart."""
    for number in range(60):
        ask(world.engine, f"tenant-{number}", a_wish(), START)
    taken = []

    with start(world.database, "a") as first, start(world.database, "b") as second:
        for _ in range(31):
            for process in (first, second):
                tell(process, "go")
            taken += [hear(process) for process in (first, second)]

    assert taken[60:] == ["none", "none"]
    assert len({*taken[:60]} - {"none"}) == 60


def start(database: str, name: str) -> "subprocess.Popen[str]":
    """Start this module as a program, and wait until it is ready."""
    command = [sys.executable, "-m", "tests.contract.test_optimization_jobs", database, name]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hear(process)
    return process


def tell(process: "subprocess.Popen[str]", word: str) -> None:
    """Write a line to a process."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def hear(process: "subprocess.Popen[str]") -> str:
    """Read a line from a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _take_when_told(database: str, name: str) -> None:
    """Take one request each time that a line says so, and print its id: the other process of the test above."""
    with OptimizationJobs(database) as jobs:
        lease = jobs.take(name, name)
        print("ready", flush=True)  # noqa: T201
        while sys.stdin.readline() == "go\n":
            request = jobs.claim(lease, jobs.now())
            print("none" if request is None else request.request_id, flush=True)  # noqa: T201


if __name__ == "__main__":
    _take_when_told(sys.argv[1], sys.argv[2])
