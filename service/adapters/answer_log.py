"""What agents answered, as it was stored, for offline jobs. Blocking."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlmodel import col

from service.adapters.sql_engine import normalise, opened
from service.adapters.sql_tables import Decision
from service.contracts.decision import Action
from service.contracts.output import OrchestratorOutput

AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """A request and what came of it; `tenant`, `session_id` and `user_id` say whose it was."""

    tenant: str
    session_id: str
    user_id: str
    query: str
    output: OrchestratorOutput


class AnswerLog:
    """The stored answers, in the application's database.

    Args:
        url: the address of `POINTSMAN_DATABASE_URL`.
    """

    def __init__(self, url: str) -> None:
        self._url = normalise(url)

    def latest(self, most: int, *, since: datetime | None = None) -> Iterator[LoggedAnswer]:
        """Yield the latest requests that were sent to agents, the newest first; what is not an answer of this version is left out.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        columns = (Decision.tenant, Decision.session_id, Decision.user_id, Decision.request, Decision.output)
        wanted = sa.select(*(col(one) for one in columns)).where(col(Decision.action) == Action.DISPATCH.value)
        if since is not None:
            wanted = wanted.where(col(Decision.committed_at) >= since)
        wanted = wanted.order_by(col(Decision.committed_at).desc()).limit(most)
        with opened(self._url) as engine, engine.connect() as connection:
            for part in connection.execution_options(yield_per=AT_ONCE).execute(wanted).partitions():
                for tenant, session_id, user_id, request, output in part:
                    try:
                        query = str(request["parsed_query"]["raw_query"])
                        answer = LoggedAnswer(tenant, session_id, user_id, query, OrchestratorOutput.model_validate(output))
                    except (KeyError, TypeError, ValueError):
                        continue
                    yield answer
