"""What came of routers that are tried: counts of what a candidate read in the shadow, and what its and the champion's requests came to.

Blocking, for threads and other processes; several services add to the same counts.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col

from service.adapters.sql_engine import normalise, opened, writer
from service.adapters.sql_tables import Shadow, Signal
from service.contracts.decision import Rung
from service.contracts.signals import WEIGHTS
from service.programs import Tally
from service.routing.arms import Arm, Called


class RolloutLog:
    """The evidence on candidates in the application's database.

    Args:
        url: the address of `POINTSMAN_DATABASE_URL`.
    """

    def __init__(self, url: str) -> None:
        self._url = normalise(url)

    def add(self, tallies: Mapping[str, Tally]) -> None:
        """Add to what candidates read in the shadow, by version.

        Raises:
            StoreUnavailable: nothing was added.
        """
        with opened(self._url) as engine, writer(engine).begin() as connection:
            insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(Shadow)
            for version, tally in tallies.items():
                counts = {"requests": tally.requests, "differing": tally.differing, "failing": tally.failing}
                more = {name: getattr(Shadow, name) + value for name, value in counts.items()}
                connection.execute(insert.values(version=version, **counts).on_conflict_do_update(index_elements=["version"], set_=more))

    def seen(self, version: str) -> Tally:
        """Return what a candidate read in the shadow so far."""
        with opened(self._url) as engine, engine.connect() as connection:
            found = connection.execute(
                sa.select(col(Shadow.requests), col(Shadow.differing), col(Shadow.failing)).where(col(Shadow.version) == version)
            ).one_or_none()
        return Tally(*found) if found is not None else Tally()

    def arm(self, version: str, *, since: datetime, until: datetime | None = None) -> Arm:
        """Return what came of the requests that a version served in a time."""
        called = col(Signal.agents_succeeded) + col(Signal.agents_failed) > col(Signal.agents_unavailable)
        reward = sa.case((called, _reward_but_for_speed()))
        counted = (
            sa.func.count(),
            _count(col(Signal.rung) == Rung.SAFE_DEFAULT.value),
            _count(sa.and_(sa.not_(called), col(Signal.agents_unavailable) > 0)),
            _count(called),
            _count(sa.and_(called, col(Signal.agents_succeeded) == 0)),
            sa.func.count(reward),
            sa.func.coalesce(sa.func.sum(reward), 0.0),
            sa.func.coalesce(sa.func.sum(reward * reward), 0.0),
        )
        wanted = sa.select(col(Signal.intent), *counted).where(col(Signal.router_version) == version, col(Signal.created_at) >= since)
        if until is not None:
            wanted = wanted.where(col(Signal.created_at) < until)
        with opened(self._url) as engine, engine.connect() as connection:
            found = connection.execute(wanted.group_by(col(Signal.intent))).all()
        requests, fallbacks, unavailable = (sum(row[i] for row in found) for i in (1, 2, 3))
        return Arm(requests, fallbacks, unavailable, {row[0] or "": Called(*row[4:]) for row in found})


def _reward_but_for_speed() -> sa.ColumnElement[Any]:
    """Return `RoutingTrainingSignal.compute_reward`, from 0 to 1, without its part of efficiency, where an agent was called; else NULL.

    How fast agents are at an hour of the day is no doing of a router's.
    """
    succeeded, available = (
        col(Signal.agents_succeeded),
        sa.func.json_array_length(col(Signal.agents_selected)) - col(Signal.agents_unavailable),
    )
    accuracy = sa.case((succeeded >= available, 1.0), else_=succeeded * 1.0 / sa.func.nullif(available, 0))
    parts: list[tuple[float, sa.ColumnElement[bool], sa.ColumnElement[Any]]] = [
        (WEIGHTS["routing_accuracy"], available > 0, accuracy),
        (WEIGHTS["no_rerouting"], col(Signal.was_rerouted).is_not(None), sa.case((col(Signal.was_rerouted).is_(True), 0.0), else_=1.0)),
        (WEIGHTS["user_satisfaction"], col(Signal.user_satisfaction).is_not(None), (col(Signal.user_satisfaction) - 1.0) / 4.0),
    ]
    earned = sum((sa.case((known, weight * value), else_=0.0) for weight, known, value in parts), sa.literal(0.0))
    weights = sum((sa.case((known, weight), else_=0.0) for weight, known, _ in parts), sa.literal(0.0))
    return sa.cast(earned / sa.func.nullif(weights, 0.0), sa.Float)


def _count(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(sa.case((condition, 1), else_=0)), 0)
