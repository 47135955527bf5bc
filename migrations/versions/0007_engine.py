"""Which engine the sandboxes of `local` are at is known, so that no other is taken for it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installation", sa.Column("engine", sa.Text()))


def downgrade() -> None:
    op.drop_column("installation", "engine")
