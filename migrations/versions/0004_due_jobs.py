"""The index of what is due has nothing in it that will never be."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def index_due(where: str) -> None:
    op.drop_index("jobs_run_at_id_idx", "jobs")
    op.create_index("jobs_run_at_id_idx", "jobs", ["run_at", "id"], postgresql_where=sa.text(where))


def upgrade() -> None:
    op.execute("UPDATE jobs SET run_at = NULL WHERE dead_at IS NOT NULL")
    index_due("run_at IS NOT NULL")


def downgrade() -> None:
    index_due("dead_at IS NULL")
