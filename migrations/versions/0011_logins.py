"""Browsers that people have signed in with a key."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "logins",
        sa.Column("id", ID, primary_key=True),
        sa.Column("hash", sa.LargeBinary(), nullable=False, unique=True),
        sa.Column("key_id", ID, sa.ForeignKey("api_keys.id"), nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column(
            "created_at", INSTANT, server_default=sa.text("clock_timestamp()"), nullable=False
        ),
    )
    op.create_index("logins_expires_at_idx", "logins", ["expires_at"])
    op.create_index("logins_key_id_id_idx", "logins", ["key_id", "id"])


def downgrade() -> None:
    op.drop_table("logins")
