"""What Alembic runs: it works on the connection that `upgrade` holds, inside its transaction."""

from alembic import context
from sqlmodel import SQLModel

from service.adapters import sql_tables

__all__ = ["sql_tables"]

context.configure(connection=context.config.attributes["connection"], target_metadata=SQLModel.metadata)
with context.begin_transaction():
    context.run_migrations()
