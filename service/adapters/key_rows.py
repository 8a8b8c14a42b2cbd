"""API keys and what was asked with them, as rows of the application's database. Blocking: for threads and commands."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from service.adapters.sql_engine import writer
from service.adapters.sql_tables import KeyUsage, StoredKey
from service.contracts.access import ApiKey

KEPT_DAYS = 40  # of what was asked


def read(engine: Engine) -> dict[str, ApiKey]:
    """Return all keys by their digests, also those that were revoked, the oldest first."""
    with Session(engine) as session:
        rows = session.exec(select(StoredKey).order_by(col(StoredKey.created_at), col(StoredKey.key_id))).all()
        return {row.digest: _key_from(row) for row in rows}


def add(engine: Engine, digest: str, key: ApiKey) -> None:
    """Keep a new key."""
    with Session(writer(engine)) as session, session.begin():
        session.add(StoredKey(digest=digest, **key.model_dump() | {"scopes": list(key.scopes)}))


def revoke(engine: Engine, key_id: str, now: datetime) -> ApiKey | None:
    """Revoke a key, once, and return it; None where there is no such key."""
    with Session(writer(engine)) as session, session.begin():
        row = session.get(StoredKey, key_id, with_for_update=True)
        if row is None:
            return None
        row.revoked_at = row.revoked_at or now
        return _key_from(row)


def usage(engine: Engine, day: date) -> dict[str, int]:
    """Return how many questions were asked in a day, by key."""
    with Session(engine) as session:
        return dict(session.exec(select(KeyUsage.key_id, KeyUsage.questions).where(KeyUsage.day == day)).all())


def count(engine: Engine, day: date, asked: Mapping[str, int]) -> dict[str, int]:
    """Add to what was asked in a day, and return what all processes have asked, by those keys; what is old is forgotten."""
    with writer(engine).begin() as connection:
        insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(KeyUsage)
        for key_id in sorted(asked):  # in one order, so that two processes never wait for each other
            more = {"questions": col(KeyUsage.questions) + asked[key_id]}
            row = insert.values(day=day, key_id=key_id, questions=asked[key_id])
            connection.execute(row.on_conflict_do_update(index_elements=["day", "key_id"], set_=more))
        connection.execute(sa.delete(KeyUsage).where(col(KeyUsage.day) < day - timedelta(days=KEPT_DAYS)))
        wanted = sa.select(col(KeyUsage.key_id), col(KeyUsage.questions)).where(
            col(KeyUsage.day) == day, col(KeyUsage.key_id).in_(list(asked))
        )
        return {key_id: questions for key_id, questions in connection.execute(wanted)}


def _key_from(row: StoredKey) -> ApiKey:
    return ApiKey.model_validate({name: getattr(row, name) for name in ApiKey.model_fields})
