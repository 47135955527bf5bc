"""A page of what lives, or of one state, is found without what has ended."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LIVES = sa.text("ended_at IS NULL")


def upgrade() -> None:
    op.create_index(
        "sandboxes_living_idx", "sandboxes", ["tenant_id", "id"], postgresql_where=LIVES
    )
    op.create_index("sandboxes_tenant_id_state_id_idx", "sandboxes", ["tenant_id", "state", "id"])
    op.drop_index("sandboxes_tenant_id_state_idx", "sandboxes")


def downgrade() -> None:
    op.create_index(
        "sandboxes_tenant_id_state_idx", "sandboxes", ["tenant_id", "state"], postgresql_where=LIVES
    )
    op.drop_index("sandboxes_tenant_id_state_id_idx", "sandboxes")
    op.drop_index("sandboxes_living_idx", "sandboxes")
