"""Whether a credential may push is unknown where the forge does not tell."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.alter_column("repositories", "may_push", nullable=True, server_default=None)
    op.execute(
        "UPDATE repositories SET may_push = NULL FROM forges "
        "WHERE forges.id = repositories.forge_id AND forges.api_url IS NULL"
    )


def downgrade() -> None:
    op.execute("UPDATE repositories SET may_push = false WHERE may_push IS NULL")
    op.alter_column("repositories", "may_push", nullable=False, server_default=sa.text("false"))
