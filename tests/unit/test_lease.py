"""Who holds the lease: a process of this machine that is gone holds nobody up, and nobody else is taken for gone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizers.lease import _place, held, is_gone
from service.adapters.job_lease import Lease, LeaseLost, LeaseTaken
from service.adapters.optimization_jobs import OptimizationJobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[OptimizationJobs]:
    """The jobs of an empty store."""
    with OptimizationJobs(f"sqlite:///{tmp_path}/store.db") as jobs:
        yield jobs


def test_a_job_that_was_killed_holds_nobody_up(jobs: OptimizationJobs, tmp_path: Path) -> None:
    """Its lease has a minute left, and its process is gone."""
    code = (
        "import os, signal; from optimizers.lease import held; from service.adapters.optimization_jobs import OptimizationJobs\n"
        f"with OptimizationJobs('sqlite:///{tmp_path}/store.db') as jobs, held(jobs, 'optimize'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)

    assert killed.returncode < 0
    with held(jobs, "optimize again") as lease:
        assert lease.name == "optimize"


def test_a_job_that_is_at_it_is_not_disturbed(jobs: OptimizationJobs) -> None:
    """The second is told who is at it."""
    with held(jobs, "the first"), pytest.raises(LeaseTaken, match="the first"), held(jobs, "the second"):
        pass


@pytest.mark.parametrize(
    "holder",
    [
        f"`optimize` on {socket.gethostname()}/4026530000 (process 999999999)",
        "`optimize` on another-machine/4026531836 (process 999999999)",
        "somebody",
    ],
    ids=["another container", "another machine", "no process"],
)
def test_of_others_nobody_here_can_tell(holder: str) -> None:
    """So they are taken to be at it."""
    assert not is_gone(holder)


def test_this_process_is_not_gone(jobs: OptimizationJobs) -> None:
    """As it is written down."""
    assert not is_gone(f"`optimize` on {_place()} (process {os.getpid()})")
    assert is_gone(f"`optimize` on {_place()} (process 999999999)")


class Stumbling(OptimizationJobs):
    """Jobs whose lease another one has taken."""

    def renew(self, lease: Lease) -> None:
        """Raise."""
        raise LeaseLost("It has ended.")


def test_a_job_that_has_lost_its_lease_is_told(tmp_path: Path) -> None:
    """Before it could promote what another one works on."""
    lost = threading.Event()
    with Stumbling(f"sqlite:///{tmp_path}/store.db") as jobs, held(jobs, "optimize", every=0.01, lost=lost.set):
        assert lost.wait(10)


def test_a_lease_that_nobody_has_taken_is_renewed_however_late(jobs: OptimizationJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop that slept, a database that was locked: hours of work are not thrown away for it."""
    monkeypatch.setattr("service.adapters.job_lease.LEASE_SECONDS", 0.01)
    lease = jobs.take("optimize", "the first")
    time.sleep(0.05)
    monkeypatch.undo()

    jobs.renew(lease)

    with pytest.raises(LeaseTaken, match="the first"):
        jobs.take("optimize", "the second")


def test_a_job_that_has_lost_its_lease_ends(tmp_path: Path) -> None:
    """As by SIGTERM, with a sentence."""
    code = (
        "import time; from optimizers.lease import held; from tests.unit.test_lease import Stumbling\n"
        f"with Stumbling('sqlite:///{tmp_path}/store.db') as jobs, held(jobs, 'optimize', every=0.01): time.sleep(60)"
    )

    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True)

    assert ended.returncode == -signal.SIGTERM
    assert "The lease on this job is lost" in ended.stderr
