"""The tables decision and signal."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make both tables."""
    op.create_table("decision", *_decision_columns())
    op.create_index("ix_decision_committed_at", "decision", ["committed_at"])
    op.create_table("signal", *_signal_columns())


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("signal")
    op.drop_index("ix_decision_committed_at", "decision")
    op.drop_table("decision")


def _decision_columns() -> list[SchemaItem]:
    return [
        sa.Column("decision_id", sa.String(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("query_id", "tenant", "catalog_hash", "request_hash")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("router_version", "rung", "policy", "action")),
        *(sa.Column(name, sa.String(), nullable=True) for name in ("intent", "primary_agent", "flow")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("propensity", "confidence", "oos_score")),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("session_id", "user_id")),
        *(sa.Column(name, sa.JSON(), nullable=False) for name in ("route", "request", "stages", "output")),
        sa.UniqueConstraint("tenant", "query_id", name="uq_decision_tenant_query_id"),
    ]


def _signal_columns() -> list[SchemaItem]:
    return [
        sa.Column("signal_id", sa.String(), primary_key=True),
        sa.Column("decision_id", sa.String(), sa.ForeignKey("decision.decision_id"), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("session_id", "query", "query_pattern")),
        sa.Column("intent", sa.String(), nullable=False),
        *(sa.Column(name, sa.JSON(), nullable=False) for name in ("entities_extracted", "agents_selected")),
        sa.Column("routing_confidence", sa.Float(), nullable=False),
        sa.Column("routing_rationale", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("agents_succeeded", "agents_failed")),
        *(sa.Column(name, sa.Float(), nullable=True) for name in ("total_latency_ms", "user_satisfaction", "answer_quality")),
        sa.Column("was_rerouted", sa.Boolean(), nullable=True),
        sa.Column("agents_unavailable", sa.Integer(), nullable=False),
        sa.Column("latency_budget_ms", sa.Integer(), nullable=True),
        sa.Column("corrected_agent", sa.Text(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("decision_id", name="uq_signal_decision_id"),
    ]
