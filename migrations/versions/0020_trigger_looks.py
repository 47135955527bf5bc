"""Looks for labels and mentions whose webhooks were lost."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column(
        "repositories",
        sa.Column("trigger_looks", JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )
    op.execute(
        "INSERT INTO jobs (kind, subject, run_at) SELECT 'trigger-look', id, clock_timestamp() FROM repositories "
        "WHERE removed_at IS NULL AND settings ? 'triggers'"
    )


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'trigger-look'")
    op.drop_column("repositories", "trigger_looks")
