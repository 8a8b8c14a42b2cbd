"""Who holds the lease: a process of this machine that is gone holds nobody up, and nobody else is taken for gone."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizers.lease import _place, held, is_gone
from service.adapters.job_lease import LeaseTaken
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
