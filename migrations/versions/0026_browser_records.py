"""Logs and recordings of browser sessions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    op.add_column(
        "browser_sessions",
        sa.Column("pages", JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )
    op.add_column("browser_sessions", sa.Column("recorder_id", ID))
    op.add_column("browser_sessions", sa.Column("recorder_until", INSTANT))
    op.create_table(
        "browser_records",
        sa.Column("id", ID, nullable=False),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("page", sa.Integer()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "kind IN ('messages', 'entries', 'frames')", name=op.f("browser_records_kind_check")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["browser_sessions.id"],
            name=op.f("browser_records_session_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_records_pkey")),
    )
    op.create_index(
        op.f("browser_records_session_id_kind_id_idx"),
        "browser_records",
        ["session_id", "kind", "id"],
    )


def downgrade() -> None:
    op.drop_table("browser_records")
    for column in ("recorder_until", "recorder_id", "pages"):
        op.drop_column("browser_sessions", column)
