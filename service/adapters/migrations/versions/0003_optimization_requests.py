"""Requests to make a signature better, the signals that come with them, and leases for jobs that only one may do at a time."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table("optimization", *_optimization_columns())
    op.create_index("ix_optimization_status", "optimization", ["status"])
    op.create_table(
        "received_signal",
        sa.Column("tenant", sa.String(), primary_key=True),
        sa.Column("signal_id", sa.String(), primary_key=True),
        sa.Column("request_id", sa.String(), sa.ForeignKey("optimization.request_id"), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signal", sa.JSON(), nullable=False),
    )
    op.create_table(
        "job_lease",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("taken_at", "expires_at")),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("job_lease")
    op.drop_table("received_signal")
    op.drop_index("ix_optimization_status", "optimization")
    op.drop_table("optimization")


def _optimization_columns() -> list[SchemaItem]:
    return [
        sa.Column("request_id", sa.String(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("tenant", "agent_name", "signature_name")),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("asked", "signals", "signals_left_out")),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        *(sa.Column(name, sa.String(), nullable=True) for name in ("lease", "router_version", "ruling")),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
    ]
