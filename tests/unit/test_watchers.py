"""Who watches over several worker processes hears at once that one has died."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from socket import socket

import pytest
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import SIGNALS, Process

from service.workers import Watchers

PATIENCE = 600


class Dying(Process):
    """A worker that dies when it is asked for a sign of life."""

    def target(self, sockets: list[socket] | None = None) -> None:
        """Wait until asked."""
        self.child_conn.recv()
        os._exit(STARTUP_FAILURE)


class Serving(Process):
    """A worker that says that it serves, whenever it is asked."""

    def target(self, sockets: list[socket] | None = None) -> None:
        """Answer until nobody asks any more."""
        with suppress(EOFError):
            while self.child_conn.recv():
                self.child_conn.send(True)


@pytest.fixture
def _own_signals() -> Iterator[None]:
    """Watchers take all signals of a process."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_a_worker_that_dies_before_its_sign_of_life_is_not_waited_for() -> None:
    """Its start has failed, so all ends; meanwhile signals would not be heeded. Waiting in vain would take ten minutes."""
    config = uvicorn.Config("nothing:app", timeout_worker_healthcheck=PATIENCE)
    watchers, worker = Watchers(config, sockets=[]), Dying(config, [])
    worker.start()
    watchers.processes.append(worker)

    watchers.keep_subprocess_alive()

    assert (worker.exitcode, watchers.should_exit.is_set(), watchers.cannot_start) == (STARTUP_FAILURE, True, True)


@pytest.mark.usefixtures("_own_signals")
def test_a_worker_that_cannot_be_replaced_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again at once, then after a while, and at last serves."""
    config = uvicorn.Config("nothing:app", timeout_worker_healthcheck=PATIENCE)
    watchers = Watchers(config, sockets=[])
    watchers.processes += [Dying(config, []), Serving(config, [])]
    for one in watchers.processes:
        one.start()
    first, other = watchers.processes

    monkeypatch.setattr("service.workers.Process", Dying)
    watchers.keep_subprocess_alive()
    second = watchers.processes[0]
    for _ in range(3):
        watchers.keep_subprocess_alive()
    waited = watchers.processes[0]
    monkeypatch.setattr("service.workers.Process", Serving)
    monkeypatch.setattr("service.workers.time.monotonic", lambda: float("inf"))
    watchers.keep_subprocess_alive()
    watchers.keep_subprocess_alive()

    assert not watchers.should_exit.is_set()
    assert second is waited is not first
    assert (second.exitcode, other.exitcode, watchers.processes[1]) == (STARTUP_FAILURE, None, other)
    assert watchers.processes[0].is_ready()
    for one in watchers.processes:
        one.kill()


@pytest.mark.usefixtures("_own_signals")
def test_nobody_is_replaced_once_all_are_told_to_end() -> None:
    """A worker that has ended already stays so."""
    config = uvicorn.Config("nothing:app", timeout_worker_healthcheck=PATIENCE)
    watchers, worker = Watchers(config, sockets=[]), Dying(config, [])
    worker.start()
    watchers.processes.append(worker)
    worker.kill()
    worker.join()

    watchers.should_exit.set()
    watchers.keep_subprocess_alive()

    assert watchers.processes == [worker]
    assert not watchers.cannot_start
