"""What the student answers alone is counted by intent and day, and what it gave back is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COUNTS = ("local", "asked", "audited", "agreed", "failed", "priced")
SUMS = ("seconds", "usd")


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "region",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("intent", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in COUNTS),
        *(sa.Column(name, sa.Float(), nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint("version", "intent", "day"),
    )
    op.create_table(
        "region_given_back",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("intent", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("given_back_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("version", "intent"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("region_given_back")
    op.drop_table("region")
