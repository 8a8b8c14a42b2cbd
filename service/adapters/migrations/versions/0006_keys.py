"""API keys, and how many questions were asked with each in a day."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("rate_per_minute", sa.Integer(), nullable=True),
        sa.Column("quota_per_day", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
        sa.UniqueConstraint("digest", name="uq_api_key_digest"),
    )
    op.create_table(
        "key_usage",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("questions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("day", "key_id"),
    )


def downgrade() -> None:
    """Drop them, and with them the keys."""
    op.drop_table("key_usage")
    op.drop_table("api_key")
