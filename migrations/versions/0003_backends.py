"""What the comparison of records with their provider's truth keeps."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("backends", sa.Column("failing_since", INSTANT))
    op.add_column(
        "backends",
        sa.Column("strangers", sa.Integer(), server_default=sa.text("0"), nullable=False),
    )


def downgrade() -> None:
    for column in ("strangers", "failing_since"):
        op.drop_column("backends", column)
