"""Who watches over several worker processes hears at once that one has died."""

import os
import signal
from collections.abc import Iterator
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

    assert (worker.exitcode, watchers.should_exit.is_set()) == (STARTUP_FAILURE, True)
