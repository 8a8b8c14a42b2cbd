"""The requests to make a signature better, as the job sees that carries them out: taken one by one under a lease, and ended. Blocking."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self
from uuid import UUID

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, select

from service.adapters import job_lease
from service.adapters.job_lease import Lease, LeaseLost, alone
from service.adapters.optimization_requests import end, give_up, next_of, request_from
from service.adapters.sql_engine import normalise, open_engine, unusable
from service.adapters.sql_tables import Optimization
from service.contracts.optimization import MOST_ATTEMPTS, OptimizationRequest, RequestStatus, Ruling
from service.errors import StoreUnavailable

LOCK_SECONDS = 30.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class OptimizationJobs:
    """The requests and leases in the application's database. Used as a context manager. Every method can raise `StoreUnavailable`.

    Args:
        url: the address of `POINTSMAN_DATABASE_URL`.
        now: the clock.
    """

    def __init__(self, url: str, now: Callable[[], datetime] = _utc_now) -> None:
        self._url = normalise(url)
        self._engine: Engine | None = None
        self.now = now

    def __enter__(self) -> Self:
        """Connect, and create or migrate the schema where needed."""
        with _translated():
            self._engine = open_engine(self._url, LOCK_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        if self._engine is not None:
            self._engine.dispose()

    def take(self, name: str, holder: str, is_gone: Callable[[str], bool] = lambda _: False) -> Lease:
        """Take the lease on a job, or raise `LeaseTaken`; `is_gone` says of a holder whether it has died."""
        with self._alone() as session:
            return job_lease.take(session, name, holder, self.now(), is_gone)

    def renew(self, lease: Lease) -> None:
        """Let the lease end later, or raise `LeaseLost`."""
        with self._alone() as session:
            job_lease.renew(session, lease, self.now())

    def release(self, lease: Lease) -> None:
        """Give the lease back; a request that was taken under it and has not ended waits again, and that attempt does not count."""
        with self._alone() as session:
            job_lease.release(session, lease)
            for row in session.exec(select(Optimization).where(Optimization.lease == lease.token)).all():
                row.status, row.lease, row.attempts = RequestStatus.PENDING.value, None, row.attempts - 1

    def claim(self, lease: Lease, before: datetime) -> OptimizationRequest | None:
        """Take the request whose turn it is, of those that were asked for and last tried before an instant; None: there is none.

        Of equal priority the oldest comes first. One that was taken for the last time it may be, and did not end, has failed.

        Raises:
            LeaseLost: the lease has ended.
        """
        with self._alone() as session:
            now = self.now()
            job_lease.require(session, lease, now)
            give_up(session, now)
            row = next_of(session, now, before)
            if row is None:
                return None
            row.status, row.lease, row.started_at, row.attempts = RequestStatus.RUNNING.value, lease.token, now, row.attempts + 1
            return request_from(row, waiting=False)

    def finish(self, lease: Lease, request_id: UUID, router_version: str, ruling: Ruling, reason: str) -> OptimizationRequest:
        """Write down which version came of a request, and what the court made of it.

        Raises:
            LeaseLost: the request was taken by somebody else meanwhile.
        """
        with self._alone() as session:
            row = _taken(session, lease, request_id)
            row.router_version, row.ruling = router_version, ruling.value
            end(row, RequestStatus.DONE, reason, self.now())
            return request_from(row, waiting=False)

    def fail(self, lease: Lease, request_id: UUID, reason: str, *, for_good: bool) -> OptimizationRequest:
        """Write down why an attempt failed. The request waits for the next one, unless it has had all, or this is `for_good`.

        Raises:
            LeaseLost: the request was taken by somebody else meanwhile.
        """
        with self._alone() as session:
            row = _taken(session, lease, request_id)
            if for_good or row.attempts >= MOST_ATTEMPTS:
                end(row, RequestStatus.FAILED, reason, self.now())
            else:
                row.status, row.reason, row.lease = RequestStatus.PENDING.value, reason, None
            return request_from(row, waiting=False)

    @contextmanager
    def _alone(self) -> Iterator[Session]:
        if self._engine is None:
            raise StoreUnavailable("The store is not open.")
        with _translated(), alone(self._engine) as session:
            yield session


def _taken(session: Session, lease: Lease, request_id: UUID) -> Optimization:
    row = session.get(Optimization, str(request_id))
    if row is None or row.status != RequestStatus.RUNNING.value or row.lease != lease.token:
        raise LeaseLost(f"The request {request_id} was taken by somebody else while this job was at it.")
    return row


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as exc:
        raise unusable(exc) from exc
