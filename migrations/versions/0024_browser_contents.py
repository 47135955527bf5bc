"""Contexts and extensions of browsers, and what is kept of their sessions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0024"
down_revision = "0023"

ID = sa.Text(collation="C")
INSTANT = sa.DateTime(timezone=True)
NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    op.add_column("browser_sessions", sa.Column("driven_at", INSTANT))
    op.add_column("browser_sessions", sa.Column("finished_at", INSTANT))
    op.add_column("browser_sessions", sa.Column("context_id", ID))
    op.add_column(
        "browser_sessions",
        sa.Column("context_persist", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.add_column(
        "browser_sessions",
        sa.Column("downloads", JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )
    op.create_index(
        op.f("browser_sessions_context_id_idx"),
        "browser_sessions",
        ["context_id"],
        unique=True,
        postgresql_where=sa.text("context_persist AND finished_at IS NULL"),
    )
    op.create_table(
        "browser_contexts",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("updated_at", INSTANT, server_default=NOW, nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("browser_contexts_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_contexts_pkey")),
    )
    op.create_index(
        op.f("browser_contexts_tenant_id_id_idx"), "browser_contexts", ["tenant_id", "id"]
    )
    op.create_table(
        "browser_extensions",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("browser_extensions_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_extensions_pkey")),
    )
    op.create_index(
        op.f("browser_extensions_tenant_id_id_idx"), "browser_extensions", ["tenant_id", "id"]
    )
    op.create_table(
        "browser_file_parts",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("content_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", INSTANT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("browser_file_parts_pkey")),
        sa.UniqueConstraint("owner_id", "part", name=op.f("browser_file_parts_owner_id_part_key")),
    )


def downgrade() -> None:
    op.drop_table("browser_file_parts")
    op.drop_table("browser_extensions")
    op.drop_table("browser_contexts")
    op.drop_index("browser_sessions_context_id_idx", "browser_sessions")
    for column in ("downloads", "context_persist", "context_id", "finished_at", "driven_at"):
        op.drop_column("browser_sessions", column)
