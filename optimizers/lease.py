"""Only one `optimize` works at a time on a database: the lease on it, renewed by a thread as long as the job lives.

It keeps two jobs from doing the same work: one that has lost its lease ends. That none promotes against a champion that is no more is
checked where it is promoted.
"""

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.adapters.job_lease import LEASE_SECONDS, Lease, LeaseLost
from service.adapters.optimization_jobs import OptimizationJobs
from service.errors import StoreUnavailable

JOB = "optimize"
HOLDER = re.compile(r" on (?P<place>.+) \(process (?P<process>\d+)\)$")
RENEW_SECONDS = LEASE_SECONDS / 4


def end_this_process() -> None:
    """End the job as SIGTERM does: what it holds is given back."""
    sys.stderr.write("The lease on this job is lost: for a minute it could not be renewed, and another job has taken it. This one ends.\n")
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def held(jobs: OptimizationJobs, what: str, every: float = RENEW_SECONDS, lost: Callable[[], None] = end_this_process) -> Iterator[Lease]:
    """Hold the lease while the block runs; `what` tells people who has it, and it is renewed `every` so many seconds.

    `lost` is called, in a thread, when another job has taken it, as it could not be renewed in time.

    A job of this machine that was killed holds nobody up: its process is gone.

    Raises:
        LeaseTaken: another job is at work.
    """
    lease = jobs.take(JOB, f"`{what}` on {_place()} (process {os.getpid()})", is_gone)
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(jobs, lease, stop, every, lost), name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        stop.set()
        thread.join()
        with suppress(StoreUnavailable):  # then it ends by itself
            jobs.release(lease)


def is_gone(holder: str) -> bool:
    """Say whether a holder is a process of this machine that no longer runs; of other machines nobody here can tell."""
    found = HOLDER.search(holder)
    if found is None or found["place"] != _place():
        return False
    try:
        os.kill(int(found["process"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _place() -> str:
    """Return the name of this machine, with that of the process namespace, where the system has any: containers number anew."""
    with suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]  # two may have one name, and namespaces are numbered alike
        return f"{socket.gethostname()}/{machine}/{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    return socket.gethostname()


def _renew(jobs: OptimizationJobs, lease: Lease, stop: threading.Event, every: float, lost: Callable[[], None]) -> None:
    while not stop.wait(every):
        try:
            jobs.renew(lease)
        except StoreUnavailable:
            continue  # where nobody can ask for it, nobody else takes it
        except LeaseLost:
            lost()
            return
