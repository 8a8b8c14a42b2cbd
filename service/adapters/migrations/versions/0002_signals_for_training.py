"""A signal says all that training needs: whose it is, when it came, and who chose with which probability."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

COPIED = ("tenant", "user_id", "router_version", "rung", "propensity")


def upgrade() -> None:
    """Add the columns, and fill those of the rows that are there from their decisions."""
    for column in _columns():
        op.add_column("signal", column)
    found = (f"{name} = (SELECT d.{name} FROM decision d WHERE d.decision_id = signal.decision_id)" for name in COPIED)
    when = "created_at = (SELECT d.committed_at FROM decision d WHERE d.decision_id = signal.decision_id)"
    op.execute(f"UPDATE signal SET {', '.join((*found, when))}")
    op.create_index("ix_signal_created_at", "signal", ["created_at"])


def downgrade() -> None:
    """Drop the columns."""
    op.drop_index("ix_signal_created_at", "signal")
    for column in _columns():
        op.drop_column("signal", column.name)


def _columns() -> list[sa.Column[object]]:
    epoch = "1970-01-01 00:00:00"
    return [
        sa.Column("tenant", sa.String(), nullable=False, server_default=""),
        sa.Column("user_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=epoch),
        sa.Column("router_version", sa.String(), nullable=False, server_default=""),
        sa.Column("rung", sa.String(), nullable=True),
        sa.Column("propensity", sa.Float(), nullable=False, server_default="1"),
        sa.Column("asked", sa.Text(), nullable=True),
        sa.Column("from_history", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("caller_intent", sa.Text(), nullable=True),
        sa.Column("further_intents", sa.JSON(), nullable=False, server_default="[]"),
    ]
