"""Browser sessions, and the drivers that are connected to them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")
EMPTY = sa.text("'{}'")


def upgrade() -> None:
    op.create_table(
        "browser_sessions",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("key_id", ID, nullable=False),
        sa.Column("sandbox_id", ID, nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("keep_alive", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("timeout", sa.Interval(), nullable=False),
        sa.Column("metadata", JSONB(), server_default=EMPTY, nullable=False),
        sa.Column("settings", JSONB(), server_default=EMPTY, nullable=False),
        *(
            sa.Column(name, INSTANT)
            for name in ("connect_by", "expires_at", "left_at", "started_at", "ended_at")
        ),
        sa.Column("updated_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("proxy_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'error', 'timed_out', 'completed')",
            name=op.f("browser_sessions_state_check"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('completed', 'error', 'timed_out'))",
            name=op.f("browser_sessions_ended_at_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("browser_sessions_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_sessions_pkey")),
    )
    op.create_index(
        op.f("browser_sessions_tenant_id_id_idx"), "browser_sessions", ["tenant_id", "id"]
    )
    op.create_index(
        op.f("browser_sessions_sandbox_id_idx"), "browser_sessions", ["sandbox_id"], unique=True
    )
    op.create_index(
        op.f("browser_sessions_ended_at_idx"),
        "browser_sessions",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_table(
        "browser_drivers",
        sa.Column("id", ID, nullable=False),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("until", INSTANT, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["browser_sessions.id"],
            name=op.f("browser_drivers_session_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_drivers_pkey")),
    )
    op.create_index(op.f("browser_drivers_session_id_idx"), "browser_drivers", ["session_id"])


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'browser-session'")
    op.drop_table("browser_drivers")
    op.drop_table("browser_sessions")
