"""The signals for offline jobs: read in a stream as Arrow record batches, deleted by session or user, and pruned by age. Blocking.

There are those of the decisions made here, and those that were received with requests to optimize; what is deleted of a person or pruned
goes from both. A running service goes on meanwhile: reading holds no lock, and what is deleted goes in small transactions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from service.adapters.sql_engine import normalise, open_engine, require_there, unusable, writer
from service.adapters.sql_tables import Decision, ReceivedSignal, Signal
from service.contracts.signals import RoutingTrainingSignal

if TYPE_CHECKING:
    import pyarrow as pa

LOCK_SECONDS = 30.0
ROWS = 50_000  # of a record batch
RECEIVED_ROWS = 5_000
DELETED_AT_ONCE = 500  # in one transaction, so that the service's commits need not wait for long
TEXTS = ("signal_id", "decision_id", "tenant", "user_id", "session_id", "query", "asked", "intent", "caller_intent", "corrected_agent")
NAMES = ("rung", "router_version", "alternative")
LISTS = ("agents_selected", "further_intents")
COUNTS = ("agents_succeeded", "agents_failed", "agents_unavailable")
NUMBERS = ("routing_confidence", "propensity", "total_latency_ms", "latency_budget_ms", "user_satisfaction", "answer_quality", "reward")
FLAGS = ("was_rerouted", "from_history")
COLUMNS = ("created_at", *TEXTS, *NAMES, *LISTS, *COUNTS, *NUMBERS, *FLAGS)


def schema() -> "pa.Schema":
    """Return the columns of the record batches; `docs/learning.md` says what each means."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {"created_at": pa.timestamp("us", tz="UTC")}
    types |= dict.fromkeys(TEXTS, pa.string()) | dict.fromkeys(NAMES, pa.string()) | dict.fromkeys(LISTS, pa.list_(pa.string()))
    types |= dict.fromkeys(COUNTS, pa.int32()) | dict.fromkeys(NUMBERS, pa.float64()) | dict.fromkeys(FLAGS, pa.bool_())
    return pa.schema([(name, types[name]) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many decisions with their signals are gone, and how many signals that came with requests to optimize."""

    decisions: int
    received: int


class SignalLog:
    """The signals in the application's database.

    Args:
        url: the address of `POINTSMAN_DATABASE_URL`.
    """

    def __init__(self, url: str) -> None:
        self._url = normalise(url)

    def batches(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> Iterator["pa.RecordBatch"]:
        """Yield the signals of the decisions made from `since` on and before `until`, or some columns of them, oldest first.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        import pyarrow as pa

        wanted = sa.select(*(col(getattr(Signal, name)) for name in columns)).order_by(col(Signal.created_at), col(Signal.signal_id))
        for condition in _conditions(since=since, until=until, tenant=tenant):
            wanted = wanted.where(condition)
        layout = pa.schema([schema().field(name) for name in columns])
        with self._opened() as engine, engine.connect() as connection:
            rows = connection.execution_options(yield_per=ROWS).execute(wanted)
            for part in rows.partitions():
                values = zip(*part, strict=True)
                yield pa.record_batch([pa.array(of, f.type) for of, f in zip(values, layout, strict=True)], schema=layout)

    def received(self, *, since: datetime | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield the signals that were received from an instant on, with the columns of `batches`, oldest first.

        Nobody says when they were made: they count as made when they were received. Those of decisions made here are left out.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        import pyarrow as pa

        own = sa.exists().where(col(Signal.signal_id) == col(ReceivedSignal.signal_id), col(Signal.tenant) == col(ReceivedSignal.tenant))
        wanted = select(ReceivedSignal).where(~own).order_by(col(ReceivedSignal.received_at), col(ReceivedSignal.signal_id))
        if since is not None:
            wanted = wanted.where(ReceivedSignal.received_at >= since)
        layout = schema()
        with self._opened() as engine, Session(engine) as session:
            for part in session.exec(wanted, execution_options={"yield_per": RECEIVED_ROWS}).partitions():
                yield pa.RecordBatch.from_pylist([_as_logged(row) for row in part], schema=layout)

    def count(self) -> int:
        """Return how many signals there are."""
        with self._opened() as engine, engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(Signal)).scalar_one())

    def delete(self, *, tenant: str, session_id: str | None = None, user_id: str | None = None) -> Deleted:
        """Delete what is stored of a tenant's session or user, receipts and signals alike.

        Received signals say no user: those of the user's sessions go.

        Raises:
            ValueError: neither or both are given.
        """
        if (session_id is None) == (user_id is None):
            raise ValueError("give either a session or a user")
        column, value = (Signal.user_id, user_id) if session_id is None else (Signal.session_id, session_id)
        conditions = [col(Signal.tenant) == tenant, col(column) == value]
        sessions = sa.select(col(Signal.session_id)).where(*conditions).distinct()
        own = col(ReceivedSignal.session_id).in_(sessions) if session_id is None else col(ReceivedSignal.session_id) == session_id
        received = self._delete_received(col(ReceivedSignal.tenant) == tenant, own)
        return Deleted(self._delete(conditions), received)

    def prune(self, before: datetime) -> Deleted:
        """Delete the receipts and signals of decisions made before an instant, and signals received before."""
        received = self._delete_received(col(ReceivedSignal.received_at) < before)
        return Deleted(self._delete(_conditions(until=before)), received)

    def _delete_received(self, *conditions: sa.ColumnElement[bool]) -> int:
        with self._opened() as engine, writer(engine).begin() as connection:
            return connection.execute(sa.delete(ReceivedSignal).where(*conditions)).rowcount

    def _delete(self, conditions: Sequence[sa.ColumnElement[bool]]) -> int:
        gone = 0
        with self._opened() as engine:
            while True:
                with writer(engine).begin() as connection:
                    some = _delete_some(connection, conditions)
                gone += some
                if some == 0:
                    return gone

    @contextmanager
    def _opened(self) -> Iterator[Engine]:
        require_there(self._url)
        try:
            engine = open_engine(self._url, LOCK_SECONDS)
            try:
                yield engine
            finally:
                engine.dispose()
        except SQLAlchemyError as exc:
            raise unusable(exc) from exc


def _as_logged(row: ReceivedSignal) -> dict[str, object]:
    """Return a signal that was received as a row of the log; which user and which decision it was of, nobody said."""
    signal = RoutingTrainingSignal.model_validate(row.signal)
    about = {"tenant": row.tenant, "user_id": "", "decision_id": "", "created_at": row.received_at, "reward": signal.compute_reward()}
    return signal.model_dump(mode="json") | about


def _conditions(*, since: datetime | None = None, until: datetime | None = None, tenant: str | None = None) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if since is not None:
        found.append(col(Signal.created_at) >= since)
    if until is not None:
        found.append(col(Signal.created_at) < until)
    if tenant is not None:
        found.append(col(Signal.tenant) == tenant)
    return found


def _delete_some(connection: Connection, conditions: Sequence[sa.ColumnElement[bool]]) -> int:
    wanted = sa.select(col(Signal.decision_id)).where(*conditions).limit(DELETED_AT_ONCE)
    ids = list(connection.execute(wanted).scalars())
    if ids:
        connection.execute(sa.delete(Signal).where(col(Signal.decision_id).in_(ids)))
        connection.execute(sa.delete(Decision).where(col(Decision.decision_id).in_(ids)))
    return len(ids)
