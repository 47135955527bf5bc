"""Who waits to start and who waits to resume are each found in order."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def index_queue(*columns: str) -> None:
    op.drop_index("sandboxes_queue_idx", "sandboxes")
    op.create_index(
        "sandboxes_queue_idx",
        "sandboxes",
        [*columns, sa.literal_column("priority DESC"), "queued_at", "id"],
        postgresql_where=sa.text("target = 'running' AND state IN ('queued', 'paused')"),
    )


def upgrade() -> None:
    index_queue("tenant_id", "state")


def downgrade() -> None:
    index_queue("tenant_id")
