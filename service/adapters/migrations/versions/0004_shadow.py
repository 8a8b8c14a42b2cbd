"""What candidates read in the shadow is counted, and a signal says what else might have been chosen."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add table and column."""
    op.add_column("signal", sa.Column("alternative", sa.String(), nullable=True))
    op.create_table(
        "shadow",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("differing", sa.Integer(), nullable=False),
        sa.Column("failing", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("version"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("shadow")
    op.drop_column("signal", "alternative")
