"""Leases for jobs that only one may do at a time. A lease ends by itself, so a job that was killed holds nobody up for long.

Everything is done in a transaction that `alone` opens: then nobody else changes leases or requests. Time is that of the caller's clock; the
clocks of machines that share a database may differ by much less than `LEASE_SECONDS`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlmodel import Session

from service.adapters.sql_engine import writer
from service.adapters.sql_tables import JobLease

LEASE_SECONDS = 60.0
LOST = "The lease on this job has ended: for a minute it could not be renewed. Somebody else may be at it by now."
LOCK_KEY = 7_464_901_154  # any number but that of the migrations, and the same in every process


@dataclass(frozen=True, slots=True)
class Lease:
    """A job that is one's own as long as the lease is renewed."""

    name: str
    token: str


class LeaseTaken(Exception):
    """Somebody else does the job. The message says who."""


class LeaseLost(Exception):
    """The lease has ended, and somebody else may do the job by now."""


@contextmanager
def alone(engine: Engine) -> Iterator[Session]:
    """Open a transaction that writes, which no other one of these runs beside; others are committed before or wait."""
    with Session(writer(engine)) as session, session.begin():
        if engine.dialect.name == "postgresql":
            session.connection().execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
        # SQLite needs no lock of ours: the transaction begins with BEGIN IMMEDIATE.
        yield session


def take(session: Session, name: str, holder: str, now: datetime, is_gone: Callable[[str], bool] = lambda _: False) -> Lease:
    """Take a lease; `holder` says who, for people. A holder that is gone has it no longer.

    Raises:
        LeaseTaken: somebody has it, and it has not ended.
    """
    row = session.get(JobLease, name)
    if row is not None and row.expires_at > now and not is_gone(row.holder):
        raise LeaseTaken(
            f"{row.holder} has been at it since {row.taken_at:%Y-%m-%d %H:%M:%S} UTC. Run this again when that has ended; "
            f"if it was killed, at {row.expires_at:%H:%M:%S} UTC."
        )
    lease = Lease(name, str(uuid4()))
    until = now + timedelta(seconds=LEASE_SECONDS)
    session.merge(JobLease(name=name, token=lease.token, holder=holder, taken_at=now, expires_at=until))
    return lease


def renew(session: Session, lease: Lease, now: datetime) -> None:
    """Let a lease end later, also one that has ended if nobody has taken it since.

    Raises:
        LeaseLost: somebody else has it.
    """
    row = session.get(JobLease, lease.name)
    if row is None or row.token != lease.token:
        raise LeaseLost(LOST)
    row.expires_at = now + timedelta(seconds=LEASE_SECONDS)


def release(session: Session, lease: Lease) -> None:
    """Give a lease back; nothing happens where it is lost."""
    row = session.get(JobLease, lease.name)
    if row is not None and row.token == lease.token:
        session.delete(row)


def require(session: Session, lease: Lease, now: datetime) -> JobLease:
    """Return the row of a lease that is still held.

    Raises:
        LeaseLost: it has ended.
    """
    row = session.get(JobLease, lease.name)
    if row is None or row.token != lease.token or row.expires_at <= now:
        raise LeaseLost(LOST)
    return row
