"""The requests to make a signature better, as callers see them: asked for, listed, found. How they are carried out is `optimization_jobs`.

A request waits while it is pending, and also while it counts as running under a lease that has ended: its job was killed. Equal wishes join
the request that waits, so that a caller in a loop does not fill the table.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from service.adapters.job_lease import alone
from service.adapters.sql_tables import JobLease, Optimization, ReceivedSignal
from service.contracts.optimization import (
    MOST_ATTEMPTS,
    MOST_SIGNALS,
    OptimizationRequest,
    OptimizationWish,
    Priority,
    RequestStatus,
)

MOST_LISTED = 100
KILLED = "The job was killed each time."
RANKS: Mapping[Priority, int] = {priority: rank for rank, priority in enumerate(Priority)}
SAME = ("request_id", "tenant", "agent_name", "signature_name", "asked", "signals", "signals_left_out", "created_at", "attempts")
ENDED = ("started_at", "router_version", "ruling", "reason", "finished_at")


def ask(engine: Engine, tenant: str, wish: OptimizationWish, now: datetime) -> OptimizationRequest:
    """Keep a wish, or join it to the equal one that waits: the higher priority counts, and new signals are added as far as they fit."""
    with alone(engine) as session:
        give_up(session, now)
        equal = (
            Optimization.tenant == tenant,
            Optimization.agent_name == wish.agent_name,
            Optimization.signature_name == wish.signature_name.value,
        )
        row = session.exec(select(Optimization).where(*equal, waits(now)).order_by(*_in_turn())).first()
        if row is None:
            row = _new(tenant, wish, now)
            session.add(row)
            session.flush()
        else:
            row.asked += 1
            row.priority = max(row.priority, RANKS[wish.priority])
        _add_signals(session, row, wish, now)
        return request_from(row, waiting=True)


def listed(engine: Engine, tenant: str, status: RequestStatus | None, now: datetime) -> list[OptimizationRequest]:
    """Return the first hundred of a tenant's requests: those that have not ended in the order of their turn, then the latest that have."""
    waiting = waits(now)
    statement = select(Optimization, waiting.label("waiting")).where(Optimization.tenant == tenant)
    if status is RequestStatus.PENDING:
        statement = statement.where(waiting)
    elif status is not None:
        statement = statement.where(Optimization.status == status.value, sa.not_(waiting))
    ended = col(Optimization.finished_at).is_not(None)
    turn = [sa.case((ended, None), else_=key) for key in (sa.case((waiting, 1), else_=0), -col(Optimization.priority))]
    since = sa.case((ended, None), else_=col(Optimization.created_at))
    order = (ended, *turn, since, col(Optimization.finished_at).desc(), col(Optimization.request_id))
    with Session(engine) as session:
        rows = session.exec(statement.order_by(*order).limit(MOST_LISTED)).all()
        return [request_from(row, waiting=is_waiting) for row, is_waiting in rows]


def find(engine: Engine, tenant: str, request_id: UUID, now: datetime) -> OptimizationRequest | None:
    """Return one of a tenant's requests, or None."""
    statement = select(Optimization, waits(now).label("waiting"))
    with Session(engine) as session:
        found = session.exec(statement.where(Optimization.tenant == tenant, Optimization.request_id == str(request_id))).first()
        return None if found is None else request_from(found[0], waiting=found[1])


def waits(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition of requests that wait for their turn."""
    orphaned = (col(Optimization.status) == RequestStatus.RUNNING.value) & ~_held(now) & (col(Optimization.attempts) < MOST_ATTEMPTS)
    return (col(Optimization.status) == RequestStatus.PENDING.value) | orphaned


def next_of(session: Session, now: datetime, before: datetime) -> Optimization | None:
    """Return the request whose turn it is, of those that were asked for and last tried before an instant."""
    untried = col(Optimization.started_at).is_(None) | (col(Optimization.started_at) < before)
    wanted = select(Optimization).where(waits(now), Optimization.created_at <= before, untried)
    return session.exec(wanted.order_by(*_in_turn())).first()


def give_up(session: Session, now: datetime) -> None:
    """Let requests fail whose job was killed at the last attempt that they had."""
    killed = (col(Optimization.status) == RequestStatus.RUNNING.value) & ~_held(now) & (col(Optimization.attempts) >= MOST_ATTEMPTS)
    for row in session.exec(select(Optimization).where(killed)).all():
        end(row, RequestStatus.FAILED, KILLED, now)


def end(row: Optimization, status: RequestStatus, reason: str, now: datetime) -> None:
    """Let a request end."""
    row.status, row.reason, row.finished_at, row.lease = status.value, reason, now, None


def request_from(row: Optimization, *, waiting: bool) -> OptimizationRequest:
    """Return the request that a row holds."""
    values = {name: getattr(row, name) for name in SAME + ENDED}
    status = RequestStatus.PENDING if waiting else RequestStatus(row.status)
    return OptimizationRequest.model_validate({**values, "priority": list(Priority)[row.priority], "status": status})


def _held(now: datetime) -> sa.ColumnElement[bool]:
    return sa.exists().where(col(JobLease.token) == col(Optimization.lease), col(JobLease.expires_at) > now)


def _in_turn() -> tuple[sa.UnaryExpression[int], sa.UnaryExpression[datetime], sa.UnaryExpression[str]]:
    return col(Optimization.priority).desc(), col(Optimization.created_at).asc(), col(Optimization.request_id).asc()


def _new(tenant: str, wish: OptimizationWish, now: datetime) -> Optimization:
    return Optimization(
        request_id=str(uuid4()),
        tenant=tenant,
        agent_name=wish.agent_name,
        signature_name=wish.signature_name.value,
        priority=RANKS[wish.priority],
        status=RequestStatus.PENDING.value,
        asked=1,
        signals=0,
        signals_left_out=0,
        created_at=now,
        attempts=0,
        **dict.fromkeys((*ENDED, "lease")),
    )


def _add_signals(session: Session, row: Optimization, wish: OptimizationWish, now: datetime) -> None:
    """Keep the signals that the tenant has not brought before, as far as they fit; of the others what is said now counts."""
    brought = {str(signal.signal_id): signal for signal in wish.training_signals}
    known = session.exec(
        select(ReceivedSignal).where(ReceivedSignal.tenant == row.tenant, col(ReceivedSignal.signal_id).in_(brought))
    ).all()
    for earlier in known:
        signal = brought.pop(earlier.signal_id)
        earlier.session_id, earlier.signal, earlier.received_at = signal.session_id, signal.model_dump(mode="json"), now
    kept = list(brought.values())[: MOST_SIGNALS - row.signals]
    session.add_all(
        ReceivedSignal(
            tenant=row.tenant,
            signal_id=str(signal.signal_id),
            request_id=row.request_id,
            session_id=signal.session_id,
            received_at=now,
            signal=signal.model_dump(mode="json"),
        )
        for signal in kept
    )
    row.signals += len(kept)
    row.signals_left_out += len(brought) - len(kept)
