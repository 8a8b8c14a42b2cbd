"""What the student answers alone, by router version, intent and day: the counts of all services together, and what it gave back.

Blocking, for threads and other processes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col

from service.adapters.sql_engine import normalise, opened, writer
from service.adapters.sql_tables import Region, RegionGivenBack
from service.routing.regions import RegionTally

_COUNTED = tuple(asdict(RegionTally()))


class RegionLog:
    """The regions in the application's database. Every method can raise `StoreUnavailable`; then nothing was changed.

    Args:
        url: the address of `POINTSMAN_DATABASE_URL`.
    """

    def __init__(self, url: str) -> None:
        self._url = normalise(url)

    def add(self, tallies: Mapping[tuple[str, str, date], RegionTally]) -> None:
        """Add to the counts, by version, intent and day."""
        with opened(self._url) as engine, writer(engine).begin() as connection:
            insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(Region)
            for (version, intent, day), tally in tallies.items():
                counts = asdict(tally)
                more = {name: getattr(Region, name) + value for name, value in counts.items()}
                values = insert.values(version=version, intent=intent, day=day, **counts)
                connection.execute(values.on_conflict_do_update(index_elements=["version", "intent", "day"], set_=more))

    def tallies(self, version: str, *, since: date | None = None) -> dict[str, RegionTally]:
        """Return the counts of a version by intent."""
        sums = [sa.func.sum(getattr(Region, name)) for name in _COUNTED]
        wanted = sa.select(col(Region.intent), *sums).where(col(Region.version) == version).group_by(col(Region.intent))
        if since is not None:
            wanted = wanted.where(col(Region.day) >= since)
        with opened(self._url) as engine, engine.connect() as connection:
            return {intent: RegionTally(*counts) for intent, *counts in connection.execute(wanted)}

    def give_back(self, version: str, reasons: Mapping[str, str]) -> None:
        """Note that a version's student no longer answers these intents alone."""
        with opened(self._url) as engine, writer(engine).begin() as connection:
            insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(RegionGivenBack)
            now = datetime.now(UTC)
            for intent, reason in reasons.items():
                values = insert.values(version=version, intent=intent, reason=reason, given_back_at=now)
                connection.execute(values.on_conflict_do_nothing(index_elements=["version", "intent"]))

    def given_back(self, version: str) -> dict[str, str]:
        """Return what a version's student no longer answers alone, and why."""
        wanted = sa.select(col(RegionGivenBack.intent), col(RegionGivenBack.reason)).where(col(RegionGivenBack.version) == version)
        with opened(self._url) as engine, engine.connect() as connection:
            return {intent: reason for intent, reason in connection.execute(wanted)}

    def take_again(self, version: str, intents: Iterable[str]) -> int:
        """Let a version's student answer intents alone again; return how many it had given back.

        What audits found of them before counts no more: it would give them back again at once.
        """
        names = list(intents)
        gone = sa.delete(RegionGivenBack).where(col(RegionGivenBack.version) == version, col(RegionGivenBack.intent).in_(names))
        anew = sa.update(Region).where(col(Region.version) == version, col(Region.intent).in_(names)).values(audited=0, agreed=0, failed=0)
        with opened(self._url) as engine, writer(engine).begin() as connection:
            taken = connection.execute(gone).rowcount
            if taken:
                connection.execute(anew)
            return taken
